package crawl

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"muster/internal/limit"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/sites/record"
	"muster/sites/render"
	"muster/sites/report"
	"muster/tasks/workqueue"

	"golang.org/x/sync/semaphore"
)

// localJobs are the jobs that this process works on, with their shared resources. It is safe for concurrent use. Close releases
// the resources.
type localJobs struct {
	cfg      Config
	recorder *record.Recorder
	robots   polite.RobotsCache // per process: one request per host and day is cheap
	pacer    *limit.Pacer
	slots    *limit.KeyedLimiter // pages in flight; nil: no limit
	memory   *memory             // for parsing pages
	jobs     sync.Map            // *job by ID

	// Only tidy uses the fields below.
	looked  time.Time       // when stalled jobs were last looked for
	stalled map[string]bool // logged jobs of this process
}

func newLocalJobs(cfg Config) *localJobs {
	l := &localJobs{cfg: cfg, memory: newMemory(cfg.Memory)}
	rdb := cfg.Client.Redis()
	l.pacer = limit.NewPacer(rdb, limit.PacerConfig{FailOpen: true, Logger: cfg.Logger})
	if cfg.MaxPages > 0 {
		l.slots = limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: cfg.MaxPages, FailOpen: true, Logger: cfg.Logger})
	}
	return l
}

// close closes the clients of the jobs.
func (l *localJobs) close() {
	for _, j := range l.all() {
		l.drop(j)
	}
}

// get returns a job that some process has started.
func (l *localJobs) get(ctx context.Context, id string) (*job, error) {
	if j, ok := l.jobs.Load(id); ok {
		return j.(*job), nil
	}
	req, err := store.ReadRequest(ctx, l.cfg.Client.Redis(), id)
	if err != nil {
		return nil, err
	}
	j, err := l.make(ctx, id, req)
	if err != nil {
		return nil, err
	}
	first, loaded := l.jobs.LoadOrStore(id, j)
	if !loaded {
		l.recorder.Wake()
	}
	return first.(*job), nil
}

func (l *localJobs) make(ctx context.Context, id string, req store.Request) (*job, error) {
	def, err := req.Definition()
	if err != nil {
		return nil, err
	}
	if def, err = l.cfg.Secrets(def, req.BaseURL != ""); err != nil {
		return nil, err
	}
	direct := req.Direct == report.DirectAsked
	if req.Direct == report.DirectUnproxied {
		if direct, err = l.cfg.isUnproxied(ctx, def); err != nil {
			return nil, err
		}
	}
	if def.NeedsBrowser() {
		if l.cfg.Fetch.Browser == nil {
			return nil, render.ErrUnavailable
		}
		if err := l.cfg.Fetch.Browser.Check(); err != nil {
			return nil, err
		}
	}
	if name := def.Extractor.Command; name != "" && l.cfg.Fetch.Extractors[name] == "" {
		return nil, fmt.Errorf("extractor %s: %w", name, fetch.ErrNoExtractor)
	}
	var transport http.RoundTripper // nil: direct
	if l.cfg.Transport != nil && !direct {
		transport = l.cfg.Transport(def)
	}
	rdb := l.cfg.Client.Redis()
	run := id
	if req.Resume != "" {
		id = req.Resume
	}
	q := workqueue.New(rdb, store.QueueName(def.Site, id), workqueue.Config{MaxAttempts: maxAttempts, LeaseTTL: leaseTTL, MaxItems: def.Limits.MaxPages, Logger: l.cfg.Logger})
	p := &pages{id: id, run: run, req: req, def: def, extraction: def.Extraction(), rdb: rdb, queue: q, log: l.cfg.Logger.With("site", def.Site, "job", id)}
	return &job{
		pages: p, finish: l.recorder.Finish, crawler: l.newCrawler(p, transport),
	}, nil
}

