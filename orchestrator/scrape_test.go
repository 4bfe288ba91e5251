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
	job := sites.Job{Status: sites.JobRunning, Pages: workqueue.Stats{Total: 160, Done: 58, Skipped: 1, Error: 1, Queued: 100}}
	for want, c := range map[string]struct {
		done int64
		took time.Duration
	}{
		", 50s left": {20, 10 * time.Second},
		"":           {0, 10 * time.Second},
	} {
		note := live(job, c.done, c.took).Note
		if want == "" && strings.Contains(note, "left") || !strings.HasSuffix(note, want) {
			t.Errorf("got %q, want it to end with %q", note, want)
		}
	}
	if note := live(job, 20, 10*time.Second).Note; !strings.Contains(note, " 2.0/s") {
		t.Errorf("got %q, want the pace of this run alone", note)
	}
	job.Pages.Done, job.Pages.Queued = 158, 0
	if note := live(job, 118, 10*time.Second).Note; strings.Contains(note, "left") {
		t.Errorf("got %q of a job that is through", note)
	}
}

// It tells what is had, failed and queued, how many records there are, and why nothing moves.
func TestLiveTellsAll(t *testing.T) {
	t.Parallel()
	pages := workqueue.Stats{Total: 160, Done: 58, Skipped: 1, Error: 1, Queued: 98, InProgress: 2}
	delayed := workqueue.Stats{Total: 60, Done: 58, Queued: 2, Delayed: 2}
	for _, c := range []struct {
		job         sites.Job
		note, brief string
	}{
		{sites.Job{Status: sites.JobRunning, Pages: pages, Records: map[string]int{"a": 7, "b": 5}}, "58 ok, 1 errors, 100 queued, 12 records, 2.0/s, 50s left", "58 ok 1 err 100 q 12 rec 2.0/s 50s"},
		{sites.Job{Status: sites.JobPaused, Pages: pages}, "paused, 58 ok, 1 errors, 100 queued, 0 records, 2.0/s, 50s left", "paused 58 ok 1 err 100 q 0 rec 2.0/s 50s"},
		{sites.Job{Status: sites.JobRunning, Pages: delayed}, "backs off, 58 ok, 0 errors, 2 queued (2 put off), 0 records, 2.0/s, 1s left", "backs off 58 ok 0 err 2 q 0 rec 2.0/s 1s"},
		{sites.Job{Status: sites.JobWaiting}, "waits for a worker, 0 ok, 0 errors, 0 queued, 0 records, 2.0/s", "waits for a worker 0 ok 0 err 0 q 0 rec 2.0/s"},
	} {
		p := live(c.job, 20, 10*time.Second)
		if p.Note != c.note || p.Brief != c.brief || p.Numbers["ok"] != float64(c.job.Pages.Done) {
			t.Errorf("%s: got %q and %q", c.job.Status, p.Note, p.Brief)
		}
	}
}
