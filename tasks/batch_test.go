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
	Sent time.Time
}

func kindOfLetter(l letter) string { return l.Kind }

// post is the state of handlers of batches.
type post struct {
	client *tasks.Client
	task   tasks.Task[letter, int]

	mu    sync.Mutex // guards the fields below
	calls [][]letter
	late  time.Duration // longest wait of a letter
}

func newPost(tb testing.TB, rdb redis.UniversalClient, opts ...tasks.TaskOption) *post {
	p := &post{client: tasks.NewClient(rdb), task: tasks.New[letter, int]("post.send", opts...)}
	tb.Cleanup(func() { _ = p.client.Close() })
	return p
}

// work starts a worker whose handler is called with batches.
func (p *post) work(tb testing.TB, b tasks.Batch[letter], change ...func(*tasks.WorkerConfig)) {
	tb.Helper()
	mux := tasks.NewMux()
	tasks.HandleBatch(mux, p.task, b, p.handle)
	tasks.Handle(mux, ID, func(_ context.Context, n int) (int, error) { return n, nil })
	cfg := tasks.WorkerConfig{Grace: 100 * time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	w, err := tasks.StartWorker(tb.Context(), p.client, mux, cfg)
	testutil.Ok(tb, err)
	tb.Cleanup(func() { testutil.Ok(tb, w.Stop()) })
}

func (p *post) handle(ctx context.Context, ls []letter) []tasks.Outcome[int] {
	p.mu.Lock()
	p.calls = append(p.calls, slices.Clone(ls))
	for _, l := range ls {
		p.late = max(p.late, time.Since(l.Sent))
	}
	p.mu.Unlock()
	out, ctxs := make([]tasks.Outcome[int], len(ls)), tasks.NodeContexts(ctx)
	for i, l := range ls {
		first := tasks.InfoFrom(ctxs[i]).Attempt == 1
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
			<-ctxs[i].Done()
			out[i] = tasks.Failed[int](ctxs[i].Err())
		case l.N >= 0:
		case l.Kind == "failed":
			out[i] = tasks.Failed[int](errors.New("torn"))
		case l.Kind == "permanent":
			out[i] = tasks.Failed[int](tasks.Permanent(errors.New("torn")))
		case l.Kind == "failure":
			out[i].Err = &tasks.Failure{Message: "torn", Code: "paper"}
		case l.Kind == "retried" && first:
			out[i] = tasks.Failed[int](tasks.RetryIn(time.Millisecond, errors.New("torn")))
		case l.Kind == "steps":
			out[i].Value, _ = tasks.Step(ctxs[i], "number", func(context.Context) (int, error) { return l.N, nil })
		}
	}
	return out
}

func (p *post) sizes(kind string) (out []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c[0].Kind == kind {
			out = append(out, len(c))
		}
	}
	slices.Sort(out)
	return out
}

// send sends letters of a kind, each in a workflow, and returns their handles.
func (p *post) send(tb testing.TB, kind string, numbers []int, opts ...tasks.SendOption) []*tasks.Run[int] {
	tb.Helper()
	sends := make([]tasks.Sending, len(numbers))
	for i, n := range numbers {
		sends[i] = tasks.Sending{Work: p.task.S(letter{kind, n, time.Now()}), Options: opts}
	}
	sent, err := p.client.SendMany(tb.Context(), sends)
	testutil.Ok(tb, err)
	runs := make([]*tasks.Run[int], len(sent))
	for i := range sent {
		runs[i] = tasks.Attach[int](p.client, sent[i].ID)
	}
	return runs
}

// Nodes of one key run in calls of at most Size, over all workers, and each has its own result.
func TestBatches(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPost(t, rdb)
		for range 3 {
			p.work(t, tasks.Batch[letter]{Size: 5, Wait: 100 * time.Millisecond, Key: kindOfLetter})
		}
		for kind, want := range map[string]string{ // of the number -1
			"plain":     "-1",
			"steps":     "-1",
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
				all := slices.Contains([]string{"panic", "exit", "short", "long"}, kind)
				runs := p.send(t, kind, []int{-1, 1, 2, 3, 4, 5, 6}, tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond))
				for i, run := range runs {
					if i > 0 && !all {
						wantValue(t, run, i)
						continue
					}
					n, err := run.Wait(limited(t))
					got := fmt.Sprint(n)
					if f := (*tasks.Failure)(nil); errors.As(err, &f) {
						got = fmt.Sprintf("%s %s %d", f.Code, f.Message, f.Attempts)
					}
					if !strings.HasPrefix(got, want) {
						t.Errorf("node %d: got %q, want %q", i, got, want)
					}
				}
				if sizes := p.sizes(kind); sizes[len(sizes)-1] > 5 {
					t.Errorf("got batches of %v, want at most 5", sizes)
				}
			})
		}
		t.Run("workflow", func(t *testing.T) {
			t.Parallel()
			ls := []letter{{"group", 1, time.Now()}, {"group", 2, time.Now()}, {"group", 3, time.Now()}}
			sum, err := tasks.Each(ls, p.task).Do(limited(t), p.client)
			if err != nil || !slices.Equal(sum, []int{1, 2, 3}) {
				t.Errorf("got %v, %v", sum, err)
			}
			bad := tasks.New[string, int](p.task.Name())
			if _, err := bad.S("no letter").Do(limited(t), p.client); err == nil || !strings.Contains(err.Error(), "does not decode") {
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
		for range 3 {
			p.work(t, tasks.Batch[letter]{Size: 20, Wait: time.Hour})
		}
		for _, run := range p.send(t, "full", ints(400)) {
			_, err := run.Wait(limited(t))
			testutil.Ok(t, err)
		}
		if got := p.sizes("full"); !slices.Equal(got, slices.Repeat([]int{20}, 20)) {
			t.Errorf("got batches of %v, want 20 of 20", got)
		}
	})
}

