package tasks_test

import (
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// After an outage of Redis that is longer than a lease, no worker is treated as dead: running tasks continue, and run
// once.
func TestWorkersOutliveAnOutageOfRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	var worlds []*world
	var faults []*redistest.Fault
	var runs []*tasks.AsyncResult[int]
	for _, queue := range []string{"here", "there"} {
		rdb := srv.Client()
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Queues = map[string]int{queue: 1} })
		runs = append(runs, sent(t, w, Hold.S("outage", tasks.Queue(queue))))
		testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at outage")) == 1 })
		f := redistest.NewFault(redistest.Refused, redistest.EveryCall)
		rdb.AddHook(f)
		worlds, faults = append(worlds, w), append(faults, f)
	}
	rdb := srv.Client()
	beats := func() (out [2]float64) {
		for i, w := range worlds {
			out[i] = rdb.ZScore(t.Context(), "muster:workers", w.worker.Name()).Val()
		}
		return out
	}
	for _, f := range faults {
		f.Arm()
	}
	testutil.Eventually(t, "both have been silent for long", func() bool {
		now := float64(rdb.Time(t.Context()).Val().UnixMilli())
		b := beats()
		return now-b[0] > 9500 && now-b[1] > 9500
	})
	for _, f := range faults {
		f.Disarm()
	}
	for range 2 {
		before := beats()
		testutil.Eventually(t, "both beat", func() bool { b := beats(); return b[0] > before[0] && b[1] > before[1] })
	}
	for i, w := range worlds {
		if n := w.ran(runs[i].ID() + ".0"); n != 1 {
			t.Errorf("the task of worker %d runs %d times", i, n)
		}
		w.open("outage")
		wantValue(t, runs[i], 1)
		if nodes(t, w, runs[i].ID())[0].Worker != w.worker.Name() {
			t.Errorf("it was given to another worker")
		}
	}
}
