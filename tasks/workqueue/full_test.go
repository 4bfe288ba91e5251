package workqueue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"muster/tasks/limit"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// fill enqueues large items until Redis rejects one, and then fills the memory that is left. It returns the IDs of those
// that were added, the one that was not, and its error.
func (k *kit) fill() (added []string, last workqueue.Item, err error) {
	last = workqueue.Item{Kind: "test", Payload: make([]byte, 512<<10)}
	for i := 0; i < 100; i++ {
		last.ID = fmt.Sprint("big", i)
		if _, err = k.Enqueue(k.t.Context(), last); err != nil {
			break
		}
		added = append(added, last.ID)
	}
	for i := 0; i < 3; { // to the last byte
		if k.rdb.SetNX(k.t.Context(), fmt.Sprint("filler", rand.Int()), make([]byte, 2<<10), 0).Err() != nil {
			i++
		}
	}
	return added, last, err
}

// A full Redis rejects new items, each call as a whole, and the other items can be worked on to their end; when there is
// room again everything works.
func TestQueueInFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "maxmemory", "8mb", "maxmemory-policy", "noeviction")
	k := newKit(t, s.Client(), workqueue.Config{})
	k.enqueue("done", "failing", "returned", "later")
	first := k.lease("w", 3)
	added, big, err := k.fill()
	if !errors.Is(err, workqueue.ErrFull) || !strings.Contains(err.Error(), "maxmemory") {
		t.Fatalf("got %v, want %v", err, workqueue.ErrFull)
	}
	if got, err := k.Get(t.Context(), big.ID); err != nil || len(got) != 0 {
		t.Fatalf("got %+v, %v; want no part of the item", got, err)
	}
	held := k.workWhileFull(first)
	k.wantStats(fmt.Sprint(1+len(added), " 2 1 0 0"))

	if err := s.Client().ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := k.enqueue(big.ID, "last"); n != 2 {
		t.Errorf("got %d new, want 2", n)
	}
	if err := k.Return(t.Context(), held...); err != nil {
		t.Fatal(err)
	}
	for _, l := range k.lease("w", 100) {
		k.settle(l, workqueue.Done())
	}
	k.wantStats(fmt.Sprint("1 0 ", 3+len(added)+2, " 0 0"))
}

// workWhileFull ends three leases in three ways, reads the outputs, and returns two new leases.
func (k *kit) workWhileFull(first []workqueue.Leased) []workqueue.Leased {
	t, ctx := k.t, k.t.Context()
	if lost, err := k.Heartbeat(ctx, first...); err != nil || len(lost) != 0 {
		t.Errorf("heartbeat: got %v, %v; want none lost", lost, err)
	}
	k.settle(first[0], workqueue.Done().With([]byte("r"), []byte("o")))
	if s := k.retry(first[1], time.Hour); s != workqueue.StateQueued {
		t.Errorf("retry: got %s, want %s", s, workqueue.StateQueued)
	}
	if err := k.Return(ctx, first[2]); err != nil {
		t.Error(err)
	}
	held := k.lease("w", 2)
	if got, want := ids(held), "returned later"; got != want {
		t.Errorf("leased %s, want %s", got, want)
	}
	out, err := k.Outputs().Read(ctx, 10, 0)
	if err != nil || len(out) != 1 {
		t.Fatalf("got outputs %v, %v; want one", out, err)
	}
	r, err := k.Outputs().Claim(ctx, "r", time.Minute)
	if err != nil {
		t.Fatalf("claim the outputs: %v", err)
	}
	if err := errors.Join(r.Ack(ctx, out[0].Seq, map[string]string{"n": "1"}), r.Release(ctx)); err != nil {
		t.Errorf("acknowledge: %v", err)
	}
	return held
}

// Leased items can also be passed on, ended ones amended, and the queue sealed, while Redis is full; nothing can be added
// under a lease.
func TestQueueChangesInFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "maxmemory", "8mb", "maxmemory-policy", "noeviction")
	k := newKit(t, s.Client(), workqueue.Config{CountLanes: true})
	k.enqueue("a", "b", "c")
	ls := k.lease("w", 3)
	k.settle(ls[0], workqueue.Failed(errors.New("e")))
	added, last, err := k.fill()
	if !errors.Is(err, workqueue.ErrFull) {
		t.Fatalf("got %v, want %v", err, workqueue.ErrFull)
	}
	// Redis can have freed some memory since, so that one more gets in.
	err = nil
	for i := 0; i < 10 && err == nil; i++ {
		var n int
		last.ID = fmt.Sprint("under", i)
		if n, err = k.EnqueueUnder(t.Context(), ls[1], last); n == 1 {
			added = append(added, last.ID)
		}
	}
	if !errors.Is(err, workqueue.ErrFull) {
		t.Fatalf("enqueue under a lease: got %v, want %v", err, workqueue.ErrFull)
	}
	k.pass(ls[1], workqueue.Item{ID: "b", Kind: "next", ResourceKeys: []string{"h"}})
	k.amend("a", workqueue.StateError, workqueue.Done())
	k.seal()
	k.wantLost(ls[2])
	k.unseal()
	k.wantLanes(map[string]string{"": fmt.Sprint(1+len(added), " 0 1 0 0"), "h": "1 0 0 0 0"})
}

func TestLimitsInFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "maxmemory", "8mb", "maxmemory-policy", "noeviction")
	k := newKit(t, s.Client(), workqueue.Config{})
	if _, _, err := k.fill(); !errors.Is(err, workqueue.ErrFull) {
		t.Fatalf("got %v, want %v", err, workqueue.ErrFull)
	}
	slots := limit.NewKeyedLimiter(s.Client(), limit.KeyedConfig{})
	if slot, err := slots.Acquire(t.Context(), "h"); err != nil {
		t.Error(err)
	} else if err := slot.Release(t.Context()); err != nil {
		t.Error(err)
	}
	pacer := limit.NewPacer(s.Client(), limit.PacerConfig{})
	if _, _, err := pacer.Reserve(t.Context(), "h", 0); err != nil {
		t.Error(err)
	}
	if err := pacer.NotBefore(t.Context(), "h", time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if ok, _, err := limit.NewTokenBucket(s.Client(), limit.BucketConfig{}).Try(t.Context(), "h", 1); !ok || err != nil {
		t.Errorf("a token: got %v, %v; want true", ok, err)
	}
	b := limit.NewBreaker(s.Client(), limit.BreakerConfig{})
	p, ok, _, err := b.Allow(t.Context(), "h")
	if !ok || err != nil {
		t.Fatalf("a permit: got %v, %v; want true", ok, err)
	}
	if err := p.Failure(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}
