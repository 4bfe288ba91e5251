package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
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
		{odd("exitpanic", func(context.Context) error { defer func() { panic("on exit") }(); runtime.Goexit(); return nil }), "on exit", tasktype.CodePanic},
		{odd("panic", func(context.Context) error { panic("oh") }), "oh", tasktype.CodePanic},
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

// oddOf returns a function that makes a task, of the queue odd, of a handler.
func oddOf(m *tasks.Mux) func(string, func(context.Context) error, ...tasks.TaskOption) tasks.Task[int, int] {
	return func(name string, h func(context.Context) error, opts ...tasks.TaskOption) tasks.Task[int, int] {
		task := tasks.New[int, int]("odd."+name, append(opts, tasks.Queue("odd"))...)
		tasks.Handle(m, task, func(ctx context.Context, n int) (int, error) { return n, h(ctx) })
		return task
	}
}

// Handlers that do not return as they should fail their tasks, and no more.
func TestMisbehavingHandlersFailTheirTasksOnly(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		m := w.mux()
		odd := oddOf(m)
		late, back := make(chan struct{}), make(chan struct{})
		defer close(late)
		cases := misbehaviors(odd, late)
		// One that returns a value after its soft limit, and before the hard one, has returned a value.
		slow := odd("late", func(ctx context.Context) error { <-ctx.Done(); return nil }, tasks.Timeout(10*time.Millisecond))
		later := odd("later", func(context.Context) error { <-back; return nil }, tasks.Timeout(time.Millisecond), tasks.HardTimeout(5*time.Millisecond))
		runWorker(t, w.client, m, tasks.WorkerConfig{Queues: map[string]int{"odd": 1}, Concurrency: 1, Grace: time.Second})
		for _, c := range cases {
			_, err := send(t, w, tasks.Chain(c.task.S(1), Inc))
			if f := wantFailure(t, err, c.want); f.Code != c.code {
				t.Errorf("%s: got %+v", c.task.Name(), f)
			}
		}
		if got, err := send(t, w, tasks.Chain(slow.S(4), Inc)); err != nil || got != 5 {
			t.Errorf("got %v, %v, want %v", got, err, 5)
		}
		// One that returns after the hard one has failed by then, and is not heard any more.
		run := sent(t, w, tasks.Chain(later.S(1), Inc))
		_, err := run.Wait(limited(t))
		wantFailure(t, err, "hard time limit")
		close(back)
		ended(t, w, run.ID())
		if got, err := send(t, w, slow.S(4)); err != nil || got != 4 { // the slot is free
			t.Errorf("afterwards: got %v, %v", got, err)
		}
		if n := nodes(t, w, run.ID()); n[0].Status != tasktype.Failed || n[1].Status != tasktype.Skipped || w.ran(run.ID()+".1") != 0 {
			t.Errorf("the late result changed it: %+v", n)
		}
	})
}

// A single task runs in the goroutine that waits for tasks of its queue. One that keeps or ends that goroutine stops no other task.
func TestMisbehavingSinglesStopNoOther(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		m, late := w.mux(), make(chan struct{})
		defer close(late)
		odd := oddOf(m)
		good := odd("good", func(context.Context) error { return nil })
		held := odd("held", func(context.Context) error { <-late; return nil })
		cases := misbehaviors(odd, late)
		runWorker(t, w.client, m, tasks.WorkerConfig{Queues: map[string]int{"odd": 1}, Concurrency: 2, Grace: time.Second})
		for _, c := range append(cases, cases...) {
			_, err := send(t, w, c.task.S(1))
			if f := wantFailure(t, err, c.want); f.Code != c.code {
				t.Errorf("%s: got %+v", c.task.Name(), f)
			}
		}
		sent(t, w, held.S(1))
		for range 3 { // the other slot is free
			if got, err := send(t, w, good.S(4)); err != nil || got != 4 {
				t.Errorf("got %v, %v, want 4", got, err)
			}
		}
	})
}

