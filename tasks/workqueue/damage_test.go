package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// mixed returns a queue with items in each state: done, held, queued, later and failed, an output, and a reader.
func mixed(t *testing.T) (k *kit, held workqueue.Leased) {
	t.Helper()
	rdb := redistest.New(t)
	k = &kit{workqueue.New(rdb, "damaged", workqueue.Config{MaxAttempts: 1, CountLanes: true, Logger: quiet}), t, rdb}
	k.enqueue("done", "failed", "held", "queued")
	if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: "later", Kind: "test", NotBefore: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	k.settle(k.leaseOne("w"), workqueue.Done().With([]byte("result"), []byte("output")))
	k.retry(k.leaseOne("w"), 0)
	held = k.leaseOne("w")
	r, err := k.Outputs().Claim(t.Context(), "reader", time.Hour)
	if err == nil {
		err = r.Ack(t.Context(), "", map[string]string{"note": "text"})
	}
	if err != nil {
		t.Fatal(err)
	}
	k.rdb.ZAdd(t.Context(), "muster:wq:{damaged}:pools", redisMember("pool", time.Now().Add(time.Hour)))
	return k, held
}

func redisMember(name string, at time.Time) redis.Z {
	return redis.Z{Score: float64(at.UnixMilli()), Member: name}
}

// useQueue uses each key of a queue, and returns the errors.
func useQueue(ctx context.Context, k *kit, held workqueue.Leased) (errs []error) {
	note := func(_ any, err error) {
		if err != nil && !errors.Is(err, workqueue.ErrLeaseLost) && !errors.Is(err, workqueue.ErrOtherReader) {
			errs = append(errs, err)
		}
	}
	note(k.Enqueue(ctx, workqueue.Item{ID: "new", Kind: "test"}))
	got, err := k.Lease(ctx, "w", 10)
	note(got, err)
	for _, l := range got {
		note(nil, k.Settle(ctx, l, workqueue.Done()))
	}
	note(k.Heartbeat(ctx, held))
	note(nil, k.Settle(ctx, held, workqueue.Done()))
	note(k.Stats(ctx))
	note(k.LaneStats(ctx))
	_, _, err = k.Scan(ctx, "", 10)
	note(nil, err)
	note(k.Get(ctx, "done", "failed", "held", "queued", "later"))
	note(k.Failed(ctx, 0, 10))
	note(k.LastFailed(ctx, 10))
	note(k.Outputs().Read(ctx, 10, 0))
	note(k.Outputs().Notes(ctx))
	_, _, err = k.Outputs().Backlog(ctx)
	note(nil, err)
	note(k.Outputs().Claim(ctx, "other", time.Hour))
	note(k.ReturnStrays(ctx, "w"))
	note(k.ExpireWorker(ctx, "gone"))
	note(k.Requeue(ctx, workqueue.RequeueOptions{States: []workqueue.State{workqueue.StateError}}))
	note(k.Forget(ctx, "done"))
	note(k.Repair(ctx))
	return errs
}

// Whatever key of a queue is damaged: no call panics or hangs, an error names the queue, and once the queue is deleted
// its name can be used again.
func TestQueueSurvivesDamagedKeys(t *testing.T) {
	t.Parallel()
	keys := map[string]string{}
	for _, name := range strings.Fields("spec rec ready lanes delayed leased worker note result failed counts meta out pools reader") {
		keys[name] = "muster:wq:{damaged}:" + name
	}
	redistest.EachDamage(t, "keys.go", keys, []string{"newKeys", "all", "wake", "alive"}, func(t *testing.T, key string, d redistest.Damage) {
		k, held := mixed(t)
		d.Do(t, k.rdb, key)
		for _, err := range useQueue(t.Context(), k, held) {
			if !strings.Contains(err.Error(), "queue damaged") && !strings.Contains(err.Error(), `item "`) {
				t.Errorf("got %q, want an error that names the queue", err)
			}
			if strings.Contains(err.Error(), "attempt to") {
				t.Errorf("got %q, want no error in a script", err)
			}
		}
		if err := k.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.enqueue("again")
		k.settle(k.leaseOne("w"), workqueue.Done())
		k.wantStats("0 0 1 0 0")
	})
}

