package tasks_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A client has a pool of connections, and replaces connections that a restart of Redis has broken.
func TestClientHasAPoolThatOutlastsARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, err := tasks.Connect(t.Context(), server.URL())
	testutil.Ok(t, err)
	defer client.Close()
	rdb := client.Redis()
	one, ok := rdb.(*redis.Client)
	if !ok || one.Options().PoolSize < 32 {
		t.Fatalf("got %T, want a client with a pool of at least 32 connections", rdb)
	}
	ping := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return rdb.Ping(ctx).Err()
	}
	server.Kill()
	if err := ping(); err == nil {
		t.Error("without Redis: got no error")
	}
	server.Start()
	testutil.Eventually(t, "the connections are replaced", func() bool { return ping() == nil })
}
