package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/orchestrator/config"
	"muster/tasks"
)

func TestTimeoutOfChunks(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		perChunk time.Duration
		workers  int
		chunks   int
		want     time.Duration
	}{
		{900 * s, 8, 0, 1800 * s}, {900 * s, 8, -3, 1800 * s},
		{900 * s, 8, 1, 1350 * s}, {900 * s, 8, 8, 1350 * s}, {900 * s, 8, 9, 2700 * s}, {900 * s, 8, 16, 2700 * s}, {900 * s, 8, 17, 4050 * s},
		{900 * s, 8, 29, 5400 * s}, {900 * s, 8, 40, 6750 * s}, {900 * s, 8, 50, 9450 * s}, {900 * s, 8, 100, 17550 * s}, {900 * s, 8, 200, 33750 * s},
		{900 * s, 8, 1 << 62, 1<<63 - 1},
		{90 * s, 8, 1, 600 * s}, {90 * s, 8, 40, 675 * s}, {90 * s, 4, 29, 1080 * s},
		{900 * s, 0, 2, 2700 * s}, {900 * s, -5, 1, 1350 * s},
	} {
		w := waiter{Wait: config.Default().Wait, workers: c.workers}
		w.PerChunk = c.perChunk
		if got := w.limit(c.chunks); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// The results of jobs, by source.
const (
	byEvent  = "event result"
	inRedis  = "what Redis stored"
	inFile   = "file result"
	noResult = ""
)

// waitCase is a job and the expected end of the wait. Times are since the start; 0 means never, and at once is the start.
type waitCase struct {
	event        time.Duration // of the event, with eventErr
	eventErr     error
	keys         progressKeys // from keysAt on, before those of a running job
	keysAt       time.Duration
	stored, file time.Duration // of the results
	storedErr    error
	gone         time.Duration // of the job in Redis
	moves        time.Duration // until then it makes progress
	found        int           // results, of which 10 are enough; 0: not counted
	stuck, away  bool          // no worker runs; Redis does not respond
	limit        time.Duration

	stage  string
	result string
	err    error
	took   time.Duration
}

const atOnce = time.Nanosecond

var (
	errLost    = errors.New("subscription lost")
	errStuck   = errors.New("no worker can be started")
	errFailure = &tasks.Failure{Task: "collect", Message: "task error"}
)

// job returns the job, which starts now.
func (c waitCase) job() awaited[string] {
	start := time.Now()
	passed := func(d time.Duration) bool { return d > 0 && time.Since(start) >= d }
	j := awaited[string]{
		event: func(ctx context.Context) (string, error) {
			if c.event == 0 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			time.Sleep(c.event)
			return byEvent, c.eventErr
		},
		exists: func(context.Context) (bool, error) {
			if c.away {
				return false, errLost
			}
			return !passed(c.gone), nil
		},
		keys: func(context.Context) (progressKeys, error) {
			switch {
			case c.away:
				return progressKeys{}, errLost
			case c.keysAt > 0 && !passed(c.keysAt):
				return progressKeys{Status: "PROCESSING", TotalChunks: c.keys.TotalChunks}, nil
			}
			return c.keys, nil
		},
		stored: func(context.Context) (string, bool, error) { return inRedis, passed(c.stored), c.storedErr },
		file:   func() (string, bool, error) { return inFile, passed(c.file), nil },
		alive: func(context.Context) error {
			if c.stuck {
				return errStuck
			}
			return nil
		},
	}
	if c.moves > 0 {
		j.marker = func(context.Context) (string, error) {
			return min(time.Since(start), c.moves).Truncate(time.Second).String(), nil
		}
	}
	if c.found > 0 {
		j.enough = func(context.Context) (bool, error) { return c.found >= 10, nil }
	}
	return j
}

func TestWait(t *testing.T) {
	t.Parallel()
	const s, h = time.Second, time.Hour
	complete, failed := progressKeys{Status: statusComplete}, progressKeys{Status: statusFailed}
	for name, c := range map[string]waitCase{
		"event, enough":                  {event: 40 * s, found: 50, stage: stageEvent, result: byEvent, took: 40 * s},
		"event, too few: no fall-back":   {event: 16 * s, keys: complete, stored: atOnce, found: 3, stage: stageEvent, result: byEvent, err: ErrNotEnough, took: 16 * s},
		"event, failure: no fall-back":   {event: 5 * s, eventErr: errFailure, keys: complete, stored: atOnce, stage: stageEvent, result: byEvent, err: errFailure, took: 5 * s},
		"event lost, keys complete":      {event: 3 * s, eventErr: errLost, keys: progressKeys{Status: statusComplete, TotalChunks: 2}, keysAt: 50 * s, stored: 50 * s, found: 50, stage: stagePolling, result: inRedis, took: 60 * s},
		"event lost, keys too few":       {event: 3 * s, eventErr: errLost, keys: complete, stored: atOnce, found: 3, stage: stagePolling, result: inRedis, err: ErrNotEnough, took: 3 * s},
		"event lost, keys failed":        {event: 3 * s, eventErr: errLost, keys: failed, keysAt: 20 * s, stored: 20 * s, stage: stagePolling, err: ErrFailed, took: 30 * s},
		"event lost, stored failure":     {event: 3 * s, eventErr: errLost, storedErr: errFailure, stage: stagePolling, result: inRedis, err: errFailure, took: 3 * s},
		"event lost, result in the file": {event: 3 * s, eventErr: errLost, keys: complete, file: atOnce, stage: stageFile, result: inFile, took: 3 * s},
		"event lost, no result":          {event: 3 * s, eventErr: errLost, keys: complete, stage: stagePolling, err: ErrNoResult, took: 3 * s},
		"event lost, keys expired":       {event: 3 * s, eventErr: errLost, gone: atOnce, stored: atOnce, file: atOnce, stage: stagePolling, result: inRedis, took: 3 * s},
		"event silent, keys complete":    {keys: complete, keysAt: 20 * s, stored: 20 * s, stage: stagePolling, result: inRedis, took: 32 * s},
		"event late but within grace":    {event: 31 * s, keys: complete, keysAt: 20 * s, stage: stageEvent, result: byEvent, took: 31 * s},
		"no event at all":                {event: atOnce, eventErr: errLost, keys: complete, keysAt: 20 * s, stored: 20 * s, found: 50, stage: stagePolling, result: inRedis, took: 30 * s},

		"keys complete at the very end":       {keys: complete, keysAt: 44 * s, found: 50, limit: 44500 * time.Millisecond, stage: stageEvent, err: ErrTimeout, took: 44500 * time.Millisecond},
		"polled, complete at the last moment": {event: atOnce, eventErr: errLost, keys: complete, keysAt: 44 * s, stored: 44 * s, limit: 44500 * time.Millisecond, stage: stagePolling, result: inRedis, took: 44500 * time.Millisecond},
		"processing past the limit":           {keys: complete, keysAt: h, limit: 100 * s, stage: stageEvent, err: ErrTimeout, took: 100 * s},
		"dynamic timeout of 1 chunk":          {keys: progressKeys{TotalChunks: 1}, keysAt: 9 * h, stage: stageEvent, err: ErrTimeout, took: 1350 * s},
		"dynamic timeout of 40":               {keys: progressKeys{TotalChunks: 40}, keysAt: 9 * h, stage: stageEvent, err: ErrTimeout, took: 6750 * s},
		"limit covers all stages":             {event: 90 * s, eventErr: errLost, keysAt: h, limit: 100 * s, stage: stagePolling, err: ErrTimeout, took: 100 * s},

		"progress past all limits":         {event: 5 * h, keysAt: 9 * h, moves: 9 * h, stage: stageEvent, result: byEvent, took: 5 * h},
		"progress past its chunks":         {event: 5 * h, keys: progressKeys{TotalChunks: 1}, keysAt: 9 * h, moves: 9 * h, stage: stageEvent, result: byEvent, took: 5 * h},
		"progress ends":                    {keysAt: 9 * h, moves: 2 * h, stage: stageEvent, err: ErrTimeout, took: 2*h + 1800*s},
		"no progress":                      {keysAt: 9 * h, moves: atOnce, stage: stageEvent, err: ErrTimeout, took: 1815 * s},
		"progress past the caller's limit": {keysAt: 9 * h, moves: 9 * h, limit: 100 * s, stage: stageEvent, err: ErrTimeout, took: 100 * s},

		"no workers":                           {stuck: true, stage: stageEvent, err: errStuck, took: 15 * s},
		"file":                                 {event: atOnce, eventErr: errLost, file: 40 * s, found: 50, stage: stageFile, result: inFile, took: 45 * s},
		"file, too few":                        {event: atOnce, eventErr: errLost, file: 40 * s, found: 3, stage: stageFile, result: inFile, err: ErrNotEnough, took: 45 * s},
		"no report yet":                        {event: atOnce, eventErr: errLost, file: h, found: 50, limit: 100 * s, stage: stagePolling, err: ErrTimeout, took: 100 * s},
		"missing, so are the keys of workers":  {event: 3 * s, eventErr: tasks.ErrNotFound, gone: 2 * s, stuck: true, stage: stagePolling, err: ErrUnknown, took: 5 * s},
		"missing after an outage":              {event: 3 * s, eventErr: errLost, gone: 20 * s, stage: stagePolling, err: ErrUnknown, took: 32 * s},
		"workflow expires during the job":      {event: 3 * s, eventErr: tasks.ErrNotFound, gone: 2 * s, keys: progressKeys{Status: "PROCESSING"}, stage: stagePolling, err: ErrUnknown, took: 5 * s},
		"finishes between two reads of a poll": {event: 3 * s, eventErr: tasks.ErrNotFound, gone: 2 * s, stored: 4 * s, stage: stagePolling, result: inRedis, took: 5 * s},
		"Redis is unavailable":                 {event: 3 * s, eventErr: errLost, away: true, limit: 100 * s, stage: stagePolling, err: ErrTimeout, took: 100 * s},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				result, stage, err := waitFor(t.Context(), waiterFor(c.limit, io.Discard), c.job())
				if stage != c.stage || result != c.result || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Errorf("got %q at stage %s, %v, want %q at stage %s, %v", result, stage, err, c.result, c.stage, c.err)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
			})
		})
	}
}

