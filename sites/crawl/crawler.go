package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/internal/limit"
	"muster/internal/tracing/observed"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/workqueue"
)

const (
	// maxAttempts fails a page that crashes its workers. Retries after errors have lower limits.
	maxAttempts = 25
	// leaseTTL must exceed the time that a crawler needs for a page.
	leaseTTL = 15 * time.Minute
)

// crawler processes pages of a job in this process: it leases, admits, fetches, extracts and settles each one. It is safe for
// concurrent use.
type crawler struct {
	*pages
	leases    *leases
	admission *admission
	client    *fetch.Client
	breaker   *polite.SiteBreaker
	extractor *extractor
	observe   func(context.Context, observed.Page) (context.Context, func(observed.End)) // may be nil
	counts    *counters
}

// visited is a leased page after its visit.
type visited struct {
	visit   visit
	invalid error // invalid payload
	err     error // of admission
	fetched       // set if admitted
}

// visit fetches and extracts a page if admission allows it. It calls landed after it has read the response. The lease remains.
func (c *crawler) visit(ctx context.Context, lease workqueue.Leased, landed func()) (f visited) {
	if f.invalid = json.Unmarshal(lease.Payload, &f.visit); f.invalid != nil {
		return f
	}
	f.visit.Kind = lease.Kind
	known, err := c.known(ctx, lease.ID, f.visit)
	if err != nil {
		f.err = err
		return f
	}
	if known != nil && c.isCurrent(known, f.visit) {
		f.fetched = c.keep(known, f.visit)
		return f
	}
	release, permit, err := c.admission.page(ctx)
	if f.err = err; err != nil {
		return f
	}
	defer release()
	f.fetched = c.fetch(ctx, lease, f.visit, permit, known, landed)
	return f
}

// conclude settles or returns a page after its visit. It returns later, or an error of ctx or Redis. An error of the page itself
// is stored with the page.
func (c *crawler) conclude(ctx context.Context, lease workqueue.Leased, f visited) error {
	down, isDown := errors.AsType[*polite.DownError](f.err)
	switch {
	case f.invalid != nil:
		return c.leases.settle(ctx, lease, workqueue.Failed(fmt.Errorf("payload of the page: %w", f.invalid)))
	case isDown:
		return c.giveUp(ctx, lease, fetch.Class(down.Class), f.err)
	case f.err != nil:
		return errors.Join(c.leases.giveBack(ctx, lease), c.counted(f.err))
	case f.failure != nil:
		return c.settleFailure(ctx, lease, f.fetched)
	}
	return c.settlePage(ctx, lease, f.visit, f.fetched)
}

// counted returns err after it has counted the delay of a page, if err is one.
func (c *crawler) counted(err error) error {
	if l, ok := errors.AsType[later](err); ok {
		c.counts.add("delay", string(l.delay))
	}
	return err
}

// fetched is the result of fetching a page.
type fetched struct {
	yield   *yield
	records [][]byte
	known   *store.Page // for the ledger; nil: not stored there
	failure error
	down    time.Duration // time without requests to the site; 0: the site is up
}

// fetch fetches and extracts a page, and reports the result to the circuit breaker and the job. known is nil or the state of the page
// in the ledger.
func (c *crawler) fetch(ctx context.Context, lease workqueue.Leased, v visit, permit limit.Permit, known *store.Page, landed func()) (f fetched) {
	var page extract.Page
	if c.observe != nil {
		var visited func(observed.End)
		ctx, visited = c.observe(ctx, observed.Page{Site: c.def.Site, Kind: v.Kind, URL: v.URL, Item: lease.ID, Attempt: lease.Attempts + 1})
		defer func() {
			end := observed.End{Status: page.Status, Proxy: page.Via, Took: page.Took, Records: len(f.records), Err: f.failure}
			if f.failure != nil {
				class := fetch.ClassOf(f.failure)
				end.Class, end.Delayed = string(class), class == fetch.Throttled || class == fetch.Canceled
			}
			visited(end)
		}()
	}
	page, f.failure = c.client.FetchChanged(ctx, v.URL, v.Kind, v.Post, c.validators(known, v))
	unchanged := f.failure == nil && page.Status == http.StatusNotModified
	again := f.failure == nil && !unchanged && c.client.CanRender(page)
	if !again { // otherwise the page stays in flight
		landed()
	}
	switch {
	case unchanged:
		known.At = page.FetchedAt.UnixMilli()
		f = c.keep(known, v)
		f.yield.via, f.yield.Took = page.Via, max(page.Took.Milliseconds(), 1)
	case f.failure == nil:
		f.yield, f.records, f.failure = c.extractor.extract(ctx, v, page, lease.Attempts)
	}
	if again && f.lacks() {
		if page, f.failure = c.client.Render(ctx, page); f.failure == nil {
			f.yield, f.records, f.failure = c.extractor.extract(ctx, v, page, lease.Attempts)
			c.client.Learn(ctx, v.Kind, !f.lacks())
		}
	}
	down, err := c.breaker.Report(ctx, permit, lease.Attempts == 0, fetch.OutcomeOf(f.failure))
	if err != nil {
		c.log.WarnContext(ctx, "cannot report the result of a page to the site's circuit breaker", "error", err)
	}
	f.down = down
	if f.failure == nil && !unchanged {
		f.known = c.stateOf(lease.ID, v, page, f)
	}
	c.countResponse(f)
	return f
}

// lacks reports whether a page lacks its required parts, or has nothing that the definition looks for.
func (f *fetched) lacks() bool {
	class, y := fetch.ClassOf(f.failure), f.yield
	return class == fetch.Validate || class == fetch.Empty || class == fetch.OK && len(f.records)+len(y.links) == 0 && (y.next == nil || y.counted)
}

