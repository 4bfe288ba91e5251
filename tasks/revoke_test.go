package tasks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// Revoke needs no worker: what waits and what is scheduled has ended when it returns.
func TestRevokeWithoutAWorker(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := tasks.NewClient(rdb)
		t.Cleanup(func() { client.Close() })
		ctx := limited(t)
		run, err := tasks.Chord(tasks.Group(ID.S(1), ID.S(2, tasks.In(time.Hour)), ID.S(3, tasks.Queue("other"))), Sum).Send(ctx, client)
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Revoke(ctx); err != nil {
			t.Fatal(err)
		}
		_, err = run.Wait(ctx)
		var failure *tasks.Failure
		if !errors.As(err, &failure) || failure.Code != tasktype.CodeRevoked {
			t.Errorf("got %v", err)
		}
		p, err := run.Progress(ctx)
		if err != nil || !p.Ended || p.Status != tasktype.Revoked || p.Done != p.Total {
			t.Errorf("got %+v, %v", p, err)
		}
		if due, err := client.Due(ctx, 10); err != nil || len(due) != 0 {
			t.Errorf("left on the agenda: %+v, %v", due, err)
		}
	})
}
