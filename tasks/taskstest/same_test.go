package taskstest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	inc     = tasks.New[int, int]("s.inc")
	sum     = tasks.New[[]int, int]("s.sum")
	count   = tasks.New[int, []int]("s.count")
	fail    = tasks.New[int, int]("s.fail", tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond))
	never   = tasks.New[int, int]("s.never", tasks.MaxRetry(5))
	flaky   = tasks.New[int, int]("s.flaky", tasks.MaxRetry(3), tasks.Backoff(time.Millisecond, 10*time.Millisecond))
	panics  = tasks.New[int, int]("s.panics")
	polls   = tasks.New[int, int]("s.polls")
	rated   = tasks.New[int, int]("s.inc", tasks.RateLimit(1, 20*time.Millisecond))
	keyed   = tasks.New[int, int]("s.keyed", tasks.ConcurrencyPerKey(1, parity), tasks.RatePerKey(2, 20*time.Millisecond, parity))
	plan    = tasks.New[int, int]("s.plan")
	deep    = tasks.New[int, int]("s.deep")
	instead = tasks.New[tasks.Failure, int]("s.instead")
	report  = tasks.New[tasks.Failure, string]("s.report")
	settled = tasks.New[[]tasks.Outcome[int], string]("s.settled")
	pair    = tasks.New[tasks.Pair[int, []int], string]("s.pair")
	absent  = tasks.New[int, int]("s.absent")
	marked  = tasks.New[string, int]("s.marked", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Hour))
)

// parity is a key function; it panics for negative numbers.
func parity(n int) string {
	if n < 0 {
		panic("negative")
	}
	return fmt.Sprint(n % 2)
}

func stories() *tasks.Mux {
	mux := tasks.NewMux()
	tasks.Handle(mux, keyed, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, sum, func(_ context.Context, ns []int) (int, error) {
		total := 0
		for _, n := range ns {
			total += n
		}
		return total, nil
	})
	tasks.Handle(mux, count, func(_ context.Context, n int) ([]int, error) {
		out := make([]int, n)
		for i := range out {
			out[i] = i
		}
		return out, nil
	})
	tasks.Handle(mux, fail, func(_ context.Context, n int) (int, error) { return 0, fmt.Errorf("no %d", n) })
	tasks.Handle(mux, never, func(_ context.Context, n int) (int, error) {
		return 0, tasks.Permanent(tasks.WithCode("closed", errors.New("shop is closed")))
	})
	tasks.Handle(mux, flaky, func(ctx context.Context, n int) (int, error) {
		if a := tasks.InfoFrom(ctx).Attempt; a < 3 {
			return 0, fmt.Errorf("attempt %d", a)
		}
		return n, nil
	})
	tasks.Handle(mux, panics, func(context.Context, int) (int, error) { panic("oh") })
	asked := map[string]int{}
	tasks.Handle(mux, polls, func(ctx context.Context, n int) (int, error) {
		key := tasks.InfoFrom(ctx).Key
		if asked[key]++; asked[key] < n {
			return 0, tasks.Again(time.Millisecond)
		}
		return tasks.InfoFrom(ctx).Attempt, nil
	})
	tasks.Handle(mux, marked, func(ctx context.Context, how string) (int, error) {
		again := fmt.Errorf("poll: %w", tasks.Again(time.Millisecond))
		switch how {
		case "again":
			key := tasks.InfoFrom(ctx).Key
			if asked[key]++; asked[key] == 1 {
				return 0, again
			}
			return tasks.InfoFrom(ctx).Attempt, nil
		case "permanent":
			return 0, errors.Join(errors.New("also"), tasks.RetryIn(time.Hour, tasks.Permanent(again)))
		case "negative":
			return 0, tasks.Again(-time.Second)
		}
		return 0, tasks.RetryIn(time.Millisecond, tasks.WithCode(how, errors.New("coded")))
	})
	tasks.HandlePlan(mux, plan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Map(count.S(n), inc), sum), nil
	})
	tasks.HandlePlan(mux, deep, func(_ context.Context, n int) (tasks.Signature[int], error) {
		if n == 0 {
			return inc.S(0), nil
		}
		return tasks.Chain(deep.S(n-1), inc), nil
	})
	tasks.Handle(mux, instead, func(_ context.Context, f tasks.Failure) (int, error) { return -f.Attempts, nil })
	tasks.Handle(mux, report, func(_ context.Context, f tasks.Failure) (string, error) { return f.Message, nil })
	tasks.Handle(mux, settled, func(_ context.Context, os []tasks.Outcome[int]) (string, error) {
		var parts []string
		for _, o := range os {
			if o.Err != nil {
				parts = append(parts, o.Err.Task+" "+o.Err.Code)
			} else {
				parts = append(parts, fmt.Sprint(o.Value))
			}
		}
		return strings.Join(parts, ","), nil
	})
	tasks.Handle(mux, pair, func(_ context.Context, p tasks.Pair[int, []int]) (string, error) { return fmt.Sprint(p), nil })
	return mux
}

