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
	{"errback of a group gets the member that failed", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Group(ID.S(1), Fail.S(7)), Err))
		wantFailure(t, err, "E7")
		if fs := w.failures(); len(fs) != 1 || fs[0].Node != "1" || fs[0].Task != "t.fail" || fs[0].Attempts != 1 {
			t.Fatalf("errback: got %+v, want one failure of node 1", fs)
		}
	}},
	{"errback of a chain gets the step that failed", func(t *testing.T, w *world) {
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
	{"errback after the last attempt", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(Fail.S(1, tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond)), Err))
		if f := wantFailure(t, err, "E1"); f.Attempts != 3 || len(w.noted("fail")) != 3 || len(w.failures()) != 1 {
			t.Fatalf("got %+v, ran %d times, errback %d times, want 3 attempts, 3 and 1", f, len(w.noted("fail")), len(w.failures()))
		}
	}},
}
