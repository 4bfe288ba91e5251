package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/facttest"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

// Short tasks run without asynq, one after the other in the slots there are, and leave as much of themselves
// as others: a count.
func TestShortTasksRunWithoutAsynq(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := engineOn(t, rdb)
		id := group(t, e, 30)
		w := NewWorker(e, echo(), config("one", silent))
		w.seam.mean.Store(1)
		own := make(chan bool, 30)
		run := w.seam.run
		w.seam.run = func(f fetched) { own <- true; run(f) }
		work(t, w)
		<-own
		facttest.Eventually(t, "all have run", func() bool {
			p, err := e.Progress(t.Context(), id)
			return err == nil && p.Ended && p.Done == p.Total
		})
		facttest.Eventually(t, "asynq has forgotten them", func() bool {
			n, err := rdb.Get(t.Context(), keys+"processed").Int()
			return rdb.LLen(t.Context(), keys+"active").Val()+rdb.ZCard(t.Context(), keys+"lease").Val() == 0 &&
				err == nil && n >= 30 // more if the machine was so slow that some were given back meanwhile
		})
		facttest.Eventually(t, "no slot is taken", func() bool { return w.seam.active.Load() == 0 })
		w.seam.mu.Lock()
		defer w.seam.mu.Unlock()
		if len(w.seam.own)+len(w.seam.begun) > 0 {
			t.Errorf("the seam still has %v and %v", w.seam.own, w.seam.begun)
		}
	})
}

// Asynq chooses the next queue after each batch.
func TestAsynqChoosesQueues(t *testing.T) {
	t.Parallel()
	e := engineOn(t, redistest.New(t))
	id := group(t, e, 3)
	cfg := config("one", silent)
	cfg.Queues = map[string]int{"default": 1, "other": 1}
	w := NewWorker(e, echo(), cfg)
	w.seam.mean.Store(1)
	if got, err := dequeue(w).Text(); err != nil || !strings.Contains(got, id) {
		t.Fatalf("asynq got %q, %v, want the last of three", got, err)
	}
	facttest.Eventually(t, "the others have run", func() bool {
		p, err := e.Progress(t.Context(), id)
		return err == nil && p.Done == 2
	})
}

// Asynq's recoverer leaves tasks alone that run without asynq, however long.
func TestLeasesAreProlonged(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	e := engineOn(t, rdb)
	w := NewWorker(e, echo(), config("one", silent))
	now := time.Now()
	lease := keys + "lease"
	rdb.ZAdd(t.Context(), lease, redis.Z{Score: 1, Member: "old"}, redis.Z{Score: 1, Member: "young"})
	w.seam.own["old"], w.seam.own["gone"] = held{lease, now.Add(-leaseKept)}, held{lease, now.Add(-leaseKept)}
	w.seam.own["young"] = held{lease, now}
	for range 2 {
		if err := w.seam.prolong(t.Context()); err != nil {
			t.Fatal(err)
		}
		if until := rdb.ZScore(t.Context(), lease, "old").Val(); until < float64(now.Add(asynqLease).Unix()) {
			t.Errorf("the lease ends at %v, now is %d", until, now.Unix())
		}
		if n, young := rdb.ZCard(t.Context(), lease).Val(), rdb.ZScore(t.Context(), lease, "young").Val(); n != 2 || young != 1 {
			t.Errorf("%d leases, that of the young one ends at %v; want 2, and 1", n, young)
		}
	}
}

// A slot that ends while fewer are allowed does not go on.
func TestSlotsDoNotGoOnPastTheLimit(t *testing.T) {
	t.Parallel()
	e := engineOn(t, redistest.New(t))
	w := NewWorker(e, echo(), config("one", silent))
	w.seam.mean.Store(1)
	w.seam.active.Store(3)
	w.seam.from = &batch{queue: "default"}
	w.seam.ahead = []store.Popped{{ID: "a", Task: "echo"}, {ID: "b", Task: "echo"}}
	if _, ok := w.seam.follow("default", 1); !ok {
		t.Fatal("the slot does not go on with what waits")
	}
	w.SetConcurrency(2)
	if next, ok := w.seam.follow("default", 1); ok || w.seam.active.Load() != 2 {
		t.Errorf("the slot goes on with %v; %d are active, want 2", next.ID, w.seam.active.Load())
	}
}

// A task whose outcome could not be stored is back in its queue.
func TestOwnTaskIsTriedAgain(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	e := engineOn(t, rdb)
	group(t, e, 1)
	w := NewWorker(e, echo(), config("one", silent))
	started := make(chan fetched, 1)
	w.seam.run = func(f fetched) { started <- f }
	w.seam.mean.Store(1)
	go dequeue(w)
	f := <-started
	w.seam.stop()
	w.startAhead(f.ID) // as its run does
	w.ended(f, errors.New("Redis is away"))
	if back := rdb.LRange(t.Context(), keys+"pending", 0, -1).Val(); len(back) != 1 || back[0] != f.ID {
		t.Errorf("in the queue is %v, want %s", back, f.ID)
	}
	if n := len(w.seam.own); n != 0 {
		t.Errorf("%d leases would be kept", n)
	}
}
