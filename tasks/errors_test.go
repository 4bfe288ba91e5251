package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// marked is an error of a handler, with its expected effects.
type marked struct {
	err   error
	then  string        // "fails", "retry", "again"
	delay time.Duration // until the next call; 0 for the back-off of the task
	code  string        // of the failure if there is no other attempt
	text  string        // in its message
}

// backOff is the back-off of the tasks of this test.
const backOff = 3 * time.Second

// check has a handler fail with the error of m.
func (m marked) check(t *testing.T) {
	t.Helper()
	task := tasks.New[int, int]("marked", tasks.ConstantBackoff(backOff))
	mux := tasks.NewMux()
	calls := map[string]int{}
	tasks.Handle(mux, task, func(ctx context.Context, n int) (int, error) {
		if calls[tasks.InfoFrom(ctx).Workflow]++; calls[tasks.InfoFrom(ctx).Workflow] == 1 {
			return 0, m.err
		}
		return n, nil
	})
	f := taskstest.New(t, mux)
	_, err := taskstest.Do(f, task.S(1, tasks.MaxRetry(1)))
	then, delay := "fails", m.delay
	made := f.Calls("marked")
	if len(made) == 2 {
		delay = made[1].At.Sub(made[0].At)
		then = map[int]string{1: "again", 2: "retry"}[made[1].Attempt]
	}
	want := m.delay
	if want == 0 && m.then == "retry" {
		want = backOff
	}
	if then != m.then || delay != want || (err == nil) != (len(made) == 2) {
		t.Errorf("%v: got %s in %s, want %s in %s; it ended with %v", m.err, then, delay, m.then, want, err)
	}
	if got := tasks.IsFailure(m.err); got != (m.then != "again") {
		t.Errorf("%v: got IsFailure %v, want %v", m.err, got, !got)
	}
	if m.then == "again" {
		return
	}
	_, err = taskstest.Do(f, task.S(1))
	if fail := wantFailure(t, err, m.text); fail.Code != m.code {
		t.Errorf("%v: got code %s, want %s", m.err, fail.Code, m.code)
	}
}

