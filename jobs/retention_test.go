package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
)

// keysOf returns the keys that have an id in their names.
func keysOf(t *testing.T, rdb redis.UniversalClient, id string) []string {
	t.Helper()
	all := testutil.Must(rdb.Keys(t.Context(), "muster:*").Result())(t)
	return slices.DeleteFunc(all, func(key string) bool { return !strings.Contains(key, id) })
}

// Of several times to keep a job for, the most specific one counts.
func TestJobsAreKeptByState(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		keep    time.Duration
		keepFor map[string]time.Duration
		want    string // the jobs that are kept after a week, one of each final state
	}{
		"the same for all":    {time.Hour, nil, ""},
		"forever":             {-1, nil, "cancelled completed failed"},
		"a state":             {time.Hour, map[string]time.Duration{"cancelled": 2 * week}, "cancelled"},
		"0 is forever":        {time.Hour, map[string]time.Duration{"failed": 0}, "failed"},
		"only some are short": {-1, map[string]time.Duration{"completed": time.Hour}, "cancelled failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, jump := redistest.Clock(t)
			w := newWorld(t, rdb, func(cfg *jobs.Config) {
				cfg.Keep, cfg.KeepFor = c.keep, c.keepFor
			})
			completed, cancelled := w.create(jobs.Request{}), jobs.Job{}
			w.emit()
			w.until(completed.ID, jobs.Completed)
			cancelled = w.create(jobs.Request{})
			if _, _, err := w.Cancel(w.ctx, cancelled.ID, false); err != nil {
				t.Fatal(err)
			}
			failed := w.create(jobs.Request{Pipeline: "setting"})
			testutil.Must(w.CompleteStage(w.ctx, failed.ID, "create", "broken"))(t)
			w.until(failed.ID, jobs.Failed)
			jump(week)
			testutil.Ok(t, w.Sweep(w.ctx))
			page := testutil.Must(w.List(w.ctx, jobs.Filter{}))(t)
			var kept []string
			for _, j := range page.Jobs {
				kept = append(kept, string(j.Status))
			}
			slices.Sort(kept)
			if got := strings.Join(kept, " "); got != c.want {
				t.Errorf("kept: got %q, want %q", got, c.want)
			}
		})
	}
}

// With a job go its items, its queue, its events, its usage and, with the last job that has it, its document.
func TestNothingOfADeletedJobIsLeft(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb, func(cfg *jobs.Config) { cfg.KeepFor = map[string]time.Duration{"completed": time.Nanosecond} })
		doc := &jobs.Document{Name: "a.txt", Hash: strings.Repeat("a", 64), Size: 1}
		w.docs.files[doc.Hash] = []byte("x")
		first := w.create(jobs.Request{Document: doc, Labels: []string{"red"}, Context: []byte(`{"customer":"acme"}`)})
		w.emit("one", "two")
		for range 2 {
			work := w.take("validator", "v")
			testutil.Ok(t, w.AddUsage(w.ctx, first.ID, "v", map[string]int64{"tokens": 1, "assignments": 1}, time.Time{}))
			w.complete(work, jobs.Answer{})
		}
		w.until(first.ID, jobs.Completed)
		second := w.create(jobs.Request{Document: doc})
		for _, id := range []string{first.ID, second.ID} {
			if id == second.ID {
				w.emit()
				w.until(id, jobs.Completed)
			}
			for range 2 { // the second sweep finds the rest of the first one
				testutil.Ok(t, w.Sweep(w.ctx))
			}
			if _, err := w.Get(w.ctx, id); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("got %v, want that the job is gone", err)
			}
			if left := keysOf(t, rdb, id); len(left) > 0 {
				t.Errorf("got the keys %v, want none of the job", left)
			}
			want := "[" + doc.Hash + "]"
			if id == second.ID {
				want = "[]"
			}
			if got := fmt.Sprint(w.docs.names()); got != want {
				t.Errorf("got the documents %s, want %s", got, want)
			}
		}
	})
}
