package sites

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/tasks"
	"muster/tasks/limit"
	"muster/tasks/workqueue"
)

const (
	// maxAttempts ends a page that kills its workers; the retries of what can
	// be said to have gone wrong with a page end sooner.
	maxAttempts = 25
	// leaseTTL must be longer than a window takes.
	leaseTTL = 15 * time.Minute
	// window is how many pages a chunk leases at a time.
	window = 8
	// maxSitemaps is how deeply sitemaps may stand in one another.
	maxSitemaps = 3
	// sitOut is the longest wait that is not worth giving the worker back.
	sitOut = 100 * time.Millisecond
)

// job is a scrape as one process sees it. All that lasts is in Redis.
type job struct {
	id        string // of the job that has the pages
	run       string // of the workflow; the same unless it resumes another
	req       Request
	def       *definition.Definition
	rdb       redis.UniversalClient
	queue     *workqueue.Queue
	client    *fetch.Client
	breaker   *breaker
	contents  duplicates
	endings   *endings
	budget    *budget
	writer    *Writer
	memory    *memory             // of the process
	places    *limit.KeyedLimiter // see Service
	noted     atomic.Bool         // see given
	heavy     atomic.Bool         // a page had many bytes of records since pressed looked last
	unwritten int64               // bytes of records: maxUnwrittenBytes
	log       *slog.Logger
	alerts    string    // the URL of a webhook that hears of bad health, or ""
	looked    time.Time // when the writer last saw that the job is alive
	owed      owed
}

// visit is a page to fetch: the payload of an item.
type visit struct {
	URL   string `json:"url"`
	Kind  string `json:"kind"`
	N     int    `json:"n,omitempty"`
	Depth int    `json:"depth,omitempty"`
	Idle  int    `json:"idle,omitempty"` // so many listing pages before it in its chain brought nothing new
}

// yield is what a page came to: the result of a terminal item.
type yield struct {
	Class   fetch.Class    `json:"class"`
	Next    *visit         `json:"next,omitempty"`
	Counted bool           `json:"counted,omitempty"`
	Links   []visit        `json:"links,omitempty"`
	Records map[string]int `json:"records,omitempty"` // by type
	Invalid int            `json:"invalid,omitempty"`
	Took    int64          `json:"took,omitempty"`  // milliseconds; see extract.Page
	Print   string         `json:"print,omitempty"` // of records and links, to tell repeated pages
	// Hits and Faults are the field coverage of the page; see extract.Result.
	Hits   map[string]map[string]int `json:"hits,omitempty"`
	Faults extract.Faults            `json:"faults,omitempty"`
	Bytes  int                       `json:"bytes,omitempty"` // of the page, unpacked
	// Duplicate is the address of a page with the same content, or "".
	Duplicate string   `json:"duplicate,omitempty"`
	via       string   // the proxy that it came by
	types     []string // of the records that go with it, in their order
}

var errTooLong = errors.New("limits.max_duration has passed")

// itemID is the identity of a page in a job.
func (j *job) itemID(v visit) string {
	canonical := v.URL
	if u, err := url.Parse(v.URL); err == nil {
		canonical = j.def.Canonical(u)
	}
	h := sha256.Sum256([]byte("GET " + canonical))
	return v.Kind[:1] + hex.EncodeToString(h[:12])
}

func item(id string, v visit) (workqueue.Item, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return workqueue.Item{}, fmt.Errorf("encode page: %w", err)
	}
	return workqueue.Item{ID: id, Kind: v.Kind, Payload: payload}, nil
}

// enqueue makes items of pages and returns their ids.
func (j *job) enqueue(ctx context.Context, visits []visit) ([]string, error) {
	ids := make([]string, len(visits))
	for i, v := range visits {
		ids[i] = j.itemID(v)
	}
	return ids, j.enqueueAs(ctx, ids, visits)
}

// enqueueAs is enqueue of pages whose ids are known.
func (j *job) enqueueAs(ctx context.Context, ids []string, visits []visit) error {
	for at := 0; at < len(visits); at += enqueueBatch {
		end := min(at+enqueueBatch, len(visits))
		items := make([]workqueue.Item, 0, end-at)
		for i := at; i < end; i++ {
			item, err := item(ids[i], visits[i])
			if err != nil {
				return err
			}
			items = append(items, item)
		}
		if _, err := j.queue.Enqueue(ctx, items...); err != nil {
			return fmt.Errorf("store pages to fetch: %w", err)
		}
	}
	return nil
}

