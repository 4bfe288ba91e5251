package job_test

import (
	"context"
	"testing"
	"time"

	"muster/orchestrator/job"
	"muster/tasks/redistest"
)

// running is a kind whose jobs all run.
type running struct{}

func (running) State(context.Context, string) (job.State, error) {
	return job.State{Status: job.Processing, Items: job.Counts{Total: 3}}, nil
}
func (running) Cancel(context.Context, string) error { return nil }
func (running) Forget(context.Context, string) error { return nil }

func TestJobsAreReadWhileRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb, func(c *job.Config) { c.Kinds = map[string]job.Kind{job.KindScrape: running{}} })
	if err := w.Track(w.ctx, "scrape_1", job.KindScrape, "shop", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(w.ctx, "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	page, err := w.List(w.ctx, job.Filter{})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Status != job.Processing || page.Jobs[0].Items.Total != 3 {
		t.Errorf("list: got %+v, %v; want the job as it is", page.Jobs, err)
	}
	if err := rdb.ConfigSet(w.ctx, "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
}
