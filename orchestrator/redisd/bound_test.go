package redisd

import (
	"errors"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// Commands of a bounded context fail while Redis accepts connections but does not reply. Later commands of the same request are
// not sent. Other requests work as soon as Redis replies.
func TestBoundedCommandsTimeOut(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	c := testutil.Must(tasks.Connect(t.Context(), server.URL()))(t)
	defer c.Close()
	rdb := c.Redis()
	Bound(rdb)
	ctx := Bounded(t.Context())
	testutil.Ok(t, rdb.Set(ctx, "k", "v", 0).Err())
	server.Freeze()
	if err := rdb.Get(ctx, "k").Err(); !errors.Is(err, ErrSilent) {
		t.Errorf("got %v, want ErrSilent", err)
	}
	server.Thaw()
	if err := rdb.Get(ctx, "k").Err(); !errors.Is(err, ErrSilent) {
		t.Errorf("the next command: got %v, want ErrSilent", err)
	}
	pipe := rdb.TxPipeline()
	get := pipe.Get(ctx, "k")
	if _, err := pipe.Exec(ctx); !errors.Is(err, ErrSilent) || !errors.Is(get.Err(), ErrSilent) {
		t.Errorf("a pipeline: got %v and %v, want ErrSilent", err, get.Err())
	}
	if got, err := rdb.Get(Bounded(t.Context()), "k").Result(); err != nil || got != "v" {
		t.Errorf("another request: got %q, %v", got, err)
	}
}
