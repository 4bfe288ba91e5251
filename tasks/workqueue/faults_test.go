package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// faultyQueue is the queue of the tests below. Its leases expire soon if another is to take over, and else outlast the test.
func faultyQueue(f *redistest.Fault) workqueue.Config {
	cfg := workqueue.Config{LeaseTTL: time.Minute, MaxAttempts: 1000, CountLanes: true, Logger: quiet, Backoff: workqueue.Backoff{Base: time.Millisecond}}
	if takesOver(f) {
		cfg.LeaseTTL = 300 * time.Millisecond
	}
	return cfg
}

// takesOver reports whether another process takes over after a fault.
func takesOver(f *redistest.Fault) bool { return f.Deadly() || f.Kind == redistest.Frozen }

// trips counts the runs of items.
type trips struct {
	mu   sync.Mutex // guards runs
	runs map[string]int
}

// pool returns a pool of a process. Of its items, parent adds child, retry fails once, skip and fail end so, and the others
// have an output.
func (r *trips) pool(t *testing.T, q *workqueue.Queue, name string) *workqueue.Pool {
	t.Helper()
	mux := workqueue.NewMux()
	mux.Handle("test", func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		r.mu.Lock()
		r.runs[it.ID]++
		n := r.runs[it.ID]
		r.mu.Unlock()
		switch it.ID {
		case "parent":
			if _, err := q.EnqueueUnder(ctx, it, workqueue.Item{ID: "child", Kind: "test"}); err != nil {
				return workqueue.Outcome{}, err
			}
		case "retry":
			if n == 1 {
				return workqueue.Outcome{}, errors.New("not yet")
			}
		case "skip":
			return workqueue.Skipped("no need"), nil
		case "fail":
			return workqueue.Outcome{}, workqueue.Permanent(errors.New("never"))
		}
		return workqueue.Done().With(nil, []byte(it.ID)), nil
	})
	p, err := workqueue.NewPool(q, mux, workqueue.PoolConfig{Name: name, Workers: 2, Heartbeat: 30 * time.Millisecond, Grace: time.Millisecond, Drain: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Any call of a pool can fail: each item ends once, with its outputs once, if necessary in another pool; all counters
// equal a recount.
func TestPoolSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 20, redistest.ReplyLost: 20, redistest.Repeated: 20, redistest.Crash: 4, redistest.CrashAfter: 4, redistest.Slow: 8, redistest.Frozen: 8,
	}, poolWithFault)
}

func poolWithFault(t *testing.T, f *redistest.Fault) {
	url := redistest.URL(t)
	good := redistest.NewFault(redistest.Refused, 0).Client(t, url)
	k := &kit{workqueue.New(good, "faults", faultyQueue(f)), t, good}
	k.enqueue("a", "b", "parent", "retry", "skip", "fail", "c")
	r := &trips{runs: map[string]int{}}
	first := r.pool(t, workqueue.New(f.Client(t, url), "faults", faultyQueue(f)), "first")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f.Arm()
	over := make(chan error, 1)
	go func() { over <- first.Run(ctx) }()
	select {
	case err := <-over:
		over <- err
	case <-f.Hit():
		if takesOver(f) {
			if f.Deadly() {
				stop()
			}
			k.run(r.pool(t, k.Queue, "second"))
		}
	}
	f.Release()
	if err := <-over; err != nil {
		t.Errorf("pool: got %v, want nil", err)
	}
	k.wantStats("0 0 6 1 1")
	outputs, err := k.Outputs().Read(t.Context(), 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range outputs {
		got = append(got, o.Item)
	}
	slices.Sort(got)
	if want := "[a b c child parent retry]"; fmt.Sprint(got) != want {
		t.Errorf("outputs: got %v, want %s", got, want)
	}
	for id, n := range r.runs {
		if id == "retry" || id == "parent" && f.Fails() { // it could not add its child
			n--
		}
		if n > 1 && !takesOver(f) { // else a lease may expire while its process is slow
			t.Errorf("item %s ran %d times", id, n)
		}
	}
	if n := good.ZCard(t.Context(), "muster:wq:{faults}:pools").Val(); n != 0 && !f.Fails() {
		t.Errorf("%d pools count as alive, want none", n)
	}
}

// Any call of clients that add items, manage the queue and read outputs can fail: after a repetition, by the same or
// another client, it has taken effect once.
func TestQueueSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 100, redistest.ReplyLost: 100, redistest.Repeated: 100, redistest.Frozen: 100,
	}, queueWithFault)
}

// stored is the output that readers have stored, as in a file that one of them locks.
type stored struct {
	mu    sync.Mutex // guards the fields below
	seq   string
	items []string
}