// newCrawler returns the crawler of a job. Without a transport it uses no proxies.
func (l *localJobs) newCrawler(p *pages, transport http.RoundTripper) *crawler {
	site := SiteKey(p.def)
	c := &crawler{
		pages: p, leases: &leases{pages: p}, observe: l.cfg.Observe,
		breaker:   polite.NewSiteBreaker(p.rdb, site, p.def.Retries.StallMax, time.UnixMilli(p.req.Began), limit.BreakerConfig{Logger: l.cfg.Logger, Changed: l.cfg.BreakerChanged}),
		extractor: &extractor{pages: p, memory: l.memory, kinds: map[string]fieldsOf{}},
		counts:    &counters{rdb: p.rdb, key: store.CountsKey(p.id)},
	}
	cfg := l.cfg.Fetch
	if transport != nil && l.cfg.BrowserProxy != nil {
		cfg.BrowserProxy = func(visitor string) (string, error) { return l.cfg.BrowserProxy(p.def, visitor) }
	}
	cfg.Definition, cfg.Transport, cfg.Robots, cfg.Logger = p.def, transport, &l.robots, l.cfg.Logger
	cfg.Clock, cfg.Key = &polite.SharedClock{Pacer: l.pacer}, site
	cfg.Throttle = polite.NewThrottle(p.rdb, site, p.def.Politeness.AutoThrottle)
	cfg.Ended = func(why string) { c.counts.add("session", why) }
	cfg.Patience = min(max(4*p.def.Politeness.Delay, 250*time.Millisecond), 2*time.Second)
	c.client = fetch.NewClient(cfg)
	c.extractor.external = c.client.Extract
	c.admission = &admission{
		pages: p, budget: newBudget(p.rdb, p.id, p.def.Limits, p.req.Limit), slots: l.slots, patience: slotPatience, room: maxUnwrittenBytes, breaker: c.breaker,
	}
	return c
}

// SiteKey is the key of a site in state that its jobs share, such as the circuit breaker. A mirror of the site has a different
// key.
func SiteKey(def *definition.Definition) string { return def.Site + "@" + def.Base().Host }

// tidy retries failed returns of leases, forgets jobs that are no longer open, and logs stalled jobs.
func (l *localJobs) tidy(ctx context.Context, open []string) {
	l.warnStalled(ctx)
	for _, j := range l.all() {
		if !slices.Contains(open, j.run) {
			l.drop(j)
			continue
		}
		if err := j.crawler.leases.returnPending(ctx); err != nil && ctx.Err() == nil {
			l.cfg.Logger.DebugContext(ctx, "cannot return pages yet", "job", j.run, "error", err)
		}
	}
}

func (l *localJobs) all() (jobs []*job) {
	for _, j := range l.jobs.Range {
		jobs = append(jobs, j.(*job))
	}
	return jobs
}

// forget drops a terminated job and closes its record files.
func (l *localJobs) forget(j *job) {
	l.drop(j)
	l.recorder.Forget(j.run)
}

func (l *localJobs) drop(j *job) {
	if l.jobs.CompareAndDelete(j.run, j) {
		j.crawler.client.Close()
	}
}

const (
	// pageFactor is the memory that parsing needs per byte of a page: the body, the UTF-8 text, the tree and garbage.
	pageFactor = 16
	// leastRoom is the minimum reservation for a page, in bytes.
	leastRoom = 512 << 10
	// memoryShare is the share of the memory limit that pages may use.
	memoryShare = 0.75
)

// memory limits the pages that a process parses concurrently, by size. Pages wait in FIFO order, so a large page does not starve.
// Nil has no limit.
type memory struct {
	size int64
	room *semaphore.Weighted
}

// newMemory returns the memory of a process with a limit in bytes, or nil if limit is 0.
func newMemory(limit int64) *memory {
	if limit <= 0 {
		return nil
	}
	size := max(int64(float64(limit)*memoryShare), leastRoom)
	return &memory{size: size, room: semaphore.NewWeighted(size)}
}

// enter waits for memory to parse a page of a size in bytes. Call leave afterwards. A page larger than the limit is parsed alone.
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
