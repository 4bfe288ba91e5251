package workqueue_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

func TestOutputsAreReadAndAcknowledged(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b")
		out := k.Outputs()
		if got, err := out.Read(ctx, 10, 0); len(got) != 0 || err != nil {
			k.t.Fatalf("got %v, %v; want no output", got, err)
		}
		read := make(chan []workqueue.Output)
		go func() {
			got, _ := out.Read(ctx, 10, 10*time.Second)
			read <- got
		}()
		k.settle(k.leaseOne("w"), workqueue.Done().With([]byte{}, []byte("a0"), []byte(""), []byte("\x00\xff")))
		if got := <-read; len(got) != 3 || got[0].Item != "a" || string(got[2].Data) != "\x00\xff" || got[2].Index != 2 {
			k.t.Fatalf("a waiting reader got %v, want the three outputs of a", got)
		}
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("e")).With([]byte("r"), []byte("b0")))
		first, err := out.Read(ctx, 2, 0)
		if err != nil || len(first) != 2 {
			k.t.Fatalf("got %v, %v; want two outputs", first, err)
		}
		list, err := out.Read(ctx, 10, 0)
		if err != nil || len(list) != 4 || string(list[3].Data) != "b0" {
			k.t.Fatalf("got %v, %v; want all outputs", list, err)
		}
		if a, b := k.get("a"), k.get("b"); a.Result == nil || string(b.Result) != "r" {
			k.t.Fatalf("got results %v and %q, want an empty one and r", a.Result, b.Result)
		}
		left := func(acked int, notes map[string]string) {
			k.t.Helper()
			if got, err := out.Notes(ctx); err != nil || !maps.Equal(got, notes) {
				k.t.Errorf("got notes %v, %v; want %v", got, err, notes)
			}
			size := 0
			for _, o := range list[acked:] {
				size += len(o.Data)
			}
			if n, bytes, err := out.Backlog(ctx); n != int64(4-acked) || bytes != int64(size) || err != nil {
				k.t.Fatalf("got a backlog of %d with %d bytes, %v; want %d with %d", n, bytes, err, 4-acked, size)
			}
			if got, err := out.Read(ctx, 10, 0); err != nil || len(got) != 4-acked || acked < 4 && got[0].Seq != list[acked].Seq {
				k.t.Fatalf("got %v, %v; want the last %d", got, err, 4-acked)
			}
		}
		testutil.Ok(k.t, out.Ack(ctx, list[1].Seq, map[string]string{"a": "1", "b": "2"}))
		left(2, map[string]string{"a": "1", "b": "2"})
		testutil.Ok(k.t, out.Ack(ctx, "", map[string]string{"a": ""}))
		left(2, map[string]string{"b": "2"})
		testutil.Ok(k.t, out.Ack(ctx, list[3].Seq, nil))
		left(4, map[string]string{"b": "2"})
		if err := out.Ack(ctx, "yesterday", nil); err == nil {
			k.t.Fatal("got nil, want an error for a place that cannot be one")
		}
	})
}

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
		if got := k.get("a").Note; !strings.Contains(got, k.Name()+"}:rec") {
			t.Errorf("%s: got the error %q, want one with the key", name, got)
		}
	}
	k := newKit(t, redistest.New(t), workqueue.Config{Logger: quiet})
	k.enqueue("a", "b")
	key := k.rdb.Keys(t.Context(), "*:spec").Val()[0]
	testutil.Ok(t, k.rdb.HSet(t.Context(), key, "a", "{").Err())
	if got := ids(k.lease("w", 10)); got != "b" {
		t.Errorf("leased %s, want b", got)
	}
	if s, err := k.Stats(t.Context()); err != nil || s.InProgress != 1 || s.Error != 1 {
		t.Errorf("got %+v, %v, want one in progress and one failed", s, err)
	}
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
		if _, err := end(); err != nil || k.rdb.ZCard(t.Context(), key+"leased").Val() != 0 {
			t.Errorf("got %v, want no lease", err)
		}
	}
	k.wantStats("1 0 0 0 0")
}