// A killed worker waits for no handler, not even for one that ignores its context in the goroutine that waits for tasks.
func TestKilledWorkerWaitsForNoHandler(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		m, begun, late := w.mux(), make(chan struct{}), make(chan struct{})
		defer close(late)
		odd := oddOf(m)
		good := odd("good", func(context.Context) error { return nil })
		held := odd("held", func(context.Context) error { begun <- struct{}{}; <-late; return nil })
		var took []time.Duration
		for range 5 { // workers: the machine can be busy
			worker := runWorker(t, w.client, m, tasks.WorkerConfig{Queues: map[string]int{"odd": 1}, Concurrency: 16})
			for range 5 { // then two goroutines wait
				testutil.Must(send(t, w, good.S(1)))(t)
			}
			sent(t, w, held.S(1))
			<-begun
			at := time.Now()
			worker.Kill()
			testutil.Ok(t, worker.Stop())
			took = append(took, time.Since(at))
		}
		if slices.Sort(took); took[2] > 900*time.Millisecond { // a call that cannot be ended has a second
			t.Errorf("it stopped after %v", took)
		}
	})
}

// A killed worker does not wait long for a Redis that does not reply: not for its counts, which it stores at the end.
func TestKilledWorkerOfASilentRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	w := newWorld(t, connect(t, server.URL()).Redis())
	for range 5 {
		testutil.Must(send(t, w, ID.S(1)))(t)
	}
	server.Freeze()
	t.Cleanup(server.Thaw)
	at := time.Now()
	w.worker.Kill()
	testutil.Ok(t, w.worker.Stop())
	if took := time.Since(at); took > 18*time.Second { // it signs off for 5 s
		t.Errorf("it stopped after %v", took)
	}
}

// A handler that a worker would ignore panics where it is bound or wrapped.
func TestMuxPanicsInsteadOfIgnoringAHandler(t *testing.T) {
	t.Parallel()
	m, one, two := tasks.NewMux(), tasks.New[int, int]("mux.one"), tasks.New[int, int]("mux.two")
	binds := func(task tasks.Task[int, int]) func() {
		return func() { tasks.Handle(m, task, func(context.Context, int) (int, error) { return 0, nil }) }
	}
	binds(one)()
	panics := func(want string, do func()) {
		t.Helper()
		defer func() {
			if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
				t.Errorf("got the panic %q, want %q", got, want)
			}
		}()
		do()
	}
	panics("mux.one is bound twice", binds(one))
	client := newClient(t, redistest.New(t))
	for range 2 { // several workers can share a Mux
		testutil.Must(tasks.NewWorker(client, m, tasks.WorkerConfig{}))(t)
	}
	panics("mux.two is bound after a worker was made", binds(two))
	panics("Use is called after a worker was made", func() { m.Use() })
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
		runWorker(t, w.client, mux, tasks.WorkerConfig{Name: "leave", Concurrency: 1, Queues: map[string]int{"leave": 1}})
		run := sent(t, w, tasks.Chain(leave.S(1), Inc))
		wantValue(t, run, 2)
		<-left
		if n := nodes(t, w, run.ID())[0]; n.Status != tasktype.Success || n.Done != 0 || n.Total != 0 {
			t.Errorf("got %+v, want no progress", n)
		}
	})
}

// The handler of a failure gets the input of the task that failed, wherever it came from.
func TestHandlerOfAFailureGetsTheInput(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		five := tasks.Bind(FailPair, 5)
		for name, c := range map[string]struct {
			s    tasks.Signature[int]
			want int
		}{
			"a literal":           {Fail.S(7).Rescue(InputOf), 7},
			"of an earlier step":  {tasks.Chain(tasks.Chain(ID.S(3), Fail), Inc).Rescue(InputOf), 3},
			"of a map":            {tasks.Chord(tasks.Map(tasks.Value([]int{6}), Fail), Sum).Rescue(InputOf), 6},
			"of a plan":           {FailTo.S(8).Rescue(InputOf), 8},
			"after some attempts": {Flaky.S(AB{9, 2}, tasks.MaxRetry(1)).Rescue(InputOfAB), 9},
			"with a bound half":   {five.S(2).Rescue(InputOfPair), 25},
		} {
			if got, err := send(t, w, c.s); err != nil || got != c.want {
				t.Errorf("%s: got %v, %v, want %d", name, got, err, c.want)
			}
		}
		_, err := send(t, w, Fail.S(7))
		f := wantFailure(t, err, "E7")
		if f.Input != nil {
			t.Errorf("got input %s of the failure of a Wait, want none", f.Input)
		}
	})
}

