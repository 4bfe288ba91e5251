package tasks_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// Redis with an evicting policy loses keys once its memory is full: workers and senders refuse it.
func TestEvictingRedisIsRefused(t *testing.T) {
	t.Parallel()
	for policy, refused := range map[string]bool{"allkeys-lru": true, "volatile-ttl": true, "noeviction": false} {
		rdb := redistest.Server(t, "maxmemory", "100mb", "maxmemory-policy", policy).Client()
		wantEvictionRefused(t, rdb, policy, refused)
	}
}

// Without a limit nothing is ever evicted.
func TestEvictingPolicyWithoutALimitIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t, "maxmemory-policy", "allkeys-lru").Client())
	wantValue(t, sent(t, w, ID.S(1)), 1)
}

// One master of a cluster is enough.
func TestEvictingMasterOfAClusterIsRefused(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	cluster := rdb.(*redis.ClusterClient)
	one := redis.NewClient(&redis.Options{Addr: cluster.Options().Addrs[0]})
	defer one.Close()
	set := func(limit, policy string) {
		t.Helper()
		ctx := context.WithoutCancel(t.Context())
		testutil.Ok(t, errors.Join(one.ConfigSet(ctx, "maxmemory", limit).Err(), one.ConfigSet(ctx, "maxmemory-policy", policy).Err()))
	}
	set("100mb", "allkeys-lru")
	defer set("0", "noeviction") // others get the cluster next
	wantEvictionRefused(t, rdb, "allkeys-lru", true)
}

func wantEvictionRefused(t *testing.T, rdb redis.UniversalClient, policy string, refused bool) {
	t.Helper()
	client := tasks.NewClient(rdb)
	defer client.Close()
	_, serr := ID.S(1).Send(t.Context(), client)
	worker, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{})
	testutil.Ok(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	if !refused {
		testutil.Eventually(t, "the worker is up", func() bool { return len(listed(t, client)) == 1 })
		stop()
	}
	for what, err := range map[string]error{"send": serr, "worker": <-ended} {
		if errors.Is(err, tasks.ErrEvicts) != refused {
			t.Errorf("%s with policy %s: got %v, want refused: %v", what, policy, err, refused)
		}
		if refused && (!strings.Contains(err.Error(), "noeviction") || !strings.Contains(err.Error(), policy)) {
			t.Errorf("%s: got %v, want an error with the remedy for %s", what, err, policy)
		}
	}
	stop()
}
