package taskstest_test

import (
	"context"
	"errors"
	"slices"
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
		if _, err := inc.S(i).Send(t.Context(), f.Client(), tasks.In(d)); err != nil {
			t.Fatal(err)
		}
	}
	inputs := func() []int {
		var out []int
		for _, c := range f.Calls() {
			out = append(out, taskstest.In[int](t, c))
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
	f := taskstest.New(t, stories(), taskstest.Returns(count, []int{4, 5}), taskstest.Stub(absent, func(_ context.Context, n int) (int, error) {
		return 10 * n, nil
	}))
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
	id, err := taskstest.Do(f, start.S(1))
	testutil.Ok(t, err)
	f.Drain()
	if out, err := tasks.Attach[int](f.Client(), id).Wait(t.Context()); err != nil || out != 3 {
		t.Errorf("%d %v, expected 3", out, err)
	}
}

func TestOtherClientsOfConnection(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, stories())
	if _, err := inc.S(1).Send(t.Context(), tasks.NewClient(f.Client().Redis())); err != nil {
		t.Fatal(err)
	}
	f.Drain()
	if got, want := taskstest.Names(f.Calls()), []string{"s.inc"}; !slices.Equal(got, want) {
		t.Errorf("got calls of %v, want %v", got, want)
	}
}

func TestResultsExpireByFleetClock(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, stories())
	if _, err := taskstest.Do(f, inc.S(1), tasks.ID("short"), tasks.Retention(time.Minute), tasks.ProgressKeys("p")); err != nil {
		t.Fatal(err)
	}
	run := tasks.Attach[int](f.Client(), "short")
	if s, err := run.Status(t.Context()); err != nil || s != tasktype.Success {
		t.Errorf("%s %v", s, err)
	}
	f.Advance(2 * time.Minute)
	if _, err := tasks.Attach[int](tasks.NewClient(f.Client().Redis()), "short").Status(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
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
