package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Events yields each workflow that ends once, in the order of the ends, while workers end others, and continues after a position.
func TestEventsOfWorkflows(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		const all = 300
		want := map[string]tasktype.WorkflowState{}
		sends := make([]tasks.Sending, all)
		for i := range sends {
			sends[i].Work, sends[i].Options = Double.S(i), []tasks.SendOption{tasks.ID(fmt.Sprint(i))}
			want[fmt.Sprint(i)] = tasktype.WorkflowSucceeded
			switch i % 10 {
			case 3:
				sends[i].Work, want[fmt.Sprint(i)] = Fail.S(1), tasktype.WorkflowFailed
			case 7:
				sends[i].Options, want[fmt.Sprint(i)] = append(sends[i].Options, tasks.In(time.Hour)), tasktype.WorkflowRevoked
			}
		}
		sent := make(chan error, 1)
		go func() {
			_, err := w.client.SendMany(ctx, sends)
			for i := 7; i < all; i += 10 {
				err = errors.Join(err, w.client.Workflow(fmt.Sprint(i)).Revoke(ctx))
			}
			sent <- err
		}()
		after, last, got := "", time.Time{}, map[string]tasktype.WorkflowState{}
		for len(got) < all {
			n := 0
			for e, err := range w.client.Events(ctx, after) {
				testutil.Ok(t, err)
				if _, twice := got[e.ID]; twice || e.Ended.Before(last) || e.State != want[e.ID] {
					t.Fatalf("got %+v after %s, want %s, once", e, last, want[e.ID])
				}
				got[e.ID], last, after = e.State, e.Ended, e.Position
				if n++; n == 40 || len(got) == all { // another reader continues
					break
				}
			}
		}
		testutil.Ok(t, <-sent)
		if more, _, gap, err := w.client.Inspect().Ended(ctx, after, 10); len(more) > 0 || gap || err != nil {
			t.Errorf("after the last: got %v, %t, %v", more, gap, err)
		}
	})
}

// A position whose successors the index does not keep any more is an error, and so is a text that is none.
func TestEventsThatAreGone(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		for part := range 11 {
			var members []redis.Z
			for i := range 1000 {
				members = append(members, redis.Z{Score: float64(1_700_000_000_000 + part*1000 + i), Member: fmt.Sprintf("%d-%d~ 1 t", part, i)})
			}
			testutil.Ok(t, rdb.ZAdd(t.Context(), "muster:{0}:done:S", members...).Err())
		}
		testutil.Ok(t, rdb.ZRemRangeByRank(t.Context(), "muster:{0}:done:S", 0, -10001).Err())
		for after, want := range map[string]error{"": nil, "1700000001000-0": nil, "1700000000998": tasks.ErrNotFound, "x": tasks.ErrCursor, "1-x": tasks.ErrCursor} {
			for e, err := range c.Events(t.Context(), after) {
				if !errors.Is(err, want) || err == nil && e.Ended.UnixMilli() < 1_700_000_001_000 {
					t.Errorf("%q: got %+v, %v, want %v", after, e, err, want)
				}
				break
			}
		}
	})
}
