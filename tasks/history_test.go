package tasks_test

import (
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

func TestWorkersStoreDepthsAndMemory(t *testing.T) {
	t.Parallel()
	c := tasks.NewClient(redistest.Server(t).Client())
	t.Cleanup(func() { _ = c.Close() })
	started(t, c, nodeWords.S("a", tasks.Queue("gpu")))
	w, err := tasks.StartWorker(t.Context(), c, tasks.NewMux(), tasks.WorkerConfig{Name: "w"})
	testutil.Ok(t, err)
	testutil.Eventually(t, "a depth and memory of this minute are stored", func() bool {
		depth, err := c.History(t.Context(), tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Names: []string{"gpu"}})
		memory, err2 := c.History(t.Context(), tasktype.HistoryFilter{Measure: tasktype.WorkerMemory, Names: []string{"w"}})
		return err == nil && err2 == nil && len(depth) == 1 && depth[0].Values[0].Value == 1 && len(memory) == 1 && memory[0].Values[0].Value > 1<<20
	})
	testutil.Ok(t, w.Stop())
}