// The marks of errors mean the same in every nesting.
func TestMarksOfErrorsCompose(t *testing.T) {
	t.Parallel()
	no, other := errors.New("no"), errors.New("other")
	wrap := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	failure := &tasks.Failure{Task: "before", Attempts: 2, Message: "broke", Code: "http_403"}
	for name, m := range map[string]marked{
		"no mark":                          {no, "retry", 0, tasktype.CodeError, "no"},
		"Permanent":                        {tasks.Permanent(no), "fails", 0, tasktype.CodePermanent, "no"},
		"Permanent below %w":               {wrap(wrap(tasks.Permanent(no))), "fails", 0, tasktype.CodePermanent, "wrapped: wrapped: no"},
		"Permanent joined":                 {errors.Join(other, wrap(tasks.Permanent(no))), "fails", 0, tasktype.CodePermanent, "other\nwrapped: no"},
		"Permanent of RetryIn":             {tasks.Permanent(tasks.RetryIn(time.Hour, no)), "fails", 0, tasktype.CodePermanent, "no"},
		"RetryIn of Permanent":             {tasks.RetryIn(time.Hour, tasks.Permanent(no)), "fails", 0, tasktype.CodePermanent, "no"},
		"RetryIn joined with Permanent":    {errors.Join(tasks.RetryIn(time.Hour, other), tasks.Permanent(no)), "fails", 0, tasktype.CodePermanent, "no"},
		"Permanent of WithCode":            {tasks.Permanent(tasks.WithCode("a", no)), "fails", 0, "a", "no"},
		"WithCode of Permanent":            {tasks.WithCode("a", wrap(tasks.Permanent(no))), "fails", 0, "a", "no"},
		"RetryIn of WithCode":              {tasks.RetryIn(time.Hour, wrap(tasks.WithCode("a", no))), "retry", time.Hour, "a", "no"},
		"WithCode of RetryIn":              {tasks.WithCode("a", errors.Join(other, tasks.RetryIn(time.Hour, no))), "retry", time.Hour, "a", "no"},
		"RetryIn of RetryIn":               {wrap(tasks.RetryIn(time.Hour, wrap(tasks.RetryIn(time.Minute, no)))), "retry", time.Hour, tasktype.CodeError, "no"},
		"two RetryIn joined":               {errors.Join(tasks.RetryIn(time.Minute, no), tasks.RetryIn(time.Hour, no)), "retry", time.Minute, tasktype.CodeError, "no"},
		"WithCode of WithCode":             {wrap(tasks.WithCode("a", wrap(tasks.WithCode("b", no)))), "retry", 0, "a", "no"},
		"two WithCode joined":              {errors.Join(wrap(tasks.WithCode("a", no)), tasks.WithCode("b", no)), "retry", 0, "b", "no"},
		"all three below %w":               {wrap(tasks.RetryIn(time.Hour, wrap(tasks.WithCode("a", wrap(tasks.Permanent(no)))))), "fails", 0, "a", "no"},
		"a Failure":                        {failure, "retry", 0, "http_403", "task before failed after 2 attempts: broke"},
		"a Failure wrapped thrice":         {wrap(wrap(wrap(failure))), "retry", 0, "http_403", "broke"},
		"WithCode of a Failure":            {tasks.WithCode("a", wrap(failure)), "retry", 0, "a", "broke"},
		"Failure joined with WithCode":     {errors.Join(failure, wrap(wrap(tasks.WithCode("a", no)))), "retry", 0, "a", "broke"},
		"Permanent of a Failure":           {tasks.Permanent(wrap(failure)), "fails", 0, "http_403", "broke"},
		"a Failure without a code":         {&tasks.Failure{Task: "before", Message: "broke"}, "retry", 0, tasktype.CodeError, "broke"},
		"a nil Failure below %w":           {wrap((*tasks.Failure)(nil)), "retry", 0, tasktype.CodeError, "wrapped"},
		"Again":                            {tasks.Again(time.Hour), "again", time.Hour, "", ""},
		"Again below %w":                   {wrap(wrap(tasks.Again(time.Hour))), "again", time.Hour, "", ""},
		"Again joined with an error":       {errors.Join(no, tasks.Again(time.Hour)), "again", time.Hour, "", ""},
		"WithCode of Again":                {tasks.WithCode("a", tasks.Again(time.Hour)), "again", time.Hour, "", ""},
		"Permanent of Again":               {tasks.Permanent(tasks.Again(time.Hour)), "fails", 0, tasktype.CodePermanent, "again in 1h"},
		"RetryIn of Again":                 {tasks.RetryIn(time.Minute, wrap(tasks.Again(time.Hour))), "retry", time.Minute, tasktype.CodeError, "again in 1h"},
		"Again joined with RetryIn":        {errors.Join(tasks.Again(time.Hour), tasks.RetryIn(time.Minute, no)), "retry", time.Minute, tasktype.CodeError, "no"},
		"ErrShutdown below %w":             {wrap(tasks.ErrShutdown), "retry", 0, tasktype.CodeError, "return tasks.Again to be called again"},
		"ErrShutdown joined, with a code":  {tasks.WithCode("a", errors.Join(no, tasks.ErrShutdown)), "retry", 0, "a", "return tasks.Again to be called again"},
		"DeadlineExceeded of another time": {wrap(context.DeadlineExceeded), "retry", 0, tasktype.CodeError, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.check(t)
		})
	}
}

// The misuse of a mark is an error that describes it.
func TestMisusedMarksAreErrors(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, m := range map[string]marked{
		"Permanent(nil)":     {tasks.Permanent(nil), "fails", 0, tasktype.CodePermanent, "tasks.Permanent(nil): the error is nil; return nil"},
		"WithCode of nil":    {tasks.WithCode("a", nil), "retry", 0, "a", `tasks.WithCode("a", nil): the error is nil; return nil`},
		"RetryIn of nil":     {tasks.RetryIn(time.Minute, nil), "retry", time.Minute, tasktype.CodeError, "tasks.RetryIn(1m0s, nil): the error is nil; return tasks.Again(1m0s)"},
		"no code":            {tasks.WithCode("", no), "fails", 0, tasktype.CodePermanent, `tasks.WithCode("", …): the code is empty: no`},
		"no code, below one": {tasks.WithCode("a", tasks.WithCode("", no)), "fails", 0, "a", "the code is empty: no"},
		"negative RetryIn":   {tasks.RetryIn(-time.Second, no), "fails", 0, tasktype.CodePermanent, "tasks.RetryIn(-1s, …): the delay is negative: no"},
		"negative Again":     {tasks.Again(-time.Second), "fails", 0, tasktype.CodePermanent, "tasks.Again(-1s): the delay is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.check(t)
		})
	}
	if err := tasks.WithCode("", no); !errors.Is(err, no) {
		t.Errorf("got %v, want an error that still wraps %v", err, no)
	}
	for name, err := range map[string]error{"Again": tasks.Again(0), "RetryIn": tasks.RetryIn(0, no)} {
		if strings.Contains(err.Error(), "negative") {
			t.Errorf("%s without a delay: got %v, want no complaint", name, err)
		}
	}
	if tasks.IsFailure(nil) {
		t.Error("nil: got IsFailure true, want false")
	}
}

