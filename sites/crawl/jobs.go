package crawl

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks/limit"
	"muster/tasks/workqueue"

	"golang.org/x/sync/semaphore"
)

// localJobs are the jobs that this process works on, with what they share. It
// may be used by many goroutines. Close it.
type localJobs struct {
	cfg      Config
	recorder *record.Recorder
	robots   polite.RobotsCache // not shared with other processes: it is one file for each host and day
	pacer    *limit.Pacer
	slots    *limit.KeyedLimiter // of pages that are being fetched; nil: no limit
	memory   *memory             // for pages that are parsed

	mu   sync.Mutex // guards jobs
	jobs map[string]*job

	// The fields below are used by tidy only.
	looked  time.Time       // when stalled jobs were last looked for
	stalled map[string]bool // jobs of this process that were logged
}

func newLocalJobs(cfg Config) *localJobs {
	l := &localJobs{cfg: cfg, memory: newMemory(cfg.Memory), jobs: map[string]*job{}}
	rdb := cfg.Client.Redis()
	l.pacer = limit.NewPacer(rdb, limit.PacerConfig{FailOpen: true, Logger: cfg.Logger})
	if cfg.MaxPages > 0 {
		l.slots = limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: cfg.MaxPages, FailOpen: true, Logger: cfg.Logger})
	}
	return l
}

// close closes the clients of the jobs.
func (l *localJobs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.jobs {
		j.crawler.client.Close()
	}
	clear(l.jobs)
}

// get returns a job that any process has begun.
func (l *localJobs) get(ctx context.Context, id string) (*job, error) {
	l.mu.Lock()
	j, ok := l.jobs[id]
	l.mu.Unlock()
	if ok {
		return j, nil
	}
	req, err := store.ReadRequest(ctx, l.cfg.Client.Redis(), id)
	if err != nil {
		return nil, err
	}
	if j, err = l.make(ctx, id, req); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.jobs[id]; ok {
		return other, nil
	}
	l.jobs[id] = j
	l.recorder.Wake()
	return j, nil
}

func (l *localJobs) make(ctx context.Context, id string, req store.Request) (*job, error) {
	def, err := req.Definition()
	if err != nil {
		return nil, err
	}
	if def.Site != req.Site {
		return nil, fmt.Errorf("the definition is of site %s, the request of %q: %w", def.Site, req.Site, store.ErrNames)
	}
	if def, err = l.cfg.Secrets(def, req.BaseURL != ""); err != nil {
		return nil, err
	}
	direct := req.Direct == report.DirectAsked
	if req.Direct == report.DirectUnproxied {
		if direct, err = l.cfg.unproxied(ctx, def); err != nil {
			return nil, err
		}
	}
	var transport http.RoundTripper // one without proxies
	if l.cfg.Transport != nil && !direct {
		transport = l.cfg.Transport(def)
	}
	rdb := l.cfg.Client.Redis()
	run := id
	if req.Resume != "" {
		id = req.Resume
	}
	q := workqueue.New(rdb, store.QueueName(def.Site, id), workqueue.Config{MaxAttempts: maxAttempts, LeaseTTL: leaseTTL, MaxItems: def.Limits.MaxPages, Logger: l.cfg.Logger})
	p := &pages{id: id, run: run, req: req, def: def, rdb: rdb, queue: q, log: l.cfg.Logger.With("site", def.Site, "job", id)}
	return &job{
		pages: p, finish: l.recorder.Finish, crawler: l.newCrawler(p, transport),
	}, nil
}

