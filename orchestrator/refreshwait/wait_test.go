package refreshwait

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
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

// The results of the jobs in these tests, by source.
const (
	byEvent  = "event result"
	inRedis  = "what Redis stored"
	inFile   = "file result"
	noResult = ""
)

// never is an event that never arrives.
func never(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }

// after returns an event that arrives with err after d.
func after(d time.Duration, err error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(d):
			return byEvent, err
		}
	}
}

// stored returns a result that is in Redis after d.
func stored(d time.Duration) func(context.Context) (string, bool, error) {
	file := filed(d)
	return func(context.Context) (string, bool, error) {
		_, ok, err := file()
		return inRedis, ok, err
	}
}

// filed returns a result that is in a file after d.
func filed(d time.Duration) func() (string, bool, error) {
	start := time.Now()
	return func() (string, bool, error) { return inFile, time.Since(start) >= d, nil }
}

// until returns a job that is in Redis until d.
func until(d time.Duration) func(context.Context) (bool, error) {
	start := time.Now()
	return func(context.Context) (bool, error) { return time.Since(start) < d, nil }
}

// from returns the keys k after d, and the keys of a running job before.
func from(d time.Duration, k Keys) func(context.Context) (Keys, error) {
	start := time.Now()
	return func(context.Context) (Keys, error) {
		if time.Since(start) < d {
			return Keys{Status: Processing, TotalChunks: k.TotalChunks}, nil
		}
		return k, nil
	}
}

func usable(n int) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return n >= 10, nil }
}

// waitCase is a job and the expected result of Wait.
type waitCase struct {
	job    func() Job[string] // created in the synctest bubble
	limit  time.Duration
	stage  Stage
	result string
	err    error
	took   time.Duration
}

var (
	errLost    = errors.New("subscription lost")
	errStuck   = errors.New("no worker can be started")
	errFailure = &tasks.Failure{Task: "collect", Message: "task error"}
)

// eventCases returns jobs with an event, or with a lost event followed by the keys.
func eventCases() map[string]waitCase {
	const s = time.Second
	type job = Job[string]
	return map[string]waitCase{
		"event, enough": {func() job { return job{Event: after(40*s, nil), Enough: usable(50)} }, 0, Event, byEvent, nil, 40 * s},
		"event, too few: no fall-back": {func() job {
			return job{Event: after(16*s, nil), Keys: from(0, Keys{Status: Complete}), Stored: stored(0), Enough: usable(3)}
		}, 0, Event, byEvent, ErrNotEnough, 16 * s},
		"event, failure: no fall-back": {func() job {
			return job{Event: after(5*s, errFailure), Keys: from(0, Keys{Status: Complete}), Stored: stored(0)}
		}, 0, Event, byEvent, errFailure, 5 * s},
		"event errLost, keys complete": {func() job {
			return job{Event: after(3*s, errLost), Keys: from(50*s, Keys{Status: Complete, TotalChunks: 2}), Stored: stored(50 * s), Enough: usable(50)}
		}, 0, Polling, inRedis, nil, 60 * s},
		"event errLost, keys too few": {func() job {
			return job{Event: after(3*s, errLost), Keys: from(0, Keys{Status: Complete}), Stored: stored(0), Enough: usable(3)}
		}, 0, Polling, inRedis, ErrNotEnough, 3 * s},
		"event errLost, keys failed": {func() job {
			return job{Event: after(3*s, errLost), Keys: from(20*s, Keys{Status: Failed}), Stored: stored(20 * s)}
		}, 0, Polling, noResult, ErrFailed, 30 * s},
		"event errLost, stored failure": {func() job {
			return job{Event: after(3*s, errLost), Stored: func(context.Context) (string, bool, error) { return "", false, errFailure }}
		}, 0, Polling, noResult, errFailure, 3 * s},
		"event errLost, keys complete, result only in the file": {func() job {
			return job{Event: after(3*s, errLost), Keys: from(0, Keys{Status: Complete}), Stored: stored(time.Hour), File: filed(0)}
		}, 0, File, inFile, nil, 3 * s},
		"event errLost, keys complete, no result": {func() job {
			return job{Event: after(3*s, errLost), Keys: from(0, Keys{Status: Complete}), Stored: stored(time.Hour), File: filed(time.Hour)}
		}, 0, Polling, noResult, ErrNoResult, 3 * s},
		"event errLost, keys expired, result in Redis": {func() job {
			return job{Event: after(3*s, errLost), Exists: until(0), Keys: from(0, Keys{}), Stored: stored(0), File: filed(0)}
		}, 0, Polling, inRedis, nil, 3 * s},
		"event silent, keys complete": {func() job {
			return job{Event: never, Keys: from(20*s, Keys{Status: Complete}), Stored: stored(20 * s)}
		}, 0, Polling, inRedis, nil, 32 * s},
		"event late but within grace": {func() job { return job{Event: after(31*s, nil), Keys: from(20*s, Keys{Status: Complete})} }, 0, Event, byEvent, nil, 31 * s},
	}
}

