package jobs_test

import (
	"context"
	"testing"
	"time"

	"muster/jobs"
	"muster/tasks/redistest"
)

// running is a kind whose jobs all run.
type running struct{}

func (running) State(context.Context, string) (jobs.State, error) {
	return jobs.State{Status: jobs.Processing, Items: jobs.Counts{Total: 3}}, nil
}
func (running) Cancel(context.Context, string) error { return nil }
func (running) Forget(context.Context, string) error { return nil }

func TestJobsAreReadWhileRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb, func(c *jobs.Config) { c.Kinds = map[string]jobs.Kind{jobs.KindScrape: running{}} })
	if err := w.Track(w.ctx, "scrape_1", jobs.KindScrape, "shop", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(w.ctx, "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	page, err := w.List(w.ctx, jobs.Filter{})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Status != jobs.Processing || page.Jobs[0].Items.Total != 3 {
		t.Errorf("list: got %+v, %v; want the job as it is", page.Jobs, err)
	}
	if err := rdb.ConfigSet(w.ctx, "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
}
