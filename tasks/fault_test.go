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

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// agendaNow has workers look at once at whatever waits for that.
func agendaNow(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	for _, shard := range shards(t, rdb) {
		for _, m := range rdb.ZRange(t.Context(), shard+"agenda", 0, -1).Val() {
			rdb.ZAddXX(t.Context(), shard+"agenda", redis.Z{Score: 1, Member: m})
		}
	}
	if err := rdb.Publish(t.Context(), "muster:bus", "t 1").Err(); err != nil {
		t.Fatal(err)
	}
}

// What is no task costs a queue no slot, and holds up nothing of ours.
func TestGarbageInAQueue(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		resume := pause(t, w)
		run := sent(t, w, tasks.Chord(tasks.Each(ints(3), ID), Sum))
		wake := wakeTasks(t, rdb)[0]
		put := func(id, message string) {
			rdb.HSet(t.Context(), "asynq:{default}:t:"+id, "msg", message, "state", "pending")
			rdb.RPush(t.Context(), "asynq:{default}:pending", id)
		}
		for i := range 20 {
			put(fmt.Sprint("garbage", i), "\xff\xffno message")
		}
		put("empty", "")
		rdb.RPush(t.Context(), "asynq:{default}:pending", "ghost")
		rdb.HSet(t.Context(), "asynq:{default}:t:ghost", "state", "pending")
		// The wake-task itself is broken, too, and one says nothing that can be read.
		rdb.HSet(t.Context(), "asynq:{default}:t:"+wake, "msg", "\xff")
		if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("muster:work", []byte("\xff"))); err != nil {
			t.Fatal(err)
		}
		resume()
		testutil.Eventually(t, "nothing waits in the queue", func() bool { return rdb.LLen(t.Context(), "asynq:{default}:pending").Val() == 0 })
		if got, err := run.Wait(limited(t)); err != nil || got != 3 {
			t.Fatalf("got %v, %v, want 3\n%s", got, err, tree(t, w, run.ID()))
		}
		held := sent(t, w, tasks.Group(Hold.S("one"), Hold.S("two")))
		testutil.Eventually(t, "all slots can be used", func() bool { return len(w.noted("at one")) == 1 && len(w.noted("at two")) == 1 })
		w.open("one")
		w.open("two")
		if _, err := held.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
	}, func(c *tasks.WorkerConfig) { c.Concurrency = 2 })
}

// An id that was used before stands for the workflow that has it now, for every process.
func TestIDUsedAgain(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		short := tasks.Retention(200 * time.Millisecond) // miniredis ages keys by 20 ms at once
		if got, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), w.client, tasks.ID("daily"), short); err != nil {
			t.Fatal(got, err)
		}
		testutil.Eventually(t, "its retention is over", func() bool {
			_, err := tasks.Attach[int](w.client, "daily").Status(t.Context())
			return errors.Is(err, tasks.ErrUnknown)
		})
		sender := tasks.NewClient(w.client.Redis())
		t.Cleanup(func() { _ = sender.Close() })
		run, err := tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum).Send(t.Context(), sender, tasks.ID("daily"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Wait(limited(t)); err != nil || got != 7 {
			t.Fatalf("got %v, %v\n%s", got, err, tree(t, w, "daily"))
		}
	})
}

// oddError is an error whose methods do what they are told.
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

// cyclic is an error that wraps itself, and whose method Is does what it is told.
type cyclic struct{ is func() bool }

