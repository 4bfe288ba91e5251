package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// letter is the input of the tasks in these tests.
type letter struct {
	Kind string
	N    int
}

// post is the state of handlers of batches.
type post struct {
	client *tasks.Client
	task   tasks.Task[letter, int]

	mu    sync.Mutex       // guards the fields below
	calls map[string][]int // numbers of letters, by kind
}

func newPost(tb testing.TB, rdb redis.UniversalClient) *post {
	p := &post{client: newClient(tb, rdb), task: tasks.New[letter, int]("post.send"), calls: map[string][]int{}}
	return p
}

// work starts workers whose handler is called with batches, until the test ends.
func (p *post) work(tb testing.TB, workers int, b tasks.Batch[letter]) {
	tb.Helper()
	for range workers {
		mux := tasks.NewMux()
		tasks.HandleBatch(mux, p.task, b, p.handle)
		runWorker(tb, p.client, mux, tasks.WorkerConfig{Grace: 100 * time.Millisecond})
	}
}

func (p *post) handle(ctx context.Context, ls []letter) []tasks.Outcome[int] {
	p.mu.Lock()
	p.calls[ls[0].Kind] = append(p.calls[ls[0].Kind], len(ls))
	p.mu.Unlock()
	out, torn := make([]tasks.Outcome[int], len(ls)), errors.New("torn")
	for i, ctx := range tasks.NodeContexts(ctx) {
		l := ls[i]
		switch out[i].Value = l.N; {
		case l.Kind == "panic":
			panic("spilled")
		case l.Kind == "short":
			return nil
		case l.Kind == "long":
			return append(out, tasks.Outcome[int]{})
		case l.Kind == "exit":
			runtime.Goexit()
		case l.Kind == "ended":
			<-ctx.Done()
			out[i] = tasks.Failed[int](ctx.Err())
		case l.N >= 0:
		case l.Kind == "failed":
			out[i] = tasks.Failed[int](torn)
		case l.Kind == "permanent":
			out[i] = tasks.Failed[int](tasks.Permanent(torn))
		case l.Kind == "failure":
			out[i].Err = &tasks.Failure{Message: "torn", Code: "paper"}
		case l.Kind == "retried" && tasks.InfoFrom(ctx).Attempt == 1:
			out[i] = tasks.Failed[int](tasks.RetryIn(time.Millisecond, torn))
		}
	}
	return out
}

// sizes returns the sizes of the calls for a kind.
func (p *post) sizes(kind string) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.calls[kind]))
}

// send sends letters of a kind, each in a workflow, and returns their handles.
func (p *post) send(tb testing.TB, kind string, numbers []int, opts ...tasks.SendOption) (runs []*tasks.Run[int]) {
	tb.Helper()
	var sends []tasks.Sending
	for _, n := range numbers {
		sends = append(sends, tasks.Sending{Work: p.task.S(letter{kind, n}), Options: opts})
	}
	sent := testutil.Must(p.client.SendMany(tb.Context(), sends))(tb)
	for _, s := range sent {
		runs = append(runs, tasks.Attach[int](p.client, s.ID))
	}
	return runs
}

// outcome returns the value of a workflow, or the code, message and number of attempts of its failure.
func outcome(t *testing.T, run *tasks.Run[int]) string {
	t.Helper()
	n, err := run.Wait(limited(t))
	if f, failed := errors.AsType[*tasks.Failure](err); failed {
		return fmt.Sprintf("%s %s %d", f.Code, f.Message, f.Attempts)
	}
	return fmt.Sprint(n)
}

// Nodes of one key run in calls of at most Size, over all workers, and each has its own result.
func TestBatches(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPost(t, rdb)
		p.work(t, 3, tasks.Batch[letter]{Size: 5, Wait: 100 * time.Millisecond, Key: func(l letter) string { return l.Kind }})
		for kind, want := range map[string]string{ // of the number -1, or of all
			"plain":     "-1",
			"failed":    "error torn 3",
			"permanent": "permanent torn 1",
			"failure":   "paper torn 3",
			"retried":   "-1",
			"panic":     "panic panic: spilled 3",
			"exit":      "error the handler ended its goroutine instead of returning 3",
			"short":     "result the handler returned 0 outcomes for",
			"long":      "result the handler returned",
		} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				for i, run := range p.send(t, kind, []int{-1, 1, 2, 3, 4, 5, 6}, tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond)) {
					if i > 0 && !slices.Contains([]string{"panic", "exit", "short", "long"}, kind) {
						want = fmt.Sprint(i)
					}
					if got := outcome(t, run); !strings.HasPrefix(got, want) {
						t.Errorf("node %d: got %q, want %q", i, got, want)
					}
				}
				if most := slices.Max(p.sizes(kind)); most > 5 {
					t.Errorf("got a batch of %d, want at most 5", most)
				}
			})
		}
		t.Run("workflow", func(t *testing.T) {
			t.Parallel()
			ls := []letter{{Kind: "group", N: 1}, {Kind: "group", N: 2}, {Kind: "group", N: 3}}
			if got, err := tasks.Each(ls, p.task).Do(limited(t), p.client); err != nil || !slices.Equal(got, []int{1, 2, 3}) {
				t.Errorf("got %v, %v", got, err)
			}
			if _, err := tasks.New[string, int](p.task.Name()).S("no letter").Do(limited(t), p.client); err == nil || !strings.Contains(err.Error(), "does not decode") {
				t.Errorf("input of another type: got %v", err)
			}
		})
	})
}

