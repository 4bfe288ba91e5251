package taskstest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// Revoking a workflow or a node cancels the contexts of running handlers.
func TestRevokeCancelsHandlers(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(ctx context.Context, c *tasks.Client) error{
		"workflow": func(ctx context.Context, c *tasks.Client) error {
			return c.Revoke(context.WithoutCancel(ctx), tasks.InfoFrom(ctx).Workflow)
		},
		"node": func(ctx context.Context, c *tasks.Client) error {
			return c.RevokeNode(context.WithoutCancel(ctx), tasks.InfoFrom(ctx).Workflow, tasks.InfoFrom(ctx).Node)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := tasks.New[int, int]("w.waits", tasks.Timeout(time.Hour))
			f := taskstest.NewFunc(t, func(c *tasks.Client) *tasks.Mux {
				mux := tasks.NewMux()
				tasks.Handle(mux, task, func(ctx context.Context, n int) (int, error) {
					if err := revoke(ctx, c); err != nil {
						return 0, err
					}
					<-ctx.Done()
					return n, ctx.Err()
				})
				return mux
			})
			if _, err := taskstest.Do(f, task.S(1)); !errors.Is(err, tasks.ErrRevoked) {
				t.Errorf("got %v, want %v", err, tasks.ErrRevoked)
			}
		})
	}
}

// All blocking methods of the client run the tasks of the fleet and advance the clock for scheduled tasks, but do not
// run later tasks.
func TestBlockingMethodsRunTasks(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(ctx context.Context, c *tasks.Client) (int, error){
		"Do": func(ctx context.Context, c *tasks.Client) (int, error) {
			return tasks.Chain(inc.S(1, tasks.In(time.Hour)), inc).Do(ctx, c)
		},
		"WaitAll": func(ctx context.Context, c *tasks.Client) (int, error) {
			run, err := tasks.Chain(inc.S(1, tasks.In(time.Hour)), inc).Send(ctx, c)
			if err != nil {
				return 0, err
			}
			return 3, run.WaitAll(ctx)
		},
		"ValueOf": func(ctx context.Context, c *tasks.Client) (int, error) {
			part := inc.S(2, tasks.In(time.Hour))
			run, err := tasks.Chain(part, inc).Send(ctx, c)
			if err != nil {
				return 0, err
			}
			return tasks.ValueOf(ctx, run, part)
		},
		"AsCompleted": func(ctx context.Context, c *tasks.Client) (sum int, err error) {
			run, err := tasks.Each([]int{0, 1}, inc, tasks.In(time.Hour)).Send(ctx, c)
			if err != nil {
				return 0, err
			}
			for m, err := range tasks.AsCompleted(ctx, run) {
				if err != nil {
					return 0, err
				}
				sum += m.Value
			}
			return sum, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := taskstest.New(t, stories())
			begun := f.Now()
			later, err := inc.S(1, tasks.In(24*time.Hour)).Send(t.Context(), f.Client())
			testutil.Ok(t, err)
			if got, err := wait(t.Context(), f.Client()); err != nil || got != 3 {
				t.Errorf("got %d, %v, want 3", got, err)
			}
			if took := f.Now().Sub(begun); took != time.Hour {
				t.Errorf("the clock advanced by %s, want an hour", took)
			}
			if s, err := later.Status(t.Context()); err != nil || s != tasktype.Pending {
				t.Errorf("a later workflow is %s, %v, want %s", s, err, tasktype.Pending)
			}
		})
	}
}

// Waiting in a handler is an error, as on a real worker. A wait that no task can end returns when its context is
// done.
func TestWaitsThatCannotReturn(t *testing.T) {
	t.Parallel()
	ask := tasks.New[int, int]("w.ask", tasks.External(), tasks.Timeout(0))
	nested := tasks.New[int, int]("w.nested")
	f := taskstest.NewFunc(t, func(c *tasks.Client) *tasks.Mux {
		mux := stories()
		tasks.Handle(mux, nested, func(ctx context.Context, n int) (int, error) {
			_, err := inc.S(n).Do(ctx, c)
			return 0, err
		})
		return mux
	})
	var failure *tasks.Failure
	if _, err := nested.S(1).Do(t.Context(), f.Client()); !errors.As(err, &failure) || failure.Message != tasks.ErrWaitInTask.Error() {
		t.Errorf("in a handler: got %v, want %v", err, tasks.ErrWaitInTask)
	}
	run, err := tasks.Chain(ask.S(1), inc).Send(t.Context(), f.Client())
	testutil.Ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := run.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	done := make(chan error, 1)
	go func() {
		out, err := run.Wait(t.Context())
		if err == nil && out != 8 {
			err = errors.New("another value")
		}
		done <- err
	}()
	token, err := f.Client().NewToken(t.Context(), run.ID(), "0")
	testutil.Ok(t, err)
	testutil.Ok(t, f.Client().Complete(t.Context(), token, []byte("7")))
	if err := <-done; err != nil {
		t.Errorf("after the completion: %v", err)
	}
}

