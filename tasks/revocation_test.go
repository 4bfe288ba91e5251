package tasks_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestRevocation(t *testing.T) {
	t.Parallel()
	runStories(t, revokeStories)
}

// revokeStories need more than one value to tell.
var revokeStories = []story{
	{"revoke while a header runs", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chord(tasks.Group(Hold.S("a"), Hold.S("b")), Total))
		testutil.Eventually(t, "the header runs", func() bool { return len(w.noted("at a"))+len(w.noted("at b")) == 2 })
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrRevoked) {
			t.Fatalf("got %v", err)
		}
		ended(t, w, run.ID())
		if s, err := run.Status(t.Context()); err != nil || s != tasktype.Revoked || len(w.noted("total")) != 0 {
			t.Fatalf("%v, %v, body ran %v", s, err, w.noted("total"))
		}
	}},
	{"revoke a group: every member", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Group(Hold.S("a"), tasks.Chord(tasks.Each(ints(20), ID, tasks.In(time.Hour)), Sum)))
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		for _, n := range nodes(t, w, run.ID()) {
			if n.Status != tasktype.Revoked {
				t.Errorf("node %s %s is %s", n.ID, n.Task, n.Status)
			}
		}
	}},
	{"revoke stops what runs and what waits", func(t *testing.T, w *world) {
		run, err := tasks.Chain(tasks.Map(Range.S(20), tasks.New[int, int]("t.hold"), tasks.AtMost(2)), Sum).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		for p, err := range run.Watch(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Chunks == 20 {
				break
			}
		}
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrRevoked) {
			t.Fatalf("got %v", err)
		}
		ended(t, w, run.ID())
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatalf("revoke twice: %v", err)
		}
	}},
	{"revoked member fails its chord", func(t *testing.T, w *world) {
		run, err := tasks.Chord(tasks.Group(ID.S(1), ID.S(2, tasks.In(time.Hour))), Sum).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.client.RevokeNode(t.Context(), run.ID(), "1"); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrRevoked) {
			t.Fatalf("got %v", err)
		}
		ended(t, w, run.ID())
	}},
}
