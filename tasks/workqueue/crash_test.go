package workqueue_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// crashConfig is the queue of TestKilledProcesses.
var crashConfig = workqueue.Config{LeaseTTL: 400 * time.Millisecond, MaxAttempts: 1000}

const crashWorkers = 2

// crashChild is a process of TestKilledProcesses: a pool that notes each run in
// Redis and ends when the queue is empty.
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
		Workers: crashWorkers, Drain: true, Heartbeat: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	fmt.Println("up")
	return p.Run(context.Background())
}

// Processes that are killed at any moment lose no item, and run none twice but
// those that they held.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	const items, kills = 5000, 50
	url := redistest.URL(t)
	opt, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	k := &kit{workqueue.New(rdb, "crash", crashConfig), t, rdb}
	k.enqueue(numbered(items)...)

	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "WORKQUEUE_CRASH_CHILD="+url)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		if _, err := io.ReadFull(out, make([]byte, len("up\n"))); err != nil {
			t.Fatalf("a child did not come up: %v", err)
		}
		return cmd
	}
	children := []*exec.Cmd{start(), start(), start()}
	rng := rand.New(rand.NewPCG(1, 2))
	killed := 0
	for range kills {
		// Kill in the middle of things: after some more items were done.
		s, err := k.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Open() == 0 {
			break
		}
		goal := min(s.Done+10+rng.Int64N(40), items)
		k.eventually("more items to be done", func() bool {
			s, err := k.Stats(t.Context())
			return err == nil && s.Done >= goal
		})
		i := rng.IntN(len(children))
		_ = children[i].Process.Kill()
		_ = children[i].Wait()
		killed++
		children[i] = start()
	}
	if killed < kills/2 {
		t.Fatalf("only %d processes were killed before the queue was empty", killed)
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Errorf("a child ended with %v", err)
		}
	}
	k.wantStats(fmt.Sprint(0, 0, items, 0, 0))
	runs, err := rdb.HGetAll(t.Context(), "runs").Result()
	if err != nil || len(runs) != items {
		t.Fatalf("%d of %d items ran: %v", len(runs), items, err)
	}
	again := 0
	for _, n := range runs {
		if n != "1" {
			again++
		}
	}
	if most := killed * crashWorkers * 3; again > most {
		t.Errorf("%d items ran more than once; %d were held by the %d killed processes", again, most, killed)
	}
	if n, err := k.Outputs().Len(t.Context()); n != items || err != nil {
		t.Errorf("%d outputs of %d items, %v", n, items, err)
	}
}
