package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// invalidPage is the error of a page whose records are invalid.
type invalidPage struct {
	error
	invalid int
	hits    map[string]map[string]int
	faults  extract.Faults
}

func (p *invalidPage) Unwrap() error { return p.error }

func invalidIn(res extract.Result, err error) error {
	return &invalidPage{err, len(res.Invalid), res.Hits, res.Faults}
}

// pageOf is a terminal page, to be counted.
func pageOf(url string, info workqueue.Info, y yield) report.Page {
	return report.Page{
		URL: url, State: info.State, Attempts: info.Attempts, Note: info.Note, Class: y.Class,
		Records: y.Records, Invalid: y.Invalid, Hits: y.Hits, Faults: y.Faults, Bytes: y.Bytes, Duplicate: y.Duplicate,
		Took: time.Duration(y.Took) * time.Millisecond,
	}
}

// countAnswer counts an answer that came through a proxy, for the report of the job.
func (p *pages) countAnswer(ctx context.Context, via string, failure error) error {
	if fe, ok := errors.AsType[*fetch.Error](failure); ok && via == "" && fe.Status != 0 {
		via = fe.Via
	}
	if via == "" {
		return nil
	}
	class := fetch.ClassOf(failure)
	return store.AddAnswer(ctx, p.rdb, p.id, via, class == fetch.OK || class == fetch.Gone)
}

// aggregate adds up the counts of a job and has its files closed by their
// writer, in this process or another. While that cannot be done, it returns later.
func (j *job) aggregate(ctx context.Context, chunks []report.Counts, lost []string) (report.Summary, error) {
	sum, ok, err := store.ReadJSON[report.Summary](ctx, j.rdb, store.SummaryKey(j.run))
	if err != nil {
		return report.Summary{}, err
	}
	if !ok {
		if sum, err = j.sum(ctx, chunks, lost); err != nil {
			return report.Summary{}, err
		}
		data, err := json.Marshal(sum)
		if err != nil {
			return report.Summary{}, fmt.Errorf("encode the summary: %w", err)
		}
		if err := j.rdb.Set(ctx, store.CountedKey(j.run), data, store.Keep).Err(); err != nil {
			return report.Summary{}, fmt.Errorf("store the counts of job %s: %w", j.run, err)
		}
		switch sum, err = j.finish(ctx, j.run, sum); {
		case errors.Is(err, record.ErrNotWriter):
			return report.Summary{}, later{100 * time.Millisecond}
		case err != nil && ctx.Err() == nil:
			// The writer reports the error, and closes the job as soon as it can.
			return report.Summary{}, later{record.RetryAfter}
		case err != nil:
			return report.Summary{}, err
		}
	}
	if err := j.queue.Expire(ctx, store.Keep); err != nil {
		return report.Summary{}, fmt.Errorf("let the queue expire: %w", err)
	}
	return sum, nil
}

// sum adds up what Redis has of a job.
func (j *job) sum(ctx context.Context, chunks []report.Counts, lost []string) (report.Summary, error) {
	sum := report.Summary{Site: j.def.Site, JobID: j.run, Status: report.StatusComplete}
	c, ok, err := store.ReadJSON[collected](ctx, j.rdb, store.CollectedKey(j.id))
	if err == nil && !ok {
		err = fmt.Errorf("the result of the listing pages of job %s has expired", j.id)
	}
	if err != nil {
		return report.Summary{}, err
	}
	sum.Counts = c.Counts
	sum.Missing = c.Cut
	for _, o := range chunks {
		sum.Merge(o)
	}
	// A chunk that failed has no counts; the queue has them.
	stats, err := j.queue.Stats(ctx)
	if err != nil {
		return report.Summary{}, fmt.Errorf("count pages: %w", err)
	}
	for _, why := range lost {
		sum.Missing = append(sum.Missing, "a chunk was given up: "+why)
	}
	if len(lost) > 0 {
		sum.Pages, sum.Skipped, sum.Errors = int(stats.Done), int(stats.Skipped), int(stats.Error+stats.Open())
	}
	if n := sum.ByClass[fetch.Limit]; n > 0 {
		sum.Missing = append(sum.Missing, fmt.Sprintf("%d pages were not fetched because limits.max_duration had passed", n))
	}
	if j.def.Session != nil {
		if sum.Sessions, err = j.crawler.ends.all(ctx); err != nil {
			return report.Summary{}, err
		}
	}
	if sum.Delays, err = j.crawler.delays.all(ctx); err != nil {
		return report.Summary{}, err
	}
	if sum.Proxies, err = store.ProxyUsage(ctx, j.rdb, j.id); err != nil {
		return report.Summary{}, err
	}
	breaker, err := j.crawler.breaker.State(ctx)
	if err != nil {
		j.log.WarnContext(ctx, "the report lacks the breaker of the site", "error", err)
	}
	sum.Breaker = breaker.State
	if sum.Limits, err = j.crawler.admission.budget.spent(ctx); err != nil {
		return report.Summary{}, err
	}
	if sum.Pages+sum.Errors+sum.Skipped == 0 {
		sum.Reason = "NO_URLS"
	}
	if len(sum.Missing) > 0 {
		sum.Status = report.StatusIncomplete
	}
	return sum, nil
}
