package tasks_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
)

// leaving is a hook that calls leave before the nth exchange with Redis, whatever it is.
type leaving struct {
	left  atomic.Int32
	leave context.CancelFunc
}

func (l *leaving) one() {
	if l.left.Add(-1) == 0 {
		l.leave()
	}
}

// DialHook implements redis.Hook.
func (l *leaving) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.one()
		return next(ctx, network, addr)
	}
}

// ProcessHook implements redis.Hook.
func (l *leaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.one()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (l *leaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.one()
		return next(ctx, cmds)
	}
}

// A worker that is told to stop at any moment of its start stops as others do, and leaves no sign of life.
func TestStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	opts, err := redis.ParseURL(redistest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	for n, up := int32(1), false; !up; n++ {
		rdb := redis.NewClient(opts)
		defer func() { _ = rdb.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hook := &leaving{leave: cancel}
		hook.left.Store(n)
		rdb.AddHook(hook)
		client := tasks.NewClient(rdb)
		worker, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{
			Name: "brief", Ready: func() { up = ctx.Err() == nil; cancel() },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := worker.Run(ctx); err != nil {
			t.Fatalf("told to stop before exchange %d: %v", n, err)
		}
		if left, err := client.Workers(t.Context()); err != nil || len(left) > 0 {
			t.Fatalf("told to stop before exchange %d: it is still there: %v, %v", n, left, err)
		}
		_ = client.Close()
	}
}
