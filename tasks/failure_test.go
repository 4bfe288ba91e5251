package tasks_test

import (
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestFailures(t *testing.T) {
	t.Parallel()
	runRows(t, failureRows)
}

// failureRows are the results of failures.
var failureRows = []row{
	fails("failing step", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(Add.S(AB{1, 2}), Fail), Inc)
	}, "E3"),
	fails("failing header", func() tasks.Signature[int] { return tasks.Chord(tasks.Group(Fail.S(1)), Sum) }, "E1"),
	fails("failing body", func() tasks.Signature[int] { return tasks.Chord(tasks.Group(ID.S(42)), FailAll) }, "body"),
	fails("group after a failure", func() tasks.Signature[[]int] {
		f := tasks.Chain(Add.S(AB{1, 1}), Fail)
		return tasks.Group(tasks.Chain(f, Inc), tasks.Chain(f, Inc))
	}, "E2"),
	fails("chord after a failing group", func() tasks.Signature[int] {
		g := tasks.Chord(tasks.Group(ID.S(1), Fail.S(2)), Sum)
		return tasks.Chord(tasks.Group(tasks.Chain(g, Inc), tasks.Chain(g, Inc)), Sum)
	}, "E2"),
	fails("failing chain in a header", func() tasks.Signature[int] {
		f := Fail.S(9)
		return tasks.Chord(tasks.Group(ID.S(1), tasks.Chain(tasks.Chord(tasks.Group(tasks.Chain(f, ID), tasks.Chain(f, ID)), Sum), ID)), Sum)
	}, "E9"),
	fails("header chain that ends in a group", func() tasks.Signature[int] {
		f := Fail.S(9)
		return tasks.Chord(tasks.Group(tasks.Group(tasks.Chain(f, ID), tasks.Chain(f, ID)), tasks.Each([]int{5}, ID)), Sums)
	}, "E9"),
	fails("rejected step", func() tasks.Signature[int] { return tasks.Chain(tasks.Chain(ID.S(1), Fail), ID) }, "E1"),
	fails("failing body that is a chain", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(tasks.Chord(tasks.Group(ID.S(42)), Sum), Fail), Inc)
	}, "E42"),
	fails("failing body that is a group", func() tasks.Signature[[]int] {
		b := tasks.Chord(tasks.Group(ID.S(42)), Sum)
		return tasks.Group(tasks.Chain(b, Fail), tasks.Chain(b, ID))
	}, "E42"),
	fails("task after a failing group", func() tasks.Signature[int] { return tasks.Chord(half(), Sum) }, "E2"),
	fails("chain after a failing group", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(tasks.Chord(half(), Sum), Inc), Inc)
	}, "E2"),
	fails("group after a failing group", func() tasks.Signature[[]int] {
		return tasks.Group(tasks.Chord(half(), Sum), tasks.Chord(half(), Sum))
	}, "E2"),
	fails("chord in a header, failing", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(3), tasks.Chord(half(), Sum), ID.S(2)), Sum)
	}, "E2"),
	fails("value of a member that does not marshal", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(Infinite.S(1), Infinite.S(2)), Show[[]float64]())
	}, "does not marshal"),
	fails("rejected member", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(1), Reject.S(2)), Sum)
	}, "rejected"),
	fails("panic", func() tasks.Signature[int] { return tasks.Chain(Panics.S(1), Inc) }, "panic: oh"),
	value("again uses no attempt", func() tasks.Signature[int] { return Polls.S(AB{0, 4}) }, 1),
	fails("hard time limit", func() tasks.Signature[int] { return Deaf.S(1) }, "hard time limit"),
	fails("wait inside a task", func() tasks.Signature[int] { return Waits.S("x") }, "wait inside a task"),
	fails("expired", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(1), Late.S(2)), Sum)
	}, "expired"),
	fails("input that does not fit", func() tasks.Signature[int] {
		return tasks.Chain(tasks.New[string, int]("t.id").S("x"), Inc)
	}, "does not decode"),
}

func TestFailedTasks(t *testing.T) {
	t.Parallel()
	runStories(t, failureStories)
}

// failureStories check more than one value.
var failureStories = []story{
	{"no successor of a failure stays pending", func(t *testing.T, w *world) {
		f := tasks.Chain(Add.S(AB{1, 1}), Fail)
		g := tasks.Group(tasks.Chain(f, Inc), tasks.Chain(f, Inc))
		run := sent(t, w, tasks.Group(tasks.Chord(g, Sum), tasks.Chord(tasks.Map(g, Inc), Sum)))
		_, err := run.Wait(limited(t))
		wantFailure(t, err, "E2")
		ended(t, w, run.ID())
		for _, n := range nodes(t, w, run.ID()) {
			if n.ID > "1" && n.Status != tasktype.Skipped {
				t.Errorf("node %s %s: got %s, want SKIPPED", n.ID, n.Task, n.Status)
			}
		}
	}},
	{"members of a failed chord stay readable", func(t *testing.T, w *world) {
		run, err := tasks.Group(ID.S(7), Fail.S(1)).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		values, done, err := tasks.Members(t.Context(), run)
		if err != nil || values[0] != 7 || !done[0] || done[1] {
			t.Fatalf("got %v, %v, %v, want 7 from the first member alone", values, done, err)
		}
	}},
	{"unregistered task fails in the end", func(t *testing.T, w *world) {
		startImpatient(t, w)
		_, err := send(t, w, tasks.New[int, int]("t.unserved", tasks.Queue("unserved")).S(1))
		if f := wantFailure(t, err, "has a handler for t.unserved"); f.Code != tasktype.CodeUnregistered {
			t.Fatalf("got %+v, want code %s", f, tasktype.CodeUnregistered)
		}
	}},
	{"retry in, permanent and coded errors", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.New[string, int]("t.verdict", tasks.MaxRetry(9)).S("permanent"))
		if f := wantFailure(t, err, "never"); f.Attempts != 1 || f.Code != tasktype.CodePermanent {
			t.Fatalf("got %+v, want 1 attempt and code %s", f, tasktype.CodePermanent)
		}
		got, err := send(t, w, tasks.New[string, int]("t.verdict", tasks.MaxRetry(1)).S("retryin"))
		if err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
		_, err = send(t, w, tasks.New[string, int]("t.verdict").S("coded"))
		if f := wantFailure(t, err, "blocked"); f.Code != "http_403" {
			t.Fatalf("got %+v, want code http_403", f)
		}
	}},
	{"result over the cap", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.New[int, string]("t.big").S(1<<20))
		if f := wantFailure(t, err, "store it and return a key"); f.Code != tasktype.CodeResult {
			t.Fatalf("got %+v, want code %s", f, tasktype.CodeResult)
		}
	}},
	{"soft time limit", func(t *testing.T, w *world) {
		_, err := send(t, w, Slow.S(AB{1, 10000}, tasks.Timeout(20*time.Millisecond)))
		if f := wantFailure(t, err, "deadline"); f.Code != tasktype.CodeTimeout {
			t.Fatalf("got %+v, want code %s", f, tasktype.CodeTimeout)
		}
	}},
}