// A call does not end because a node of it does.
func TestNodesOfABatchEndAlone(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPost(t, rdb)
		p.work(t, tasks.Batch[letter]{Size: 4, Wait: time.Hour})
		l := letter{"ended", 1, time.Now()}
		var runs []*tasks.Run[int]
		for _, o := range [][]tasks.CallOption{{tasks.Timeout(50 * time.Millisecond)}, {tasks.Timeout(0), tasks.HardTimeout(50 * time.Millisecond)}, nil, nil} {
			runs = append(runs, started(t, p.client, p.task.S(l, o...)))
		}
		testutil.Eventually(t, "the call has begun", func() bool { return len(p.sizes("ended")) == 1 })
		_, err := runs[1].Wait(limited(t))
		if f := (*tasks.Failure)(nil); !errors.As(err, &f) || f.Code != tasktype.CodeHardTimeout {
			t.Errorf("hard time limit: got %v", err)
		}
		testutil.Ok(t, runs[2].Revoke(t.Context()))
		testutil.Ok(t, runs[3].Cancel(t.Context()))
		for i, want := range []string{tasktype.CodeTimeout, tasktype.CodeHardTimeout, tasktype.CodeRevoked, tasktype.CodeCancelled} {
			_, err := runs[i].Wait(limited(t))
			if f := (*tasks.Failure)(nil); !errors.As(err, &f) || f.Code != want {
				t.Errorf("node %d: got %v, want code %s", i, err, want)
			}
		}
	})
}

// Nodes that wait for a batch end with their workflow, and leave nothing.
func TestNodesThatWaitForABatchEnd(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPost(t, rdb)
		p.work(t, tasks.Batch[letter]{Size: 10, Wait: time.Hour})
		runs := p.send(t, "waits", ints(4))
		testutil.Eventually(t, "all wait", func() bool {
			return !slices.ContainsFunc(runs, func(run *tasks.Run[int]) bool {
				ns, err := run.Nodes(t.Context())
				return err != nil || len(ns) != 1 || ns[0].Status != tasktype.Pending || !strings.Contains(ns[0].Waits, "batch")
			})
		})
		testutil.Ok(t, runs[0].Revoke(t.Context()))
		testutil.Ok(t, runs[1].Cancel(t.Context()))
		testutil.Ok(t, runs[2].Pause(t.Context()))
		for _, run := range append(p.send(t, "waits", ints(9)), runs[3]) { // which do not wait for the others
			_, err := run.Wait(limited(t))
			testutil.Ok(t, err)
		}
		for i, want := range []error{tasks.ErrRevoked, tasks.ErrCancelled} {
			if _, err := runs[i].Wait(limited(t)); !errors.Is(err, want) {
				t.Errorf("node %d: got %v, want %v", i, err, want)
			}
		}
		if got := p.sizes("waits"); !slices.Equal(got, []int{10}) {
			t.Errorf("got batches of %v, want one of 10", got)
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
		w, err := tasks.StartWorker(t.Context(), p.client, mux, tasks.WorkerConfig{Grace: time.Second})
		testutil.Ok(t, err)
		runs := p.send(t, "shared", ints(5))
		for n := 0; n < len(runs); n += <-begun {
		}
		testutil.Ok(t, w.Stop())
		plain := tasks.NewMux()
		tasks.Handle(plain, p.task, func(_ context.Context, l letter) (int, error) { return l.N, nil })
		runWorker(t, p.client, plain, tasks.WorkerConfig{Concurrency: 1})
		p.work(t, tasks.Batch[letter]{Size: 10, Wait: 50 * time.Millisecond})
		for i, run := range append(runs, p.send(t, "shared", ints(60))...) {
			got, err := run.Wait(limited(t))
			if err != nil || i >= len(runs) && got != i-len(runs) {
				t.Errorf("node %d: got %d, %v", i, got, err)
			}
			nodes, err := run.Nodes(t.Context())
			if err != nil || nodes[0].Attempts != 1 {
				t.Errorf("node %d: got %+v, %v, want one attempt", i, nodes, err)
			}
		}
	})
}

func TestInvalidBatches(t *testing.T) {
	t.Parallel()
	c := newClient(t, redistest.Mini(t))
	good := tasks.Batch[letter]{Size: 1, Wait: time.Second}
	for want, tc := range map[string]struct {
		batch tasks.Batch[letter]
		opts  []tasks.TaskOption
	}{
		"size 0 of its":      {batch: tasks.Batch[letter]{Wait: time.Second}},
		"size 100000 of its": {batch: tasks.Batch[letter]{Size: 100_000, Wait: time.Second}},
		"wait 0s of its":     {batch: tasks.Batch[letter]{Size: 1}},
		"wait 25h0m0s":       {batch: tasks.Batch[letter]{Size: 1, Wait: 25 * time.Hour}},
		"external or":        {batch: good, opts: []tasks.TaskOption{tasks.External()}},
		"has limits":         {batch: good, opts: []tasks.TaskOption{tasks.Limited[letter](tasks.NewLimit("a", tasks.Concurrency(1)), nil)}},
		"tasks.Queue":        {batch: good, opts: []tasks.TaskOption{tasks.Queue("")}},
	} {
		m := tasks.NewMux()
		tasks.HandleBatch(m, tasks.New[letter, int]("t", tc.opts...), tc.batch, func(context.Context, []letter) []tasks.Outcome[int] { return nil })
		if _, err := tasks.NewWorker(c, m, tasks.WorkerConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if got := tasks.NodeContexts(t.Context()); got != nil {
		t.Errorf("contexts without a batch: got %v", got)
	}
}
