package job

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster/tasks"
)

func TestTimeoutFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Timeout)
		chunks int
		want   time.Duration
	}{
		{nil, 0, 1800 * time.Second},
		{nil, -3, 1800 * time.Second},
		{nil, 1, 1350 * time.Second},
		{nil, 8, 1350 * time.Second},
		{nil, 9, 2700 * time.Second},
		{nil, 16, 2700 * time.Second},
		{nil, 17, 4050 * time.Second},
		{nil, 29, 5400 * time.Second},
		{nil, 40, 6750 * time.Second},
		{nil, 50, 9450 * time.Second},
		{nil, 100, 17550 * time.Second},
		{nil, 200, 33750 * time.Second},
		{nil, 1 << 62, 1<<63 - 1},
		{func(t *Timeout) { t.PerChunk = 90 * time.Second }, 1, 600 * time.Second},
		{func(t *Timeout) { t.PerChunk = 90 * time.Second }, 40, 675 * time.Second},
		{func(t *Timeout) { t.PerChunk, t.Workers = 90*time.Second, 4 }, 29, 1080 * time.Second},
		{func(t *Timeout) { t.Workers = 0 }, 2, 2700 * time.Second},
		{func(t *Timeout) { t.Workers = -5 }, 1, 1350 * time.Second},
	} {
		timeout := DefaultTimeout
		if c.change != nil {
			c.change(&timeout)
		}
		if got := timeout.For(c.chunks); got != c.want {
			t.Errorf("%+v For(%d): got %s, want %s", timeout, c.chunks, got, c.want)
		}
	}
}

// never is an event that does not come.
func never(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// after is an event that comes with err after d.
func after(d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return err
		}
	}
}

// from answers the keys k from d on, and before that a job at work.
func from(d time.Duration, k Keys) func(context.Context) (Keys, error) {
	began := time.Now()
	return func(context.Context) (Keys, error) {
		if time.Since(began) < d {
			return Keys{Status: Processing, TotalChunks: k.TotalChunks}, nil
		}
		return k, nil
	}
}

func usable(n int) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return n >= 10, nil }
}