// The failure of a task whose input does not decode is passed on, with that input.
func TestHandlerOfAFailureGetsAnInputThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		misnamed := tasks.New[string, int]("t.inc")
		text := tasks.New[tasks.Failure, int]("t.inputlen")
		if got, err := send(t, w, misnamed.S("seven").Rescue(text)); err != nil || got != len("seven") {
			t.Errorf("got %v, %v, want %v", got, err, len("seven"))
		}
	})
}

var (
	// FailPair fails.
	FailPair    = tasks.New[tasks.Pair[int, int], int]("t.failpair")
	InputOf     = tasks.New[tasks.Failure, int]("t.inputof")
	InputOfAB   = tasks.New[tasks.Failure, int]("t.inputofab")
	InputOfPair = tasks.New[tasks.Failure, int]("t.inputofpair")
)

func handleFailedInputs(m *tasks.Mux) {
	tasks.Handle(m, FailPair, func(context.Context, tasks.Pair[int, int]) (int, error) {
		return 0, errors.New("no")
	})
	tasks.Handle(m, InputOf, func(_ context.Context, f tasks.Failure) (in int, err error) { return in, json.Unmarshal(f.Input, &in) })
	tasks.Handle(m, InputOfAB, func(_ context.Context, f tasks.Failure) (int, error) {
		var in AB
		return in.A, json.Unmarshal(f.Input, &in)
	})
	tasks.Handle(m, InputOfPair, func(_ context.Context, f tasks.Failure) (int, error) {
		var in tasks.Pair[int, int]
		return 10*in.First + in.Second, json.Unmarshal(f.Input, &in)
	})
	tasks.Handle(m, tasks.New[tasks.Failure, int]("t.inputlen"), func(_ context.Context, f tasks.Failure) (int, error) {
		var in string
		err := json.Unmarshal(f.Input, &in)
		return len(in), err
	})
}

// Of two live workers with one name the second does not start. The successor of a killed worker does.
func TestNameOfLiveWorkerIsTaken(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	name := func(c *tasks.WorkerConfig) { c.Name = "one" }
	client, _ := startMux(t, rdb, func(*tasks.Mux) {}, name)
	_, err := tasks.StartWorker(limited(t), client, tasks.NewMux(), tasks.WorkerConfig{Name: "one"})
	if err == nil || !strings.Contains(err.Error(), "worker one: another live worker has this name") {
		t.Errorf("got %v, want an error that names the worker", err)
	}
	if live, err := client.Inspect().Workers(t.Context()); err != nil || len(live) != 1 {
		t.Errorf("got workers %v, %v, want the first", live, err)
	}

	killed := time.Now().Add(-4 * time.Second).UnixMilli()
	testutil.Ok(t, rdb.ZAdd(t.Context(), "muster:workers", redis.Z{Score: float64(killed), Member: "killed"}).Err())
	startMux(t, rdb, func(*tasks.Mux) {}, func(c *tasks.WorkerConfig) { c.Name = "killed" })
}

// startMux starts a worker with the handlers that add registers.
func startMux(t *testing.T, rdb redis.UniversalClient, add func(*tasks.Mux), change ...func(*tasks.WorkerConfig)) (*tasks.Client, *tasks.Worker) {
	t.Helper()
	m := tasks.NewMux()
	add(m)
	var cfg tasks.WorkerConfig
	for _, f := range change {
		f(&cfg)
	}
	client := tasks.NewClient(rdb)
	return client, runWorker(t, client, m, cfg)
}

// The rules of docs/how-to/upgrading.md for changes of tasks hold: the signature comes from the sender's release, the
// handler from the worker's.