func waiterFor(limit time.Duration, log io.Writer) waiter {
	w := waiter{config.Default().Wait, 8, slog.New(slog.NewTextHandler(log, nil))}
	w.Timeout = limit
	return w
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(7*time.Second, func() { cancel(why) })
		if _, _, err := waitFor(ctx, waiterFor(0, io.Discard), waitCase{}.job()); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}

func TestWaitWarnsOnceAboutAJobThatDoesNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		_, _, err := waitFor(t.Context(), waiterFor(300*time.Second, &log), waitCase{keys: progressKeys{Status: statusDispatched}}.job())
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("got %v, want %v", err, ErrTimeout)
		}
		if n := strings.Count(log.String(), "has not started"); n != 1 || !strings.Contains(log.String(), "waited=2m0s") {
			t.Errorf("%d warnings, want one after two minutes:\n%s", n, log.String())
		}
	})
}

func TestReadKeys(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := context.Background()
		if got, err := readKeys(ctx, rdb, "proxy_refresh", "j1"); err != nil || got != (progressKeys{}) {
			t.Errorf("no keys: got %+v, %v", got, err)
		}
		for name, value := range map[string]string{"status": "PROCESSING", "total_chunks": "7", "candidates": "3"} {
			rdb.Set(ctx, "proxy_refresh:j1:"+name, value, 0)
		}
		rdb.Set(ctx, "proxy_refresh:j2:status", "COMPLETE", 0)
		want := progressKeys{Status: "PROCESSING", TotalChunks: 7, Candidates: 3}
		if got, err := readKeys(ctx, rdb, "proxy_refresh", "j1"); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		rdb.Set(ctx, "proxy_refresh:j1:total_chunks", "many", 0)
		if _, err := readKeys(ctx, rdb, "proxy_refresh", "j1"); err == nil {
			t.Error("got nil for an invalid total, want an error")
		}
	})
}
