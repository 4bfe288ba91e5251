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
	if _, err := nodeWords.S("a", tasks.Queue("gpu")).Send(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w, err := tasks.StartWorker(t.Context(), c, tasks.NewMux(), tasks.WorkerConfig{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "a depth and memory of this minute are stored", func() bool {
		depth, err := c.History(t.Context(), tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Names: []string{"gpu"}})
		memory, err2 := c.History(t.Context(), tasktype.HistoryFilter{Measure: tasktype.WorkerMemory, Names: []string{"w"}})
		return err == nil && err2 == nil && len(depth) == 1 && depth[0].Values[0].Value == 1 && len(memory) == 1 && memory[0].Values[0].Value > 1<<20
	})
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
}