// settlePage settles a page with its records and links. Until that succeeds, the page may be fetched again.
func (c *crawler) settlePage(ctx context.Context, lease workqueue.Leased, v visit, f fetched) error {
	records, err := c.limitRecords(ctx, lease, f.yield, f.records)
	var to []workqueue.Item
	if err == nil {
		to, err = c.follow(ctx, v, f.yield)
	}
	records = append(slices.Clip(records), f.yield.outputs...)
	if err == nil && f.known != nil && len(records) == len(f.records)+len(f.yield.outputs) {
		var state []byte
		if state, err = json.Marshal(f.known); err == nil {
			records = append(records, state)
		}
	}
	if err != nil {
		return errors.Join(err, c.leases.giveBack(ctx, lease))
	}
	result, err := json.Marshal(f.yield)
	if err != nil {
		return fmt.Errorf("encode result of %s: %w", v.URL, err)
	}
	size := 0
	for _, r := range records {
		size += len(r)
	}
	o := workqueue.Done().With(result, records...)
	o.Items = to
	err = c.leases.settle(ctx, lease, o)
	if size >= heavyPage {
		c.admission.heavy.Store(true)
	}
	return err
}

// settleFailure retries, delays or fails a page, depending on the class of its failure.
func (c *crawler) settleFailure(ctx context.Context, lease workqueue.Leased, f fetched) error {
	err, class := f.failure, fetch.ClassOf(f.failure)
	if ctx.Err() != nil || class == fetch.Canceled {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return errors.Join(err, c.leases.giveBack(ctx, lease))
	}
	if tasks.Refused(err) { // an error of Redis, not of the page
		return errors.Join(err, c.leases.giveBack(ctx, lease))
	}
	var after time.Duration
	if fe, ok := errors.AsType[*fetch.Error](err); ok {
		after = fe.After
	}
	if class == fetch.Throttled {
		return errors.Join(c.leases.giveBack(ctx, lease), c.counted(later{after, DelayPace}))
	}
	policy := fetch.PolicyFor(class, c.def.Retries)
	attempt := lease.Attempts + 1
	c.log.DebugContext(ctx, "page failed", "page", lease.ID, "class", class, "attempt", attempt, "down", f.down, "error", err)
	switch {
	case f.down > 0: // after the outage other pages are tried first
		return c.wait(ctx, lease, class, err, later{max(after, f.down+policy.Wait(1, c.def.Retries.Cap)), DelayDown})
	case policy.Free:
		return c.wait(ctx, lease, class, err, later{after, DelayLimited})
	case class == fetch.NoProxy && after > 0:
		return c.wait(ctx, lease, class, err, later{after, DelayProxies})
	case attempt <= policy.Retries:
		if class == fetch.NoProxy {
			c.counts.add("delay", string(DelayProxies))
		}
		return c.leases.retry(ctx, lease, err, max(after, policy.Wait(attempt, c.def.Retries.Cap)), true)
	}
	return c.giveUp(ctx, lease, class, err)
}

// wait delays a page, which does not count as an attempt. A page that has waited too long fails.
func (c *crawler) wait(ctx context.Context, lease workqueue.Leased, class fetch.Class, err error, l later) error {
	since := time.Now()
	if infos, gerr := c.queue.Get(ctx, lease.ID); gerr == nil && len(infos) == 1 {
		since = delayedSince(infos[0].Note, since)
	}
	if time.Since(since)+l.after > c.stallMax(class) {
		return c.giveUp(ctx, lease, class, fmt.Errorf("delayed too long: %w", err))
	}
	c.counts.add("delay", string(l.delay))
	return c.leases.retry(ctx, lease, fmt.Errorf("%s%s: %w", delayNote, since.UTC().Format(time.RFC3339), err), l.after, false)
}

// stallMax returns the maximum delay of a page. While all proxies are resting, that is the time limit of the job, if it has one.
func (c *crawler) stallMax(class fetch.Class) time.Duration {
	if limit := c.def.Limits.MaxDuration; class == fetch.NoProxy && limit > 0 {
		return max(limit, c.def.Retries.StallMax)
	}
	return c.def.Retries.StallMax
}

// giveUp settles a page as failed.
func (c *crawler) giveUp(ctx context.Context, lease workqueue.Leased, class fetch.Class, err error) error {
	y := yield{Yield: report.Yield{Class: class}}
	if p, ok := errors.AsType[*invalidPage](err); ok {
		y.Invalid, y.Hits, y.Faults = p.invalid, p.hits, p.faults
	}
	if fe, ok := errors.AsType[*fetch.Error](err); ok && fe.After > 0 {
		y.RetryAfter = time.Now().Add(fe.After).UTC().Truncate(time.Second)
	}
	result, merr := json.Marshal(y)
	if merr != nil {
		return fmt.Errorf("encode failure: %w", merr)
	}
	outcome := workqueue.Failed(err)
	if class == fetch.Gone || class == fetch.Robots {
		outcome = workqueue.Skipped(err.Error())
	}
	return c.leases.settle(ctx, lease, outcome.With(result))
}

const delayNote = "delayed since "

// delayedSince parses the time of an item's first delay from its note. It returns missing if the note has none.
func delayedSince(note string, missing time.Time) time.Time {
	rest, ok := strings.CutPrefix(note, delayNote)
	if !ok {
		return missing
	}
	stamp, _, _ := strings.Cut(rest, ": ")
	if t, err := time.Parse(time.RFC3339, stamp); err == nil {
		return t
	}
	return missing
}
