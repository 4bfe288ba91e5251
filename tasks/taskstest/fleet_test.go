package taskstest_test

import (
	"context"
	"encoding/json"
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

func TestClockJumps(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, stories(), taskstest.Fails(inc, errors.New("down")))
	begun, real := f.Now(), time.Now()
	_, err := taskstest.Do(f, tasks.Chain(flaky.S(1, tasks.In(24*time.Hour)), inc, tasks.MaxRetry(4), tasks.Backoff(time.Minute, time.Hour)))
	var failure *tasks.Failure
	if !errors.As(err, &failure) || failure.Attempts != 5 {
		t.Errorf("%v, expected the failure of the fifth attempt", err)
	}
	var at []time.Duration
	for _, c := range f.Calls("s.inc") {
		at = append(at, c.At.Sub(begun).Round(time.Minute)-24*time.Hour)
	}
	if want := []time.Duration{0, time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute}; !slices.Equal(at, want) {
		t.Errorf("attempts after %v, expected %v", at, want)
	}
	if took := time.Since(real); took > 20*time.Second {
		t.Errorf("a day took %s", took)
	}
}

func TestAdvanceRunsDueTasks(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, stories())
	begun := f.Now()
	for i, d := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
		testutil.Must(inc.S(i).Send(t.Context(), f.Client(), tasks.In(d)))(t)
	}
	inputs := func() []int {
		var out []int
		for _, c := range f.Calls() {
			var in int
			testutil.Ok(t, json.Unmarshal(c.Input, &in))
			out = append(out, in)
		}
		return out
	}
	for _, step := range []struct {
		by   time.Duration
		want []int
	}{{30 * time.Minute, nil}, {30 * time.Minute, []int{1}}, {61 * time.Minute, []int{1, 2}}} {
		if f.Advance(step.by); !slices.Equal(inputs(), step.want) {
			t.Errorf("after %s more: %v ran, expected %v", step.by, inputs(), step.want)
		}
	}
	if got := f.Now().Sub(begun); got != 121*time.Minute {
		t.Errorf("got clock at %s", got)
	}
	if f.Drain(); !slices.Equal(inputs(), []int{1, 2, 0}) {
		t.Errorf("after Drain: %v", inputs())
	}
	if got := f.Now().Sub(begun); got != 3*time.Hour {
		t.Errorf("got clock at %s after all tasks ran", got)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, stories(),
		taskstest.Stub(count, func(context.Context, int) ([]int, error) { return []int{4, 5}, nil }),
		taskstest.Stub(absent, func(_ context.Context, n int) (int, error) { return 10 * n, nil }))
	out, err := taskstest.Do(f, tasks.Chain(tasks.Chain(tasks.Chord(tasks.Map(count.S(99), inc), sum), absent), flaky))
	if err != nil || out != 110 {
		t.Errorf("%d %v, expected 110", out, err)
	}
	if got, want := taskstest.Names(f.Calls()), []string{"s.count", "s.inc", "s.inc", "s.sum", "s.absent", "s.flaky", "s.flaky", "s.flaky"}; !slices.Equal(got, want) {
		t.Errorf("ran %v, expected %v", got, want)
	}
	tries := f.Calls("s.flaky")
	if len(tries) != 3 || tries[0].Attempt != 1 || tries[0].Err == nil || tries[2].Attempt != 3 || tries[2].Err != nil || string(tries[2].Output) != "110" {
		t.Errorf("tries: %+v", tries)
	}
}

func TestHandlersMaySendWork(t *testing.T) {
	t.Parallel()
	var f *taskstest.Fleet
	start := tasks.New[int, string]("start", tasks.Queue("other"))
	mux := stories()
	tasks.Handle(mux, start, func(ctx context.Context, n int) (string, error) {
		run, err := tasks.Chain(inc.S(n), inc, tasks.Queue("third")).Send(ctx, f.Client())
		if err != nil {
			return "", err
		}
		return run.ID(), nil
	})
	f = taskstest.New(t, mux)
	id := testutil.Must(taskstest.Do(f, start.S(1)))(t)
	f.Drain()
	if out, err := tasks.Attach[int](f.Client(), id).Wait(t.Context()); err != nil || out != 3 {
		t.Errorf("%d %v, expected 3", out, err)
	}
}

func TestResultsExpireByFleetClock(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, stories())
	testutil.Must(taskstest.Do(f, inc.S(1), tasks.ID("short"), tasks.Retention(time.Minute), tasks.ProgressKeys("p")))(t)
	run := tasks.Attach[int](f.Client(), "short")
	if s, err := run.Status(t.Context()); err != nil || s != tasktype.Success {
		t.Errorf("%s %v", s, err)
	}
	f.Advance(2 * time.Minute)
	if _, err := tasks.NewClient(f.Client().Redis()).Workflow("short").Status(t.Context()); !errors.Is(err, tasks.ErrNotFound) {
		t.Errorf("after its retention: %v", err)
	}
}

// A failed workflow does not fail the test; an endless workflow does.
func TestEndlessWorkFailsTest(t *testing.T) {
	t.Parallel()
	again := tasks.New[int, int]("again")
	mux := tasks.NewMux()
	tasks.Handle(mux, again, func(context.Context, int) (int, error) { return 0, tasks.Again(365 * 24 * time.Hour) })
	tb := &fatal{TB: t, said: make(chan string, 1)}
	go func() {
		_, _ = taskstest.Do(taskstest.New(tb, mux), again.S(1))
		tb.said <- "nothing"
	}()
	if got := <-tb.said; got == "nothing" {
		t.Error("got no failure for an endless task")
	}
}