// enqueueBatch is how many pages are made items at a time.
const enqueueBatch = 5000

// work fetches pages until all of them are terminal, or later says when to go
// on. Their ids may grow while it runs: grow is called with each page that
// was done. It settles what it has leased before it returns, and leases
// something before slice ends it.
func (j *job) work(ctx context.Context, worker string, ids []string, parallel int, slice *timeslice, grow func(yield) ([]string, error)) error {
	if err := j.giveBackOwed(ctx); err != nil {
		return err
	}
	// What an earlier run under this name has leased is nobody's now.
	if _, err := j.queue.ExpireWorker(ctx, worker); err != nil {
		return fmt.Errorf("take over pages: %w", err)
	}
	leased := false
	for {
		var soonest time.Time
		open, worked := 0, false
		for start := 0; start < len(ids); start += window {
			if leased && slice.over() {
				return later{}
			}
			if err := j.pressed(ctx); err != nil {
				return err
			}
			end := min(start+window, len(ids))
			leases, next, remaining, err := j.queue.LeaseIDs(ctx, worker, ids[start:end])
			if err != nil {
				return fmt.Errorf("lease pages: %w", err)
			}
			open += remaining
			if !next.IsZero() && (soonest.IsZero() || next.Before(soonest)) {
				soonest = next
			}
			if len(leases) == 0 {
				continue
			}
			leased, worked = true, true
			yields, err := j.lot(ctx, leases, parallel)
			for _, y := range yields {
				more, gerr := grow(y)
				if gerr != nil {
					return errors.Join(err, gerr)
				}
				for _, id := range more {
					if !slices.Contains(ids, id) {
						ids = append(ids, id)
					}
				}
			}
			if err != nil {
				return err
			}
		}
		if open == 0 {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < 2*j.def.Limits.PageTimeout && time.Until(deadline) < 5*time.Minute {
			return later{} // a new attempt has all its time again
		}
		if worked {
			continue
		}
		wait := time.Second
		if !soonest.IsZero() {
			wait = max(time.Until(soonest), time.Millisecond)
		}
		if wait > sitOut {
			return later{wait}
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// So many records, and bytes of them, may wait in Redis for their writer before
// no more pages are fetched. Those on the way then come on top.
const (
	maxUnwritten      = 5000
	maxUnwrittenBytes = 64 << 20
)

// heavy is how many bytes of records make a page one after which it is looked
// how many are unwritten before the next, and not only now and then.
const heavy = 256 << 10

// pressed returns later while too many records wait to be written, or any that
// cannot be.
func (j *job) pressed(ctx context.Context) error {
	n, bytes, err := j.writer.out.Backlog(ctx)
	j.heavy.Store(false)
	if err != nil {
		return fmt.Errorf("count records to write: %w", err)
	}
	if n == 0 {
		return nil
	}
	trouble, err := troubleOf(ctx, j.writer.out)
	if err != nil {
		return err
	}
	if n < maxUnwritten && bytes < j.unwritten && trouble == "" {
		return nil
	}
	j.log.Debug("no more pages are fetched until records are written", "waiting", n, "bytes", bytes, "trouble", trouble)
	return later{time.Second}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lot fetches leased pages, some at once, and settles each. What it cannot
// begin, because the site's clock or the end of ctx forbids it, it gives back;
// what is under way ends, or the site would have to serve it twice.
func (j *job) lot(ctx context.Context, leases []workqueue.Leased, parallel int) ([]yield, error) {
	yields := make([]*yield, len(leases))
	stop := make([]error, len(leases))
	var halted atomic.Bool // a page was stopped: the others wait for the same clock
	var g errgroup.Group
	g.SetLimit(max(parallel, 1))
	for i, lease := range leases {
		g.Go(func() error {
			if ctx.Err() != nil {
				stop[i] = context.Cause(ctx)
			}
			if ctx.Err() != nil || halted.Load() {
				return j.giveBack(ctx, lease)
			}
			yields[i], stop[i] = j.page(ctx, lease)
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

func (j *job) giveBack(ctx context.Context, lease workqueue.Leased) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := j.queue.Return(ctx, lease); err != nil {
		j.owed.add(lease, err)
		return fmt.Errorf("give page back: %w", err)
	}
	return nil
}

// owed are leases that could not be ended because Redis takes no writes. They are given back as soon as it does:
// left to run out they would count as attempts at their pages. Its zero value is ready to use.
type owed struct {
	mu     sync.Mutex // guards leases
	leases []workqueue.Leased
}

// add notes a lease, if err is such a refusal.
func (o *owed) add(lease workqueue.Leased, err error) {
	if !tasks.Refused(err) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leases = append(o.leases, lease)
}

// giveBackOwed gives back what is owed.
func (j *job) giveBackOwed(ctx context.Context) error {
	j.owed.mu.Lock()
	defer j.owed.mu.Unlock()
	if len(j.owed.leases) == 0 {
		return nil
	}
	if err := j.queue.Return(ctx, j.owed.leases...); err != nil {
		return fmt.Errorf("give pages back: %w", err)
	}
	j.owed.leases = nil
	return nil
}

// page fetches one page and settles it. The error is later, or that of ctx or
// Redis: what went wrong with the page is settled with it.
func (j *job) page(ctx context.Context, lease workqueue.Leased) (*yield, error) {
	var v visit
	if err := json.Unmarshal(lease.Payload, &v); err != nil {
		return nil, j.settle(ctx, lease, workqueue.Failed(fmt.Errorf("payload of the page: %w", err)))
	}
	tooLong := &fetch.Error{Class: fetch.Limit, URL: v.URL, Err: errTooLong}
	if j.overdue() {
		return nil, j.failed(ctx, lease, v, tooLong, 0)
	}
	if j.heavy.Load() {
		if err := j.pressed(ctx); err != nil {
			return nil, errors.Join(j.giveBack(ctx, lease), err)
		}
	}
	reached, err := j.budget.spent(ctx)
	if err != nil {
		return nil, errors.Join(j.giveBack(ctx, lease), err)
	}
	if len(reached) > 0 {
		return nil, j.failed(ctx, lease, v, &fetch.Error{Class: fetch.Enough, URL: v.URL, Err: errors.New(strings.Join(reached, "; "))}, 0)
	}
	leave, err := j.place(ctx)
	if err != nil {
		return nil, errors.Join(j.giveBack(ctx, lease), err)
	}
	defer leave()
	permit, err := j.breaker.allow(ctx)
	if gone, ok := errors.AsType[*downError](err); ok {
		return nil, j.giveUp(ctx, lease, gone.class, err)
	}
	if err != nil {
		return nil, errors.Join(j.giveBack(ctx, lease), err)
	}
	if permit.Trial() {
		// A page that may itself be at fault is tried when the site gives one
		// that it gave before.
		if failure, known := j.probe(ctx); known && !fetch.ClassOf(failure).Answered() {
			after := probeAgain
			if fe, ok := errors.AsType[*fetch.Error](failure); ok {
				after = max(after, fe.After)
			}
			_, err := j.breaker.report(ctx, permit, "", false, failure)
			return nil, errors.Join(err, j.giveBack(ctx, lease), later{after})
		}
	}
	began := time.Now()
	y, records, err := j.scrape(ctx, v)
	down, berr := j.breaker.report(ctx, permit, lease.ID, lease.Attempts == 0, err)
	if berr == nil && down == 0 && j.isLastTry(lease, err) && !j.breaker.cameSince(began) {
		if failure, known := j.probe(ctx); known {
			down, berr = j.breaker.confirm(ctx, failure)
		}
	}
	if berr != nil {
		j.log.Warn("cannot note in the site's breaker how a page ended", "error", berr)
	}
	via := ""
	if y != nil {
		via = y.via
	}
	if werr := j.noteWay(context.WithoutCancel(ctx), via, err); werr != nil {
		j.log.Warn("the report will lack what came by a proxy", "error", werr)
	}
	if err != nil && j.overdue() {
		err = tooLong
	}
	if err == nil {
		if records, err = j.ration(ctx, lease.ID, y, records); err != nil {
			return nil, errors.Join(err, j.giveBack(ctx, lease))
		}
		if err := j.lead(ctx, v, y); err != nil {
			return nil, errors.Join(err, j.giveBack(ctx, lease))
		}
		if err := j.given(ctx, v); err != nil {
			j.log.Warn("should the site go down, it is harder to see when it is up again", "error", err)
		}
		result, err := json.Marshal(y)
		if err != nil {
			return nil, fmt.Errorf("encode result of %s: %w", v.URL, err)
		}
		size := 0
		for _, r := range records {
			size += len(r)
		}
		err = j.settle(ctx, lease, workqueue.Done().With(result, records...))
		if size >= heavy {
			j.heavy.Store(true)
		}
		return y, err
	}
	return nil, j.failed(ctx, lease, v, err, down)
}

// isLastTry reports whether a page that failed is given up unless the site is
// down.
func (j *job) isLastTry(lease workqueue.Leased, failure error) bool {
	fe, ok := errors.AsType[*fetch.Error](failure)
	return ok && fe.OfSite() && fe.Class != fetch.Blocked && lease.Attempts >= fetch.PolicyFor(fe.Class, j.def.Retries).Retries
}

// probeAgain is when a site is tried again after a probe that says nothing.
const probeAgain = 100 * time.Millisecond

// probe asks for a page that the site has given to the job before. Known is
// false when there is none.
func (j *job) probe(ctx context.Context) (failure error, known bool) {
	v, ok, err := store.ReadJSON[visit](ctx, j.rdb, store.ProbePageKey(j.id))
	if err != nil || !ok {
		return nil, false
	}
	_, err = j.client.Get(ctx, v.URL, v.Kind)
	return err, true
}

// given notes the first page that the site gives to this process, for probe.
func (j *job) given(ctx context.Context, v visit) error {
	if v.Kind == definition.KindSitemap || !j.noted.CompareAndSwap(false, true) {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode page: %w", err)
	}
	if err := j.rdb.Set(ctx, store.ProbePageKey(j.id), data, store.Keep).Err(); err != nil {
		j.noted.Store(false)
		return fmt.Errorf("note a page that the site gives: %w", err)
	}
	return nil
}

// ration keeps of the records of a page what the limits of the job leave.
func (j *job) ration(ctx context.Context, page string, y *yield, records [][]byte) ([][]byte, error) {
	n, err := j.budget.grant(ctx, page, len(records), y.Bytes)
	if err != nil {
		return nil, err
	}
	for _, typ := range y.types[min(n, len(y.types)):] {
		y.Records[typ]--
	}
	return records[:n], nil
}

// overdue tells whether the job may take no longer.
func (j *job) overdue() bool {
	limit := j.def.Limits.MaxDuration
	return limit > 0 && time.Since(time.UnixMilli(j.req.Began)) > limit
}

// lead enqueues the pages that a detail page leads to, before the page is
// settled, so that no crash can lose them. What a listing page leads to is
// enqueued by collect, which knows how many are wanted.
func (j *job) lead(ctx context.Context, v visit, y *yield) error {
	if v.Kind != definition.KindDetail || len(y.Links) == 0 {
		return nil
	}
	stats, err := j.queue.Stats(ctx)
	if err != nil {
		return fmt.Errorf("count pages: %w", err)
	}
	if j.req.Limit > 0 || stats.Total+int64(len(y.Links)) > int64(j.def.Limits.MaxPages) {
		y.Links = nil
		return nil
	}
	_, err = j.enqueue(ctx, y.Links)
	return err
}

func (j *job) settle(ctx context.Context, lease workqueue.Leased, o workqueue.Outcome) error {
	err := j.queue.Settle(ctx, lease, o)
	if errors.Is(err, workqueue.ErrLeaseLost) {
		j.log.Warn("a page was taken over by another worker", "item", lease.ID)
		return nil // the other's outcome counts
	}
	if err != nil {
		j.owed.add(lease, err)
		return fmt.Errorf("settle page: %w", err)
	}
	return nil
}

// failed does what the class of a failure asks for. Down is for how long the
// site is left alone, or 0 when it is not down.
func (j *job) failed(ctx context.Context, lease workqueue.Leased, v visit, err error, down time.Duration) error {
	class := fetch.ClassOf(err)
	policy := fetch.PolicyFor(class, j.def.Retries)
	if ctx.Err() != nil || class == fetch.Canceled {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return errors.Join(err, j.giveBack(ctx, lease))
	}
	if tasks.Refused(err) { // the page is not to blame
		return errors.Join(err, j.giveBack(ctx, lease))
	}
	var after time.Duration
	if fe, ok := errors.AsType[*fetch.Error](err); ok {
		after = fe.After
	}
	if class == fetch.Throttled {
		if gerr := j.giveBack(ctx, lease); gerr != nil {
			return gerr
		}
		return later{after}
	}
	attempt := lease.Attempts + 1
	j.log.Debug("page failed", "url", v.URL, "class", class, "attempt", attempt, "down", down, "error", err)
	switch {
	case class == fetch.Limit:
	case down > 0: // others are tried first when the site may be up again
		return j.wait(ctx, lease, class, err, max(after, down+policy.Wait(1, j.def.Retries.Cap)))
	case policy.Free, class == fetch.NoProxy && after > 0: // the proxies rest
		return j.wait(ctx, lease, class, err, after)
	case attempt <= policy.Retries:
		return j.retry(ctx, lease, err, max(after, policy.Wait(attempt, j.def.Retries.Cap)), true)
	}
	return j.giveUp(ctx, lease, class, err)
}

// wait leaves a page in the queue for a while without using up an attempt. A
// page that has waited for too long is given up.
func (j *job) wait(ctx context.Context, lease workqueue.Leased, class fetch.Class, err error, after time.Duration) error {
	since := time.Now()
	if infos, gerr := j.queue.Get(ctx, lease.ID); gerr == nil && len(infos) == 1 {
		since = stalledSince(infos[0].Note, since)
	}
	if time.Since(since)+after <= j.stallMax(class) {
		return j.retry(ctx, lease, fmt.Errorf("%s%s: %w", stallNote, since.UTC().Format(time.RFC3339), err), after, false)
	}
	return j.giveUp(ctx, lease, class, fmt.Errorf("put off for too long: %w", err))
}

// stallMax is how long a page may be put off. It waits for proxies that rest as
// long as its job may take, if there is a limit to that.
func (j *job) stallMax(class fetch.Class) time.Duration {
	if limit := j.def.Limits.MaxDuration; class == fetch.NoProxy && limit > 0 {
		return max(limit, j.def.Retries.StallMax)
	}
	return j.def.Retries.StallMax
}

// giveUp settles a page that is not tried again.
func (j *job) giveUp(ctx context.Context, lease workqueue.Leased, class fetch.Class, err error) error {
	y := yield{Class: class}
	if p, ok := errors.AsType[*invalidPage](err); ok {
		y.Invalid, y.Hits, y.Faults = p.invalid, p.hits, p.faults
	}
	result, merr := json.Marshal(y)
	if merr != nil {
		return fmt.Errorf("encode failure: %w", merr)
	}
	outcome := workqueue.Failed(err)
	if class == fetch.Gone || class == fetch.Robots || class == fetch.Limit || class == fetch.Enough {
		outcome = workqueue.Skipped(err.Error())
	}
	return j.settle(ctx, lease, outcome.With(result))
}

const stallNote = "put off since "

// stalledSince reads from an item's note when it was first put off.
func stalledSince(note string, missing time.Time) time.Time {
	rest, ok := strings.CutPrefix(note, stallNote)
	if !ok {
		return missing
	}
	stamp, _, _ := strings.Cut(rest, ": ")
	if t, err := time.Parse(time.RFC3339, stamp); err == nil {
		return t
	}
	return missing
}

func (j *job) retry(ctx context.Context, lease workqueue.Leased, cause error, after time.Duration, count bool) error {
	_, err := j.queue.Retry(ctx, lease, cause, max(after, 0), count)
	if err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		j.owed.add(lease, err)
		return fmt.Errorf("put page off: %w", err)
	}
	return nil
}

// scrape fetches and reads a page.
func (j *job) scrape(ctx context.Context, v visit) (*yield, [][]byte, error) {
	page, err := j.client.Get(ctx, v.URL, v.Kind)
	if err != nil {
		return nil, nil, err
	}
	leave, err := j.memory.enter(ctx, len(page.Body))
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	page.N = v.N
	fail := func(class fetch.Class, err error) (*yield, [][]byte, error) {
		if page.Suspect != nil {
			page.Suspect()
		}
		return nil, nil, &fetch.Error{Class: class, URL: v.URL, Status: page.Status, Via: page.Via, Err: err}
	}
	if v.Kind == definition.KindSitemap {
		res, err := extract.Sitemap(j.def, page)
		if err != nil {
			return fail(fetch.Parse, err)
		}
		y := &yield{Class: fetch.OK, Bytes: len(page.Body), via: page.Via}
		for _, l := range res.Links {
			if l.Kind != definition.KindSitemap || v.Depth < maxSitemaps {
				y.Links = append(y.Links, visit{URL: l.URL, Kind: l.Kind, Depth: v.Depth + 1})
			}
		}
		return y, nil, nil
	}
	doc, err := extract.Parse(j.def, page)
	if err != nil {
		return fail(fetch.Parse, err)
	}
	if err := fetch.Inspect(j.def, doc); err != nil {
		return nil, nil, err
	}
	res, err := extract.Run(j.def, doc)
	if err != nil {
		return fail(fetch.Validate, invalidIn(res, err))
	}
	switch {
	case !extract.MustHave(j.def, doc):
		why := "the page has none of must_have"
		if fetch.NeedsScript(doc) {
			why += "; it seems to need JavaScript, which is not run; see render in the definition"
		}
		return fail(fetch.Validate, errors.New(why))
	case len(res.Records)+len(res.Invalid)+len(res.Links) == 0 && res.Next == nil && fetch.NeedsScript(doc):
		return fail(fetch.Validate, errors.New("the page is an empty frame that needs JavaScript, which is not run; see render in the definition"))
	case len(res.Records)+len(res.Invalid)+len(res.Links) == 0 && res.Next == nil && doc.Root != nil && doc.JSON == nil && len(j.def.Page(v.Kind).MustHave) == 0 && doc.Text() == "":
		return fail(fetch.Empty, errors.New("there is nothing to read on the page"))
	case len(res.Records) == 0 && len(res.Invalid) > 0 && len(res.Links) == 0 && res.Next == nil:
		return fail(fetch.Validate, invalidIn(res, fmt.Errorf("no record of the page is valid: %s", strings.Join(res.Invalid[0].Problems, "; "))))
	}
	y := &yield{Class: fetch.OK, Duplicate: j.contents.of(doc, &res), Bytes: len(page.Body), via: page.Via, Took: max(page.Took.Milliseconds(), 1), Counted: res.Counted, Invalid: len(res.Invalid), Hits: res.Hits, Faults: res.Faults, Records: map[string]int{}}
	print := sha256.New()
	records := make([][]byte, 0, len(res.Records))
	for i := range res.Records {
		r := &res.Records[i]
		if j.req.Limit > 0 && v.Kind == definition.KindListing && y.Records[r.Type] >= j.req.Limit {
			continue
		}
		line, err := r.JSON()
		if err != nil {
			return fail(fetch.Validate, err)
		}
		print.Write([]byte(r.Key))
		y.Records[r.Type]++
		y.types = append(y.types, r.Type)
		records = append(records, line)
	}
	deep := j.def.Limits.MaxDepth > 0 && v.Depth >= j.def.Limits.MaxDepth
	for _, l := range res.Links {
		if deep {
			break
		}
		print.Write([]byte(l.URL))
		y.Links = append(y.Links, visit{URL: l.URL, Kind: l.Kind, Depth: v.Depth + 1})
	}
	if res.Next != nil {
		y.Next = &visit{URL: res.Next.URL, Kind: definition.KindListing, N: res.Next.N, Depth: v.Depth}
	}
	y.Print = hex.EncodeToString(print.Sum(nil)[:8])
	return y, records, nil
}

// results reads what became of pages that are terminal.
func (j *job) results(ctx context.Context, ids []string) (map[string]workqueue.Info, error) {
	infos := make(map[string]workqueue.Info, len(ids))
	for part := range slices.Chunk(ids, 500) {
		got, err := j.queue.Get(ctx, part...)
		if err != nil {
			return nil, fmt.Errorf("read pages: %w", err)
		}
		for _, info := range got {
			infos[info.ID] = info
		}
	}
	return infos, nil
}

func yieldOf(info workqueue.Info) yield {
	var y yield
	if len(info.Result) == 0 || json.Unmarshal(info.Result, &y) != nil {
		y.Class = "lost"
	}
	return y
}