// Only the time limit of the attempt itself is a time-out: not one that a handler gave to something it did.
func TestTimeoutIsOfTheAttempt(t *testing.T) {
	t.Parallel()
	inner := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		return fmt.Errorf("fetch: %w", ctx.Err())
	}
	outer := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("fetch: %w", ctx.Err())
	}
	short := []tasks.TaskOption{tasks.Timeout(10 * time.Millisecond)}
	for name, c := range map[string]struct {
		handler func(context.Context) error
		opts    []tasks.TaskOption
		code    string
	}{
		"its own":                  {outer, short, tasktype.CodeTimeout},
		"its own, permanent":       {func(ctx context.Context) error { return tasks.Permanent(outer(ctx)) }, short, tasktype.CodeTimeout},
		"its own, with a code":     {func(ctx context.Context) error { return tasks.WithCode("slow", outer(ctx)) }, short, "slow"},
		"passed, another error":    {func(ctx context.Context) error { <-ctx.Done(); return errors.New("no") }, short, tasktype.CodeError},
		"another one":              {inner, nil, tasktype.CodeError},
		"another one, permanent":   {func(ctx context.Context) error { return tasks.Permanent(inner(ctx)) }, nil, tasktype.CodePermanent},
		"another one, no limit":    {inner, []tasks.TaskOption{tasks.Timeout(0)}, tasktype.CodeError},
		"another one, then passed": {func(ctx context.Context) error { err := inner(ctx); <-ctx.Done(); return err }, short, tasktype.CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := tasks.New[int, int]("limited", c.opts...)
			mux := tasks.NewMux()
			tasks.Handle(mux, task, func(ctx context.Context, n int) (int, error) { return n, c.handler(ctx) })
			_, err := taskstest.Run(t, mux, task.S(1))
			if f := wantFailure(t, err, ""); f.Code != c.code {
				t.Errorf("got code %s, want %s: %v", f.Code, c.code, err)
			}
		})
	}
}

// A task that returns the failure of another one has failed, also when that one was revoked or expired.
func TestReturnedFailureIsNoRevocation(t *testing.T) {
	t.Parallel()
	first := tasks.New[int, int]("first")
	late := tasks.New[int, int]("late", tasks.Expires(10*time.Millisecond))
	instead := tasks.New[tasks.Failure, int]("instead")
	plan := tasks.New[string, int]("plan")
	mux := tasks.NewMux()
	tasks.Handle(mux, first, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(mux, late, func(context.Context, int) (int, error) { return 0, tasks.Again(20 * time.Millisecond) })
	tasks.Handle(mux, instead, func(_ context.Context, f tasks.Failure) (int, error) { return 0, fmt.Errorf("instead: %w", &f) })
	tasks.HandlePlan(mux, plan, func(_ context.Context, code string) (tasks.Signature[int], error) {
		return tasks.Chain(instead.S(tasks.Failure{Task: "first", Message: "gone", Code: code}), first), nil
	})
	for name, s := range map[string]tasks.Signature[int]{
		tasktype.CodeExpired: late.S(1).Rescue(instead),
		tasktype.CodeRevoked: tasks.Chain(plan.S(tasktype.CodeRevoked), first),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := taskstest.New(t, mux)
			_, err := taskstest.Do(f, s, tasks.ID("flow"))
			if fail := wantFailure(t, err, "instead"); fail.Code != name || !errors.Is(fail, tasks.ErrRevoked) {
				t.Errorf("got %+v, want the code of the failure that it returned", fail)
			}
			nodes := testutil.Must(f.Client().Workflow("flow").Nodes(t.Context()))(t)
			for _, n := range nodes {
				if (n.Task == "instead" || n.Task == "plan") && n.Status != tasktype.Failed {
					t.Errorf("node %s, %s: got %s, want %s", n.ID, n.Task, n.Status, tasktype.Failed)
				}
			}
			if p, err := f.Client().Workflow("flow").Progress(t.Context()); err != nil || p.Status != tasktype.Failed {
				t.Errorf("the workflow: got %s, %v, want %s", p.Status, err, tasktype.Failed)
			}
		})
	}
}

