package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
)

// created makes a job as old as age, as far as the order of work goes.
func (w *world) created(id string, age time.Duration) {
	w.t.Helper()
	testutil.Ok(w.t, w.client.Redis().HSet(w.ctx, "muster:{jobs}:j:"+id, "created", time.Now().Add(-age).UnixMilli()).Err())
}

// progressed makes the last progress of a job as old as age.
func (w *world) progressed(id string, age time.Duration) {
	w.t.Helper()
	testutil.Ok(w.t, w.client.Redis().HSet(w.ctx, "muster:{jobs}:j:"+id, "progressed", time.Now().Add(-age).UnixMilli()).Err())
}

// High priority goes first, equal ones the oldest first, and a low one that has waited for long before a new high one.
func TestWorkIsTakenByPriorityAndAge(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		names := map[string]string{}
		for _, c := range []struct {
			name     string
			priority int
			age      time.Duration
		}{
			{"low", -100, 5 * time.Minute}, {"normal, new", 0, 2 * time.Minute}, {"high", 100, time.Minute}, {"normal, old", 0, 3 * time.Minute},
			{"low that has waited", -100, 4 * time.Hour},
		} {
			j := w.create(jobs.Request{Prompt: c.name, Priority: c.priority})
			names[j.ID] = c.name
			w.until(j.ID, jobs.Processing)
			w.created(j.ID, c.age)
		}
		rdb := w.client.Redis()
		testutil.Eventually(t, "all jobs are announced", func() bool {
			testutil.Ok(t, w.Sweep(w.ctx))
			n := testutil.Must(rdb.ZCard(w.ctx, "muster:{jobs}:ready:creator").Result())(t)
			return n == int64(len(names))
		})
		var got []string
		for range names {
			got = append(got, names[w.take("creator", "c").JobID])
		}
		sameList(t, "order", got, []string{"low that has waited", "high", "normal, old", "normal, new", "low"})
	})
}

// A job is stuck after an hour without progress, or after its own time.
func TestJobIsStuckAfterItsThreshold(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.roles = map[string]int{"creator": 1, "validator": 1}
		for _, c := range []struct {
			own, age time.Duration
			stuck    bool
		}{
			{0, 59 * time.Minute, false}, {0, 61 * time.Minute, true}, {5 * time.Minute, 4 * time.Minute, false}, {5 * time.Minute, 6 * time.Minute, true},
		} {
			j := w.create(jobs.Request{Prompt: fmt.Sprint(c), StuckAfter: c.own})
			work := w.take("creator", "c1")
			w.progressed(j.ID, c.age)
			stuck, err := w.Stuck(w.ctx)
			if err != nil || (len(stuck) == 1) != c.stuck {
				t.Fatalf("without progress for %v, with its own threshold %v: got %+v, %v; want stuck %v", c.age, c.own, stuck, err, c.stuck)
			}
			if c.stuck && (stuck[0].JobID != j.ID || stuck[0].Stage != "create" || !strings.Contains(stuck[0].Reason, "c1 holds stage create")) {
				t.Errorf("a stuck job: got %+v", stuck[0])
			}
			p, err := w.Progress(w.ctx, j.ID)
			if err != nil || (p.Stuck != nil) != c.stuck {
				t.Errorf("its progress is %+v, %v", p.Stuck, err)
			}
			w.complete(work, jobs.Answer{})
			w.until(j.ID, jobs.Completed)
		}
	})
}

// A job that waits for agents stays on the list of stuck jobs, is reported once, and has time when an agent comes.
func TestJobThatWaitsForAgentsStaysStuckUntilOneComes(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		if got := w.until(j.ID, jobs.Processing); got.Waiting != "no agent of role creator" {
			t.Errorf("it waits %q, want the role", got.Waiting)
		}
		w.progressed(j.ID, 2*time.Hour)
		for range 3 {
			testutil.Ok(t, w.Sweep(w.ctx))
			if stuck, err := w.Stuck(w.ctx); err != nil || len(stuck) != 1 || stuck[0].Reason != "no agent of role creator" {
				t.Fatalf("stuck jobs: got %+v, %v; want the job that waits", stuck, err)
			}
		}
		if got := strings.Count(strings.Join(w.types(j.ID), " "), "job.stuck"); got != 1 {
			t.Errorf("events: got %v, want job.stuck once", w.types(j.ID))
		}
		w.roles = map[string]int{"creator": 1, "validator": 1}
		work := w.take("creator", "c1")
		testutil.Ok(t, w.Sweep(w.ctx))
		if stuck, err := w.Stuck(w.ctx); err != nil || len(stuck) != 0 {
			t.Errorf("stuck jobs once an agent has come: got %+v, %v; want none", stuck, err)
		}
		w.complete(work, jobs.Answer{}) // it was not taken away
		if got := w.until(j.ID, jobs.Completed); got.Recoveries != 0 {
			t.Errorf("recoveries of a job that waits for agents: got %d, want 0", got.Recoveries)
		}
	})
}

// A job with few items does not wait for all items of an earlier job.
func TestJobsOfOnePriorityTakeTurns(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		big := w.create(jobs.Request{Prompt: "big"})
		w.emit("1", "2", "3", "4", "5", "6")
		w.until(big.ID, jobs.Processing)
		small := w.create(jobs.Request{Prompt: "small"})
		w.emit("1", "2")
		var order []string
		for range 4 {
			work := w.take("validator", "v")
			order = append(order, work.Prompt)
			w.complete(work, jobs.Answer{})
		}
		if n := len(slices.DeleteFunc(slices.Clone(order), func(s string) bool { return s != "small" })); n != 2 {
			t.Errorf("order: got %v, want two of each job", order)
		}
		w.until(small.ID, jobs.Completed)
	})
}
