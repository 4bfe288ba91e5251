package tasks_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// An external attempt ends at its deadline, which extensions move. Another follows according to MaxRetry, with a new
// token.
func TestMissedDeadlineEndsTheAttempt(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, (&desk{}).mux())
	c := f.Client()
	run := started(t, c, tasks.Chain(fragile.S(draft{"a"}), publish), tasks.Timeout(time.Hour), tasks.MaxRetry(1), tasks.ConstantBackoff(time.Minute))
	f.Advance(0)
	first := tokenOf(t, c, opened(t, c, fragile.Name(), 1)[0])
	f.Advance(50 * time.Minute)
	testutil.Ok(t, c.Extend(t.Context(), first, 2*time.Hour))
	f.Advance(90 * time.Minute) // long after its first deadline
	testutil.Ok(t, c.Extend(t.Context(), first, time.Minute))
	o := opened(t, c, fragile.Name(), 1)[0]
	if want := f.Now().Add(time.Minute); !o.Deadline.Equal(want) || o.Attempt != 1 {
		t.Errorf("got deadline %s, attempt %d, want %s, 1", o.Deadline, o.Attempt, want)
	}
	if err := c.Extend(t.Context(), first, 0); err == nil {
		t.Error("extended by nothing")
	}

	f.Advance(90 * time.Second) // it passes, and the back-off runs
	if got := allOpen(t, c, fragile.Name()); len(got) > 0 {
		t.Errorf("open between two attempts: %+v", got)
	}
	nodes, err := c.Nodes(t.Context(), run.ID())
	if err != nil || nodes[0].Status != tasktype.Retry || !strings.Contains(nodes[0].Message, "deadline") {
		t.Errorf("got %+v, %v, want %s", nodes, err, tasktype.Retry)
	}
	wantError(t, "completion between two attempts", c.Complete(t.Context(), first, json.RawMessage(`{}`)), tasks.ErrStale)
	f.Advance(time.Minute)
	o = opened(t, c, fragile.Name(), 1)[0]
	if o.Attempt != 2 || string(o.Input) != `{"Text":"a"}` {
		t.Errorf("got %+v, want attempt 2 with its input", o)
	}
	wantError(t, "completion of an earlier attempt", c.Complete(t.Context(), first, json.RawMessage(`{}`)), tasks.ErrStale)
	second := tokenOf(t, c, o)
	f.Drain()
	if _, err = run.Wait(t.Context()); wantFailure(t, err, "deadline").Code != tasktype.CodeTimeout {
		t.Errorf("got %v, want code %s", err, tasktype.CodeTimeout)
	}
	wantError(t, "completion after the last deadline", c.Complete(t.Context(), second, json.RawMessage(`{}`)), tasks.ErrCompleted)
}

// Without a time limit there is no deadline, and nothing to extend.
func TestNoTimeoutMeansNoDeadline(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, (&desk{}).mux())
	c := f.Client()
	run := started(t, c, review.S(draft{"a"}), tasks.Timeout(0))
	f.Advance(1000 * time.Hour)
	o := opened(t, c, review.Name(), 1)[0]
	token := tokenOf(t, c, o)
	testutil.Ok(t, c.Extend(t.Context(), token, time.Hour))
	f.Advance(1000 * time.Hour)
	if o = opened(t, c, review.Name(), 1)[0]; !o.Deadline.IsZero() {
		t.Errorf("got deadline %s, want none", o.Deadline)
	}
	testutil.Ok(t, tasks.Complete(t.Context(), c, review, token, opinion{true}))
	if got, err := run.Wait(t.Context()); err != nil || !got.OK {
		t.Errorf("got %v, %v", got, err)
	}
}
