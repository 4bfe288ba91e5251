package taskstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The tasks of the tests of deadlines.
var (
	deadlineWork  = tasks.New[string, string]("deadline.work")
	deadlineJoin  = tasks.New[[]string, string]("deadline.join")
	deadlineClean = tasks.New[tasks.Failure, string]("deadline.clean")
)

// deadlineFleet returns a fleet whose work fails while fail is true.
func deadlineFleet(t *testing.T, fail *bool) *taskstest.Fleet {
	mux := tasks.NewMux()
	tasks.Handle(mux, deadlineWork, func(_ context.Context, in string) (string, error) {
		if *fail {
			return "", errors.New("broken")
		}
		return in, nil
	})
	tasks.Handle(mux, deadlineClean, func(_ context.Context, f tasks.Failure) (string, error) { return "clean " + f.Code, nil })
	return taskstest.New(t, mux)
}

// wantNoTimers checks that nothing is left in the agenda of a fleet.
func wantNoTimers(t *testing.T, f *taskstest.Fleet) {
	t.Helper()
	if box, err := f.Client().Outbox(t.Context()); err != nil || box.Entries != 0 {
		t.Errorf("entries of the agenda: got %+v, %v, want none", box, err)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sig    tasks.Signature[string]
		change func(*tasks.Client, context.Context, string) error // before the deadline
		want   string                                             // the value or the code of the failure
	}{
		"group":     {tasks.Chord(tasks.GroupOf([]tasks.Signature[string]{deadlineWork.S("a"), deadlineWork.S("b")}, tasks.AtMost(1)), deadlineJoin), nil, "deadline"},
		"pending":   {deadlineWork.S("a", tasks.In(time.Hour)), nil, "deadline"},
		"follower":  {tasks.Chain(deadlineWork.S("a"), deadlineWork, tasks.In(time.Hour)), nil, "deadline"},
		"rescue":    {deadlineWork.S("a", tasks.In(time.Hour)).Rescue(deadlineClean), nil, "clean deadline"},
		"paused":    {deadlineWork.S("a", tasks.In(time.Second)).Rescue(deadlineClean), (*tasks.Client).Pause, "clean deadline"},
		"cancelled": {deadlineWork.S("a", tasks.In(time.Hour)), (*tasks.Client).Cancel, "cancelled"},
		"revoked":   {deadlineWork.S("a", tasks.In(time.Hour)), (*tasks.Client).Revoke, "revoked"},
		"in time":   {deadlineWork.S("a"), nil, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := deadlineFleet(t, new(bool))
			ctx, at := t.Context(), f.Now().Add(time.Minute)
			opts := []tasks.SendOption{tasks.Deadline(at)}
			if name == "group" {
				opts = append(opts, tasks.In(time.Hour))
			}
			run, err := tc.sig.Send(ctx, f.Client(), opts...)
			testutil.Ok(t, err)
			if p, err := run.Progress(ctx); err != nil || !p.Deadline.Equal(at) {
				t.Errorf("progress: got %+v, %v, want a deadline", p, err)
			}
			if tc.change != nil {
				testutil.Ok(t, tc.change(f.Client(), ctx, run.ID()))
			}
			got, err := run.Wait(ctx)
			var failure *tasks.Failure
			if errors.As(err, &failure) {
				got = failure.Code
				if errors.Is(err, tasks.ErrDeadline) != (got == tasktype.CodeDeadline) || errors.Is(err, tasks.ErrCancelled) != (got != "revoked") {
					t.Errorf("failure %+v matches the wrong errors", failure)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if after := f.Now().Sub(at); (after >= 0) != strings.Contains(got, "deadline") || after > time.Second {
				t.Errorf("ended %s after the deadline", after)
			}
			wantNoTimers(t, f)
		})
	}
}

// A retry after the deadline has none; a retry before it has the same.
func TestRetryAndDeadline(t *testing.T) {
	t.Parallel()
	fail := false
	f := deadlineFleet(t, &fail)
	ctx := t.Context()
	run, err := deadlineWork.S("a", tasks.In(time.Hour)).Send(ctx, f.Client(), tasks.Deadline(f.Now().Add(time.Minute)))
	testutil.Ok(t, err)
	if _, err := run.Wait(ctx); !errors.Is(err, tasks.ErrDeadline) {
		t.Fatalf("got %v, want %v", err, tasks.ErrDeadline)
	}
	testutil.Ok(t, run.Retry(ctx))
	if got, err := run.Wait(ctx); err != nil || got != "a" {
		t.Errorf("retry after the deadline: got %q, %v", got, err)
	}
	if p, err := run.Progress(ctx); err != nil || !p.Deadline.IsZero() {
		t.Errorf("progress: got %+v, %v, want no deadline", p, err)
	}

	fail = true
	at := f.Now().Add(time.Minute)
	run, err = tasks.Chain(deadlineWork.S("b"), deadlineWork, tasks.In(time.Hour)).Send(ctx, f.Client(), tasks.Deadline(at))
	testutil.Ok(t, err)
	if _, err := run.Wait(ctx); errors.Is(err, tasks.ErrDeadline) || !errors.As(err, new(*tasks.Failure)) {
		t.Fatalf("got %v, want a failure", err)
	}
	f.Drain()
	fail = false
	testutil.Ok(t, run.Retry(ctx))
	if _, err := run.Wait(ctx); !errors.Is(err, tasks.ErrDeadline) || f.Now().Before(at) {
		t.Errorf("retry before the deadline: got %v at %s", err, f.Now())
	}
	wantNoTimers(t, f)
}

func TestDeadlineInThePast(t *testing.T) {
	t.Parallel()
	f := deadlineFleet(t, new(bool))
	for _, at := range []time.Time{f.Now().Add(-time.Second), {}} {
		if _, err := deadlineWork.S("a").Send(t.Context(), f.Client(), tasks.Deadline(at)); !errors.Is(err, tasks.ErrInvalid) {
			t.Errorf("deadline %s: got %v, want %v", at, err, tasks.ErrInvalid)
		}
	}
	results, err := f.Client().SendMany(t.Context(), []tasks.Sending{
		{Work: deadlineWork.S("a"), Options: []tasks.SendOption{tasks.Deadline(f.Now().Add(time.Hour))}},
		{Work: deadlineWork.S("b"), Options: []tasks.SendOption{tasks.Deadline(f.Now())}},
	})
	if !errors.Is(err, tasks.ErrInvalid) || results[0].Err != nil || !errors.Is(results[1].Err, tasks.ErrInvalid) {
		t.Errorf("got %s, %v, want one error", fmt.Sprint(results), err)
	}
}
