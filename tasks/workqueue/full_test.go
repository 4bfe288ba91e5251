package workqueue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
	k := newKit(t, redistest.New(t), workqueue.Config{Logger: quiet})
	k.enqueue("a", "b")
	key := k.rdb.Keys(t.Context(), "*:spec").Val()[0]
	if err := k.rdb.HSet(t.Context(), key, "a", "{").Err(); err != nil {
		t.Fatal(err)
	}
	if got := ids(k.lease("w", 10)); got != "b" {
		t.Errorf("leased %s, want b", got)
	}
	k.wantStats("0 1 0 0 1")
	if _, err := k.Get(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), `item "a"`) {
		t.Errorf("got %v, want an error that names the item", err)
	}
}
