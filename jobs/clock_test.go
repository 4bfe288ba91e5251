package jobs_test

import (
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
)

// Jobs use the clock of Redis, even if the clock of the process differs from it.
func TestJobsUseTheClockOfRedis(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"ahead": -200 * time.Hour, "behind": 200 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, jump := redistest.Clock(t)
			jump(skew)
			w := newWorld(t, rdb, nil)
			w.roles = map[string]int{"creator": 1, "validator": 1}
			now := testutil.Must(rdb.Time(w.ctx).Result())(t)
			later := w.create(jobs.Request{At: now.Add(time.Hour)})
			j := w.create(jobs.Request{})
			next := w.create(jobs.Request{After: []string{j.ID}})
			work := w.take("creator", "c")
			if left := work.Deadline.Sub(now); left < 59*time.Minute || left > 61*time.Minute {
				t.Errorf("deadline: got %v from now, want an hour", left)
			}
			testutil.Ok(t, w.Sweep(w.ctx))
			if p, err := w.Progress(w.ctx, j.ID); err != nil || p.Stuck != nil || p.ElapsedSeconds > 60 {
				t.Errorf("progress: got %+v, %v, want a job that has just begun", p, err)
			}
			if _, err := w.Beat(w.ctx, work); err != nil {
				t.Errorf("beat: %v", err)
			}
			w.complete(work, jobs.Answer{})
			w.until(j.ID, jobs.Completed)
			w.until(next.ID, jobs.Processing)
			w.until(later.ID, jobs.Created)
			if days, err := w.Daily(w.ctx, 1); err != nil || days[0].Created != 3 {
				t.Errorf("today: got %+v, %v, want 3 jobs", days, err)
			}
		})
	}
}