// fatal is a testing.TB that records a failure.
type fatal struct {
	testing.TB
	said chan string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.said <- format
	select {}
}

// Revoking a workflow or a node cancels the contexts of running handlers.
func TestRevokeCancelsHandlers(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(ctx context.Context, c *tasks.Client) error{
		"workflow": func(ctx context.Context, c *tasks.Client) error {
			return c.Workflow(tasks.InfoFrom(ctx).Workflow).Revoke(context.WithoutCancel(ctx))
		},
		"node": func(ctx context.Context, c *tasks.Client) error {
			return c.Workflow(tasks.InfoFrom(ctx).Workflow).RevokeNode(context.WithoutCancel(ctx), tasks.InfoFrom(ctx).Node)
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
			later := testutil.Must(inc.S(1, tasks.In(24*time.Hour)).Send(t.Context(), f.Client()))(t)
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
	run := testutil.Must(tasks.Chain(ask.S(1), inc).Send(t.Context(), f.Client()))(t)
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
	token := testutil.Must(run.NewToken(t.Context(), "0"))(t)
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
	if _, err := taskstest.Run(t, stories(), absent.S(1)); !errors.As(err, &failure) || failure.Code != tasktype.CodeUnregistered {
		t.Errorf("got %v, want a failure with the code %s", err, tasktype.CodeUnregistered)
	}
}

// A rate is enforced by the clock of the fleet. A task that another limit refuses takes no token of its key.
func TestRateIsAdvancedByTheClock(t *testing.T) {
	t.Parallel()
	perKey := tasks.Limited(tasks.Rate("key", 2, time.Hour), func(to string) string { return to })
	for name, test := range map[string]struct {
		send tasks.Task[string, time.Time]
		to   []string
		want []int // minutes after the send
	}{
		"alone":       {tasks.New[string, time.Time]("send", perKey), []string{"a", "a", "a", "a", "b"}, []int{0, 0, 60, 60, 0}},
		"with a rate": {tasks.New[string, time.Time]("send", perKey, tasks.Limited[string](tasks.Rate("all", 1, 10*time.Minute), nil)), []string{"a", "b", "b"}, []int{0, 10, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *taskstest.Fleet
			mux := tasks.NewMux()
			tasks.Handle(mux, test.send, func(context.Context, string) (time.Time, error) { return f.Now(), nil })
			f = taskstest.New(t, mux)
			began := f.Now()
			at := testutil.Must(taskstest.Do(f, tasks.Each(test.to, test.send)))(t)
			var after []int
			for _, then := range at {
				after = append(after, int(then.Sub(began).Round(time.Minute).Minutes()))
			}
			slices.Sort(after)
			slices.Sort(test.want)
			if !slices.Equal(after, test.want) {
				t.Errorf("minutes after the send: got %v, want %v", after, test.want)
			}
		})
	}
}

// Nodes of a batch run together once the clock has jumped by its Wait, and each is a call. A worker that dies in a batch calls no handler.
func TestBatch(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]taskstest.Option{"plain": nil, "dies": {taskstest.Dies(inc, 1)}} {
		var sizes []int
		mux := tasks.NewMux()
		tasks.HandleBatch(mux, inc, tasks.Batch[int]{Size: 3, Wait: time.Minute}, func(ctx context.Context, ns []int) []tasks.Outcome[int] {
			sizes = append(sizes, len(ns))
			out := make([]tasks.Outcome[int], len(ns))
			for i, ctx := range tasks.NodeContexts(ctx) {
				out[i].Value, _ = tasks.Step(ctx, "add", func(context.Context) (int, error) { return ns[i] + 1, nil })
			}
			return out
		})
		f := taskstest.New(t, mux, opts...)
		began := f.Now()
		got, err := taskstest.Do(f, tasks.Each([]int{0, 1, 2, 3, 4}, inc))
		if err != nil || !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
			t.Fatalf("%s: got %v, %v", name, got, err)
		}
		if calls := f.Calls(inc.Name()); !slices.Equal(sizes, []int{3, 2}) || len(calls) != 5 || !slices.Equal(calls[4].Steps, []string{"add"}) {
			t.Errorf("%s: got batches of %v and the calls %+v", name, sizes, calls)
		}
		if took := f.Now().Sub(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("%s: took %s, want a minute", name, took)
		}
	}
}

// A node that waits for its batch expires in time, and the others of the batch run.
func TestNodeExpiresBeforeItsBatch(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	tasks.HandleBatch(mux, inc, tasks.Batch[int]{Size: 3, Wait: time.Hour}, func(_ context.Context, ns []int) []tasks.Outcome[int] {
		return make([]tasks.Outcome[int], len(ns))
	})
	f := taskstest.New(t, mux)
	other := testutil.Must(inc.S(1).Send(t.Context(), f.Client()))(t)
	began := f.Now()
	_, err := taskstest.Do(f, inc.S(2), tasks.Expires(time.Minute))
	if failure := (*tasks.Failure)(nil); !errors.As(err, &failure) || failure.Code != tasktype.CodeExpired {
		t.Errorf("got %v, want the code %s", err, tasktype.CodeExpired)
	}
	if took := f.Now().Sub(began); took > 2*time.Minute {
		t.Errorf("it expired after %s, want a minute", took)
	}
	f.Drain()
	if _, err := other.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