// A handler that returns the failure of another task fails with it: task, node and message are those of the first failure.
func TestReturnedFailureNamesTheTaskThatFailed(t *testing.T) {
	t.Parallel()
	broken := tasks.New[int, int]("broken")
	decide := tasks.New[tasks.Outcome[int], int]("decide", tasks.MaxRetry(1))
	instead := tasks.New[tasks.Failure, int]("instead")
	mux := tasks.NewMux()
	tasks.Handle(mux, broken, func(context.Context, int) (int, error) { return 0, tasks.WithCode("b", errors.New("is broken")) })
	tasks.Handle(mux, decide, func(_ context.Context, o tasks.Outcome[int]) (int, error) { return 0, o.Err })
	tasks.Handle(mux, instead, func(_ context.Context, f tasks.Failure) (int, error) { return 0, tasks.Permanent(&f) })
	for name, s := range map[string]tasks.Signature[int]{
		"Try":       tasks.Chain(tasks.Try(broken.S(1)), decide),
		"two Trys":  tasks.Chain(tasks.Try(tasks.Chain(tasks.Try(broken.S(1)), decide)), decide),
		"Rescue":    broken.S(1).Rescue(instead),
		"a Rescued": tasks.Chain(tasks.Try(broken.S(1).Rescue(instead)), decide),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := taskstest.Do(taskstest.New(t, mux), s)
			if f := wantFailure(t, err, "is broken"); f.Task != "broken" || f.Node != "0" || f.Code != "b" || f.Message != "is broken" || f.Input != nil {
				t.Errorf("got %+v, want the failure of the first task", f)
			}
		})
	}
}

// Unavailable distinguishes a Redis that does not reply, or replies with an error, from errors of programs.
func TestUnavailableIsTheErrorOfRedis(t *testing.T) {
	t.Parallel()
	unused := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = unused.Close()
	rdb := redis.NewClient(&redis.Options{Addr: unused.Addr().String(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	if err := rdb.Ping(t.Context()).Err(); !tasks.Unavailable(fmt.Errorf("ping: %w", err)) {
		t.Errorf("no server: got false for %v", err)
	}
	live := redistest.New(t)
	if err := live.Do(t.Context(), "no-such-command").Err(); !tasks.Unavailable(err) {
		t.Errorf("error reply: got false for %v", err)
	}
	if err := live.Get(t.Context(), "absent").Err(); tasks.Unavailable(err) || tasks.Unavailable(errors.New("a bug")) || tasks.Unavailable(nil) {
		t.Errorf("a key that is absent, another error, or none: got true")
	}
}

// stalled returns the address of a server that accepts connections and never replies.
func stalled(t *testing.T) string {
	t.Helper()
	l := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	return l.Addr().String()
}

// A call to a Redis that accepts connections and does not reply ends at the deadline of its context, and not after the
// timeouts of its connection.
func TestCallsEndAtTheirDeadline(t *testing.T) {
	t.Parallel()
	one, two := stalled(t), stalled(t)
	for name, url := range map[string]string{
		"one":     "redis://" + one + "/0?",
		"cluster": "redis-cluster://" + one + "," + two + "?",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := tasks.Connect(ctx, url+"read_timeout=1h&write_timeout=1h")
				ended <- err
			}()
			select {
			case err := <-ended:
				if !tasks.Unavailable(err) {
					t.Errorf("got %v, want an error of an unavailable Redis", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the call has not ended long after its deadline")
			}
		})
	}
}

func TestErrorOfAFailure(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]*tasks.Failure{
		"workflow failed: its data is damaged":  {Message: "its data is damaged"},
		"task a failed: broke":                  {Task: "a", Attempts: 1, Message: "broke"},
		"task a failed after 2 attempts: broke": {Task: "a", Attempts: 2, Message: "broke"},
	} {
		if got := f.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
