package workqueue_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

func TestOutputsAreRead(t *testing.T) {
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
		rest, err := out.ReadAfter(ctx, first[1].Seq, 10, 0)
		if err != nil || len(rest) != 2 || string(rest[1].Data) != "b0" {
			k.t.Fatalf("got %v, %v; want the other two outputs", rest, err)
		}
		if a, b := k.get("a"), k.get("b"); a.Result == nil || string(b.Result) != "r" {
			k.t.Fatalf("got results %v and %q, want an empty one and r", a.Result, b.Result)
		}
	})
}

func TestAcknowledgedOutputsAreRemoved(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b")
		out := k.Outputs()
		k.settle(k.leaseOne("w"), workqueue.Done().With([]byte{}, []byte("a0"), []byte(""), []byte("\x00\xff")))
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("e")).With([]byte("r"), []byte("b0")))
		list, err := out.Read(ctx, 10, 0)
		if err != nil || len(list) != 4 {
			k.t.Fatalf("got %v, %v; want four outputs", list, err)
		}
		testutil.Ok(k.t, out.Ack(ctx, list[1].Seq, nil))
		if n, bytes, err := out.Backlog(ctx); n != 2 || bytes != int64(len(list[2].Data)+len(list[3].Data)) || err != nil {
			k.t.Fatalf("got a backlog of %d with %d bytes, %v; want the last 2", n, bytes, err)
		}
		if again, err := out.Read(ctx, 10, 0); err != nil || len(again) != 2 || again[0].Seq != list[2].Seq {
			k.t.Fatalf("got %v, %v; want the last two", again, err)
		}
		testutil.Ok(k.t, out.Ack(ctx, list[3].Seq, nil))
		if n, bytes, err := out.Backlog(ctx); n != 0 || bytes != 0 || err != nil {
			k.t.Fatalf("got a backlog of %d with %d bytes, %v; want none", n, bytes, err)
		}
		if err := out.Ack(ctx, "yesterday", nil); err == nil {
			k.t.Fatal("got nil, want an error for a place that cannot be one")
		}
	})
}

// twoOutputs settles an item with two outputs and returns them.
func (k *kit) twoOutputs() []workqueue.Output {
	k.t.Helper()
	k.enqueue("a")
	k.settle(k.leaseOne("w"), workqueue.Done().With(nil, []byte("a0"), []byte("a1")))
	list, err := k.Outputs().Read(k.t.Context(), 10, 0)
	if err != nil || len(list) != 2 {
		k.t.Fatalf("got %d outputs, %v; want 2", len(list), err)
	}
	return list
}

func (k *kit) wantNotes(want map[string]string) {
	k.t.Helper()
	if got, err := k.Outputs().Notes(k.t.Context()); err != nil || !maps.Equal(got, want) {
		k.t.Errorf("got notes %v, %v; want %v", got, err, want)
	}
}

func TestAckStoresNotes(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx, out := k.t.Context(), k.Outputs()
		list := k.twoOutputs()
		testutil.Ok(k.t, out.Ack(ctx, list[0].Seq, map[string]string{"a": "1", "b": "2"}))
		k.wantNotes(map[string]string{"a": "1", "b": "2"})
		if err := out.Ack(ctx, "", map[string]string{"a": ""}); err != nil {
			k.t.Error(err)
		}
		k.wantNotes(map[string]string{"b": "2"})
		if left, err := out.Read(ctx, 10, 0); err != nil || len(left) != 1 || left[0].Seq != list[1].Seq {
			k.t.Errorf("got %v, %v; want the second output", left, err)
		}
	})
}