// An item whose record or payload is damaged ends with an error that says so, and the others are worked on.
func TestDamagedItemEndsAlone(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"rec", "spec"} {
		for _, id := range []string{"queued", "held", "later"} {
			for _, d := range redistest.Damages[:3] {
				t.Run(fmt.Sprint(key, " of ", id, " ", d.Name), func(t *testing.T) {
					t.Parallel()
					k, held := mixed(t)
					ctx := t.Context()
					k.enqueue("other")
					d.Field(t, k.rdb, "muster:wq:{damaged}:"+key, id)
					if key == "spec" && d.Name == "flipped" { // in the middle, which can be the payload's
						k.rdb.HSet(ctx, "muster:wq:{damaged}:spec", id, "{\n")
					}
					k.rdb.ZAdd(ctx, "muster:wq:{damaged}:delayed", redisMember("later", time.Unix(1, 0)))
					k.rdb.ZAdd(ctx, "muster:wq:{damaged}:leased", redisMember("held", time.Unix(1, 0)))
					for range 3 {
						for _, l := range k.lease("w", 10) {
							k.settle(l, workqueue.Done())
						}
					}
					_ = k.Settle(ctx, held, workqueue.Done()) // its lease is lost
					if got := k.get("other"); got.State != workqueue.StateDone {
						t.Errorf("another item: got %+v, want it done", got)
					}
					if _, err := k.Repair(ctx); err != nil {
						t.Fatal(err)
					}
					if _, err := k.Verify(ctx); err != nil {
						t.Errorf("after the repair: %v", err)
					}
					s, err := k.Stats(ctx)
					if err != nil || s.Open() != 0 || s.Error < 1 {
						t.Errorf("got %+v, %v, want no open items and some with an error", s, err)
					}
				})
			}
		}
	}
}

// damagedKit returns a queue named damaged, of two attempts an item.
func damagedKit(t *testing.T) *kit {
	t.Helper()
	rdb := redistest.New(t)
	return &kit{workqueue.New(rdb, "damaged", workqueue.Config{MaxAttempts: 2, CountLanes: true, Logger: quiet}), t, rdb}
}

// A ready item whose record is damaged has failed once the queue is repaired: it does not run until it is requeued, and
// then once.
func TestRepairedReadyItem(t *testing.T) {
	t.Parallel()
	for _, stale := range []bool{false, true} {
		for want, requeue := range map[string]bool{"b": false, "b a": true} {
			t.Run(fmt.Sprintf("requeued %v, a stale entry %v", requeue, stale), func(t *testing.T) {
				t.Parallel()
				ctx, k := t.Context(), damagedKit(t)
				k.enqueue("a", "b")
				ready := k.rdb.ZRange(ctx, "muster:wq:{damaged}:ready", 0, -1).Val()
				redistest.Damages[0].Field(t, k.rdb, "muster:wq:{damaged}:rec", "a")
				if _, err := k.Repair(ctx); err != nil {
					t.Fatal(err)
				}
				k.wantStats("1 0 0 0 1")
				if stale { // as after a repair by an earlier version
					k.rdb.ZAdd(ctx, "muster:wq:{damaged}:ready", redis.Z{Member: ready[0]})
				}
				if requeue {
					if _, err := k.Requeue(ctx, workqueue.RequeueOptions{States: []workqueue.State{workqueue.StateError}}); err != nil {
						t.Fatal(err)
					}
				}
				got := k.lease("w", 10)
				if ids(got) != want {
					t.Errorf("leased %s, want %s", ids(got), want)
				}
				for _, l := range got {
					k.settle(l, workqueue.Done())
				}
				if requeue {
					k.wantStats("0 0 2 0 0")
				} else {
					k.wantStats("0 0 1 0 1")
				}
			})
		}
	}
}