// story is a signature with functions that run it on both fleets.
type story struct {
	name string
	real func(*testing.T, *tasks.Client) string
	test func(*testing.T) string
}

func of[O any](name string, s tasks.Signature[O]) story {
	tell := func(t *testing.T, c *tasks.Client, run *tasks.AsyncResult[O], out O, err error) string {
		t.Helper()
		value, jsonErr := json.Marshal(out)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		text := fmt.Sprintf("%s %v", value, err)
		var f *tasks.Failure
		if errors.As(err, &f) {
			text = fmt.Sprintf("%s %d %s %s", f.Task, f.Attempts, f.Code, f.Message)
			if f.Code == tasktype.CodeUnregistered {
				text, _, _ = strings.Cut(text, "?") // the remainder names the worker
			}
		}
		nodes, err := c.Nodes(t.Context(), run.ID())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			text += fmt.Sprintf("\n%s %s %s %d", n.ID, n.Task, n.Status, n.Attempts)
		}
		return text
	}
	return story{name,
		func(t *testing.T, c *tasks.Client) string {
			run, err := s.Send(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			for p, err := range run.Watch(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				_ = p
			}
			out, err := run.Wait(t.Context())
			return tell(t, c, run, out, err)
		},
		func(t *testing.T) string {
			f := taskstest.New(t, stories())
			out, err := taskstest.Do(f, s, tasks.ID("story"))
			return tell(t, f.Client(), tasks.Attach[O](f.Client(), "story"), out, err)
		},
	}
}

// A workflow has the same results in a test fleet and on a real Redis.
func TestSameAsOnRedis(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	worker, err := tasks.NewWorker(client, stories(), tasks.WorkerConfig{Concurrency: 1, HandlerWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Background(t, worker.Run)
	shared := inc.S(1)
	for _, s := range []story{
		of("task", inc.S(1)),
		of("chain", tasks.Chain(tasks.Chain(inc.S(1), inc), inc)),
		of("group", tasks.Group(inc.S(1), tasks.Chain(inc.S(5), inc), flaky.S(7))),
		of("no group", tasks.Chord(tasks.Each([]int{}, inc), sum)),
		of("chord", tasks.Chord(tasks.Each([]int{1, 2, 3}, inc), sum)),
		of("chord fails", tasks.Chain(tasks.Chord(tasks.Group(inc.S(1), fail.S(2), inc.S(3)), sum), inc)),
		of("map", tasks.Chord(tasks.Map(count.S(7), inc, tasks.AtMost(2)), sum)),
		of("map of plans", tasks.Chord(tasks.Map(count.S(3), plan), sum)),
		of("nested", tasks.Chord(tasks.Group(plan.S(3), tasks.Chord(tasks.Map(count.S(2), plan), sum), deep.S(4)), sum)),
		of("diamond", tasks.Join(tasks.Chain(shared, inc), tasks.Group(shared, tasks.Chain(shared, plan)))),
		of("join", tasks.Chain(tasks.Join(inc.S(1), tasks.Each([]int{1, 2}, inc)), pair)),
		of("after", tasks.After(tasks.Group(inc.S(1), inc.S(2)), tasks.Chain(inc.S(3), inc))),
		of("settle", tasks.Chain(tasks.Settle(tasks.Group(inc.S(1), fail.S(2), never.S(3), panics.S(4))), settled)),
		of("rescue", tasks.Chain(fail.S(1).Rescue(instead), inc)),
		of("rescue of a chord", tasks.Chord(tasks.Group(inc.S(1), never.S(1)), sum).Rescue(instead)),
		of("on success", tasks.OnSuccess(inc.S(1), plan)),
		of("on error", tasks.OnError(tasks.Chord(tasks.Each([]int{1, 2}, fail), sum), report)),
		of("polls", tasks.Chain(polls.S(4), inc)),
		of("marked again", marked.S("again")),
		of("marked permanent", marked.S("permanent")),
		of("marked negative", marked.S("negative")),
		of("marked with a code", marked.S("closed")),
		of("panics", tasks.Chain(panics.S(1), inc)),
		of("expired", tasks.Chain(polls.S(4, tasks.Expires(time.Millisecond)), inc)),
		of("absent", absent.S(1)),
		of("in and another queue", tasks.Chain(inc.S(1, tasks.In(5*time.Millisecond)), inc, tasks.Priority(3))),
		of("rate", tasks.Each([]int{1, 2, 3}, rated)),
		of("limits per key", tasks.Chord(tasks.Each([]int{1, 2, 3, 4, 5, 7, 9}, keyed), sum)),
		of("key function panics", keyed.S(-1)),
		of("fail fast", tasks.Settle(tasks.Each([]int{1}, never, tasks.FailFast()))),
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if real, test := s.real(t, client), s.test(t); real != test {
				t.Errorf("on Redis:\n%s\nin the test:\n%s", real, test)
			}
		})
	}
}
