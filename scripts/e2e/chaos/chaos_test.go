//go:build e2e && unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/redistest"
)

// storm is how much of it there is.
type storm struct {
	workflows int
	inAll     time.Duration // until the last is sent, and the last worker killed
	lanes     int           // worker processes at a time
	freeze    bool          // one of them for longer than others wait for it
	outage    func()        // of Redis, half-way
}

// TestChaos sends nested workflows of every kind to four worker processes. They are killed at random and
// at named points; one is frozen until its work has been given to others, and goes on; Redis is killed
// and started again on its log.
func TestChaos(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	storm{workflows: 300, inAll: 24 * time.Second, lanes: 4, freeze: true, outage: func() {
		srv.Kill()
		srv.Start()
	}}.rage(t, srv.URL())
}

// TestChaosOnCluster kills workers on a Redis Cluster of three nodes.
func TestChaosOnCluster(t *testing.T) {
	t.Parallel()
	storm{workflows: 150, inAll: 15 * time.Second, lanes: 3, outage: func() {}}.rage(t, redistest.ClusterURL(t))
}

func (s storm) rage(t *testing.T, url string) {
	r := seed(t)
	c := connect(t, url)
	f := newFleet(t, url)
	began := time.Now()

	ctx, cancel := context.WithTimeout(t.Context(), s.inAll)
	defer cancel()
	plans := make(chan string, 1000)
	deaths := map[string]int{}
	var mu sync.Mutex // guards deaths
	for i := range cap(plans) {
		// Every other worker dies from outside; the others at each point in turn.
		plan := ""
		if i%2 == 1 {
			plan = fmt.Sprintf("%s %d", points[i/2%len(points)], 1+r.IntN(8))
		}
		plans <- plan
	}
	var crew sync.WaitGroup
	for lane := range s.lanes {
		rng := rand.New(rand.NewPCG(r.Uint64(), uint64(lane)))
		crew.Go(func() {
			for ctx.Err() == nil {
				plan := <-plans
				w, err := f.start(plan)
				if err != nil {
					t.Errorf("start worker: %v", err)
					return
				}
				f.doom(w)
				life := time.Duration(800+rng.IntN(2500)) * time.Millisecond
				if plan != "" {
					life = 6 * time.Second // it comes to its point long before
				}
				select {
				case <-w.done:
				case <-time.After(life):
					plan = "from outside"
				}
				w.kill()
				mu.Lock()
				deaths[pointOf(plan)]++
				mu.Unlock()
				if rng.IntN(2) == 0 { // half of them have a supervisor
					if err := insist(t.Context(), func(ctx context.Context) error { return tasks.ExpireLeases(ctx, c, w.name) }); err != nil {
						t.Errorf("expire leases: %v", err)
					}
				}
			}
		})
	}
	if s.freeze {
		crew.Go(func() { f.freezeOne(ctx, t) })
	}
	crew.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(s.inAll / 2):
		}
		s.outage()
	})

	all := make([]wanted, s.workflows)
	runs := make([]*tasks.AsyncResult[int], s.workflows)
	for i := range all {
		all[i] = growRoot(r)
		err := insist(t.Context(), func(ctx context.Context) error {
			id := fmt.Sprintf("chaos-%03d", i)
			run, err := all[i].sig.Send(ctx, c, tasks.ID(id), tasks.Retention(10*time.Minute))
			if errors.Is(err, tasks.ErrDuplicate) { // its answer got lost
				run, err = tasks.Attach[int](c, id), nil
			}
			runs[i] = run
			return err
		})
		if err != nil {
			t.Fatalf("send workflow %d: %v", i, err)
		}
		select {
		case <-time.After(time.Until(began.Add(s.inAll * time.Duration(i) / time.Duration(s.workflows)))):
		case <-t.Context().Done():
			return
		}
	}
	crew.Wait()
	var last []*worker
	for range s.lanes {
		w, err := f.start("")
		if err != nil {
			t.Fatal(err)
		}
		last = append(last, w)
	}
	limit, cancelWait := context.WithTimeout(t.Context(), waitLimit)
	defer cancelWait()
	for i, run := range runs {
		got, err := run.Wait(limit)
		var failure *tasks.Failure
		switch {
		case all[i].fails && (!errors.As(err, &failure) || failure.Message != errWanted.Error()):
			t.Errorf("workflow %d yielded %d, %v, want its failure", i, got, err)
		case !all[i].fails && (err != nil || got != all[i].value):
			t.Errorf("workflow %d yielded %d, %v, want %d", i, got, err, all[i].value)
		}
	}
	a := f.audit(limit, t, c)
	a.ended(runs)
	took := time.Since(began)
	for _, w := range last {
		w.stop()
	}
	a.runsOnce(runs)
	a.noLeftovers()
	mu.Lock()
	defer mu.Unlock()
	for _, p := range append(points, "from outside") {
		if s.freeze && deaths[p] == 0 { // the short storm has not time for all
			t.Errorf("no worker died %s", p)
		}
	}
	t.Logf("%d workflows, %d nodes, %d runs, %d of them again; deaths: %v; all ended after %s",
		s.workflows, a.nodes, a.runs, a.again, deaths, took.Round(100*time.Millisecond))
	if t.Failed() {
		t.Log(f.logs())
	}
}

func pointOf(plan string) string {
	for _, p := range points {
		if len(plan) > len(p) && plan[:len(p)] == p {
			return p
		}
	}
	return plan
}

// insist repeats what an outage of Redis can make fail.
func insist(ctx context.Context, do func(context.Context) error) error {
	for try := 0; ; try++ {
		err := do(ctx)
		if err == nil || try == 100 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// freezeFor is longer than the silence that others wait for.
const freezeFor = 12 * time.Second

// freezeOne stops a worker in the middle of its work for longer than others wait for it.
func (f *fleet) freezeOne(ctx context.Context, t *testing.T) {
	w, err := f.start("")
	if err != nil {
		t.Errorf("start worker: %v", err)
		return
	}
	f.doom(w)
	select {
	case <-ctx.Done():
	case <-time.After(4 * time.Second):
	}
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Errorf("freeze worker: %v", err)
	}
	select {
	case <-t.Context().Done():
	case <-time.After(freezeFor):
	}
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Errorf("thaw worker: %v", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(4 * time.Second):
	}
	w.stop()
}