// A task whose worker dies is run by another worker, and its effects are counted once. A task that has killed more
// than ten workers fails.
func TestWorkersDie(t *testing.T) {
	t.Parallel()
	for deaths, want := range map[int]string{1: "", 3: "", 11: "lost"} {
		f := taskstest.New(t, stories(), taskstest.Dies(inc, deaths))
		out, err := taskstest.Do(f, tasks.Chord(tasks.Each([]int{1, 2, 3}, inc), sum))
		var failure *tasks.Failure
		switch {
		case want == "" && (err != nil || out != 9):
			t.Errorf("%d deaths: got %d, %v, want 9", deaths, out, err)
		case want != "" && (!errors.As(err, &failure) || failure.Code != want):
			t.Errorf("%d deaths: got %v, want a failure with the code %s", deaths, err, want)
		}
		workers := map[string]bool{}
		for _, c := range f.Calls("s.inc") {
			workers[c.Worker] = true
		}
		if want == "" && (len(f.Calls("s.inc")) != 3 || len(workers) == 0) {
			t.Errorf("%d deaths: got %d calls, want 3", deaths, len(f.Calls("s.inc")))
		}
	}
}

func TestFleetWithoutHandlers(t *testing.T) {
	t.Parallel()
	var failure *tasks.Failure
	if _, err := taskstest.Run(t, tasks.NewMux(), inc.S(1)); !errors.As(err, &failure) || !strings.Contains(failure.Message, "has no handlers") {
		t.Errorf("got %v, want a failure about missing handlers", err)
	}
}

// A rate per key is enforced by the clock of the fleet.
func TestRatePerKeyIsAdvancedByTheClock(t *testing.T) {
	t.Parallel()
	send := tasks.New[string, time.Time]("send", tasks.RatePerKey(2, time.Hour, func(to string) string { return to }))
	var f *taskstest.Fleet
	mux := tasks.NewMux()
	tasks.Handle(mux, send, func(context.Context, string) (time.Time, error) { return f.Now(), nil })
	f = taskstest.New(t, mux)
	began := f.Now()
	at, err := taskstest.Do(f, tasks.Each([]string{"a", "a", "a", "a", "b"}, send))
	testutil.Ok(t, err)
	var after []int
	for _, then := range at {
		after = append(after, int(then.Sub(began).Round(time.Minute).Minutes()))
	}
	if want := []int{0, 0, 30, 60, 0}; !slices.Equal(after, want) {
		t.Errorf("minutes after the send: got %v, want %v", after, want)
	}
}

// A task that waits for a limit runs although Redis has lost the limit.
func TestLostLimitKeepsNoTaskWaiting(t *testing.T) {
	t.Parallel()
	send := tasks.New[string, string]("send", tasks.RatePerKey(1, time.Hour, func(to string) string { return to }))
	mux := tasks.NewMux()
	tasks.Handle(mux, send, func(_ context.Context, to string) (string, error) { return to, nil })
	f := taskstest.New(t, mux)
	run, err := tasks.Each([]string{"a", "a", "a"}, send).Send(t.Context(), f.Client())
	testutil.Ok(t, err)
	f.Advance(time.Second)
	rdb := f.Client().Redis()
	for _, key := range rdb.Keys(t.Context(), "muster:{0}:limit:*").Val() {
		if !strings.Contains(key, ":rate:") {
			rdb.Del(t.Context(), key)
		}
	}
	for _, entry := range rdb.ZRange(t.Context(), "muster:{0}:agenda", 0, -1).Val() {
		if strings.HasPrefix(entry, "!limit/") {
			rdb.ZRem(t.Context(), "muster:{0}:agenda", entry)
		}
	}
	f.Drain()
	if got, err := run.Wait(t.Context()); err != nil || len(got) != 3 {
		t.Fatalf("got %v, %v", got, err)
	}
}
