package workqueue_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// quiet is for failures that the test causes.
var quiet = slog.New(slog.DiscardHandler)

// crashConfig is the queue of TestKilledProcesses.
var crashConfig = workqueue.Config{LeaseTTL: 2 * time.Second, MaxAttempts: 1000}

const crashWorkers = 2

// crashChild is a process of TestKilledProcesses: a pool that counts each run in
// Redis and ends when its standard input does.
func crashChild(url string) error {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	mux := workqueue.NewMux()
	mux.Handle("test", func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		if err := rdb.HIncrBy(ctx, "runs", it.ID, 1).Err(); err != nil {
			return workqueue.Outcome{}, err
		}
		<-time.After(3 * time.Millisecond) // work
		return workqueue.Done().With(nil, []byte(it.ID)), nil
	})
	p, err := workqueue.NewPool(workqueue.New(rdb, "crash", crashConfig), mux, workqueue.PoolConfig{
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
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	k := &kit{workqueue.New(rdb, "crash", crashConfig), t, rdb}

	ids, items := numbered(200*kills), 0
	children := []child{startChild(t, url), startChild(t, url), startChild(t, url)}
	rng := rand.New(rand.NewPCG(1, 2))
	for range kills {
		// Kill in the middle of things: after some more items were done, and never when none is left.
		s, err := k.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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
	if n, err := k.Outputs().Len(t.Context()); n != int64(items) || err != nil {
		t.Errorf("got %d outputs, %v; want %d", n, err, items)
	}
}

// The items of a process that was killed run in another within seconds, however
// long their leases are.
func TestDeadPoolIsFound(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{LeaseTTL: time.Hour})
	k.enqueue(numbered(20)...)
	hang := func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		<-ctx.Done()
		return workqueue.Outcome{}, ctx.Err()
	}
	// A process that dies closes its connections and sends nothing more.
	dying := redis.NewClient(&redis.Options{
		Addr: k.rdb.(*redis.Client).Options().Addr, DB: k.rdb.(*redis.Client).Options().DB,
	})
	mux := workqueue.NewMux()
	mux.Handle("test", hang)
	victim, err := workqueue.NewPool(workqueue.New(dying, k.Name(), workqueue.Config{LeaseTTL: time.Hour}), mux,
		workqueue.PoolConfig{Workers: 4, Heartbeat: 20 * time.Millisecond, Grace: time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = victim.Run(ctx)
	}()
	k.eventually("the items to be taken", func() bool { return victim.Stats().Running > 0 })
	if err := dying.Close(); err != nil {
		t.Fatal(err)
	}
	k.run(k.pool(workqueue.PoolConfig{Drain: true, Heartbeat: 20 * time.Millisecond, Logger: quiet}, done))
	k.wantStats("0 0 20 0 0")
	if s, err := k.Stats(t.Context()); err != nil || s.Expired == 0 {
		t.Errorf("got %+v, %v; want expired leases", s, err)
	}
	cancel()
	<-ended
}

// A pool leases nothing before the others know of it: if it died then, its items would wait until their leases expire.
func TestPoolIsKnownBeforeItWorks(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	k := newKit(t, redistest.NewFault(redistest.Refused, 0).Client(t, url), workqueue.Config{})
	k.enqueue("a")
	beats := 0
	f := redistest.NewFault(redistest.Refused, redistest.EveryCall) // the first beats
	f.Match = func(cmd redis.Cmder) bool {
		if args := cmd.Args(); args[len(args)-1] != "lease expired: its worker died" {
			return false
		}
		beats++ // a pool has one goroutine for them
		return beats < 10
	}
	f.Arm()
	own := f.Client(t, url)
	mux := workqueue.NewMux()
	mux.Handle("test", func(ctx context.Context, _ workqueue.Leased) (workqueue.Outcome, error) {
		if n, err := k.rdb.ZCard(ctx, "muster:wq:{"+k.Name()+"}:pools").Result(); n == 0 || err != nil {
			t.Error("a handler ran before a beat was stored, want the beat first")
		}
		return workqueue.Done(), nil
	})
	p, err := workqueue.NewPool(workqueue.New(own, k.Name(), workqueue.Config{}), mux,
		workqueue.PoolConfig{Drain: true, Heartbeat: 20 * time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	k.run(p)
	k.wantStats("0 0 1 0 0")
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
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = one.Run(ctx) })
	<-started
	stop()
	k.enqueue("quick")
	two := k.pool(cfg, done)
	both, stopBoth := context.WithCancel(t.Context())
	wg.Go(func() { _ = two.Run(both) })
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
	stopBoth()
	wg.Wait()
	k.wantStats("0 0 3 0 0")
	if got := k.get("slow"); got.Attempts != 0 || one.Stats().Lost != 0 {
		t.Errorf("the slow one used %d attempts, want none; %+v", got.Attempts, one.Stats())
	}
}
