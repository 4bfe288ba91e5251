package jobs_test

import (
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
)

// Wait returns with the event of the end, not at the next interval.
func TestWaitReturnsWithTheLastEvent(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "setting"})
		work := w.take("creator", "c")
		done := make(chan jobs.Job, 1)
		looks := make(chan struct{}, 100)
		go func() {
			got, err := w.Wait(w.ctx, j.ID, time.Hour, func(jobs.Progress) { looks <- struct{}{} })
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		<-looks
		w.complete(work, jobs.Answer{})
		select {
		case got := <-done:
			if got.Status != jobs.Completed {
				t.Errorf("got %s, want completed", got.Status)
			}
		case <-w.ctx.Done():
			t.Error("Wait has not returned")
		}
	})
}

// A schedule fires at its time, without a sweep.
func TestScheduleFiresWithoutASweep(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		s := w.create(jobs.Request{Cron: "*/1 * * * * *"})
		testutil.Eventually(t, "three jobs of the schedule", func() bool {
			page, err := w.List(w.ctx, jobs.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Jobs) >= 3 && page.Jobs[0].Parent == s.ID
		})
	})
}