// newCrawler returns the crawler of a job. Without a transport it uses no
// proxies.
func (l *localJobs) newCrawler(p *pages, transport http.RoundTripper) *crawler {
	site := SiteKey(p.def)
	c := &crawler{
		pages: p, leases: &leases{queue: p.queue, log: p.log}, observe: l.cfg.Observe,
		breaker:   polite.NewSiteBreaker(p.rdb, site, p.def.Retries.StallMax, time.UnixMilli(p.req.Began), limit.BreakerConfig{Logger: l.cfg.Logger, Changed: l.cfg.BreakerChanged}),
		extractor: &extractor{def: p.def, limit: p.req.Limit, memory: l.memory, siblings: &siblings{pages: p}},
		progress:  &progress{rdb: p.rdb, run: p.run},
		delays:    &counters{rdb: p.rdb, key: store.DelaysKey(p.id)},
		ends:      &counters{rdb: p.rdb, key: store.SessionEndsKey(p.id)},
	}
	c.client = fetch.NewClient(fetch.Config{
		Definition: p.def, Filter: l.cfg.Filter, Transport: transport, NoProxy: l.cfg.NoProxy, OnBlocked: l.cfg.Refused, Robots: &l.robots, Logger: l.cfg.Logger,
		Clock:    &polite.SharedClock{Pacer: l.pacer},
		Key:      site,
		Throttle: polite.NewThrottle(p.rdb, site, p.def.Politeness.AutoThrottle),
		Via:      l.cfg.Via,
		Route:    l.cfg.Route,
		Ended:    c.ends.add,
		Patience: min(max(4*p.def.Politeness.Delay, 250*time.Millisecond), 2*time.Second),
	})
	c.admission = &admission{
		limits: p.def.Limits, began: p.began, budget: newBudget(p.rdb, p.id, p.def.Limits), slots: l.slots,
		patience: slotPatience, out: p.queue.Outputs(), room: maxUnwrittenBytes, breaker: c.breaker, log: p.log,
	}
	return c
}

// SiteKey names a site in what its jobs share, such as its breaker. A copy of
// the site at another address has a name of its own.
func SiteKey(def *definition.Definition) string { return def.Site + "@" + def.Base().Host }

// tidy returns pages that could not be returned before, forgets jobs that are
// not open, and logs those without progress.
func (l *localJobs) tidy(ctx context.Context, open []string) {
	l.warnStalled(ctx)
	for _, j := range l.all() {
		if !slices.Contains(open, j.run) {
			l.drop(j)
			continue
		}
		if err := j.crawler.leases.returnPending(ctx); err != nil && ctx.Err() == nil {
			l.cfg.Logger.DebugContext(ctx, "pages are returned later", "job", j.run, "error", err)
		}
	}
}

func (l *localJobs) all() []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.jobs))
}

// forget drops a job that has ended, with the files of its records.
func (l *localJobs) forget(j *job) {
	l.drop(j)
	l.recorder.Forget(j.run)
}

func (l *localJobs) drop(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs[j.run] == j {
		delete(l.jobs, j.run)
		j.crawler.client.Close()
	}
}

const (
	// pageFactor is how many bytes are used for each byte of a page while it is
	// parsed: the body, the text in UTF-8, the tree, and garbage.
	pageFactor = 16
	// leastRoom is how many bytes are reserved for a small page.
	leastRoom = 512 << 10
	// memoryShare is the part of the limit that is for pages.
	memoryShare = 0.75
)

// memory bounds the pages that a process parses at once by their sizes. Pages
// wait first in, first out, so that a large one does not starve. Nil has no bound.
type memory struct {
	size int64
	room *semaphore.Weighted
}

// newMemory returns the memory of a process that should stay below limit
// bytes, or nil when limit is 0.
func newMemory(limit int64) *memory {
	if limit <= 0 {
		return nil
	}
	size := max(int64(float64(limit)*memoryShare), leastRoom)
	return &memory{size: size, room: semaphore.NewWeighted(size)}
}

// enter waits until a page of a size in bytes can be parsed; call leave after
// that. A page that is larger than the memory is parsed alone.
func (m *memory) enter(ctx context.Context, bytes int) (leave func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	n := min(max(int64(bytes)*pageFactor, leastRoom), m.size)
	if err := m.room.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.room.Release(n) }, nil
}
