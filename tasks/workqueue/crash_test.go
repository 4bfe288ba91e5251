package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

// quiet is for failures that the test causes.
var quiet = slog.New(slog.DiscardHandler)

// crashConfig is the queue of TestKilledProcesses. Its leases outlast the test: the items of a killed process run again because
// other pools find that it is dead.
var crashConfig = workqueue.Config{LeaseTTL: time.Hour, MaxAttempts: 1000}

const crashWorkers = 2

// crashChild is a process of TestKilledProcesses: a pool that counts each run in
// Redis and ends when its standard input does.
func crashChild(url string) error {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	handle := func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		if err := rdb.HIncrBy(ctx, "runs", it.ID, 1).Err(); err != nil {
			return workqueue.Outcome{}, err
		}
		<-time.After(3 * time.Millisecond) // work
		return workqueue.Done().With(nil, []byte(it.ID)), nil
	}
	p, err := workqueue.NewPool(workqueue.New(rdb, "crash", crashConfig), workqueue.Handlers{"test": handle}, workqueue.PoolConfig{
		Workers: crashWorkers, Heartbeat: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	fmt.Println("up")
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return p.Run(ctx)
}

// child is a process that runs crashChild.
type child struct {
	*exec.Cmd
	end io.Closer
}

func startChild(t *testing.T, url string) child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WORKQUEUE_CRASH_CHILD="+url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	testutil.Ok(t, err)
	out, err := cmd.StdoutPipe()
	testutil.Ok(t, err)
	testutil.Ok(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := io.ReadFull(out, make([]byte, len("up\n"))); err != nil {
		t.Fatalf("a child did not start: %v", err)
	}
	return child{cmd, in}
}

// Processes that are killed at any moment lose no item, and only the items that
// they held run twice.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	const kills = 50
	url := redistest.URL(t)
	opt, err := redis.ParseURL(url)
	testutil.Ok(t, err)
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	k := &kit{workqueue.New(rdb, "crash", crashConfig), t, rdb}

	ids, items := numbered(200*kills), 0
	children := []child{startChild(t, url), startChild(t, url), startChild(t, url)}
	rng := rand.New(rand.NewPCG(1, 2))
	for range kills {
		// Kill in the middle of things: after some more items were done, and never when none is left.
		s, err := k.Stats(t.Context())
		testutil.Ok(t, err)
		if s.Open() < 200 {
			k.enqueue(ids[items : items+200]...)
			items += 200
		}
		goal := s.Done + 10 + rng.Int64N(40)
		k.eventually("more items to be done", func() bool {
			s, err := k.Stats(t.Context())
			return err == nil && s.Done >= goal
		})
		i := rng.IntN(len(children))
		_ = children[i].Process.Kill()
		_ = children[i].Wait()
		children[i] = startChild(t, url)
	}
	k.eventually("all items to be done", func() bool {
		s, err := k.Stats(t.Context())
		return err == nil && s.Done == int64(items)
	})
	for _, c := range children {
		_ = c.end.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("a child ended: got %v, want nil", err)
		}
	}
	k.wantStats(fmt.Sprint(0, 0, items, 0, 0))
	runs, err := rdb.HGetAll(t.Context(), "runs").Result()
	if err != nil || len(runs) != items {
		t.Fatalf("got runs of %d items, %v; want %d", len(runs), err, items)
	}
	again := 0
	for _, n := range runs {
		if n != "1" {
			again++
		}
	}
	if most := kills * crashWorkers * 3; again > most {
		t.Errorf("%d items ran more than once, want %d at most, held by %d killed processes", again, most, kills)
	}
	if n, _, err := k.Outputs().Backlog(t.Context()); n != int64(items) || err != nil {
		t.Errorf("got %d outputs, %v; want %d", n, err, items)
	}
}

// The leases of a live pool are not ended: not while it stops, not after Redis
// was away.
func TestLivePoolKeepsItsLeases(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	k := newKit(t, s.Client(), workqueue.Config{LeaseTTL: time.Hour})
	k.enqueue("slow")
	started, finish := make(chan struct{}), make(chan struct{})
	cfg := workqueue.PoolConfig{Workers: 1, Heartbeat: 400 * time.Millisecond, Logger: quiet}
	one := k.pool(cfg, func(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
		close(started)
		<-finish
		return workqueue.Done(), nil
	})
	stop, wait := k.start(one)
	<-started
	stop()
	k.enqueue("quick")
	two := k.pool(cfg, done)
	stopTwo, waitTwo := k.start(two)
	k.eventually("the quick one to be done", func() bool { return two.Stats().Done == 1 })

	s.Kill()
	s.Start()
	k.enqueue("later")
	k.eventually("the later one to be done", func() bool { return two.Stats().Done == 2 })
	beat, beats := "", 0
	k.eventually("heartbeats of both pools", func() bool {
		now := k.rdb.HGet(t.Context(), "muster:wq:{"+k.Name()+"}:meta", "beat").Val()
		if now != beat {
			beat = now
			beats++
		}
		return beats > 10 // a pool without any would have lost its leases
	})
	close(finish)
	wait()
	stopTwo()
	waitTwo()
	k.wantStats("0 0 3 0 0")
	if got := k.get("slow"); got.Attempts != 0 || one.Stats().Lost != 0 {
		t.Errorf("the slow one used %d attempts, want none; %+v", got.Attempts, one.Stats())
	}
}

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
	handle := func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
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
	}
	p, err := workqueue.NewPool(q, workqueue.Handlers{"test": handle}, workqueue.PoolConfig{Name: name, Workers: 2, Heartbeat: 30 * time.Millisecond, Grace: time.Millisecond, Drain: true, Logger: quiet})
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
