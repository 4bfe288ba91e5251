package orchestrator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/orchestrator/monitor"
	"muster/sites"
	"muster/sites/report"
)

// live returns the progress of a job that has fetched done pages in the duration took.
func live(j sites.Job, done int64, took time.Duration) monitor.Progress {
	through := j.Pages.Done + j.Pages.Skipped + j.Pages.Error
	rate := float64(done) / max(took.Seconds(), 0.1)
	p := monitor.Progress{Done: through, Total: j.Pages.Total, Unit: "pages"}
	state := map[string]string{
		sites.JobPaused: "paused", sites.JobBlocked: "waits: " + j.Trouble, sites.JobWaiting: "waits for a worker",
	}[j.Status]
	if len(j.WaitsFor) > 0 {
		state = "waits for " + strings.Join(j.WaitsFor, ", ")
	}
	waits := j.Pages.Delayed > 0 && j.Pages.Delayed == j.Pages.Open()
	if state == "" && waits {
		state = "waits to retry"
		if len(j.Delays) > 0 { // the most frequent reason first
			why := slices.SortedFunc(maps.Keys(j.Delays), func(a, b string) int { return cmp.Or(j.Delays[b]-j.Delays[a], strings.Compare(a, b)) })
			state = "waits: " + strings.Join(why, ", ")
		}
	}
	p.Brief = fmt.Sprintf("%d ok %d err %d q %d rec %.1f/s", j.Pages.Done, j.Pages.Error, j.Pages.Open(), written(j), rate)
	p.Note = fmt.Sprintf("%d ok, %d errors, %d queued", j.Pages.Done, j.Pages.Error, j.Pages.Open())
	if j.Pages.Delayed > 0 {
		p.Note += fmt.Sprintf(" (%d delayed)", j.Pages.Delayed)
	}
	p.Note += fmt.Sprintf(", %d records, %.1f/s", written(j), rate)
	// The estimate is a lower bound, because the crawl may find more pages.
	if left := j.Pages.Open(); !waits && done > 0 && left > 0 && took >= 3*time.Second {
		if eta := float64(took) / float64(done) * float64(left); eta < float64(1000*time.Hour) {
			d := time.Duration(eta).Round(time.Second)
			p.Note += fmt.Sprintf(", %s left", d)
			p.Brief += fmt.Sprintf(" %s", d)
		}
	}
	if state != "" {
		p.Note, p.Brief = state+", "+p.Note, state+" "+p.Brief
	}
	return p
}

// written returns the number of records in the files of a job.
func written(j sites.Job) int {
	n := 0
	for _, of := range j.Records {
		n += of
	}
	return n
}

// reasons describes why a job is not complete.
func reasons(s report.Summary) string {
	text := ""
	if len(s.Missing) > 0 {
		text += fmt.Sprintf(", without %d listing pages, such as %s", len(s.Missing), s.Missing[0])
	}
	if len(s.Samples) > 0 {
		text += fmt.Sprintf("; %s: %s", s.Samples[0].URL, s.Samples[0].Error)
	}
	if s.Failed != "" {
		text += "; all are in " + s.Failed
	}
	return text
}