// limitCases returns jobs that finish by keys alone or reach a limit.
func limitCases() map[string]waitCase {
	const s = time.Second
	type job = Job[string]
	return map[string]waitCase{
		"no event at all": {func() job {
			return job{Keys: from(20*s, Keys{Status: Complete}), Stored: stored(20 * s), Enough: usable(50)}
		}, 0, Polling, inRedis, nil, 30 * s},
		"keys complete at the very end":       {func() job { return job{Event: never, Keys: from(44*s, Keys{Status: Complete}), Enough: usable(50)} }, 44500 * time.Millisecond, Event, noResult, ErrTimeout, 44500 * time.Millisecond},
		"polled, complete at the last moment": {func() job { return job{Keys: from(44*s, Keys{Status: Complete}), Stored: stored(44 * s)} }, 44500 * time.Millisecond, Polling, inRedis, nil, 44500 * time.Millisecond},
		"processing past the limit":           {func() job { return job{Event: never, Keys: from(time.Hour, Keys{Status: Complete})} }, 100 * s, Event, noResult, ErrTimeout, 100 * s},
		"dynamic timeout of 1 chunk":          {func() job { return job{Event: never, Keys: from(9*time.Hour, Keys{TotalChunks: 1})} }, 0, Event, noResult, ErrTimeout, 1350 * s},
		"dynamic timeout of 40":               {func() job { return job{Event: never, Keys: from(9*time.Hour, Keys{TotalChunks: 40})} }, 0, Event, noResult, ErrTimeout, 6750 * s},
		"limit covers all stages": {func() job {
			return job{Event: after(90*s, errLost), Keys: from(time.Hour, Keys{}), File: filed(time.Hour)}
		}, 100 * s, Polling, noResult, ErrTimeout, 100 * s},
	}
}

// movingCases returns jobs that make progress for some time.
func movingCases() map[string]waitCase {
	const s = time.Second
	type job = Job[string]
	return map[string]waitCase{
		"progress past all limits": {func() job {
			return job{Event: after(5*time.Hour, nil), Keys: from(9*time.Hour, Keys{}), Marker: moving(9 * time.Hour)}
		}, 0, Event, byEvent, nil, 5 * time.Hour},
		"progress past its chunks": {func() job {
			return job{Event: after(5*time.Hour, nil), Keys: from(9*time.Hour, Keys{TotalChunks: 1}), Marker: moving(9 * time.Hour)}
		}, 0, Event, byEvent, nil, 5 * time.Hour},
		"progress ends": {func() job {
			return job{Event: never, Keys: from(9*time.Hour, Keys{}), Marker: moving(2 * time.Hour)}
		}, 0, Event, noResult, ErrTimeout, 2*time.Hour + 1800*s},
		"no progress": {func() job {
			return job{Event: never, Keys: from(9*time.Hour, Keys{}), Marker: moving(0)}
		}, 0, Event, noResult, ErrTimeout, 1815 * s},
		"progress past the caller's limit": {func() job {
			return job{Event: never, Keys: from(9*time.Hour, Keys{}), Marker: moving(9 * time.Hour)}
		}, 100 * s, Event, noResult, ErrTimeout, 100 * s},
	}
}

