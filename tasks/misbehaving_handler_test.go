package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// oddError is an error with configurable methods.
type oddError struct {
	message func() string
	unwrap  func() error
}

func (e oddError) Error() string {
	if e.message == nil {
		return "odd"
	}
	return e.message()
}

func (e oddError) Unwrap() error {
	if e.unwrap == nil {
		return nil
	}
	return e.unwrap()
}

// badIs is an error whose method Is panics.
type badIs struct{}

func (badIs) Error() string { return "bad" }
func (badIs) Is(error) bool { panic("in Is") }

// misbehavior is a handler that does not return as it should, and how its task fails.
type misbehavior struct {
	task tasks.Task[int, int]
	want string
	code string
}

// misbehaviors returns some. odd makes a task of a handler; late is closed at the end.
func misbehaviors(odd func(string, func(context.Context) error, ...tasks.TaskOption) tasks.Task[int, int], late chan struct{}) []misbehavior {
	return []misbehavior{
		{odd("goexit", func(context.Context) error { runtime.Goexit(); return nil }), "ended its goroutine", tasktype.CodeError},
		{odd("panic", func(context.Context) error { panic("oh") }), "oh", tasktype.CodePanic},
		{odd("retryif", func(context.Context) error { return errors.New("no") }, tasks.MaxRetry(3),
			tasks.RetryIf(func(error) bool { panic("oh") })), "no", tasktype.CodeError},
		{odd("nilerror", func(context.Context) error { var f *tasks.Failure; return f }), "*tasktype.Failure", tasktype.CodePanic},
		{odd("badunwrap", func(context.Context) error { return oddError{unwrap: func() error { panic("in Unwrap") }} }), "in Unwrap", tasktype.CodePanic},
		{odd("badpanic", func(context.Context) error { panic(oddError{message: func() string { panic("in Error") }}) }), "in Error", tasktype.CodePanic},
		{odd("exits", func(context.Context) error { return oddError{message: func() string { runtime.Goexit(); return "" }} }), "ended its goroutine", tasktype.CodeError},
		{odd("nilbelow", func(context.Context) error { var f *tasks.Failure; return errors.Join(errors.New("no"), f) }), "*errors.joinError", tasktype.CodePanic},
		{odd("badis", func(context.Context) error {
			return fmt.Errorf("below: %w", badIs{})
		}), "in Is", tasktype.CodePanic},
		{odd("many", func(context.Context) error {
			return errors.Join(append(slices.Repeat([]error{errors.New("one of many")}, 100_000), tasks.Permanent(errors.New("never")))...)
		}, tasks.MaxRetry(9)), "one of many", tasktype.CodePermanent},
		{odd("deaf", func(context.Context) error { <-late; return nil }, tasks.Timeout(time.Millisecond),
			tasks.HardTimeout(5*time.Millisecond)), "hard time limit", tasktype.CodeHardTimeout},
	}
}

// Handlers that do not return as they should fail their tasks, and no more.
func TestMisbehavingHandlersFailTheirTasksOnly(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		m := w.mux()
		odd := func(name string, h func(context.Context) error, opts ...tasks.TaskOption) tasks.Task[int, int] {
			task := tasks.New[int, int]("odd."+name, append(opts, tasks.Queue("odd"))...)
			tasks.Handle(m, task, func(ctx context.Context, n int) (int, error) { return n, h(ctx) })
			return task
		}
		late, back := make(chan struct{}), make(chan struct{})
		defer close(late)
		cases := misbehaviors(odd, late)
		// One that returns a value after its soft limit, and before the hard one, has returned a value.
		slow := odd("late", func(ctx context.Context) error { <-ctx.Done(); return nil }, tasks.Timeout(10*time.Millisecond))
		later := odd("later", func(context.Context) error { <-back; return nil }, tasks.Timeout(time.Millisecond), tasks.HardTimeout(5*time.Millisecond))
		worker, err := tasks.NewWorker(w.client, m, tasks.WorkerConfig{Queues: map[string]int{"odd": 1}, Concurrency: 1, Grace: time.Second})
		testutil.Ok(t, err)
		during(t, worker.Run)
		for _, c := range cases {
			_, err := send(t, w, tasks.Chain(c.task.S(1), Inc))
			if f := wantFailure(t, err, c.want); f.Code != c.code {
				t.Errorf("%s: got %+v", c.task.Name(), f)
			}
		}
		wantValue(t, sent(t, w, tasks.Chain(slow.S(4), Inc)), 5)
		// One that returns after the hard one has failed by then, and is not heard any more.
		run := sent(t, w, tasks.Chain(later.S(1), Inc))
		_, err = run.Wait(limited(t))
		wantFailure(t, err, "hard time limit")
		close(back)
		ended(t, w, run.ID())
		if got, err := send(t, w, slow.S(4)); err != nil || got != 4 { // the slot is free
			t.Errorf("afterwards: got %v, %v", got, err)
		}
		if n := nodes(t, w, run.ID()); n[0].Status != tasktype.Failed || n[1].Status != tasktype.Skipped || w.ran(run.ID()+".1") != 0 {
			t.Errorf("the late result changed it: %+v", n)
		}
		if err := (func() (err error) {
			defer func() { err = fmt.Errorf("%v", recover()) }()
			tasks.Handle(m, slow, func(context.Context, int) (int, error) { return 0, nil })
			return nil
		})(); !strings.Contains(err.Error(), "bound twice") {
			t.Errorf("a name bound twice: %v", err)
		}
	})
}

// A goroutine that outlives its handler is harmless: its context is done, and the progress that it reports is
// ignored.
func TestGoroutineOfAnEndedHandlerIsIgnored(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		leave := tasks.New[int, int]("fleet.leave", tasks.Queue("leave"))
		mux := w.mux()
		left := make(chan struct{})
		tasks.Handle(mux, leave, func(ctx context.Context, n int) (int, error) {
			go func() {
				<-ctx.Done()
				tasks.SetProgress(ctx, 7, 8)
				close(left)
			}()
			return n, nil
		})
		worker, err := tasks.NewWorker(w.client, mux, tasks.WorkerConfig{Name: "leave", Concurrency: 1, Queues: map[string]int{"leave": 1}})
		testutil.Ok(t, err)
		during(t, worker.Run)
		run := sent(t, w, tasks.Chain(leave.S(1), Inc))
		wantValue(t, run, 2)
		<-left
		if n := nodes(t, w, run.ID())[0]; n.Status != tasktype.Success || n.Done != 0 || n.Total != 0 {
			t.Errorf("got %+v, want no progress", n)
		}
	})
}