// Size nodes make a call at once.
func TestBatchesAreFull(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPost(t, rdb)
		p.work(t, 3, tasks.Batch[letter]{Size: 20, Wait: time.Hour})
		for i, run := range p.send(t, "full", ints(400)) {
			wantValue(t, run, i)
		}
		if got := p.sizes("full"); !slices.Equal(got, slices.Repeat([]int{20}, 20)) {
			t.Errorf("got batches of %v, want 20 of 20", got)
		}
	})
}

// A call does not end because a node of it does, and nodes that wait for one end with their workflow.
func TestNodesOfABatchEndAlone(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPost(t, rdb)
		p.work(t, 1, tasks.Batch[letter]{Size: 5, Wait: time.Hour, Key: func(l letter) string { return l.Kind }})
		waits := p.send(t, "waits", ints(4))
		testutil.Eventually(t, "all wait", func() bool {
			return !slices.ContainsFunc(waits, func(run *tasks.Run[int]) bool {
				ns, err := run.Nodes(t.Context())
				return err != nil || len(ns) != 1 || ns[0].Status != tasktype.Pending || !strings.Contains(ns[0].Waits, "batch")
			})
		})
		var runs []*tasks.Run[int]
		const soon = 50 * time.Millisecond
		for _, o := range [][]tasks.CallOption{{tasks.Timeout(soon)}, {tasks.Timeout(0), tasks.HardTimeout(soon)}, nil, nil, {tasks.Timeout(soon)}} {
			runs = append(runs, started(t, p.client, p.task.S(letter{Kind: "ended"}, o...)))
		}
		testutil.Eventually(t, "the call has begun", func() bool { return len(p.sizes("ended")) == 1 })
		if got := outcome(t, runs[1]); !strings.HasPrefix(got, tasktype.CodeHardTimeout) {
			t.Errorf("hard time limit: got %s", got)
		}
		for _, of := range [][]*tasks.Run[int]{runs[2:], waits} {
			testutil.Ok(t, of[0].Revoke(t.Context()))
			testutil.Ok(t, of[1].Cancel(t.Context()))
		}
		testutil.Ok(t, waits[2].Pause(t.Context()))
		for i, run := range append(waits[3:], p.send(t, "waits", ints(8)[4:])...) { // which do not wait for the others
			wantValue(t, run, 3+i)
		}
		for code, of := range map[string][]*tasks.Run[int]{
			tasktype.CodeTimeout: {runs[0], runs[4]}, tasktype.CodeRevoked: {runs[2], waits[0]}, tasktype.CodeCancelled: {runs[3], waits[1]},
		} {
			for i, run := range of {
				if got := outcome(t, run); !strings.HasPrefix(got, code) {
					t.Errorf("run %d: got %s, want code %s", i, got, code)
				}
			}
		}
		if got := p.sizes("waits"); !slices.Equal(got, []int{5}) {
			t.Errorf("got batches of %v, want one of 5", got)
		}
	})
}

// A worker that stops returns the nodes of its batch, and programs with different handlers share the nodes of a task.
func TestBatchesOfTwoPrograms(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPost(t, rdb)
		mux := tasks.NewMux()
		begun := make(chan int, 100)
		tasks.HandleBatch(mux, p.task, tasks.Batch[letter]{Size: 10, Wait: time.Millisecond}, func(ctx context.Context, ls []letter) []tasks.Outcome[int] {
			begun <- len(ls)
			<-ctx.Done()
			return slices.Repeat([]tasks.Outcome[int]{tasks.Failed[int](ctx.Err())}, len(ls))
		})
		w := runWorker(t, p.client, mux, tasks.WorkerConfig{Grace: time.Second})
		runs := p.send(t, "shared", ints(5))
		for n := 0; n < len(runs); n += <-begun {
		}
		testutil.Ok(t, w.Stop())
		plain := tasks.NewMux()
		tasks.Handle(plain, p.task, func(_ context.Context, l letter) (int, error) { return l.N, nil })
		runWorker(t, p.client, plain, tasks.WorkerConfig{Concurrency: 1})
		p.work(t, 1, tasks.Batch[letter]{Size: 10, Wait: 50 * time.Millisecond})
		for i, run := range append(runs, p.send(t, "shared", ints(65)[5:])...) {
			wantValue(t, run, i)
			if nodes, err := run.Nodes(t.Context()); err != nil || nodes[0].Attempts != 1 {
				t.Errorf("node %d: got %+v, %v, want one attempt", i, nodes, err)
			}
		}
	})
}

func TestInvalidBatches(t *testing.T) {
	t.Parallel()
	c := newClient(t, redistest.Mini(t))
	check := func(want string, b tasks.Batch[letter], opts ...tasks.TaskOption) {
		t.Helper()
		m := tasks.NewMux()
		tasks.HandleBatch(m, tasks.New[letter, int]("t", opts...), b, func(context.Context, []letter) []tasks.Outcome[int] { return nil })
		if _, err := tasks.NewWorker(c, m, tasks.WorkerConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	check("size 0 of its", tasks.Batch[letter]{Wait: time.Second})
	check("size 100000 of its", tasks.Batch[letter]{Size: 100_000, Wait: time.Second})
	check("wait 0s of its", tasks.Batch[letter]{Size: 1})
	check("wait 25h0m0s", tasks.Batch[letter]{Size: 1, Wait: 25 * time.Hour})
	good := tasks.Batch[letter]{Size: 1, Wait: time.Second}
	check("external or", good, tasks.External())
	check("has limits", good, tasks.Limited[letter](tasks.Concurrency("a", 1), nil))
	check("tasks.Queue", good, tasks.Queue(""))
	if got := tasks.NodeContexts(t.Context()); got != nil {
		t.Errorf("contexts without a batch: got %v", got)
	}
}