// read stores and then acknowledges all outputs, like sites/record, unless another reader does.
func (s *stored) read(ctx context.Context, q *workqueue.Queue) error {
	if !s.mu.TryLock() {
		return nil
	}
	defer s.mu.Unlock()
	for {
		list, err := q.Outputs().Read(ctx, 3, 0)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, o := range list {
			if o.Seq > s.seq {
				s.seq = o.Seq
				s.items = append(s.items, o.Item)
			}
		}
		if err := q.Outputs().Ack(ctx, list[len(list)-1].Seq, map[string]string{"n": fmt.Sprint(len(s.items))}); err != nil {
			return err
		}
	}
}

func queueWithFault(t *testing.T, f *redistest.Fault) {
	url := redistest.URL(t)
	good := redistest.NewFault(redistest.Refused, 0).Client(t, url)
	files := &stored{}
	visit := func(q *workqueue.Queue, name string) error {
		v := visitor{ctx: t.Context(), q: q, name: name}
		v.steer()
		v.work()
		v.must("read", func() error { return files.read(v.ctx, q) })
		return v.err
	}
	f.Arm()
	q := workqueue.New(f.Client(t, url), "faults", faultyQueue(f))
	k := &kit{workqueue.New(good, "faults", faultyQueue(f)), t, good}
	over := make(chan error, 1)
	go func() { over <- visit(q, "first") }()
	if f.Kind == redistest.Frozen {
		select {
		case <-f.Hit():
			if err := visit(k.Queue, "second"); err != nil {
				t.Error(err)
			}
			f.Release()
		case err := <-over:
			over <- err
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	k.wantStats("0 0 4 0 0")
	files.mu.Lock()
	defer files.mu.Unlock()
	slices.Sort(files.items)
	if got, want := fmt.Sprint(files.items), "[a b c d]"; got != want {
		t.Errorf("outputs: got %s, want %s", got, want)
	}
	if n, bytes, err := k.Outputs().Backlog(t.Context()); n != 0 || bytes != 0 || err != nil {
		t.Errorf("backlog: got %d outputs of %d bytes, %v, want none", n, bytes, err)
	}
}

// visitor uses a queue, and repeats failed calls.
type visitor struct {
	ctx  context.Context
	q    *workqueue.Queue
	name string
	err  error // the first error that is not an injected fault
}

func (v *visitor) must(what string, call func() error) {
	if v.err != nil {
		return
	}
	if !testutil.Becomes(func() bool {
		v.err = call()
		return !errors.Is(v.err, redistest.ErrFault)
	}) {
		what += ", again and again"
	}
	if v.err != nil {
		v.err = fmt.Errorf("%s: %w", what, v.err)
	}
}

func (v *visitor) steer() {
	v.must("enqueue", func() error {
		_, err := v.q.Enqueue(v.ctx, workqueue.Item{ID: "a", Kind: "test"}, workqueue.Item{ID: "b", Kind: "test"}, workqueue.Item{ID: "c", Kind: "test", ResourceKeys: []string{"host"}})
		return err
	})
	v.must("pause", func() error { _, err := v.q.Pause(v.ctx); return err })
	v.must("resume", func() error { _, err := v.q.Resume(v.ctx); return err })
	v.must("requeue", func() error { _, err := v.q.Requeue(v.ctx, workqueue.RequeueOptions{}); return err })
}

// work settles all items: d is added under the lease of a, b is given up once and passed on, c is returned once.
func (v *visitor) work() {
	seen := map[string]int{}
	v.must("work", func() error {
		got, err := v.q.Lease(v.ctx, v.name, 2)
		for _, l := range got {
			seen[l.ID]++
			if e := v.item(l, seen[l.ID]); e != nil && !errors.Is(e, workqueue.ErrLeaseLost) {
				err = errors.Join(err, e)
			}
		}
		if err != nil {
			return err
		}
		if _, err := v.q.ReturnStrays(v.ctx, v.name); err != nil {
			return err
		}
		s, err := v.q.Stats(v.ctx)
		if err == nil && s.Open() > 0 {
			err = redistest.ErrFault // again
		}
		return err
	})
}

// item does the n-th run of an item.
func (v *visitor) item(l workqueue.Leased, n int) error {
	switch {
	case l.ID == "a":
		if _, err := v.q.EnqueueUnder(v.ctx, l, workqueue.Item{ID: "d", Kind: "test"}); err != nil {
			return err
		}
	case l.ID == "b" && n == 1:
		_, err := v.q.Retry(v.ctx, l, errors.New("not yet"), 0, true)
		return err
	case l.ID == "b" && n == 2:
		return v.q.Pass(v.ctx, l, workqueue.Item{ID: "b", Kind: "test"})
	case l.ID == "c" && n == 1:
		return v.q.Return(v.ctx, l)
	}
	if _, err := v.q.Heartbeat(v.ctx, l); err != nil {
		return err
	}
	return v.q.Settle(v.ctx, l, workqueue.Done().With(nil, []byte(l.ID)))
}