func TestWait(t *testing.T) {
	t.Parallel()
	lost := errors.New("subscription lost")
	stuck := errors.New("no worker can be started")
	s := time.Second
	for name, c := range map[string]struct {
		job   func() Job // built inside the test's clock
		limit time.Duration
		stage Stage
		err   error
		took  time.Duration
	}{
		"event, enough": {func() Job { return Job{Event: after(40*s, nil), Enough: usable(50)} }, 0, Event, nil, 40 * s},
		"event, too few: no fall-back": {func() Job {
			return Job{Event: after(16*s, nil), Keys: from(0, Keys{Status: Complete}), Enough: usable(3)}
		}, 0, Event, ErrNotEnough, 16 * s},
		"event, failure: no fall-back": {func() Job {
			return Job{Event: after(5*s, &tasks.Failure{Task: "collect", Message: "task error"}), Keys: from(0, Keys{Status: Complete})}
		}, 0, Event, &tasks.Failure{}, 5 * s},
		"event lost, keys complete": {func() Job {
			return Job{Event: after(3*s, lost), Keys: from(50*s, Keys{Status: Complete, TotalChunks: 2}), Enough: usable(50)}
		}, 0, Polling, nil, 60 * s},
		"event lost, keys too few": {func() Job {
			return Job{Event: after(3*s, lost), Keys: from(0, Keys{Status: Complete}), Enough: usable(3)}
		}, 0, Polling, ErrNotEnough, 3 * s},
		"event lost, keys failed":             {func() Job { return Job{Event: after(3*s, lost), Keys: from(20*s, Keys{Status: Failed})} }, 0, Polling, ErrFailed, 30 * s},
		"event silent, keys complete":         {func() Job { return Job{Event: never, Keys: from(20*s, Keys{Status: Complete})} }, 0, Polling, nil, 32 * s},
		"event late but within grace":         {func() Job { return Job{Event: after(31*s, nil), Keys: from(20*s, Keys{Status: Complete})} }, 0, Event, nil, 31 * s},
		"no event at all":                     {func() Job { return Job{Keys: from(20*s, Keys{Status: Complete}), Enough: usable(50)} }, 0, Polling, nil, 30 * s},
		"keys complete at the very end":       {func() Job { return Job{Event: never, Keys: from(44*s, Keys{Status: Complete}), Enough: usable(50)} }, 44500 * time.Millisecond, Event, ErrTimeout, 44500 * time.Millisecond},
		"polled, complete at the last moment": {func() Job { return Job{Keys: from(44*s, Keys{Status: Complete}), Enough: usable(50)} }, 44500 * time.Millisecond, Polling, nil, 44500 * time.Millisecond},
		"processing past the limit":           {func() Job { return Job{Event: never, Keys: from(time.Hour, Keys{Status: Complete})} }, 100 * s, Event, ErrTimeout, 100 * s},
		"dynamic timeout of 1 chunk":          {func() Job { return Job{Event: never, Keys: from(9*time.Hour, Keys{TotalChunks: 1})} }, 0, Event, ErrTimeout, 1350 * s},
		"dynamic timeout of 40":               {func() Job { return Job{Event: never, Keys: from(9*time.Hour, Keys{TotalChunks: 40})} }, 0, Event, ErrTimeout, 6750 * s},
		"limit is total, not a stage's": {func() Job {
			return Job{Event: after(90*s, lost), Keys: from(time.Hour, Keys{}), Version: func() string { return "same" }}
		}, 100 * s, Polling, ErrTimeout, 100 * s},
		"comes along past all limits": {func() Job {
			return Job{Event: after(5*time.Hour, nil), Keys: from(9*time.Hour, Keys{}), Moves: moving(9 * time.Hour)}
		}, 0, Event, nil, 5 * time.Hour},
		"comes along past its chunks": {func() Job {
			return Job{Event: after(5*time.Hour, nil), Keys: from(9*time.Hour, Keys{TotalChunks: 1}), Moves: moving(9 * time.Hour)}
		}, 0, Event, nil, 5 * time.Hour},
		"comes along no more": {func() Job {
			return Job{Event: never, Keys: from(9*time.Hour, Keys{}), Moves: moving(2 * time.Hour)}
		}, 0, Event, ErrTimeout, 2*time.Hour + 1800*s},
		"never comes along": {func() Job {
			return Job{Event: never, Keys: from(9*time.Hour, Keys{}), Moves: moving(0)}
		}, 0, Event, ErrTimeout, 1815 * s},
		"comes along past the caller's limit": {func() Job {
			return Job{Event: never, Keys: from(9*time.Hour, Keys{}), Moves: moving(9 * time.Hour)}
		}, 100 * s, Event, ErrTimeout, 100 * s},
		"no workers": {func() Job {
			return Job{Event: never, Alive: func(context.Context) error { return stuck }}
		}, 0, Event, stuck, 15 * s},
		"file": {func() Job {
			return Job{Keys: from(0, Keys{}), Version: newer(40 * s), Enough: usable(50)}
		}, 0, File, nil, 45 * s},
		"file, too few: watches on": {func() Job {
			return Job{Version: newer(40 * s), Enough: usable(3)}
		}, 200 * s, File, ErrTimeout, 200 * s},
		"file unchanged": {func() Job {
			return Job{Version: func() string { return "same" }, Enough: usable(50)}
		}, 100 * s, File, ErrTimeout, 100 * s},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				stage, err := Waiter{Limit: c.limit, Logger: slog.New(slog.DiscardHandler)}.Wait(t.Context(), c.job())
				if stage != c.stage {
					t.Errorf("learned by %s, want %s", stage, c.stage)
				}
				var failure *tasks.Failure
				if errors.As(c.err, &failure) {
					if !errors.As(err, &failure) {
						t.Errorf("got error %v, want the task's failure", err)
					}
				} else if !errors.Is(err, c.err) {
					t.Errorf("got error %v, want %v", err, c.err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
			})
		})
	}
}

// moving is a job that comes further every second, until d.
func moving(d time.Duration) func(context.Context) (string, error) {
	began := time.Now()
	return func(context.Context) (string, error) {
		return min(time.Since(began), d).Truncate(time.Second).String(), nil
	}
}

// newer is the version of a file that is written once, after d.
func newer(d time.Duration) func() string {
	began := time.Now()
	return func() string {
		if time.Since(began) < d {
			return "old"
		}
		return "new"
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(7*time.Second, func() { cancel(why) })
		_, err := Waiter{Logger: slog.New(slog.DiscardHandler)}.Wait(ctx, Job{Event: never})
		if !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}

func TestWaitWarnsOnceOfAJobThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		_, err := Waiter{Limit: 300 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}.Wait(t.Context(),
			Job{Event: never, Keys: func(context.Context) (Keys, error) { return Keys{Status: Dispatched}, nil }})
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("got %v", err)
		}
		if n := strings.Count(log.String(), "has not begun"); n != 1 || !strings.Contains(log.String(), "waited=2m0s") {
			t.Errorf("%d warnings, want one after two minutes:\n%s", n, log.String())
		}
	})
}
