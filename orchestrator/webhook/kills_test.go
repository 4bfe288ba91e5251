package webhook

import (
	"context"
	"hash/fnv"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// process is a Service with a separate connection that can crash.
type process struct {
	rdb  *redis.Client
	dead *redistest.Fault
	stop context.CancelFunc
	done chan struct{}
}

func startProcess(t *testing.T, url string, deliveries int) *process {
	t.Helper()
	p := &process{dead: redistest.NewFault(redistest.Crash, 1), done: make(chan struct{})}
	p.rdb = p.dead.Client(t, url)
	cfg := quick(t, p.rdb)
	cfg.Workflows = tasks.NewClient(p.rdb)
	t.Cleanup(func() { _ = cfg.Workflows.Close() })
	cfg.Attempts, cfg.KeepCount = 0, deliveries // the default, and all
	cfg.Retry, cfg.MaxRetry = 10*time.Millisecond, 300*time.Millisecond
	s := testutil.Must(New(cfg))(t)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.done)
		_ = s.Run(ctx) // of one that dies it is of no interest
	}()
	return p
}

// kill simulates kill -9: the process stores and releases nothing more.
func (p *process) kill() {
	p.dead.Arm()
	p.stop()
}

// end stops a process as a signal does.
func (p *process) end() {
	p.stop()
	<-p.done
	_ = p.rdb.Close()
}

// A target fails half of the requests, and processes that relay and send are killed and stopped meanwhile: each event
// arrives, with one id and one body, and the queue and the log agree that it was delivered.
func TestNoDeliveryIsLost(t *testing.T) {
	t.Parallel()
	const n, kills = 2000, 6
	server := redistest.Server(t)
	url, rdb := server.URL(), server.Client()

	r := newReceiver(t, func(id string, before int) int {
		h := fnv.New32a()
		_, _ = h.Write([]byte(id + strconv.Itoa(before)))
		if before < 8 && h.Sum32()%2 == 0 {
			return []int{500, 503, 404, 429}[h.Sum32()/2%4]
		}
		return 200
	})
	cfg := quick(t, rdb)
	cfg.Workflows = tasks.NewClient(rdb)
	t.Cleanup(func() { _ = cfg.Workflows.Close() })
	k := open(t, cfg)
	e, secret := k.create(t, r.URL, "job.*", "workflow.revoked")
	wg := sync.WaitGroup{}
	wg.Go(func() {
		for i := range n {
			var err error
			if i%2 == 0 {
				_, err = k.events.Add(context.Background(), "job.completed", "", "", nil)
			} else if run, sendErr := tasks.New[int, struct{}]("work").S(1).Send(context.Background(), cfg.Workflows); sendErr == nil {
				err = run.Revoke(context.Background())
			} else {
				err = sendErr
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	began := time.Now()
	a, b := startProcess(t, url, n), startProcess(t, url, n)
	var dead []*process
	arrived := func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.all) }
	for i := range kills {
		testutil.Eventually(t, "more requests", func() bool { return arrived() >= (i+1)*n/(kills+1) })
		if i%2 == 0 {
			a.kill()
			dead = append(dead, a)
			a = startProcess(t, url, n)
		} else {
			b.end()
			b = startProcess(t, url, n)
		}
	}
	wg.Wait()
	finished := func() bool {
		is, err := k.Get(context.Background(), e.ID)
		return err == nil && is.Pending == 0 && is.Delivered == int64(n) && k.passed(t)
	}
	for deadline := time.Now().Add(10 * time.Minute); !finished() && time.Now().Before(deadline); {
		testutil.Becomes(finished)
	}
	took := time.Since(began)
	a.end()
	b.end()
	for _, p := range dead {
		p.end()
	}
	s, err := k.queue.Stats(t.Context())
	if err != nil || s.Done != int64(n) || s.Open() > 0 || s.Error > 0 || s.Skipped > 0 {
		t.Errorf("got %+v, %v, want %d deliveries done", s, err, n)
	}
	ok := map[string]bool{}
	failed := 0
	for _, g := range r.requests() {
		if g.status == 200 {
			ok[g.id] = true
		} else {
			failed++
		}
	}
	if len(ok) != n || len(r.times) != n || len(r.wrong) > 0 {
		t.Errorf("got %d ids of which %d were acknowledged, and %d with two bodies, want %d, all, and none", len(r.times), len(ok), len(r.wrong), n)
	}
	if g := r.requests()[0]; !g.verified(secret) {
		t.Error("the first request is not signed with the secret")
	}
	total := len(r.requests())
	t.Logf("%d deliveries in %s with %d kills and stops: %d requests, %d of them failed, %d more than needed", n, took.Round(time.Millisecond), kills, total, failed, total-failed-n)
}
