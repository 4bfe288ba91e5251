package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
		var members []redis.Z
		for i := range 10 {
			members = append(members, redis.Z{Score: float64(1_700_000_001_000 + i), Member: fmt.Sprintf("%d~ 1 t", i)})
		}
		testutil.Ok(t, rdb.ZAdd(t.Context(), "muster:{0}:done:S", members...).Err())
		testutil.Ok(t, rdb.HSet(t.Context(), "muster:{0}:cut", "S", "1700000000999").Err())
		for after, want := range map[string]error{"": nil, "1700000001000-0": nil, "1700000000998": tasks.ErrNotFound, "x": tasks.ErrCursor, "1-x": tasks.ErrCursor} {
			for e, err := range c.Events(t.Context(), after) {
				if !errors.Is(err, want) || err == nil && e.Ended.UnixMilli() < 1_700_000_001_000 || errors.Is(err, tasks.ErrNotFound) && !strings.Contains(err.Error(), "oldest is 1700000001000-") {
					t.Errorf("%q: got %+v, %v, want %v", after, e, err, want)
				}
				break
			}
		}
	})
}

// A reader continues where another process has stopped, and gets workflows whose task no worker takes, once.
func TestReaderOfEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		next := func(want ...string) {
			t.Helper()
			var got []string
			testutil.Eventually(t, "the events", func() bool {
				events, missed, err := c.EventReader("r", "$").Next(t.Context(), 10)
				testutil.Ok(t, err)
				if missed > 0 {
					t.Fatalf("got %d missed, want none", missed)
				}
				got = got[:0]
				for _, e := range events {
					got = append(got, e.Type+" "+e.ID)
				}
				if len(got) >= len(want) && len(events) > 0 {
					testutil.Ok(t, c.EventReader("r", "$").Done(t.Context(), events[len(events)-1].Position))
				}
				return len(got) >= len(want)
			})
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		send := func(id string, opts ...tasks.SendOption) *tasks.Run[int] {
			return testutil.Must(Double.S(1).Send(t.Context(), c, append(opts, tasks.ID(id))...))(t)
		}
		testutil.Ok(t, send("before").Revoke(t.Context()))
		redistest.NextMillisecond(t, c.Redis())
		next() // it begins now
		if all, missed, err := c.EventReader("all", "").Next(t.Context(), 10); err != nil || missed > 0 || len(all) != 1 || all[0].ID != "before" {
			t.Errorf("a reader from the oldest: got %v, %d missed, %v", all, missed, err)
		}
		waiting := send("waiting")
		testutil.Ok(t, send("paused").Pause(t.Context()))
		send("later", tasks.In(time.Hour))
		testutil.Ok(t, c.Inspect().FindStuck(t.Context(), time.Hour))
		for range 2 {
			testutil.Ok(t, c.Inspect().FindStuck(t.Context(), 0))
		}
		next("workflow.stuck waiting")
		testutil.Ok(t, waiting.Revoke(t.Context()))
		next("workflow.revoked waiting")
		runWorker(t, c, tasks.NewMux(), tasks.WorkerConfig{Queues: map[string]int{"unserved": 1}})
		send("unhandled", tasks.Queue("unserved"))
		testutil.Eventually(t, "a task without a handler", func() bool {
			testutil.Ok(t, c.Inspect().FindStuck(t.Context(), 0))
			events, _, err := c.EventReader("r", "$").Next(t.Context(), 1)
			return err == nil && len(events) == 1
		})
		next("workflow.stuck unhandled")
		testutil.Ok(t, c.EventReader("r", "$").Delete(t.Context()))
		next()
	})
}