// Work that was sent under an older name runs, and keeps that name.
func TestAliasRunsWorkOfTheOlderName(t *testing.T) {
	t.Parallel()
	older := tasks.New[int, string]("up.old")
	newer := tasks.New[int, string]("up.new", tasks.Alias("up.old", "up.older"))
	mux := tasks.NewMux()
	tasks.Handle(mux, newer, func(ctx context.Context, n int) (string, error) {
		return fmt.Sprint(tasks.InfoFrom(ctx).Task, " ", n), nil
	})
	f := taskstest.New(t, mux)
	got, err := taskstest.Do(f, tasks.Group(older.S(1), tasks.Chain(tasks.Value(2), older), newer.S(3)))
	if err != nil || fmt.Sprint(got) != "[up.old 1 up.old 2 up.new 3]" {
		t.Errorf("got %q, %v, want the names that they were sent under", got, err)
	}
}

// A type with another optional field reads data written without it, and vice versa.
func TestNewOptionalFieldsPassBetweenReleases(t *testing.T) {
	t.Parallel()
	type v1 struct{ Name string }
	type v2 struct {
		Name string
		Size int `json:",omitempty"`
	}
	one, two := tasks.New[v1, v1]("up.field"), tasks.New[v2, v2]("up.field")
	oldMux, newMux := tasks.NewMux(), tasks.NewMux()
	tasks.Handle(oldMux, one, func(_ context.Context, in v1) (v1, error) { return in, nil })
	tasks.Handle(newMux, two, func(_ context.Context, in v2) (v2, error) { in.Size++; return in, nil })
	if got, err := taskstest.Run(t, newMux, one.S(v1{"a"})); err != nil || got != (v1{"a"}) {
		t.Errorf("a new worker for an old sender: got %+v, %v, want a", got, err)
	}
	if got, err := taskstest.Run(t, oldMux, two.S(v2{"a", 7})); err != nil || got != (v2{"a", 0}) {
		t.Errorf("an old worker for a new sender: got %+v, %v, want a without the field", got, err)
	}
}

// A type that was changed fails the work of the other release, without another attempt.
func TestChangedTypeFailsWorkOfTheOtherRelease(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	tasks.Handle(mux, tasks.New[int, int]("up.type"), func(_ context.Context, n int) (int, error) { return n, nil })
	f := taskstest.New(t, mux)
	_, err := taskstest.Do(f, tasks.New[string, int]("up.type", tasks.MaxRetry(3)).S("1"))
	if failure := wantFailure(t, err, "does not decode"); failure.Code != tasktype.CodeInput || failure.Attempts != 1 {
		t.Errorf("got code %s after %d attempts, want %s after 1", failure.Code, failure.Attempts, tasktype.CodeInput)
	}
}

// A workflow keeps the options that it was sent with.
func TestOptionsAreThoseOfTheSender(t *testing.T) {
	t.Parallel()
	handled := func(opts ...tasks.TaskOption) *tasks.Mux {
		mux := tasks.NewMux()
		tasks.Handle(mux, tasks.New[int, int]("up.options", opts...), func(ctx context.Context, _ int) (int, error) {
			if n := tasks.InfoFrom(ctx).Attempt; n == 3 {
				return n, nil
			}
			return 0, errors.New("not yet")
		})
		return mux
	}
	sent := tasks.New[int, int]("up.options", tasks.MaxRetry(2), tasks.ConstantBackoff(time.Hour))
	if got, err := taskstest.Run(t, handled(tasks.MaxRetry(0)), sent.S(1)); err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3, the number of attempts that the sender allows", got, err)
	}
}

// A handler may become a planner while workflows run, and a planner may return another plan.
func TestWorkerDeterminesThePlan(t *testing.T) {
	t.Parallel()
	task := tasks.New[int, int]("up.plan")
	step := tasks.New[int, int]("up.step", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Hour))
	mux := tasks.NewMux()
	tasks.HandlePlan(mux, task, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chain(step.S(n), step), nil
	})
	tasks.Handle(mux, step, func(ctx context.Context, n int) (int, error) {
		if tasks.InfoFrom(ctx).Attempt == 1 {
			return 0, errors.New("not yet")
		}
		return n + 1, nil
	})
	if got, err := taskstest.Run(t, mux, task.S(1)); err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3, by the options of the planner's release", got, err)
	}
}
