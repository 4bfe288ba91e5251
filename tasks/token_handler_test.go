package tasks_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
)

// A handler passes its token on, and its slot runs other tasks while the result is pending.
func TestPendingResultFreesItsSlot(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		const n = 20 // many more than slots
		run := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, n), handed), verdicts), tasks.ID(strings.Repeat("i", 100)))
		all := opened(t, d.client, handed.Name(), n)
		if got, err := drafting.S("beside").Send(ctx, d.client); err != nil {
			t.Fatal(err)
		} else if _, err := got.Wait(ctx); err != nil {
			t.Errorf("a task beside them: %v", err)
		}
		wantAnswer := 0
		for i := range n {
			token := <-d.passed
			if i == 0 { // the first reports a failure, and its next attempt passes on another token
				testutil.Ok(t, d.client.Fail(ctx, token, errors.New("once more")))
				wantError(t, "completion after a failure", tasks.Complete(ctx, d.client, handed, token, opinion{}), tasks.ErrStale)
				continue
			}
			wantAnswer++
			testutil.Ok(t, tasks.Complete(ctx, d.client, handed, token, opinion{true}))
		}
		testutil.Ok(t, tasks.Complete(ctx, d.client, handed, <-d.passed, opinion{false}))
		wantValue(t, run, wantAnswer)
		if all[0].Attempt != 1 {
			t.Errorf("got %+v", all[0])
		}
	})
}

// A result that comes before the handler has returned counts, whatever the handler returns then.
func TestResultBeforeTheHandlerReturnsCounts(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		var early atomic.Pointer[error]
		d.answer = func(token string) {
			if err := d.client.Extend(ctx, token, time.Hour); !errors.Is(err, tasks.ErrNotOpen) {
				t.Errorf("extension of a node that is not open: got %v, want %v", err, tasks.ErrNotOpen)
			}
			err := tasks.Complete(ctx, d.client, handed, token, opinion{true})
			early.Store(&err)
		}
		run := started(t, d.client, tasks.Chain(handed.S(draft{"a"}), publish))
		wantValue(t, run, "published true")
		token := <-d.passed // the early completion has returned
		if err := *early.Load(); err != nil {
			t.Errorf("early answer: %v", err)
		}
		testutil.Eventually(t, "the workflow has ended", func() bool { p, err := run.Progress(ctx); return err == nil && p.Ended })
		if left := allOpen(t, d.client, handed.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
		wantError(t, "second answer", tasks.Complete(ctx, d.client, handed, token, opinion{}), tasks.ErrCompleted)
		p, err := run.Progress(ctx)
		if err != nil || p.Done != 2 || p.Total != 2 {
			t.Errorf("got %+v, %v, want 2 of 2", p, err)
		}
	})
}

// An early failure is a failed attempt, also if the handler then returns a pending result.
func TestFailureBeforeTheHandlerReturnsCounts(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		var calls atomic.Int64
		d.answer = func(token string) {
			n := calls.Add(1)
			if err := d.client.Fail(ctx, token, errors.New("early")); n > 2 || err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		}
		run := started(t, d.client, handed.S(draft{"a"}))
		_, err := run.Wait(ctx)
		if f := wantFailure(t, err, "early"); f.Attempts != 2 || calls.Load() != 2 {
			t.Errorf("got %+v after %d calls, want 2 attempts", f, calls.Load())
		}
		if left := allOpen(t, d.client, handed.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
	})
}

// Outside of a handler there is neither a token nor a pending result.
func TestTokenNeedsAHandler(t *testing.T) {
	t.Parallel()
	if _, err := tasks.TokenFrom(t.Context()); err == nil {
		t.Error("a token was made")
	}
	if _, err := tasks.ResultPending[int](t.Context()); err == nil || !tasks.IsFailure(err) {
		t.Errorf("got %v", err)
	}
}