// lastCases returns jobs that finish without keys.
func lastCases() map[string]waitCase {
	const s = time.Second
	type job = Job[string]
	return map[string]waitCase{
		"no workers": {func() job {
			return job{Event: never, Alive: func(context.Context) error { return errStuck }}
		}, 0, Event, noResult, errStuck, 15 * s},
		"file": {func() job {
			return job{Keys: from(0, Keys{}), File: filed(40 * s), Enough: usable(50)}
		}, 0, File, inFile, nil, 45 * s},
		"file, too few": {func() job {
			return job{File: filed(40 * s), Enough: usable(3)}
		}, 0, File, inFile, ErrNotEnough, 45 * s},
		"no report yet": {func() job {
			return job{File: filed(time.Hour), Enough: usable(50)}
		}, 100 * s, Polling, noResult, ErrTimeout, 100 * s},
		"job missing in Redis": {func() job {
			return job{Event: after(3*s, tasks.ErrNotFound), Exists: until(2 * s), Keys: from(0, Keys{}), Stored: stored(time.Hour), File: filed(time.Hour),
				Alive: func(context.Context) error { return errStuck }} // the keys of the workers are missing too
		}, 0, Polling, noResult, ErrUnknown, 5 * s},
		"job missing in Redis after an outage": {func() job {
			return job{Event: after(3*s, errLost), Exists: until(20 * s), Keys: from(0, Keys{}), Stored: stored(time.Hour)}
		}, 0, Polling, noResult, ErrUnknown, 32 * s},
		"workflow expires during the job": {func() job {
			return job{Event: after(3*s, tasks.ErrNotFound), Exists: until(2 * s), Keys: from(0, Keys{Status: Processing}), Stored: stored(time.Hour)}
		}, 0, Polling, noResult, ErrUnknown, 5 * s},
		"finishes between two reads of a poll": {func() job {
			return job{Event: after(3*s, tasks.ErrNotFound), Exists: until(2 * s), Keys: from(0, Keys{}), Stored: stored(4 * s)}
		}, 0, Polling, inRedis, nil, 5 * s},
		"Redis is unavailable": {func() job {
			return job{Event: after(3*s, errLost), Exists: func(context.Context) (bool, error) { return false, errLost },
				Keys: func(context.Context) (Keys, error) { return Keys{}, errLost }}
		}, 100 * s, Polling, noResult, ErrTimeout, 100 * s},
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	cases := map[string]waitCase{}
	for _, some := range []map[string]waitCase{eventCases(), limitCases(), movingCases(), lastCases()} {
		maps.Copy(cases, some)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				result, stage, err := Wait(t.Context(), Waiter{Limit: c.limit, Logger: slog.New(slog.DiscardHandler)}, c.job())
				if stage != c.stage {
					t.Errorf("got stage %s, want %s", stage, c.stage)
				}
				if result != c.result {
					t.Errorf("got result %q, want %q", result, c.result)
				}
				var failure *tasks.Failure
				if errors.As(c.err, &failure) {
					if !errors.As(err, &failure) {
						t.Errorf("got error %v, want the task's failure", err)
					}
				} else if !errors.Is(err, c.err) {
					t.Errorf("got error %v, want %v", err, c.err)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
			})
		})
	}
}

// moving returns a marker that changes every second until d.
func moving(d time.Duration) func(context.Context) (string, error) {
	start := time.Now()
	return func(context.Context) (string, error) {
		return min(time.Since(start), d).Truncate(time.Second).String(), nil
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(7*time.Second, func() { cancel(why) })
		_, _, err := Wait(ctx, Waiter{Logger: slog.New(slog.DiscardHandler)}, Job[string]{Event: never})
		if !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}

func TestWaitWarnsOnceAboutAJobThatDoesNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		_, _, err := Wait(t.Context(), Waiter{Limit: 300 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))},
			Job[string]{Event: never, Keys: func(context.Context) (Keys, error) { return Keys{Status: Dispatched}, nil }})
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("got %v, want %v", err, ErrTimeout)
		}
		if n := strings.Count(log.String(), "has not started"); n != 1 || !strings.Contains(log.String(), "waited=2m0s") {
			t.Errorf("%d warnings, want one after two minutes:\n%s", n, log.String())
		}
	})
}

func TestMain(m *testing.M) { redistest.Main(m) }

func TestReadKeys(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := context.Background()
		if got, err := ReadKeys(ctx, rdb, "proxy_refresh", "j1"); err != nil || got != (Keys{}) {
			t.Errorf("no keys: got %+v, %v", got, err)
		}
		for name, value := range map[string]string{"status": "PROCESSING", "total_chunks": "7", "completed_chunks": "3"} {
			rdb.Set(ctx, "proxy_refresh:j1:"+name, value, 0)
		}
		rdb.Set(ctx, "proxy_refresh:j2:status", "COMPLETE", 0)
		want := Keys{Status: Processing, TotalChunks: 7, CompletedChunks: 3}
		if got, err := ReadKeys(ctx, rdb, "proxy_refresh", "j1"); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		rdb.Set(ctx, "proxy_refresh:j1:total_chunks", "many", 0)
		if _, err := ReadKeys(ctx, rdb, "proxy_refresh", "j1"); err == nil {
			t.Error("got nil for an invalid total, want an error")
		}
	})
}