// Numbers that are damaged do not stop the work: no attempt is lost, and no place or token comes again.
func TestWorkGoesOnWithDamagedNumbers(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"counts queued", "counts in_progress", "counts queued\x00\x1f", "meta seq", "meta token", "meta moves"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			ctx, k := t.Context(), damagedKit(t)
			k.enqueue("a", "b")
			old := k.leaseOne("w")
			key, field, _ := strings.Cut(at, " ")
			k.rdb.HSet(ctx, "muster:wq:{damaged}:"+key, field, "x")
			if got := k.leaseOne("w"); got.ID != "b" || got.Token <= old.Token {
				t.Errorf("leased %s by token %d, want b by one after %d", got.ID, got.Token, old.Token)
			}
			k.retry(old, 0)
			if got := k.leaseOne("w"); got.ID != "a" || got.Attempts != 1 {
				t.Errorf("leased %s after %d attempts, want a after 1", got.ID, got.Attempts)
			}
			if _, err := k.Repair(ctx); err != nil {
				t.Fatal(err)
			}
			k.wantStats("0 2 0 0 0")
		})
	}
}

// A result or an output that cannot be stored leaves the lease as it is: once its key is gone, it is settled with them.
func TestSettleWithADamagedKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"out", "result", "note", "failed", "worker", "leased"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			ctx, k := t.Context(), damagedKit(t)
			k.enqueue("a")
			l := k.leaseOne("w")
			name := "muster:wq:{damaged}:" + key
			k.rdb.Del(ctx, name)
			k.rdb.Set(ctx, name, "damaged", 0)
			o := workqueue.Done().With([]byte("result"), []byte("output"))
			if key == "failed" {
				o = workqueue.Failed(errors.New("no luck"))
			}
			for range 2 {
				if err := k.Settle(ctx, l, o); !errors.Is(err, workqueue.ErrDamaged) {
					t.Errorf("got %v, want ErrDamaged", err)
				}
			}
			k.rdb.Del(ctx, name)
			k.settle(l, o)
			if key == "failed" {
				k.wantStats("0 0 0 0 1")
				return
			}
			k.wantStats("0 0 1 0 0")
			if got, err := k.Outputs().Read(ctx, 10, 0); err != nil || len(got) != 1 {
				t.Errorf("got outputs %v, %v, want one", got, err)
			}
			if got := k.get("a"); string(got.Result) != "result" {
				t.Errorf("got result %q", got.Result)
			}
		})
	}
}

// An item whose record is damaged while it runs fails: it is not given to another worker meanwhile.
func TestDamagedItemThatRuns(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, k *kit, l workqueue.Leased) error{
		"strays": func(ctx context.Context, k *kit, l workqueue.Leased) error {
			n, err := k.ReturnStrays(ctx, "w", l)
			if n != 0 {
				err = fmt.Errorf("%d items were returned, want none", n)
			}
			return err
		},
		"seal": func(ctx context.Context, k *kit, _ workqueue.Leased) error {
			return errors.Join(k.Seal(ctx), k.Unseal(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, k := t.Context(), damagedKit(t)
			k.enqueue("a")
			l := k.leaseOne("w")
			redistest.Damages[0].Field(t, k.rdb, "muster:wq:{damaged}:rec", "a")
			if err := end(ctx, k, l); err != nil {
				t.Error(err)
			}
			if s, err := k.Stats(ctx); err != nil || s.InProgress != 0 || s.Error != 1 {
				t.Errorf("got %+v, %v, want none in progress, and one with an error", s, err)
			}
			if got := k.lease("w2", 1); len(got) != 0 {
				t.Errorf("leased %s again", ids(got))
			}
			if _, err := k.Repair(ctx); err != nil {
				t.Fatal(err)
			}
			k.wantStats("0 0 0 0 1")
		})
	}
}
