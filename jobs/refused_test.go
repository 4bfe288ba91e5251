package jobs_test

import (
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
)

func TestJobsAreReadWhileRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb, nil)
	w.until(w.create(jobs.Request{}).ID, jobs.Processing)
	w.emit("a", "b", "c")
	testutil.Ok(t, rdb.ConfigSet(w.ctx, "min-replicas-to-write", "1").Err())
	page, err := w.List(w.ctx, jobs.Filter{})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Status != jobs.Processing || page.Jobs[0].Items.Total != 3 {
		t.Errorf("list: got %+v, %v; want the job as it is", page.Jobs, err)
	}
	testutil.Ok(t, rdb.ConfigSet(w.ctx, "min-replicas-to-write", "0").Err())
}
