//go:build e2e && unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
)

// storm contains the parameters of a chaos test.
type storm struct {
	workflows int
	lanes     int    // concurrent worker processes
	freeze    bool   // freeze one worker until others take over
	outage    func() // outage of Redis at half-time
}

// TestChaos sends nested workflows of all kinds to four worker processes. They are killed at random times and at named points; one
// is frozen until other workers take over its tasks, and continues; Redis is killed and restarted with its append-only file.
// With the environment variable MUSTER_CHAOS_WORKFLOWS it sends more workflows, for longer: 10,000 for 13 minutes.
func TestChaos(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	storm{workflows: max(300, number(t, "MUSTER_CHAOS_WORKFLOWS", 300)), lanes: 4, freeze: true, outage: func() {
		srv.Kill()
		srv.Start()
	}}.rage(t, srv.URL())
}

// TestChaosOnCluster kills workers on a Redis Cluster of three nodes.
func TestChaosOnCluster(t *testing.T) {
	t.Parallel()
	storm{workflows: 190, lanes: 3, outage: func() {}}.rage(t, redistest.ClusterURL(t))
}

// rage runs the storm and checks the result: every workflow finishes as expected, no task ran without a reason, and no key remains.
func (s storm) rage(t *testing.T, url string) {
	const pace = 80 * time.Millisecond
	r := seed(t)
	f, c := newWorkers(t, url), connect(t, url)
	began := time.Now()
	k := s.startKilling(f, c, r, time.Duration(s.workflows)*pace)
	flows := startStream(t, c, r, "chaos", s.workflows, pace)
	flows.ended.Wait()
	k.group.Wait()
	for range s.lanes {
		f.start("")
	}
	counts, _ := flows.finish(f, nil)
	if s.freeze { // a short storm does not reach all points
		for _, p := range append(slices.Clone(points), fromOutside) {
			if k.deaths[p] == 0 {
				t.Errorf("no worker died %s", p)
			}
		}
	}
	t.Logf("%d workflows, %s; deaths: %v; audited after %s", s.workflows, counts, k.deaths, time.Since(began).Round(100*time.Millisecond))
}

// killing starts and kills workers for the duration of the storm.
type killing struct {
	f     *workers
	c     *tasks.Client
	group sync.WaitGroup

	mu     sync.Mutex     // guards the fields below
	n      int            // started workers
	deaths map[string]int // by point
}

const fromOutside = "from outside"

// startKilling starts the lanes of workers, the outage and optionally the freeze.
func (s storm) startKilling(f *workers, c *tasks.Client, r *rand.Rand, inAll time.Duration) *killing {
	ctx, cancel := context.WithTimeout(f.t.Context(), inAll)
	f.t.Cleanup(cancel)
	k := &killing{f: f, c: c, deaths: map[string]int{}}
	for lane := range s.lanes {
		rng := rand.New(rand.NewPCG(r.Uint64(), uint64(lane)))
		k.group.Go(func() {
			for ctx.Err() == nil {
				k.killOne(rng)
			}
		})
	}
	if s.freeze {
		k.group.Go(func() { f.freezeOne(ctx) })
	}
	k.group.Go(func() {
		pause(ctx, inAll/2)
		s.outage()
	})
	return k
}

// killOne starts a worker and kills it unless it dies first. Every second worker is killed externally, at a random time; the others at
// each point in turn.
func (k *killing) killOne(rng *rand.Rand) {
	point, plan, life := fromOutside, "", time.Duration(800+rng.IntN(2500))*time.Millisecond
	k.mu.Lock()
	if k.n++; k.n%2 == 0 {
		point = points[k.n/2%len(points)]
		plan, life = fmt.Sprint(1+rng.IntN(8), " ", point), 6*time.Second // it usually dies earlier
	}
	k.mu.Unlock()
	w := k.f.start(plan)
	w.doomed = true
	select {
	case <-w.done:
	case <-time.After(life):
		point = fromOutside
	}
	w.end(syscall.SIGKILL)
	k.mu.Lock()
	k.deaths[point]++
	k.mu.Unlock()
	if rng.IntN(2) == 0 { // half of the workers have a supervisor
		if err := insist(k.f.t.Context(), func(ctx context.Context) error { return k.c.ExpireLeases(ctx, w.name) }); err != nil {
			k.f.t.Errorf("expire leases: %v", err)
		}
	}
}

// freezeFor is longer than the heartbeat timeout of a worker.
const freezeFor = 12 * time.Second

// freezeOne freezes a working worker until others take over its tasks.
func (f *workers) freezeOne(ctx context.Context) {
	w := f.start("")
	w.doomed = true
	pause(ctx, 4*time.Second)
	if err := freeze(f.t.Context(), w.cmd.Process.Pid, freezeFor); err != nil {
		f.t.Errorf("freeze worker: %v", err)
	}
	pause(ctx, 4*time.Second)
	w.end(syscall.SIGTERM)
}

