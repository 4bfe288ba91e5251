package workqueue_test

import (
	"errors"
	"maps"
	"testing"
	"time"

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
		reader := k.claimAs("r", time.Minute)
		if err := reader.Ack(ctx, list[1].Seq, nil); err != nil {
			k.t.Fatal(err)
		}
		if n, bytes, err := out.Backlog(ctx); n != 2 || bytes != int64(len(list[2].Data)+len(list[3].Data)) || err != nil {
			k.t.Fatalf("got a backlog of %d with %d bytes, %v; want the last 2", n, bytes, err)
		}
		if again, err := out.Read(ctx, 10, 0); err != nil || len(again) != 2 || again[0].Seq != list[2].Seq {
			k.t.Fatalf("got %v, %v; want the last two", again, err)
		}
		if err := reader.Ack(ctx, list[3].Seq, nil); err != nil {
			k.t.Fatal(err)
		}
		if n, bytes, err := out.Backlog(ctx); n != 0 || bytes != 0 || err != nil {
			k.t.Fatalf("got a backlog of %d with %d bytes, %v; want none", n, bytes, err)
		}
		if err := reader.Ack(ctx, "yesterday", nil); err == nil {
			k.t.Fatal("got nil, want an error for a place that cannot be one")
		}
	})
}

// claimAs makes owner the reader of the outputs.
func (k *kit) claimAs(owner string, ttl time.Duration) workqueue.Reader {
	k.t.Helper()
	var r workqueue.Reader
	k.eventually(owner+" to become the reader", func() bool {
		var err error
		r, err = k.Outputs().Claim(k.t.Context(), owner, ttl)
		return err == nil
	})
	return r
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

// wantNewer checks that a reader has a higher fence than another, and whether it is stale.
func wantNewer(t *testing.T, got, old workqueue.Reader, stale bool) {
	t.Helper()
	if got.Stale() != stale || got.Fence() <= old.Fence() {
		t.Errorf("got fence %d, stale %v; want more than %d, %v", got.Fence(), got.Stale(), old.Fence(), stale)
	}
}

func TestOneReaderAtATime(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx, out := k.t.Context(), k.Outputs()
		list := k.twoOutputs()
		first := k.claimAs("one", time.Minute)
		if again := k.claimAs("one", time.Minute); again.Fence() != first.Fence() || !again.Stale() {
			k.t.Errorf("the same reader again: got fence %d, stale %v; want %d, true", again.Fence(), again.Stale(), first.Fence())
		}
		if _, err := out.Claim(ctx, "two", time.Minute); !errors.Is(err, workqueue.ErrOtherReader) {
			k.t.Errorf("a second reader: got %v, want %v", err, workqueue.ErrOtherReader)
		}
		if err := errors.Join(first.Settled(ctx, time.Minute), first.Release(ctx)); err != nil {
			k.t.Fatal(err)
		}
		second := k.claimAs("two", time.Millisecond)
		wantNewer(k.t, second, first, false)
		if err := second.Ack(ctx, list[0].Seq, map[string]string{"a": "1", "b": "2"}); err != nil {
			k.t.Errorf("got %v from a claim that expired and was not replaced, want nil", err)
		}
		third := k.claimAs("three", time.Minute)
		for range 2 { // stale until Settled is called
			wantNewer(k.t, third, second, true)
			if err := third.Release(ctx); err != nil {
				k.t.Fatal(err)
			}
			third = k.claimAs("four", time.Minute)
		}
	})
}

func TestReplacedReaderChangesNothing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx, out := k.t.Context(), k.Outputs()
		list := k.twoOutputs()
		first := k.claimAs("one", time.Minute)
		if err := errors.Join(first.Settled(ctx, time.Minute), first.Release(ctx)); err != nil {
			k.t.Fatal(err)
		}
		second := k.claimAs("two", time.Millisecond)
		if err := second.Ack(ctx, list[0].Seq, map[string]string{"a": "1", "b": "2"}); err != nil {
			k.t.Fatal(err)
		}
		third := k.claimAs("three", time.Minute)
		if err := third.Settled(ctx, time.Minute); err != nil {
			k.t.Fatal(err)
		}
		for what, err := range map[string]error{
			"ack": second.Ack(ctx, list[1].Seq, map[string]string{"a": "9", "b": "", "c": "9"}), "keep": second.Keep(ctx, time.Hour),
			"settled": second.Settled(ctx, time.Hour), "release": second.Release(ctx), "ack of the first": first.Ack(ctx, list[1].Seq, nil),
		} {
			if !errors.Is(err, workqueue.ErrLeaseLost) {
				k.t.Errorf("%s by a late reader: got %v, want %v", what, err, workqueue.ErrLeaseLost)
			}
		}
		if left, err := out.Read(ctx, 10, 0); err != nil || len(left) != 1 || left[0].Seq != list[1].Seq {
			k.t.Errorf("got %v, %v; want the second output", left, err)
		}
		k.wantNotes(map[string]string{"a": "1", "b": "2"})
		if _, err := out.Claim(ctx, "two", time.Minute); !errors.Is(err, workqueue.ErrOtherReader) {
			k.t.Errorf("a late reader claims: got %v, want %v", err, workqueue.ErrOtherReader)
		}
		if err := third.Ack(ctx, "", map[string]string{"a": ""}); err != nil {
			k.t.Error(err)
		}
		k.wantNotes(map[string]string{"b": "2"})
	})
}
