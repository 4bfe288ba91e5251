package proxies

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks/redistest"
)

// After a fault at any call, repeating the failed operation succeeds and leaves the pool consistent.
func TestPoolSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 4, redistest.ReplyLost: 4, redistest.Repeated: 4,
	}, poolWithFault)
}

func poolWithFault(t *testing.T, f *redistest.Fault) {
	ctx, url := t.Context(), redistest.URL(t)
	pool := newPool(t, f.Client(t, url), nil)
	f.Arm()
	again := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		var err error
		testutil.Eventually(t, what, func() bool {
			err = call(ctx)
			return !errors.Is(err, redistest.ErrFault)
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	gone, kept := proxyOf(result(3, nil)).ID, proxyOf(result(2, nil)).ID
	again("publish", func(ctx context.Context) error {
		_, err := publish(ctx, pool, result(1, nil), result(2, nil), result(3, nil))
		return err
	})
	again("remove", func(ctx context.Context) error { _, err := pool.Remove(ctx, gone); return err })
	again("ban", func(ctx context.Context) error { return pool.Ban(ctx, "shop", time.Hour, kept) })
	again("use", func(ctx context.Context) error {
		l, err := pool.Pick(ctx, PickOptions{Site: "shop"})
		if err == nil {
			l.Report(Succeeded, time.Millisecond)
		}
		return err
	})
	again("store the reports", pool.Flush)
	f.Release()

	other := newPool(t, redistest.NewFault(redistest.Refused, 0).Client(t, url), nil)
	all, err := other.List(ctx, Everything)
	if err != nil || len(all) != 2 || all[0].ID == gone || all[1].ID == gone {
		t.Fatalf("got %v, %v, want the two proxies that stay", all, err)
	}
	for range 5 {
		l, err := other.Pick(ctx, PickOptions{Site: "shop"})
		testutil.Ok(t, err)
		if l.Proxy.ID == kept {
			t.Error("picked the banned proxy")
		}
		l.Report(Succeeded, time.Millisecond)
	}
}
