//go:build e2e && unix

package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// TestOnCluster runs a round on a Redis Cluster of three nodes and kills a worker during it.
func TestOnCluster(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := append(os.Environ(), "MUSTER_REDIS__URL="+redistest.ClusterURL(t), "MUSTER_REDIS__MODE=auto")
	r := muster(t, env, b.onceArgs("--setting", "workers.processes=2")...)
	r.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 30 && len(b.workers(t)) > 0 })
	kill9(t, b.workers(t)[0])
	r.wait(t, 0)
	s := r.summary(t)
	if s.Redis != "external" {
		t.Errorf("it ran on Redis %q, want external", s.Redis)
	}
	wantAll(t, b.World, s)
	b.wantFetchedOnce(t, concurrency)
	b.wantQuiet(t)
}

// shardKeys matches the keys of a shard of the engine.
var shardKeys = regexp.MustCompile(`^muster:\{\d+\}:`)

// slotKeys returns one key of each slot that the engine uses, by the master that has it.
func slotKeys(t *testing.T, masters []*redistest.Instance) map[string]*redistest.Instance {
	t.Helper()
	out := map[string]*redistest.Instance{}
	for _, m := range masters {
		keys := m.Client().Keys(t.Context(), "*").Val()
		for _, key := range keys {
			switch tag := shardKeys.FindString(key); {
			case tag != "":
				out[tag] = m
			case strings.HasPrefix(key, "muster:worker"), key == "muster:store":
				out[key] = m
			}
		}
	}
	return out
}

// TestResharding moves the slots of all shards, and of the keys of all workers, to other nodes of a Cluster while workflows run.
// No workflow is lost, and no task runs twice.
func TestResharding(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t)
	c, f := connectWorkers(t, cluster.URL())
	s := startStream(t, c, r, "stream", math.MaxInt, 20*time.Millisecond)
	pause(t.Context(), time.Second)
	moved, slots := 0, 0
	for range 2 {
		for key, from := range slotKeys(t, cluster.Masters) {
			to := cluster.Masters[(slices.Index(cluster.Masters, from)+1)%len(cluster.Masters)]
			keys, err := cluster.MoveSlot(t.Context(), key, from, to)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			moved, slots = moved+keys, slots+1
			pause(t.Context(), 100*time.Millisecond)
		}
	}
	counts, _ := s.finish(f, nil)
	t.Logf("moved %d slots with %d keys; %d workflows, %s, %d sends repeated", slots, moved, len(s.acked()), counts, s.repeats.Load())
}

// TestPlannedClusterFailover makes each replica of a Cluster the master, and then each old master again, while workflows run. No
// workflow is lost, and no task runs twice.
func TestPlannedClusterFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t)
	c, f := connectWorkers(t, cluster.URL())
	s := startStream(t, c, r, "stream", math.MaxInt, 20*time.Millisecond)
	pause(t.Context(), time.Second)
	for _, to := range slices.Concat(cluster.Replicas, cluster.Masters) {
		cluster.Failover(t, to)
		pause(t.Context(), time.Second)
	}
	counts, _ := s.finish(f, nil)
	t.Logf("%d workflows, %s, %d sends repeated", len(s.acked()), counts, s.repeats.Load())
}

// TestClusterFailover kills a master of a Cluster while workflows run. Writes that its replica does not have are lost: workflows that
// were sent just before the kill can be unknown, and their sender can send them again. All others finish as expected.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t)
	c, f := connectWorkers(t, cluster.URL())
	for _, w := range f.all {
		w.doomed = true // results of its last tasks can be lost
	}
	s := startStream(t, c, r, "stream", math.MaxInt, 20*time.Millisecond)
	pause(t.Context(), 3*time.Second)
	before := len(s.acked())
	for i, m := range cluster.Masters {
		waitCopied(t, m, cluster.Replicas[i])
	}
	cluster.Masters[0].Kill()
	killed := time.Now()
	testutil.Eventually(t, "the replica to be master", func() bool { return master(t, cluster.Replicas[0].Client()) })
	promoted := time.Now()
	after := len(s.acked())
	testutil.Eventually(t, "workflows were sent after the failover", func() bool { return len(s.acked()) > after+60 })
	counts, unknown := s.finish(f, func(i int, one sent) bool { return i >= before && one.began.Before(killed) })
	t.Logf("promoted after %s; %d workflows, %d of them before the kill, %d unknown; %s, %d sends repeated",
		promoted.Sub(killed).Round(10*time.Millisecond), len(s.acked()), before, unknown, counts, s.repeats.Load())
}

// waitCopied waits until a replica has all previous writes of its master.
func waitCopied(t *testing.T, m, replica *redistest.Instance) {
	t.Helper()
	offset := func(in *redistest.Instance, field string) (n int64) {
		_, text, _ := strings.Cut(in.Client().Info(t.Context(), "replication").Val(), field+":")
		fmt.Sscan(text, &n)
		return n
	}
	want := offset(m, "master_repl_offset")
	testutil.Eventually(t, "the replica to have every write", func() bool { return offset(replica, "slave_repl_offset") >= want })
}

// TestSlowClusterNode suspends each master of a Cluster while workflows run, for longer than workers wait for the heartbeat of others.
// Workflows in the shards of other masters finish meanwhile, no worker is taken for dead, and no task runs twice.
func TestSlowClusterNode(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t, "cluster-node-timeout", "60000")
	c, f := connectWorkers(t, cluster.URL())
	limit, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	var runs []*tasks.Run[int]
	for round, m := range cluster.Masters {
		flows := startStream(t, c, r, fmt.Sprint("slow-", round), 90, 0)
		flows.ended.Wait()
		m.Freeze()
		var ended atomic.Int64
		var waits sync.WaitGroup
		for _, one := range flows.acked() {
			runs = append(runs, one.run)
			waits.Go(func() {
				if err := one.wait(limit); err != nil {
					t.Error(err)
				}
				ended.Add(1)
			})
		}
		pause(t.Context(), freezeFor)
		if n := ended.Load(); n < 45 { // a third of the shards are suspended
			t.Errorf("got %d workflows that finished while master %d was suspended, want at least 45 of 90", n, round)
		}
		m.Thaw()
		waits.Wait()
	}
	t.Logf("%d workflows, %s", len(runs), f.audit(limit, c, runs))
}
