package orchestrator

import (
	"strings"
	"testing"
	"time"

	"muster/sites"
	"muster/tasks/workqueue"
)

// The live line says how long is left, by the pace of this run: pages that
// were through before it count for nothing.
func TestLiveNoteTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	job := sites.Job{Status: sites.JobRunning, Pages: workqueue.Stats{Total: 160, Done: 58, Skipped: 1, Error: 1}}
	for want, c := range map[string]struct {
		done int64
		took time.Duration
	}{
		", 50s left": {20, 10 * time.Second},
		"":           {0, 10 * time.Second},
	} {
		note := liveNote(job, c.done, c.took)
		if want == "" && strings.Contains(note, "left") || !strings.HasSuffix(note, want) {
			t.Errorf("got %q, want it to end with %q", note, want)
		}
	}
	if note := liveNote(job, 20, 10*time.Second); !strings.Contains(note, " 2.0/s") {
		t.Errorf("got %q, want the pace of this run alone", note)
	}
	job.Pages.Done = 158
	if note := liveNote(job, 118, 10*time.Second); strings.Contains(note, "left") {
		t.Errorf("got %q of a job that is through", note)
	}
}
