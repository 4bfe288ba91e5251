package tasks_test

import (
	"slices"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// The percentage counts a running task in part, and never falls in a Watch.
func TestWatchCountsOwnProgress(t *testing.T) {
	t.Parallel()
	runStories(t, []story{{"a chain", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chain(tasks.New[int, int]("t.progress").S(1), Inc))
		testutil.Eventually(t, "three quarters of one of two tasks count", func() bool {
			p, err := run.Progress(t.Context())
			return err == nil && p.Percent == 37.5
		})
		var seen []float64
		for p, err := range run.Watch(limited(t)) {
			testutil.Ok(t, err)
			if seen = append(seen, p.Percent); len(seen) == 1 {
				w.open("progress")
			}
		}
		if seen[0] != 37.5 || seen[len(seen)-1] != 100 || !slices.IsSorted(seen) {
			t.Errorf("got %v, want 37.5 to 100", seen)
		}
	}}})
}

// A retry starts from the beginning: the progress of the failed attempt does not count.
func TestProgressOfAFailedAttemptDoesNotCount(t *testing.T) {
	t.Parallel()
	runStories(t, []story{{"a retry", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.New[int, int]("t.stumble", tasks.MaxRetry(1), tasks.ConstantBackoff(1<<30)).S(1))
		testutil.Eventually(t, "the first attempt has failed", func() bool {
			nodes, err := w.client.Nodes(t.Context(), run.ID())
			return err == nil && nodes[0].Status == tasktype.Retry
		})
		if p, err := run.Progress(t.Context()); err != nil || p.Percent != 0 {
			t.Errorf("got %+v, %v, want 0 percent", p, err)
		}
		testutil.Ok(t, run.Revoke(t.Context()))
	}}})
}
