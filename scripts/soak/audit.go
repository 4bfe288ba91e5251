//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/tasks/tasktype"
)

// audit checks finished work and deletes it, so that leftovers become visible as growth. It returns a description of unfinished
// work, or "".
func (l *load) audit(ctx context.Context) (live string) {
	var open []string
	note := func(kind string, n int, err error) {
		if err != nil {
			open = append(open, fmt.Sprintf("%s: %v", kind, err))
		} else if n > 0 {
			open = append(open, fmt.Sprintf("%d %s", n, kind))
		}
	}
	n, err := l.auditItems(ctx)
	note(kindItem, n, err)
	note("listed jobs", 0, l.findScrapes(ctx))
	n, err = l.auditJobs(ctx)
	note("jobs", n, err)
	n, err = l.auditTicks(ctx)
	note(kindTick, n, err)
	note("listed workflows", 0, l.auditFlows(ctx))
	l.mu.Lock()
	note(kindFlow, len(l.flows), nil)
	l.mu.Unlock()
	return strings.Join(open, ", ")
}

// auditItems checks and removes finished items.
func (l *load) auditItems(ctx context.Context) (open int, err error) {
	l.mu.Lock()
	want := map[string]string{}
	var ids []string
	for id, state := range l.items {
		want[id] = state
		ids = append(ids, id)
	}
	l.mu.Unlock()
	if len(ids)+len(l.stale) == 0 {
		return 0, nil
	}
	infos, err := l.queue.Get(ctx, ids...)
	if err != nil {
		return 0, err
	}
	stats, err := l.queue.Stats(ctx)
	if err != nil {
		return 0, err
	}
	if sum := stats.Queued + stats.InProgress + stats.Done + stats.Skipped + stats.Error; sum != stats.Total {
		l.problem(fmt.Sprintf("items: the states add up to %d, the total is %d", sum, stats.Total))
	}
	var done []string
	states := map[string]string{}
	for _, it := range infos {
		states[it.ID] = string(it.State)
	}
	for _, id := range ids {
		switch state := states[id]; state {
		case "queued", "in_progress":
		case "":
			done = append(done, id)
			l.finished(kindItem, id+" is missing")
		default:
			done = append(done, id)
			wrong := ""
			if state != want[id] {
				wrong = fmt.Sprintf("%s is %s, want %s", id, state, want[id])
			}
			l.finished(kindItem, wrong)
		}
	}
	l.mu.Lock()
	for _, id := range done {
		delete(l.items, id)
	}
	l.mu.Unlock()
	l.stale = append(l.stale, done...)
	if len(l.stale) > 0 {
		if _, err := l.queue.Forget(ctx, l.stale...); err != nil {
			return 0, err // retried by the next audit
		}
		l.stale = nil
	}
	return len(ids) - len(done), nil
}

// sentJob is a sent job with its expectations.
type sentJob struct {
	kind    string
	items   int  // items of a pipeline job
	checked bool // it has finished and wrong is set
	wrong   string
}

// addJob records a job as sent, once per ID.
func (l *load) addJob(id string, j sentJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known[id] {
		l.known[id] = true
		l.jobs[id] = &j
		l.books[j.kind].Sent++
	}
}

// findScrapes adds scrapes whose IDs no command returned, because of a fault.
func (l *load) findScrapes(ctx context.Context) error {
	var page struct{ Data []listedJob }
	if err := l.s.call(ctx, http.MethodGet, "/v1/scrapes?limit=1000", nil, &page); err != nil {
		return err
	}
	for _, j := range page.Data {
		l.addJob(j.ID, sentJob{kind: kindScrape})
	}
	return nil
}

// auditJobs checks finished jobs and scrapes, and deletes the jobs and the records of scrapes.
func (l *load) auditJobs(ctx context.Context) (open int, err error) {
	l.mu.Lock()
	jobs := maps.Clone(l.jobs)
	l.mu.Unlock()
	for id, j := range jobs {
		if !j.checked {
			if err := l.check(ctx, id, j); err != nil {
				return len(jobs), err
			}
		}
		if !j.checked {
			open++
			continue
		}
		// A call that fails is repeated by the next audit, which knows the verdict.
		if j.kind != kindScrape {
			if err := l.purge(ctx, id); err != nil {
				return len(jobs), err
			}
		}
		l.finished(j.kind, j.wrong)
		l.mu.Lock()
		delete(l.jobs, id)
		l.mu.Unlock()
		if j.kind == kindScrape && j.wrong == "" { // keep the records of a failed check
			dirs, err := filepath.Glob(filepath.Join(l.s.data, "records", "*", id))
			for _, dir := range dirs {
				err = errors.Join(err, os.RemoveAll(dir))
			}
			if err != nil {
				return len(jobs), err
			}
		}
	}
	return open, nil
}

// check checks a job if it has finished.
func (l *load) check(ctx context.Context, id string, sent *sentJob) error {
	var j listedJob
	at := "/v1/jobs/"
	if sent.kind == kindScrape {
		at = "/v1/scrapes/"
	}
	err := l.s.call(ctx, http.MethodGet, at+id, nil, &j)
	var status *statusError
	switch {
	case errors.As(err, &status) && status.code == http.StatusNotFound:
		sent.wrong = id + " is missing"
	case err != nil:
		return err
	case !j.finished():
		return nil
	case j.Status != "completed" && j.Status != "COMPLETE":
		sent.wrong = fmt.Sprintf("%s of %s is %s: %s", id, j.Name, j.Status, j.Error)
	case sent.kind == kindScrape:
		sent.wrong = l.wrongScrape(j)
	case sent.kind == kindJob && (j.Items.Total != sent.items || j.Items.Rejected != sent.items/3 || j.Items.Integrated != sent.items-sent.items/3):
		sent.wrong = fmt.Sprintf("%s got %+v, want %d of which %d rejected", id, j.Items, sent.items, sent.items/3)
	}
	sent.checked = true
	return nil
}

// purge deletes a finished job.
func (l *load) purge(ctx context.Context, id string) error {
	err := l.s.call(ctx, http.MethodDelete, "/v1/jobs/"+id, nil, nil)
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusNotFound {
		return nil
	}
	return err
}

// wrongScrape compares the records of a scrape with the site and returns the difference.
func (l *load) wrongScrape(j listedJob) string {
	files, err := filepath.Glob(filepath.Join(l.s.data, "records", j.Site, j.ID, "*.jsonl"))
	if err != nil {
		return err.Error()
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "changes.jsonl" })
	for _, site := range l.s.world.Sites() {
		if site.Name == j.Site {
			err = site.CheckFiles(files...)
		}
	}
	if err != nil {
		return fmt.Sprintf("%s in %v: %v", j.ID, files, err)
	}
	return ""
}

// auditFlows checks that each workflow is listed as finished only once.
func (l *load) auditFlows(ctx context.Context) error {
	seen := map[string]int{}
	for cursor := ""; ; {
		page, next, err := l.s.client.Inspect().Workflows(ctx, tasktype.WorkflowFilter{After: time.Now().Add(-auditSince), Cursor: cursor, Limit: 1000})
		if err != nil {
			return err
		}
		for _, w := range page {
			if strings.HasPrefix(w.ID, "soak-") && !w.Ended.IsZero() {
				seen[w.ID]++
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	for id, n := range seen {
		if n > 1 && !l.repeated[id] {
			l.repeated[id] = true
			l.problem(fmt.Sprintf("workflows: %s finished %d times", id, n))
		}
	}
	return nil
}