// freeze suspends a process for d, or until ctx is done.
func freeze(ctx context.Context, pid int, d time.Duration) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, d)
	return syscall.Kill(pid, syscall.SIGCONT)
}

// sent is a random workflow that was sent.
type sent struct {
	taskstest.Random
	run       *tasks.Run[int]
	began, at time.Time // of the call that succeeded
}

func randomFlow(r *rand.Rand) sent { return sent{Random: taskstest.NewRandom(r.Uint64())} }

// wait waits until all tasks of the workflow have ended, despite outages of Redis. It returns an error if the result is not the
// expected one, and ErrNotFound for an unknown workflow.
func (s sent) wait(ctx context.Context) error {
	var wrong error
	err := insist(ctx, func(ctx context.Context) error {
		got, end := s.run.Wait(ctx)
		if wrong = nil; errors.Is(end, tasks.ErrNotFound) {
			wrong = end
			return nil
		}
		if end != nil && !errors.As(end, new(*tasks.Failure)) {
			return end
		}
		if text := s.Differs(got, end); text != "" {
			wrong = fmt.Errorf("workflow %s: %s", s.run.ID(), text)
		}
		return s.run.WaitAll(ctx)
	})
	return errors.Join(err, wrong)
}

// stream sends workflows, until it is stopped or has sent all.
type stream struct {
	t       *testing.T
	c       *tasks.Client
	stop    context.CancelFunc
	ended   sync.WaitGroup
	repeats atomic.Int64 // sends that failed and were repeated

	mu   sync.Mutex // guards sent
	sent []sent
}

// startStream sends at most n workflows, one per interval. A send that fails is repeated with the same ID.
func startStream(t *testing.T, c *tasks.Client, r *rand.Rand, name string, n int, interval time.Duration) *stream {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{t: t, c: c, stop: cancel}
	start := time.Now()
	s.ended.Go(func() {
		for i := 0; i < n && ctx.Err() == nil; i++ {
			one := randomFlow(r)
			id := fmt.Sprintf("%s-%04d", name, i)
			err := insist(t.Context(), func(ctx context.Context) (err error) {
				one.began = time.Now()
				one.run, err = one.Send(ctx, c, tasks.ID(id), tasks.Unique(id, time.Hour), tasks.Retention(30*time.Minute))
				if errors.Is(err, tasks.ErrDuplicate) && one.run.ID() == id { // an earlier attempt succeeded, but its reply was lost
					err = nil
				}
				if err != nil {
					s.repeats.Add(1)
				}
				return err
			})
			if err != nil {
				t.Errorf("send workflow %s: %v", id, err)
				return
			}
			one.at = time.Now()
			s.mu.Lock()
			s.sent = append(s.sent, one)
			s.mu.Unlock()
			pause(ctx, time.Until(start.Add(interval*time.Duration(i+1))))
		}
	})
	t.Cleanup(s.end)
	return s
}

func (s *stream) end() {
	s.stop()
	s.ended.Wait()
}

// acked returns the workflows that were sent so far.
func (s *stream) acked() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// finish stops the stream, checks that each workflow has the expected result, and audits the workers. mayBeLost reports whether the
// workflow of the ith send may be unknown; nil for none. It returns the counts of the audit, and how many workflows are unknown.
func (s *stream) finish(f *workers, mayBeLost func(i int, one sent) bool) (counts string, unknown int) {
	s.t.Helper()
	s.end()
	limit, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	var runs []*tasks.Run[int]
	for i, one := range s.acked() {
		err := one.wait(limit)
		if errors.Is(err, tasks.ErrNotFound) && mayBeLost != nil && mayBeLost(i, one) {
			unknown++
			continue
		}
		if err != nil {
			s.t.Error(err)
		}
		runs = append(runs, one.run)
	}
	return f.audit(limit, s.c, runs), unknown
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
		if err == nil || try == 100 || ctx.Err() != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// seed returns a random source for a test. It prints the seed and reads it from the environment if set.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := number(t, "MUSTER_CHAOS_SEED", int(rand.Uint64()>>12))
	fmt.Fprintf(os.Stderr, "%s: MUSTER_CHAOS_SEED=%d\n", t.Name(), n)
	return rand.New(rand.NewPCG(uint64(n), 1))
}

func connect(t *testing.T, url string) *tasks.Client {
	t.Helper()
	c := testutil.Must(tasks.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connectWorkers returns a client and starts two workers.
func connectWorkers(t *testing.T, url string) (*tasks.Client, *workers) {
	t.Helper()
	f := newWorkers(t, url)
	for range 2 {
		f.start("")
	}
	return connect(t, url), f
}

// waitLimit is the time within which workflows must finish after the last failure.
const waitLimit = 60 * time.Second
