package tasks_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestDeadline(t *testing.T) {
	t.Parallel()
	runStories(t, []story{{"deadline while a header runs", func(t *testing.T, w *world) {
		at := time.Now().Add(time.Second)
		run := sent(t, w, tasks.Chord(tasks.Group(Hold.S("a"), Hold.S("b")), Total), tasks.Deadline(at))
		testutil.Eventually(t, "the header runs", func() bool { return len(w.noted("at a"))+len(w.noted("at b")) == 2 })
		_, err := run.Wait(limited(t))
		var f *tasks.Failure
		if !errors.Is(err, tasks.ErrDeadline) || !errors.As(err, &f) || f.Code != tasktype.CodeDeadline || f.Attempts != 1 || time.Now().Before(at) {
			t.Fatalf("got %+v", err)
		}
		ended(t, w, run.ID())
	}}})
}
