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
	testutil.Ok(t, err)
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
	testutil.Ok(t, err)
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
