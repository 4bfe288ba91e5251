//go:build e2e && unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// storm contains the parameters of a chaos test.
type storm struct {
	workflows int
	inAll     time.Duration // duration of sending and killing
	lanes     int           // concurrent worker processes
	freeze    bool          // freeze one worker until others take over
	outage    func()        // outage of Redis at half-time
}

// TestChaos sends nested workflows of all kinds to four worker processes. They are killed at random times and at named points; one
// is frozen until other workers take over its tasks, and continues; Redis is killed and restarted with its append-only file.
// With the environment variable MUSTER_CHAOS_WORKFLOWS it sends more workflows, for longer: 10,000 for 13 minutes.
func TestChaos(t *testing.T) {
	t.Parallel()
	n := 300
	if text := os.Getenv("MUSTER_CHAOS_WORKFLOWS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 300 {
			t.Fatalf("MUSTER_CHAOS_WORKFLOWS=%s: give a number of at least 300", text)
		}
	}
	srv := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	storm{workflows: n, inAll: time.Duration(n) * 80 * time.Millisecond, lanes: 4, freeze: true, outage: func() {
		srv.Kill()
		srv.Start()
	}}.rage(t, srv.URL())
}

// TestChaosOnCluster kills workers on a Redis Cluster of three nodes.
func TestChaosOnCluster(t *testing.T) {
	t.Parallel()
	storm{workflows: 150, inAll: 15 * time.Second, lanes: 3, outage: func() {}}.rage(t, redistest.ClusterURL(t))
}

// rage runs the storm and checks the result: every workflow finishes as expected, no task ran without a reason, and no key remains.
func (s storm) rage(t *testing.T, url string) {
	r := seed(t)
	f, c := newFleet(t, url), connect(t, url)
	began := time.Now()
	k := s.startKilling(t, f, c, r)
	all := s.send(t, c, r)
	k.wait()

	var last []*worker
	for range s.lanes {
		w := testutil.Must(f.start(""))(t)
		last = append(last, w)
	}
	limit, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var runs []*tasks.Run[int]
	for _, w := range all {
		got, err := w.run.Wait(limit)
		w.check(t, got, err)
		runs = append(runs, w.run)
	}
	a := f.audit(limit, t, c)
	a.ended(runs)
	took := time.Since(began)
	for _, w := range last {
		w.stop()
	}
	a.runsOnce(runs)
	a.noLeftovers()
	if s.freeze { // a short storm does not reach all points
		k.checkPoints(t)
	}
	t.Logf("%d workflows, %d nodes, %d runs, %d repeated; deaths: %v; all finished after %s",
		s.workflows, a.nodes, a.runs, a.again, k.deaths, took.Round(100*time.Millisecond))
	if t.Failed() {
		t.Log(f.logs())
	}
}

// send sends the workflows, evenly distributed over the storm.
func (s storm) send(t *testing.T, c *tasks.Client, r *rand.Rand) []sent {
	began := time.Now()
	all := make([]sent, s.workflows)
	for i := range all {
		all[i] = randomFlow(r)
		err := insist(t.Context(), func(ctx context.Context) error {
			id := fmt.Sprintf("chaos-%03d", i)
			run, err := all[i].Send(ctx, c, tasks.ID(id), tasks.Retention(s.inAll+10*time.Minute))
			if errors.Is(err, tasks.ErrDuplicate) { // an earlier attempt succeeded, but its reply was lost
				run, err = tasks.Attach[int](c, id), nil
			}
			all[i].run = run
			return err
		})
		if err != nil {
			t.Fatalf("send workflow %d: %v", i, err)
		}
		pause(t.Context(), time.Until(began.Add(s.inAll*time.Duration(i)/time.Duration(s.workflows))))
	}
	return all
}

// killing starts and kills workers for the duration of the storm.
type killing struct {
	f     *fleet
	c     *tasks.Client
	plans chan string // point of death of the next worker, "<point> <visit>", or "" for a random time
	group sync.WaitGroup

	mu     sync.Mutex
	deaths map[string]int // by point
}

const fromOutside = "from outside"

// startKilling starts the lanes of workers, the outage and optionally the freeze.
func (s storm) startKilling(t *testing.T, f *fleet, c *tasks.Client, r *rand.Rand) *killing {
	ctx, cancel := context.WithTimeout(t.Context(), s.inAll)
	t.Cleanup(cancel)
	k := &killing{f: f, c: c, plans: make(chan string, s.workflows), deaths: map[string]int{}}
	for i := range cap(k.plans) {
		// Every second worker is killed externally; the others at each point in turn.
		plan := ""
		if i%2 == 1 {
			plan = fmt.Sprintf("%s %d", points[i/2%len(points)], 1+r.IntN(8))
		}
		k.plans <- plan
	}
	for lane := range s.lanes {
		rng := rand.New(rand.NewPCG(r.Uint64(), uint64(lane)))
		k.group.Go(func() {
			for ctx.Err() == nil {
				if err := k.killOne(t.Context(), rng); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if s.freeze {
		k.group.Go(func() { f.freezeOne(ctx, t) })
	}
	k.group.Go(func() {
		pause(ctx, s.inAll/2)
		s.outage()
	})
	return k
}

// killOne starts a worker and kills it unless it dies first.
func (k *killing) killOne(ctx context.Context, rng *rand.Rand) error {
	plan := <-k.plans
	w, err := k.f.start(plan)
	if err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	k.f.doom(w)
	life := time.Duration(800+rng.IntN(2500)) * time.Millisecond
	if plan != "" {
		life = 6 * time.Second // it usually reaches its point earlier
	}
	select {
	case <-w.done:
	case <-time.After(life):
		plan = fromOutside
	}
	w.kill()
	k.mu.Lock()
	k.deaths[pointOf(plan)]++
	k.mu.Unlock()
	if rng.IntN(2) == 0 { // half of the workers have a supervisor
		if err := insist(ctx, func(ctx context.Context) error { return k.c.ExpireLeases(ctx, w.name) }); err != nil {
			return fmt.Errorf("expire leases: %w", err)
		}
	}
	return nil
}

// wait waits until the last worker has been killed.
func (k *killing) wait() { k.group.Wait() }

// checkPoints checks that a worker died at each point and one externally.
func (k *killing) checkPoints(t *testing.T) {
	t.Helper()
	for _, p := range append(slices.Clone(points), fromOutside) {
		if k.deaths[p] == 0 {
			t.Errorf("no worker died %s", p)
		}
	}
}

// pointOf returns the point of a plan without the visit.
func pointOf(plan string) string {
	for _, p := range points {
		if strings.HasPrefix(plan, p+" ") {
			return p
		}
	}
	return plan
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// insist retries do during an outage of Redis.
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

// freezeFor is longer than the heartbeat timeout of a worker.
const freezeFor = 12 * time.Second

// freezeOne freezes a working worker until others take over its tasks.
func (f *fleet) freezeOne(ctx context.Context, t *testing.T) {
	w, err := f.start("")
	if err != nil {
		t.Errorf("start worker: %v", err)
		return
	}
	f.doom(w)
	pause(ctx, 4*time.Second)
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Errorf("freeze worker: %v", err)
	}
	pause(t.Context(), freezeFor)
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Errorf("thaw worker: %v", err)
	}
	pause(ctx, 4*time.Second)
	w.stop()
}
