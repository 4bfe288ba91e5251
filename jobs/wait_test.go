package jobs_test

import (
	"log/slog"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks"
	"muster/tasks/redistest"
)

// BenchmarkSchedule measures how late the jobs of a schedule are created.
func BenchmarkSchedule(b *testing.B) {
	ctx := b.Context()
	client := tasks.NewClient(redistest.New(b))
	defer client.Close()
	s, err := jobs.New(jobs.Config{Client: client, Pipelines: named, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	testutil.Background(b, s.Run)
	if _, _, err := s.Create(ctx, jobs.Request{Prompt: "p", Cron: "* * * * * *"}); err != nil {
		b.Fatal(err)
	}
	var sum, most time.Duration
	seen := map[string]bool{}
	for len(seen) < b.N {
		time.Sleep(100 * time.Millisecond)
		page, err := s.List(ctx, jobs.Filter{Limit: 100})
		if err != nil {
			b.Fatal(err)
		}
		for _, j := range page.Jobs {
			if j.Parent == "" || seen[j.ID] || len(seen) == b.N {
				continue
			}
			seen[j.ID] = true
			late := j.CreatedAt.Sub(j.CreatedAt.Truncate(time.Second))
			sum, most = sum+late, max(most, late)
		}
	}
	b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms-late")
	b.ReportMetric(float64(most.Milliseconds()), "ms-late-most")
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
