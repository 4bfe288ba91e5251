package workqueue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// A full Redis rejects new items as a whole with an error that names the setting, and leased items can be settled.
func TestQueueInFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "maxmemory", "8mb", "maxmemory-policy", "noeviction")
	k := newKit(t, s.Client(), workqueue.Config{})
	k.enqueue("held")
	held := k.leaseOne("w")
	big := workqueue.Item{Kind: "test", Payload: make([]byte, 512<<10)}
	var err error
	added := 0
	for ; err == nil && added < 100; added++ {
		big.ID = fmt.Sprint("big", added)
		_, err = k.Enqueue(t.Context(), big)
	}
	if !errors.Is(err, workqueue.ErrFull) || !strings.Contains(err.Error(), "maxmemory") {
		t.Fatalf("got %v after %d items, want %v", err, added, workqueue.ErrFull)
	}
	if got, err := k.Get(t.Context(), big.ID); err != nil || len(got) != 0 {
		t.Errorf("got %+v, %v, want no part of the rejected item", got, err)
	}
	k.settle(held, workqueue.Done())
	k.wantStats(fmt.Sprint(added-1, " 0 1 0 0"))
}

// An item that cannot be decoded fails, and the other items run.
func TestItemThatCannotBeDecodedFails(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]bool{"ready": false, "leased": true, "delayed": false} {
		k := newKit(t, redistest.New(t), workqueue.Config{Logger: quiet, LeaseTTL: time.Millisecond})
		item := workqueue.Item{ID: "a", Kind: "test", ResourceKeys: []string{"key"}}
		if name == "delayed" {
			item.NotBefore = time.Now().Add(time.Millisecond)
		}
		if _, err := k.Queue.Enqueue(t.Context(), item); err != nil {
			t.Fatal(err)
		}
		if lease {
			k.leaseOne("w")
		}
		k.rdb.HSet(t.Context(), "muster:wq:{"+k.Name()+"}:rec", "a", "{")
		k.enqueue("b")
		k.eventually("the other item is leased", func() bool { return ids(k.lease("w", 10)) == "b" })
		k.eventually("the damaged item has failed", func() bool {
			s, err := k.Queue.Stats(t.Context())
			_, _ = k.Lease(t.Context(), "w", 1)
			return err == nil && s.Error == 1 && s.Queued+s.InProgress == 1
		})
		failed, err := k.LastFailed(t.Context(), 1)
		if err != nil || len(failed) != 1 || !strings.Contains(failed[0].Error, k.Name()+"}:rec") {
			t.Errorf("%s: got %+v, %v, want an error with the key", name, failed, err)
		}
	}
	k := newKit(t, redistest.New(t), workqueue.Config{Logger: quiet})
	k.enqueue("a", "b")
	key := k.rdb.Keys(t.Context(), "*:spec").Val()[0]
	testutil.Ok(t, k.rdb.HSet(t.Context(), key, "a", "{").Err())
	if got := ids(k.lease("w", 10)); got != "b" {
		t.Errorf("leased %s, want b", got)
	}
	k.wantStats("0 1 0 0 1")
	if _, err := k.Get(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), `item "a"`) {
		t.Errorf("got %v, want an error that names the item", err)
	}
}

// A lease of an item that is not in progress is removed.
func TestLeaseWithoutItsItemIsRemoved(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{Logger: quiet})
	k.enqueue("a")
	key := "muster:wq:{" + k.Name() + "}:"
	for _, end := range []func() (int, error){
		func() (int, error) { return k.ReturnStrays(t.Context(), "w") },
		func() (int, error) { return k.ExpireWorker(t.Context(), "w") },
	} {
		k.rdb.ZAdd(t.Context(), key+"leased", redis.Z{Score: 1e15, Member: "a"})
		k.rdb.HSet(t.Context(), key+"worker", "a", "w")
		if _, err := end(); err != nil || k.rdb.ZCard(t.Context(), key+"leased").Val() != 0 {
			t.Errorf("got %v, want no lease", err)
		}
	}
	k.wantStats("1 0 0 0 0")
}