func (e *cyclic) Error() string   { return "cyclic" }
func (e *cyclic) Unwrap() []error { return []error{e, e} }
func (e *cyclic) Is(error) bool   { return e.is() }

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
		{odd("nilerror", func(context.Context) error { var f *tasks.Failure; return f }), "*tasks.Failure", tasktype.CodePanic},
		{odd("badunwrap", func(context.Context) error { return oddError{unwrap: func() error { panic("in Unwrap") }} }), "in Unwrap", tasktype.CodePanic},
		{odd("badpanic", func(context.Context) error { panic(oddError{message: func() string { panic("in Error") }}) }), "in Error", tasktype.CodePanic},
		{odd("exits", func(context.Context) error { return oddError{message: func() string { runtime.Goexit(); return "" }} }), "ended its goroutine", tasktype.CodeError},
		{odd("permanent", func(context.Context) error {
			return tasks.Permanent(oddError{message: func() string { panic("in Error") }})
		}), "in Error", tasktype.CodePanic},
		{odd("nilbelow", func(context.Context) error { var f *tasks.Failure; return errors.Join(errors.New("no"), f) }), "*errors.joinError", tasktype.CodePanic},
		{odd("badis", func(context.Context) error {
			return fmt.Errorf("below: %w", &cyclic{is: func() bool { panic("in Is") }})
		}), "in Is", tasktype.CodePanic},
		{odd("cycle", func(context.Context) error {
			self := &oddError{}
			self.unwrap = func() error { return self }
			return tasks.WithCode("round", self)
		}, tasks.MaxRetry(1), tasks.ConstantBackoff(time.Millisecond)), "odd", "round"},
		{odd("cycles", func(context.Context) error {
			return errors.Join(&cyclic{is: func() bool { return false }}, fmt.Errorf("beside: %w", tasks.Permanent(errors.New("never"))))
		}, tasks.MaxRetry(9)), "never", tasktype.CodePermanent},
		{odd("many", func(context.Context) error {
			return errors.Join(append(slices.Repeat([]error{errors.New("one of many")}, 100_000), tasks.Permanent(errors.New("never")))...)
		}, tasks.MaxRetry(9)), "one of many", tasktype.CodePermanent},
		{odd("shutdown", func(context.Context) error { return tasks.ErrShutdown }), "tasks.Again", tasktype.CodeError},
		{odd("deaf", func(context.Context) error { <-late; return nil }, tasks.Timeout(time.Millisecond),
			tasks.HardTimeout(5*time.Millisecond)), "hard time limit", tasktype.CodeHardTimeout},
	}
}

// Handlers that do not return as they should fail their tasks, and no more.
func TestHandlersThatMisbehave(t *testing.T) {
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
		if err != nil {
			t.Fatal(err)
		}
		during(t, worker.Run)
		for _, c := range cases {
			_, err := send(t, w, tasks.Chain(c.task.S(1), Inc))
			if f := wantFailure(t, err, c.want); f.Code != c.code {
				t.Errorf("%s: got %+v", c.task.Name(), f)
			}
		}
		if got, err := send(t, w, tasks.Chain(slow.S(4), Inc)); err != nil || got != 5 {
			t.Errorf("late: got %v, %v", got, err)
		}
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
			t.Errorf("what came late changed it: %+v", n)
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

// At most so many tasks of a queue run at once, and the others of the worker's queues go on.
func TestQueueLimits(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		held := sent(t, w, tasks.Each(slices.Repeat([]string{"limited"}, 5), Hold, tasks.Queue("few")))
		testutil.Eventually(t, "two run", func() bool { return len(w.noted("at limited")) == 2 })
		if got, err := send(t, w, tasks.Chord(tasks.Each(ints(20), ID), Sum)); err != nil || got != 190 {
			t.Fatalf("got %v, %v", got, err)
		}
		as, err := w.client.Active(t.Context())
		if n := len(w.noted("at limited")); n != 2 || err != nil || len(as) != 2 {
			t.Fatalf("%d of the limited queue have begun, %d run, %v", n, len(as), err)
		}
		w.open("limited")
		if got, err := held.Wait(limited(t)); err != nil || len(got) != 5 {
			t.Fatalf("got %v, %v", got, err)
		}
	}, func(c *tasks.WorkerConfig) {
		c.Queues = map[string]int{"default": 1, "few": 1}
		c.QueueLimits = map[string]int{"few": 2}
	})
	if _, err := tasks.NewWorker(tasks.NewClient(redistest.Mini(t)), tasks.NewMux(),
		tasks.WorkerConfig{QueueLimits: map[string]int{"other": 1}}); err == nil || !strings.Contains(err.Error(), "QueueLimits") {
		t.Errorf("a limit of a queue that is not taken from: %v", err)
	}
}

// At most so many starts of a task in any span of time, over all workers.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		const per = 200 * time.Millisecond
		run := sent(t, w, tasks.Each(ints(6), tasks.New[int, int]("t.when", tasks.RateLimit(2, per))))
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		ran := w.noted("when")
		slices.Sort(ran)
		if len(ran) != 6 || ran[5]-ran[0] < int(per.Milliseconds()) {
			t.Fatalf("six starts at %v, of which two may be in %v", ran, per)
		}
	})
}
