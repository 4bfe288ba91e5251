package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// invalidPage is the error of a page with invalid records.
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

// countResponse counts a response through a proxy for the report of the job.
func (c *crawler) countResponse(f fetched) {
	via := ""
	if f.yield != nil {
		via = f.yield.via
	} else if fe, ok := errors.AsType[*fetch.Error](f.failure); ok && fe.Status != 0 {
		via = fe.Via
	}
	if class := fetch.ClassOf(f.failure); via == "" {
		return
	} else if class.SiteUp() || class == fetch.Server { // an error of the site is no failure of the proxy
		c.counts.add("good", via)
	} else {
		c.counts.add("bad", via)
	}
}

// errNoStart fails a job that fetched no page.
var errNoStart = errors.New("no start page could be fetched")

// aggregate sums up a job and has its writer, in this process or another, close the files. Until that succeeds, it returns later.
// lost are the errors of failed crawlers.
func (j *job) aggregate(ctx context.Context, lost []string) (report.Summary, error) {
	sum, ok, err := store.ReadJSON[report.Summary](ctx, j.rdb, store.SummaryKey(j.run))
	if err != nil {
		return report.Summary{}, err
	}
	if !ok {
		if sum, err = j.sum(ctx, lost); err != nil {
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
			return report.Summary{}, later{after: 100 * time.Millisecond}
		case err != nil && ctx.Err() == nil:
			// The writer reports the error and closes the job as soon as possible.
			return report.Summary{}, later{after: record.RetryAfter}
		case err != nil:
			return report.Summary{}, err
		}
	}
	if err := j.queue.Expire(ctx, store.Keep); err != nil {
		return report.Summary{}, fmt.Errorf("set expiry of the queue: %w", err)
	}
	return sum, nil
}

// sum collects the counts of a job from Redis.
func (j *job) sum(ctx context.Context, lost []string) (report.Summary, error) {
	sum := report.Summary{Site: j.def.Site, JobID: j.run, Status: report.StatusComplete}
	if err := j.count(ctx, &sum); err != nil {
		return report.Summary{}, err
	}
	if sum.Pages == 0 && len(sum.Samples) > 0 {
		return report.Summary{}, fmt.Errorf("%w: %s", errNoStart, sum.FirstFailure())
	}
	if err := j.addLimits(ctx, &sum, lost); err != nil {
		return report.Summary{}, err
	}
	counts, err := j.crawler.counts.all(ctx)
	if err != nil {
		return report.Summary{}, err
	}
	if j.def.Session != nil {
		sum.Sessions = map[string]int{}
		maps.Copy(sum.Sessions, counts["session"])
	}
	sum.Delays, sum.Proxies = counts["delay"], report.UsageOf(counts["good"], counts["bad"])
	breaker, err := j.crawler.breaker.State(ctx)
	if err != nil {
		j.log.WarnContext(ctx, "the report has no state of the site's circuit breaker", "error", err)
	}
	sum.Breaker = breaker.State
	if sum.Pages+sum.Errors+sum.Skipped == 0 {
		sum.Reason = "NO_URLS"
	}
	if len(sum.Missing) > 0 {
		sum.Status = report.StatusIncomplete
	}
	return sum, nil
}

// maxMissing limits the listing pages that a summary lists.
const maxMissing = 20

// count counts the pages of the job and lists missing listing pages.
func (j *job) count(ctx context.Context, sum *report.Summary) error {
	missing := func(format string, args ...any) {
		if len(sum.Missing) < maxMissing {
			sum.Missing = append(sum.Missing, fmt.Sprintf(format, args...))
		}
	}
	type repeat struct{ url, first, next string }
	var repeats []repeat
	known, deep := map[string]bool{}, map[string]bool{}
	for cursor := ""; ; {
		infos, next, err := j.queue.Scan(ctx, cursor, 1000)
		if err != nil {
			return fmt.Errorf("count pages: %w", err)
		}
		for _, info := range infos {
			if known[info.ID] { // a scan may return duplicates
				continue
			}
			known[info.ID] = true
			if !info.State.Terminal() {
				continue
			}
			var v visit
			if json.Unmarshal(info.Payload, &v) != nil {
				v.URL = info.ID
			}
			y := yieldOf(info)
			p := report.Page{URL: v.URL, State: info.State, Attempts: info.Attempts, Note: info.Note, Yield: y.Yield}
			p.End = v.N > 0 && y.Class == fetch.Gone // a numbered listing page after the last one
			sum.Add(p)
			if info.Kind != definition.KindDetail && info.Kind != definition.KindFile && info.State != workqueue.StateDone && !p.End {
				missing("listing page %s failed: %s", v.URL, info.Note)
			}
			if y.Broken != "" {
				missing("sitemap %s was not read completely: %s", v.URL, y.Broken)
			}
			for _, id := range y.Deep {
				if len(deep) < 10_000 {
					deep[id] = true
				}
			}
			if y.Repeats != "" {
				repeats = append(repeats, repeat{v.URL, y.Repeats, y.Unfollowed})
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	for _, r := range repeats {
		if !known[r.next] {
			missing("listing page %s has the same links as %s, so its next page was not fetched", r.url, r.first)
		}
	}
	sum.Response = sum.Percentiles()
	slices.Sort(sum.Missing)
	maps.DeleteFunc(deep, func(id string, _ bool) bool { return known[id] }) // found on a shorter path
	if len(deep) > 0 {
		sum.Missing = append(sum.Missing, fmt.Sprintf("limits.max_depth (%d) was reached: %s", j.def.Limits.MaxDepth, notFetched(int64(len(deep)), 10_000)))
	}
	return nil
}

// notFetched formats a number of pages that were not fetched. A number of at least from is a lower bound.
func notFetched(n, from int64) string {
	switch {
	case from > 0 && n >= from:
		return fmt.Sprintf("at least %d pages were not fetched", n)
	case n == 1:
		return "1 page was not fetched"
	}
	return fmt.Sprintf("%d pages were not fetched", n)
}

// addLimits reports the limits that the job has reached, and the number of remaining pages.
func (j *job) addLimits(ctx context.Context, sum *report.Summary, lost []string) error {
	stats, err := j.queue.Stats(ctx)
	if err != nil {
		return fmt.Errorf("count pages: %w", err)
	}
	if stats.Refused > 0 && j.req.Limit == 0 {
		sum.Missing = append(sum.Missing, fmt.Sprintf("limits.max_pages (%d) was reached: %s", j.def.Limits.MaxPages, notFetched(stats.Refused, 10_000)))
	}
	reached, err := j.crawler.admission.reachedLimits(ctx)
	if err != nil {
		return err
	}
	for _, l := range reached {
		switch {
		case l.wanted:
			sum.Limits = append(sum.Limits, l.text)
		case stats.Open() > 0:
			sum.Missing = append(sum.Missing, l.text+": "+notFetched(stats.Open(), 0))
		}
	}
	if stats.Open() > 0 && len(reached) == 0 {
		why := "all crawlers failed"
		if len(lost) > 0 {
			why = lost[0]
		}
		sum.Errors += int(stats.Open())
		sum.Missing = append(sum.Missing, notFetched(stats.Open(), 0)+": "+why)
	}
	return nil
}
