package tasks_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
)

func TestCallbacksRunOnceForEachOutcome(t *testing.T) {
	t.Parallel()
	runStories(t, callbackStories)
}

// callbackStories check more than one value.
var callbackStories = []story{
	{"callback once, with the value", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.OnSuccess(tasks.Chain(ID.S(1), Inc), Note))
		if err != nil || got != 2 || !slices.Equal(w.noted("note"), []int{2}) {
			t.Fatalf("got %v, %v, noted %v, want 2, noted [2]", got, err, w.noted("note"))
		}
	}},
	{"the same callback twice on one signature runs twice", func(t *testing.T, w *world) {
		x := tasks.OnSuccess(tasks.OnSuccess(ID.S(1), Note), Note)
		if got, err := send(t, w, x); err != nil || got != 1 || len(w.noted("note")) != 2 {
			t.Fatalf("got %v, %v, noted %v, want 1, noted twice", got, err, w.noted("note"))
		}
		all := tasks.OnError(tasks.OnError(half(), Err), Err)
		for i, s := range []tasks.Signature[[]int]{
			tasks.Chain(tasks.OnError(tasks.OnError(Fail.S(2), Err), Err), Range),
			all,
			tasks.Map(all, ID),
			tasks.OnError(tasks.OnError(tasks.Map(Range.S(1), Fail), Err), Err),
		} {
			_, err := send(t, w, s)
			wantFailure(t, err, "E")
			if n := len(w.failures()); n != 2*(i+1) {
				t.Errorf("form %d: errbacks ran %d times in all, want %d", i, n, 2*(i+1))
			}
		}
	}},
	{"callback of every step", func(t *testing.T, w *world) {
		s := tasks.OnSuccess(ID.S(1337), Note)
		for range 41 {
			s = tasks.OnSuccess(tasks.Chain(s, ID), Note)
		}
		if got, err := send(t, w, s); err != nil || got != 1337 || len(w.noted("note")) != 42 {
			t.Fatalf("got %v, %v, noted %d times, want 1337, noted 42 times", got, err, len(w.noted("note")))
		}
	}},
	{"callback of a group and of a chord, once", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.OnSuccess(tasks.Chord(tasks.OnSuccess(tasks.Each([]int{42, 1337}, ID), Total), Sum), Note))
		if err != nil || got != 1379 || !slices.Equal(w.noted("note"), []int{1379}) || !slices.Equal(w.noted("total"), []int{1379}) {
			t.Fatalf("got %v, %v, noted %v and %v, want 1379 each", got, err, w.noted("note"), w.noted("total"))
		}
	}},
	{"errback of a group gets the member that failed", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Group(ID.S(1), Fail.S(7)), Err))
		wantFailure(t, err, "E7")
		if fs := w.failures(); len(fs) != 1 || fs[0].Node != "1" || fs[0].Task != "t.fail" || fs[0].Attempts != 1 {
			t.Fatalf("errback: got %+v, want one failure of node 1", fs)
		}
	}},
	{"errback of a chain, once, with the step that failed", func(t *testing.T, w *world) {
		for at := range 3 {
			s := ID.S(1)
			for i := range 5 {
				step := Inc
				if i == at {
					step = Fail
				}
				s = tasks.Chain(s, step)
			}
			_, err := send(t, w, tasks.OnError(s, Err))
			wantFailure(t, err, "E")
			if fs := w.failures(); len(fs) != at+1 || fs[at].Node != strconv.Itoa(at+1) {
				t.Fatalf("errback: got %+v, want %d failures, the last of node %d", fs, at+1, at+1)
			}
		}
	}},
	{"errback that is retried", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(Fail.S(1), ErrFlaky))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("errback ended %d times, want once", n)
		}
	}},
	{"errback of a body, in its forms", func(t *testing.T, w *world) {
		head := tasks.Chord(tasks.Group(ID.S(42)), Sum)
		for i, s := range []tasks.Signature[int]{
			tasks.Chord(tasks.Group(ID.S(42)), FailAll),
			tasks.Chain(tasks.Chain(head, Fail), Inc),
			tasks.Chord(tasks.OnError(tasks.Group(tasks.Chain(head, Fail), tasks.Chain(head, ID)), Err), Sum),
		} {
			if i < 2 {
				s = tasks.OnError(s, Err)
			}
			if _, err := send(t, w, s); err == nil {
				t.Fatalf("form %d: got no error, want a failure", i)
			}
			if n := len(w.failures()); n != i+1 {
				t.Fatalf("form %d: got %d runs of the errback in all, want %d", i, n, i+1)
			}
		}
	}},
	{"errbacks of header and chord", func(t *testing.T, w *world) {
		header := tasks.OnError(tasks.Group(Fail.S(1), ID.S(1), Fail.S(2), Fail.S(3)), Err)
		_, err := send(t, w, tasks.OnError(tasks.Chord(header, Sum), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 4 {
			t.Fatalf("errbacks ran %d times, want once for each of 3 members and once for the chord", n)
		}
	}},
	{"errback of a chord with a failing chord in its header, once", func(t *testing.T, w *world) {
		inner := tasks.Chord(tasks.Group(ID.S(1), Fail.S(5)), Total)
		_, err := send(t, w, tasks.OnError(tasks.Chord(tasks.Group(ID.S(3), inner, ID.S(2)), Total), Err))
		wantFailure(t, err, "E5")
		if n := len(w.failures()); n != 1 || len(w.noted("total")) != 0 {
			t.Fatalf("got %d runs of the errback and %d of bodies, want 1 and 0", n, len(w.noted("total")))
		}
	}},
	{"callbacks of a task that is replaced, and of its replacement", func(t *testing.T, w *world) {
		replaced := tasks.OnSuccess(Deep.S(2), Note)
		got, err := send(t, w, tasks.OnSuccess(tasks.Chord(tasks.Group(replaced, ID.S(1)), Sum), Note))
		if err != nil || got != 45 {
			t.Fatalf("got %v, %v, want 45", got, err)
		}
		// The value does not wait for callbacks, nor do callbacks for each other.
		testutil.Eventually(t, "both callbacks", func() bool {
			ran := w.noted("note")
			slices.Sort(ran)
			return slices.Equal(ran, []int{44, 45})
		})
		_, err = send(t, w, tasks.Group(tasks.OnError(FailTo.S(1), Err), ID.S(1)))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("got %d runs of the errback, want 1", n)
		}
	}},
	{"errback of an inner chain", func(t *testing.T, w *world) {
		inner := tasks.OnError(tasks.Chain(ID.S(1), Fail), Err)
		_, err := send(t, w, tasks.Chain(inner, Inc))
		wantFailure(t, err, "E1")
		if fs := w.failures(); len(fs) != 1 || fs[0].Node != "1" || fs[0].Task != "t.fail" {
			t.Fatalf("errback: got %+v, want one failure of node 1", fs)
		}
	}},
	{"callback on every member", func(t *testing.T, w *world) {
		ms := make([]tasks.Signature[int], 42)
		for i := range ms {
			ms[i] = tasks.OnSuccess(ID.S(1), Note)
		}
		if _, err := send(t, w, tasks.Group(ms...)); err != nil || len(w.noted("note")) != 42 {
			t.Fatalf("got %v, noted %d times, want no error, noted 42 times", err, len(w.noted("note")))
		}
	}},
	{"errback once for every failed member of a group", func(t *testing.T, w *world) {
		var ms []tasks.Signature[int]
		for i := range 6 {
			ms = append(ms, Fail.S(i), ID.S(i))
		}
		_, err := send(t, w, tasks.OnError(tasks.Group(ms...), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 6 {
			t.Fatalf("errback ran %d times, want 6", n)
		}
	}},
	{"errback of a chord once, however many members failed", func(t *testing.T, w *world) {
		var ms []tasks.Signature[int]
		for i := range 6 {
			ms = append(ms, Fail.S(i), ID.S(i))
		}
		_, err := send(t, w, tasks.OnError(tasks.Chord(tasks.Group(ms...), Sum), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("errback ran %d times, want once", n)
		}
	}},
	{"errback once for every failed member of a body", func(t *testing.T, w *world) {
		head := tasks.Chord(tasks.Group(ID.S(1)), Sum)
		_, err := send(t, w, tasks.OnError(tasks.Group(tasks.Chain(head, Fail), tasks.Chain(head, Fail), tasks.Chain(head, ID)), Err))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 2 {
			t.Fatalf("errback ran %d times, want 2", n)
		}
	}},
	{"errback of a body of many once for one failed header", func(t *testing.T, w *world) {
		head := tasks.Chord(tasks.Group(Fail.S(1)), Sum)
		_, err := send(t, w, tasks.OnError(tasks.Group(tasks.Chain(head, ID), tasks.Chain(head, ID)), Err))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("errback ran %d times, want once", n)
		}
	}},
	{"errback of a map once for every failed member", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Map(Range.S(3), Fail), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 3 {
			t.Fatalf("errback ran %d times, want 3", n)
		}
	}},
	{"errback after the last attempt", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(Fail.S(1, tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond)), Err))
		if f := wantFailure(t, err, "E1"); f.Attempts != 3 || len(w.noted("fail")) != 3 || len(w.failures()) != 1 {
			t.Fatalf("got %+v, ran %d times, errback %d times, want 3 attempts, 3 and 1", f, len(w.noted("fail")), len(w.failures()))
		}
	}},
	{"inner and outer errback of a failing plan, once each", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Chain(tasks.OnError(FailTo.S(3), Err), Inc), Err))
		wantFailure(t, err, "E3")
		if n := len(w.failures()); n != 2 {
			t.Fatalf("errbacks ran %d times, want 2", n)
		}
	}},
}
