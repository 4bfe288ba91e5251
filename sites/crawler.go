package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/tasks"
	"muster/tasks/workqueue"
)

const (
	// maxAttempts gives up a page that crashes its workers. Retries after an error
	// end sooner.
	maxAttempts = 25
	// leaseTTL must be longer than the pages of a window take.
	leaseTTL = 15 * time.Minute
	// window is how many pages a chunk leases at a time.
	window = 8
	// maxSleep is the longest wait during which a task keeps its worker.
	maxSleep = 100 * time.Millisecond
)

// crawler fetches pages of a job in this process: each is leased, admitted,
// fetched, extracted and settled. It may be used by many goroutines.
type crawler struct {
	*pages
	leases    *leases
	admission *admission
	client    *fetch.Client
	breaker   *polite.SiteBreaker
	extractor *extractor
	observe   func(context.Context, Visit) (context.Context, func(Visited)) // nil for none
	progress  *progress
	delays    *counters   // by Delay
	ends      *counters   // of sessions, by why they ended
	noted     atomic.Bool // see noteProbePage
}

// work fetches pages until all of them are terminal, or returns later. The list
// may grow meanwhile: grow is called with each page that was fetched, and returns
// the pages to add. work settles what it has leased before it returns, and leases
// at least one page, if it can, before slice ends it.
func (c *crawler) work(ctx context.Context, worker string, ids []string, parallel int, slice *timeslice, grow func(yield) ([]string, error)) error {
	if err := c.leases.returnPending(ctx); err != nil {
		return err
	}
	// An earlier run under this name has ended; take over its leases.
	if _, err := c.queue.ExpireWorker(ctx, worker); err != nil {
		return fmt.Errorf("take over pages: %w", err)
	}
	s := &sweep{crawler: c, worker: worker, ids: ids, parallel: parallel, slice: slice, grow: grow}
	for {
		leased := s.leased
		if err := s.run(ctx); err != nil {
			return err
		}
		if s.open == 0 {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < 2*c.def.Limits.PageTimeout && time.Until(deadline) < 5*time.Minute {
			return later{} // the next run of the task has a new deadline
		}
		if s.leased > leased {
			continue
		}
		wait := time.Second
		if !s.soonest.IsZero() {
			wait = max(time.Until(s.soonest), time.Millisecond)
		}
		if wait > maxSleep {
			return later{wait}
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// sweep fetches those of a list of pages that can be leased.
type sweep struct {
	*crawler
	worker   string
	ids      []string
	parallel int
	slice    *timeslice
	grow     func(yield) ([]string, error)

	leased  int       // how many pages were leased, in all runs
	open    int       // how many pages are not terminal
	soonest time.Time // when the first of those can be leased
}

func (s *sweep) run(ctx context.Context) error {
	s.open, s.soonest = 0, time.Time{}
	for start := 0; start < len(s.ids); start += window {
		if s.leased > 0 && s.slice.over() {
			return later{}
		}
		if d, err := s.admission.backlog(ctx); err != nil || d.action != admit {
			return errors.Join(err, s.delayed(d))
		}
		leases, next, open, err := s.queue.LeaseIDs(ctx, s.worker, s.ids[start:min(start+window, len(s.ids))])
		if err != nil {
			return fmt.Errorf("lease pages: %w", err)
		}
		s.leased += len(leases)
		s.open += open
		if !next.IsZero() && (s.soonest.IsZero() || next.Before(s.soonest)) {
			s.soonest = next
		}
		done, err := s.batch(ctx, leases, s.parallel)
		if gerr := s.add(done); gerr != nil || err != nil {
			return errors.Join(err, gerr)
		}
	}
	return nil
}

// add adds the pages that others lead to.
func (s *sweep) add(done []yield) error {
	for _, y := range done {
		more, err := s.grow(y)
		if err != nil {
			return err
		}
		for _, id := range more {
			if !slices.Contains(s.ids, id) {
				s.ids = append(s.ids, id)
			}
		}
	}
	return nil
}

// batch fetches leased pages, up to parallel at once, and settles each. After one
// must wait, or ctx has ended, it returns the leases of those that have not begun.
// Pages in flight are completed, so that the site need not serve them twice.
func (c *crawler) batch(ctx context.Context, leases []workqueue.Leased, parallel int) ([]yield, error) {
	yields := make([]*yield, len(leases))
	stop := make([]error, len(leases))
	var halted atomic.Bool // a page must wait, and so must the others
	var g errgroup.Group
	g.SetLimit(max(parallel, 1))
	for i, lease := range leases {
		g.Go(func() error {
			if ctx.Err() != nil {
				stop[i] = context.Cause(ctx)
			}
			if ctx.Err() != nil || halted.Load() {
				return c.leases.giveBack(ctx, lease)
			}
			yields[i], stop[i] = c.page(ctx, lease)
			if stop[i] != nil {
				halted.Store(true)
			}
			return nil
		})
	}
	err := g.Wait()
	var done []yield
	for i := range leases {
		if yields[i] != nil {
			done = append(done, *yields[i])
		}
		if err == nil {
			err = stop[i]
		}
	}
	return done, err
}

// page fetches one page and settles it. The error is later, or that of ctx or
// Redis: the error of the page itself is settled with it.
func (c *crawler) page(ctx context.Context, lease workqueue.Leased) (*yield, error) {
	var v visit
	if err := json.Unmarshal(lease.Payload, &v); err != nil {
		return nil, c.leases.settle(ctx, lease, workqueue.Failed(fmt.Errorf("payload of the page: %w", err)))
	}
	d, err := c.admission.page(ctx)
	switch {
	case err != nil:
		return nil, errors.Join(c.leases.giveBack(ctx, lease), err)
	case d.action == wait:
		return nil, errors.Join(c.leases.giveBack(ctx, lease), c.delayed(d))
	case d.action == refuse:
		return nil, c.giveUp(ctx, lease, d.class, d.err)
	}
	defer d.release()
	f := c.fetch(ctx, lease, v, d)
	if f.err != nil {
		return nil, c.failed(ctx, lease, v, f)
	}
	return f.yield, c.done(ctx, lease, v, f)
}

// delayed counts a delay and returns later, or nil if the page need not wait.
func (c *crawler) delayed(d decision) error {
	if d.action != wait {
		return nil
	}
	c.delays.add(string(d.delay))
	return later{d.after}
}

// fetched is the result of fetching a page.
type fetched struct {
	yield   *yield
	records [][]byte
	err     error
	down    time.Duration // how long the site gets no requests; 0: it is not down
}

// fetch fetches and extracts a page, and adds the result to the breaker and the
// report of the job.
func (c *crawler) fetch(ctx context.Context, lease workqueue.Leased, v visit, d decision) (f fetched) {
	began := time.Now()
	var page extract.Page
	if c.observe != nil {
		var visited func(Visited)
		ctx, visited = c.observe(ctx, Visit{Site: c.def.Site, Kind: v.Kind, URL: v.URL, Item: lease.ID, Attempt: lease.Attempts + 1})
		defer func() {
			end := Visited{Status: page.Status, Via: page.Via, Took: page.Took, Records: len(f.records), Err: f.err}
			if f.err != nil {
				class := fetch.ClassOf(f.err)
				end.Class, end.Delayed = string(class), class == fetch.Throttled || class == fetch.Canceled
			}
			visited(end)
		}()
	}
	if page, f.err = c.client.Fetch(ctx, v.URL, v.Kind, v.Post); f.err == nil {
		f.yield, f.records, f.err = c.extractor.extract(ctx, v, page, lease.Attempts)
	}
	down, err := c.breaker.Report(ctx, d.permit, lease.ID, lease.Attempts == 0, fetch.OutcomeOf(f.err))
	if err == nil && down == 0 && c.isLastTry(lease, f.err) && !c.breaker.FetchedSince(began) {
		if failure, known := c.probe(ctx); known {
			down, err = c.breaker.Confirm(ctx, fetch.OutcomeOf(failure))
		}
	}
	if err != nil {
		c.log.WarnContext(ctx, "cannot report the result of a page to the site's breaker", "error", err)
	}
	f.down = down
	via := ""
	if f.yield != nil {
		via = f.yield.via
	}
	if err := c.countAnswer(context.WithoutCancel(ctx), via, f.err); err != nil {
		c.log.WarnContext(ctx, "the report will lack an answer of a proxy", "error", err)
	}
	if f.err != nil && c.admission.overdue() {
		f.err = &fetch.Error{Class: fetch.Limit, URL: v.URL, Err: errTooLong}
	}
	return f
}

// isLastTry reports whether a page that failed is given up unless the site is
// down.
func (c *crawler) isLastTry(lease workqueue.Leased, failure error) bool {
	fe, ok := errors.AsType[*fetch.Error](failure)
	return ok && fe.OfSite() && fe.Class != fetch.Blocked && lease.Attempts >= fetch.PolicyFor(fe.Class, c.def.Retries).Retries
}

// probe requests a page that the job has fetched before. Known is false when
// there is none.
func (c *crawler) probe(ctx context.Context) (failure error, known bool) {
	v, ok, err := store.ReadJSON[visit](ctx, c.rdb, store.ProbePageKey(c.id))
	if err != nil || !ok {
		return nil, false
	}
	_, err = c.client.Fetch(ctx, v.URL, v.Kind, v.Post)
	return err, true
}

// done settles a page with its records. A page that is not settled is fetched
// again.
func (c *crawler) done(ctx context.Context, lease workqueue.Leased, v visit, f fetched) error {
	records, err := c.limitRecords(ctx, lease.ID, f.yield, f.records)
	if err == nil {
		err = c.enqueueLinks(ctx, v, f.yield)
	}
	if err != nil {
		return errors.Join(err, c.leases.giveBack(ctx, lease))
	}
	if err := c.noteProbePage(ctx, v); err != nil {
		c.log.WarnContext(ctx, "no page is stored to probe the site with, should it go down", "error", err)
	}
	result, err := json.Marshal(f.yield)
	if err != nil {
		return fmt.Errorf("encode result of %s: %w", v.URL, err)
	}
	size := 0
	for _, r := range records {
		size += len(r)
	}
	err = c.settle(ctx, lease, workqueue.Done().With(result, records...))
	if size >= heavyPage {
		c.admission.heavy.Store(true)
	}
	return err
}

// limitRecords returns the records of a page that the limits of the job allow.
func (c *crawler) limitRecords(ctx context.Context, page string, y *yield, records [][]byte) ([][]byte, error) {
	n, err := c.admission.budget.grant(ctx, page, len(records), y.Bytes)
	if err != nil {
		return nil, err
	}
	for _, typ := range y.types[min(n, len(y.types)):] {
		y.Records[typ]--
	}
	return records[:n], nil
}

// enqueueLinks enqueues the pages that a detail page leads to, before the page is
// settled, so that no crash can lose them. Those of a listing page are enqueued
// by collect, which knows how many are wanted.
func (c *crawler) enqueueLinks(ctx context.Context, v visit, y *yield) error {
	if v.Kind != definition.KindDetail || len(y.Links) == 0 {
		return nil
	}
	stats, err := c.queue.Stats(ctx)
	if err != nil {
		return fmt.Errorf("count pages: %w", err)
	}
	if c.req.Limit > 0 || stats.Total+int64(len(y.Links)) > int64(c.def.Limits.MaxPages) {
		y.Links = nil
		return nil
	}
	_, err = c.enqueue(ctx, y.Links)
	return err
}

// noteProbePage stores the first page that this process has fetched, for probe.
func (c *crawler) noteProbePage(ctx context.Context, v visit) error {
	if v.Kind == definition.KindSitemap || !c.noted.CompareAndSwap(false, true) {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode page: %w", err)
	}
	if err := c.rdb.Set(ctx, store.ProbePageKey(c.id), data, store.Keep).Err(); err != nil {
		c.noted.Store(false)
		return fmt.Errorf("store a page to probe with: %w", err)
	}
	return nil
}

// failed retries, delays or gives up a page, by the class of its failure.
func (c *crawler) failed(ctx context.Context, lease workqueue.Leased, v visit, f fetched) error {
	err, class := f.err, fetch.ClassOf(f.err)
	if ctx.Err() != nil || class == fetch.Canceled {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return errors.Join(err, c.leases.giveBack(ctx, lease))
	}
	if tasks.Refused(err) { // Redis failed, and not the page
		return errors.Join(err, c.leases.giveBack(ctx, lease))
	}
	var after time.Duration
	if fe, ok := errors.AsType[*fetch.Error](err); ok {
		after = fe.After
	}
	if class == fetch.Throttled {
		return errors.Join(c.leases.giveBack(ctx, lease), c.delayed(waitFor(DelayPace, after)))
	}
	policy := fetch.PolicyFor(class, c.def.Retries)
	attempt := lease.Attempts + 1
	c.log.DebugContext(ctx, "page failed", "url", v.URL, "class", class, "attempt", attempt, "down", f.down, "error", err)
	switch {
	case class == fetch.Limit:
	case f.down > 0: // when the site may be up again, other pages are tried first
		return c.wait(ctx, lease, class, err, waitFor(DelayDown, max(after, f.down+policy.Wait(1, c.def.Retries.Cap))))
	case policy.Free:
		return c.wait(ctx, lease, class, err, waitFor(DelayLimited, after))
	case class == fetch.NoProxy && after > 0:
		return c.wait(ctx, lease, class, err, waitFor(DelayProxies, after))
	case attempt <= policy.Retries:
		return c.leases.retry(ctx, lease, err, max(after, policy.Wait(attempt, c.def.Retries.Cap)), true)
	}
	return c.giveUp(ctx, lease, class, err)
}

// wait delays a page; that is not an attempt. A page that has waited for too long
// is given up.
func (c *crawler) wait(ctx context.Context, lease workqueue.Leased, class fetch.Class, err error, d decision) error {
	since := time.Now()
	if infos, gerr := c.queue.Get(ctx, lease.ID); gerr == nil && len(infos) == 1 {
		since = delayedSince(infos[0].Note, since)
	}
	if time.Since(since)+d.after > c.stallMax(class) {
		return c.giveUp(ctx, lease, class, fmt.Errorf("delayed for too long: %w", err))
	}
	c.delays.add(string(d.delay))
	return c.leases.retry(ctx, lease, fmt.Errorf("%s%s: %w", delayNote, since.UTC().Format(time.RFC3339), err), d.after, false)
}

// stallMax is how long a page may be delayed. While all proxies rest, it may be
// delayed as long as its job may take, if that has a limit.
func (c *crawler) stallMax(class fetch.Class) time.Duration {
	if limit := c.def.Limits.MaxDuration; class == fetch.NoProxy && limit > 0 {
		return max(limit, c.def.Retries.StallMax)
	}
	return c.def.Retries.StallMax
}

// giveUp settles a page that is not tried again.
func (c *crawler) giveUp(ctx context.Context, lease workqueue.Leased, class fetch.Class, err error) error {
	y := yield{Class: class}
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
	if class == fetch.Gone || class == fetch.Robots || class == fetch.Limit || class == fetch.Enough {
		outcome = workqueue.Skipped(err.Error())
	}
	return c.settle(ctx, lease, outcome.With(result))
}

// settle ends the lease of a page that is fetched or given up, which is progress of the job.
func (c *crawler) settle(ctx context.Context, lease workqueue.Leased, o workqueue.Outcome) error {
	err := c.leases.settle(ctx, lease, o)
	if err == nil {
		if perr := c.progress.note(ctx); perr != nil {
			c.log.DebugContext(ctx, "the progress of the job is not stored", "error", perr)
		}
	}
	return err
}

const delayNote = "delayed since "

// delayedSince reads from the note of an item when it was first delayed, and
// returns missing if the note does not have that.
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
