// Package sites turns the pages of sites into records.
//
// A Service scrapes the sites of a Registry. A scrape is a workflow of tasks:
// collect walks the listing pages and cuts what they lead to into chunks,
// chunk fetches the pages of one chunk, aggregate closes the books. Every
// page is an item of a work queue of the job's own, with its records settled
// in the same step, so that a job goes on after a crash without asking for a
// done page again and without giving a record twice. Pages that must wait do
// so in the queue; no worker sleeps for them.
package sites

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/sites/record"
	"muster/sites/report"
	"muster/sites/sink"
	"muster/tasks"
	"muster/tasks/limit"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// Queue is the task queue that scrapes run in.
const Queue = store.Queue

// ErrNoJob says that Redis knows no job of an id: there was none, or it ended
// more than a week ago.
var ErrNoJob = store.ErrNoJob

// Config sets up a Service.
type Config struct {
	Client    *tasks.Client                                       // where jobs, items and clocks are. It has no default.
	Registry  *Registry                                           // Defaults to the shipped sites.
	OutDir    string                                              // records go below it, in {site}/{job}. Defaults to "out".
	Transport func(site *definition.Definition) http.RoundTripper // carries the requests to a site. Defaults to one without proxies.
	Filter    *addressfilter.Filter                               // which addresses that are not public may be connected to without a proxy, beside those of definitions; see fetch.Config. Defaults to none.
	NoProxy   error                                               // what Transport's error is when it has no proxy. Defaults to none.
	Unproxied func(context.Context) (bool, error)                 // reports whether this process has no proxies and is to go without them; see Direct. Defaults to never.
	Refused   func(*http.Response)                                // hears of an answer of Transport that is a refusal behind a good status. Defaults to nobody.
	Via       func(*http.Response) string                         // names the proxy that an answer of Transport came by, or "". Defaults to none.
	Route     func(before fetch.Route) fetch.Route                // makes a way of Transport that a session keeps to; see fetch.Config. Defaults to none.
	Sinks     []string                                            // addresses of sinks that records go to beside the files; see sink.Open. Defaults to none.
	Alerts    string                                              // the URL of a webhook that hears when a site is not healthy. Defaults to none.
	Secret    string                                              // signs what webhooks get. Defaults to none.
	MaxPages  int                                                 // pages on their way at once, of all sites and in all processes. Defaults to 0: no limit.
	Memory    int64                                               // bytes that this process should stay below; it bounds the pages that are parsed at once. Defaults to 0: no limit.
	Logger    *slog.Logger                                        // Defaults to none.
	// WriterLease is how long the process that writes a job's records may be
	// silent before another takes over. Defaults to 15 seconds.
	WriterLease time.Duration
}

// Service scrapes sites. It may be used by many goroutines. Close it.
type Service struct {
	cfg      Config
	recorder *record.Recorder
	robots   polite.RobotsCache // of this process: a file for a host and a day is worth no sharing
	pacer    *limit.Pacer
	slots    *limit.KeyedLimiter // for pages that are being fetched; nil: no limit
	memory   *memory             // for pages that are parsed

	siteNames siteNames

	mu   sync.Mutex // guards jobs
	jobs map[string]*job
}

// NewService returns a Service.
func NewService(cfg Config) (*Service, error) {
	if cfg.Client == nil {
		return nil, errors.New("sites: Config.Client is missing")
	}
	if cfg.Registry == nil {
		r, err := LoadRegistry("", false)
		if err != nil {
			return nil, err
		}
		cfg.Registry = r
	}
	for _, address := range cfg.Sinks {
		if err := sink.Check(address); err != nil {
			return nil, err
		}
	}
	if cfg.OutDir == "" {
		cfg.OutDir = "out"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg, jobs: map[string]*job{}}
	recorder, err := record.New(record.Config{
		Client: cfg.Client, OutDir: cfg.OutDir, Sinks: cfg.Sinks, Lease: cfg.WriterLease,
		Alerts: cfg.Alerts, Secret: cfg.Secret, Filter: cfg.Filter, Round: s.tidy, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	s.recorder = recorder
	s.pacer = limit.NewPacer(cfg.Client.Redis(), limit.PacerConfig{FailOpen: true, Logger: cfg.Logger})
	if cfg.MaxPages > 0 {
		s.slots = limit.NewKeyedLimiter(cfg.Client.Redis(), limit.KeyedConfig{Default: cfg.MaxPages, FailOpen: true, Logger: cfg.Logger})
	}
	s.memory = newMemory(cfg.Memory)
	return s, nil
}

// Run writes the records of all jobs whose folder this process sees and may
// write to, until ctx ends. What is not written waits in Redis. It must run
// where tasks of scrapes run, and where scrapes with a folder of their own are
// sent; those who only look at jobs need not.
func (s *Service) Run(ctx context.Context) error { return s.recorder.Run(ctx) }

// Close closes what the service has open. Call it when Run has returned.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		j.crawler.client.Close()
	}
	clear(s.jobs)
	return s.recorder.Close()
}

// Registry is the sites that the service knows.
func (s *Service) Registry() *Registry { return s.cfg.Registry }

// Progress counts the pages of a job by their state. Total grows while
// listing pages are walked.
func (s *Service) Progress(ctx context.Context, site, id string) (workqueue.Stats, error) {
	return workqueue.New(s.cfg.Client.Redis(), store.QueueName(site, id), workqueue.Config{}).Stats(ctx)
}

// ScrapeOptions change one scrape.
type ScrapeOptions struct {
	Limit   int    // at most so many detail pages, and records of a type from listing pages. Defaults to 0: no limit.
	BaseURL string // a copy of the site to scrape instead. Defaults to the site's own base_url.
	OutDir  string // Defaults to the service's. Only processes that were told this folder write to it: keep this one running, with Run.
	Direct  bool   // use no proxies, whatever the definition and the settings say. Defaults to false.
	// After are jobs by their sites. A site that depends on one of these waits
	// for its job, which may have ended; of others for the job that is under
	// way. Defaults to none.
	After map[string]string
	CSV   bool // also make a CSV file of each type of record at the end. Defaults to false.
	// Compress compresses the files of records at the end: gz or zstd.
	// Defaults to not at all.
	Compress string
	// Sinks are addresses of sinks that the records go to beside the files.
	// Defaults to the service's. As OutDir, they are opened only by processes
	// that were told them, but for sqlite: files below the folder for records.
	Sinks []string
}

// Scrape returns the work of scraping a site, for who does not Send it but
// has it sent, with SendOptions. Sent must be called then with its id, which
// is that of the job.
func (s *Service) Scrape(ctx context.Context, name string, o ScrapeOptions) (work tasks.Signature[report.Summary], sent func(ctx context.Context, id string), err error) {
	def, err := s.cfg.Registry.Definition(name)
	if err != nil {
		return work, nil, err
	}
	req, err := s.request(ctx, def, o)
	if err != nil {
		return work, nil, err
	}
	return signature(req, def), func(ctx context.Context, id string) { s.sent(ctx, req, id) }, nil
}

func (s *Service) request(ctx context.Context, def *definition.Definition, o ScrapeOptions) (store.Request, error) {
	if _, err := def.WithBase(o.BaseURL); err != nil {
		return store.Request{}, err
	}
	dir, to, err := s.destination(o)
	if err != nil {
		return store.Request{}, err
	}
	if _, ok := sink.Compressions[o.Compress]; !ok && o.Compress != "" {
		return store.Request{}, fmt.Errorf("no compression %q; use gz or zstd", o.Compress)
	}
	for _, address := range to {
		if err := sink.Check(address); err != nil {
			return store.Request{}, err
		}
	}
	home, err := record.FolderName(dir)
	if err != nil {
		return store.Request{}, err
	}
	direct, err := s.decideDirect(ctx, def, o.Direct)
	if err != nil {
		return store.Request{}, err
	}
	after, err := s.dependencies(ctx, def, o.After)
	if err != nil {
		return store.Request{}, err
	}
	if err := s.recorder.Allow(o.OutDir, o.Sinks); err != nil {
		return store.Request{}, err
	}
	return store.Request{Site: def.Site, File: def.File(), YAML: string(def.YAML()), BaseURL: o.BaseURL, Limit: o.Limit, CSV: o.CSV, OutDir: dir, Home: home, Sinks: to, Compress: o.Compress, Direct: direct, After: after}, nil
}

// decideDirect is what a scrape that is sent now says about proxies.
func (s *Service) decideDirect(ctx context.Context, def *definition.Definition, asked bool) (report.Direct, error) {
	if asked {
		return report.DirectAsked, nil
	}
	unproxied, err := s.unproxied(ctx, def)
	if err != nil || !unproxied {
		return "", err
	}
	return report.DirectUnproxied, nil
}

// unproxied reports whether a scrape goes without proxies here, as there are
// none and its definition does not say what to do then.
func (s *Service) unproxied(ctx context.Context, def *definition.Definition) (bool, error) {
	if s.cfg.Unproxied == nil || def.Proxy.Fallback != "" {
		return false, nil
	}
	return s.cfg.Unproxied(ctx)
}

// destination returns the folder and the sinks of a scrape.
func (s *Service) destination(o ScrapeOptions) (dir string, sinks []string, err error) {
	if dir = o.OutDir; dir == "" {
		dir = s.cfg.OutDir
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, fmt.Errorf("output folder: %w", err)
	}
	if sinks = o.Sinks; sinks == nil {
		sinks = s.cfg.Sinks
	}
	return dir, sinks, nil
}

func signature(req store.Request, def *definition.Definition) tasks.Signature[report.Summary] {
	chunks := store.Collect.S(req)
	done := tasks.Map(chunks, store.Scrape, tasks.AtMost(def.Politeness.MaxPerDomain))
	return tasks.Chord(tasks.Settle(done), store.Aggregate)
}

// WrittenElsewhere reports whether a process other than this one writes the
// records of a scrape with these options. When none does, this one has to stay.
func (s *Service) WrittenElsewhere(ctx context.Context, o ScrapeOptions) (bool, error) {
	dir, to, err := s.destination(o)
	if err != nil {
		return false, err
	}
	return s.recorder.WrittenElsewhere(ctx, dir, to)
}

// Send sends the scrape of a site under an id of its own. It begins when the
// scrapes that are under way of sites that it depends on are complete, and
// fails when one of these ends otherwise. While another
// scrape of the site is under way it returns that one, with
// tasks.ErrDuplicate, or refuses when that one was asked for something else.
func (s *Service) Send(ctx context.Context, name string, o ScrapeOptions) (*tasks.AsyncResult[report.Summary], error) {
	def, err := s.cfg.Registry.Definition(name)
	if err != nil {
		return nil, err
	}
	req, err := s.request(ctx, def, o)
	if err != nil {
		return nil, err
	}
	run, err := signature(req, def).Send(ctx, s.cfg.Client, append(s.SendOptions(name), newID(name))...)
	if errors.Is(err, tasks.ErrDuplicate) {
		if other := s.different(ctx, run.ID(), req); other != nil {
			return nil, other
		}
	}
	if err == nil {
		s.sent(ctx, req, run.ID())
	}
	return run, err
}

// sent lists a job that was sent. A worker that begins the job does the same.
func (s *Service) sent(ctx context.Context, req store.Request, id string) {
	if err := s.list(ctx, id, req); err != nil {
		s.cfg.Logger.Warn("the job is not listed before it begins", "job", id, "error", err)
	}
}

// list makes a job known and stores what it is to do, unless it is known.
func (s *Service) list(ctx context.Context, id string, req store.Request) error {
	now := time.Now()
	req.Began = now.UnixMilli()
	spec, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode the job: %w", err)
	}
	_, err = s.cfg.Client.Redis().Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, store.RequestKey(id), spec, store.Keep)
		p.ZAddNX(ctx, store.JobsKey, redis.Z{Score: float64(now.UnixMilli()), Member: id})
		p.ZRemRangeByScore(ctx, store.JobsKey, "-inf", fmt.Sprint(now.Add(-store.Keep).UnixMilli()))
		return nil
	})
	if err != nil {
		return fmt.Errorf("store job %s: %w", id, err)
	}
	return nil
}

// different tells why a request cannot be joined with a job that is under
// way: it asks for something else. A job that has not begun is taken for one
// that asks for the same.
func (s *Service) different(ctx context.Context, id string, req store.Request) error {
	under, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if errors.Is(err, store.ErrNoJob) {
		return nil
	}
	if err != nil {
		return err
	}
	var what []string
	for name, differs := range map[string]bool{
		"definition": under.YAML != req.YAML, "base URL": under.BaseURL != req.BaseURL, "limit": under.Limit != req.Limit,
		"choice of --direct": (under.Direct == report.DirectAsked) != (req.Direct == report.DirectAsked),
		"folder for records": under.OutDir != req.OutDir, "sinks": !slices.Equal(under.Sinks, req.Sinks), "CSV": under.CSV != req.CSV, "compression": under.Compress != req.Compress,
	} {
		if differs {
			what = append(what, name)
		}
	}
	if len(what) == 0 {
		return nil
	}
	slices.Sort(what)
	return fmt.Errorf("site %s is being scraped by job %s, with another %s: wait for it, or end it with muster jobs cancel %s", req.Site, id, strings.Join(what, ", "), id)
}

// newID names a job.
func newID(site string) tasks.SendOption {
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return tasks.ID(idOf(site) + hex.EncodeToString(id[:]))
}

// Resume sends a scrape that goes on with what another left, whether that
// failed, was revoked or just could not have some pages: those that are done
// are not fetched again, those that failed are, and the records are added to
// the same files.
func (s *Service) Resume(ctx context.Context, id string) (*tasks.AsyncResult[report.Summary], error) {
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if err != nil {
		return nil, err
	}
	if req.Resume == "" {
		req.Resume = id
	}
	if err := s.recorder.Check(req); err != nil {
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	def, err := req.Definition()
	if err != nil {
		return nil, err
	}
	if req.Direct, err = s.decideDirect(ctx, def, req.Direct == report.DirectAsked); err != nil {
		return nil, err
	}
	if req.After, err = s.dependencies(ctx, def, nil); err != nil {
		return nil, err
	}
	run, err := signature(req, def).Send(ctx, s.cfg.Client, append(s.SendOptions(req.Site), newID(req.Site))...)
	if err == nil {
		s.sent(ctx, req, run.ID())
	}
	return run, err
}

// SendOptions are the options that a scrape of a site is sent with: its
// progress keys are {prefix}:{job}:… with the prefix scrape_{site}, and a
// site is scraped by one job at a time.
func (s *Service) SendOptions(name string) []tasks.SendOption {
	return []tasks.SendOption{tasks.ProgressKeys(ProgressPrefix(name)), tasks.Unique("scrape:"+name, store.Keep)}
}

// ProgressPrefix is the prefix of the progress keys of a site's jobs.
func ProgressPrefix(site string) string { return store.ProgressPrefix(site) }

// Register binds the tasks of scrapes to their handlers.
func (s *Service) Register(mux *tasks.Mux) {
	tasks.Handle(mux, store.Collect, func(ctx context.Context, req store.Request) ([]store.Chunk, error) {
		info := tasks.InfoFrom(ctx)
		if err := s.awaitDependencies(ctx, info.Workflow, req); err != nil {
			return nil, verdict(err)
		}
		tasks.PublishKey(ctx, "status", "COLLECTING")
		j, err := s.begin(ctx, info.Workflow, req)
		if err != nil {
			return nil, verdict(err)
		}
		if err := j.applyPause(ctx); err != nil {
			return nil, verdict(err)
		}
		chunks, err := j.collect(ctx, info.Key)
		j.publish(ctx)
		if err != nil {
			return nil, s.verdict(ctx, j, err)
		}
		total := 0
		for _, c := range chunks {
			total += c.Pages
		}
		tasks.PublishKey(ctx, "total_urls", fmt.Sprint(total))
		return chunks, nil
	})
	tasks.Handle(mux, store.Scrape, func(ctx context.Context, c store.Chunk) (report.Counts, error) {
		info := tasks.InfoFrom(ctx)
		j, err := s.job(ctx, info.Workflow)
		if err != nil {
			return report.Counts{}, verdict(err)
		}
		counts, err := j.chunk(ctx, info.Key, c)
		j.publish(ctx)
		return counts, s.verdict(ctx, j, err)
	})
	tasks.Handle(mux, store.Aggregate, func(ctx context.Context, chunks []tasks.Outcome[report.Counts]) (report.Summary, error) {
		tasks.PublishKey(ctx, "status", "AGGREGATING")
		j, err := s.job(ctx, tasks.InfoFrom(ctx).Workflow)
		if err != nil {
			return report.Summary{}, verdict(err)
		}
		var counts []report.Counts
		var lost []string
		for _, c := range chunks {
			if c.Err != nil {
				lost = append(lost, c.Err.Error())
				continue
			}
			counts = append(counts, c.Value)
		}
		sum, err := j.aggregate(ctx, counts, lost)
		if err != nil {
			return report.Summary{}, s.verdict(ctx, j, err)
		}
		if err := errors.Join(store.Close(ctx, j.rdb, j.run), j.rdb.Unlink(ctx, store.ChunksKey(j.run)).Err()); err != nil {
			return report.Summary{}, err
		}
		tasks.PublishKey(ctx, "result_count", fmt.Sprint(sum.Records))
		tasks.PublishKey(ctx, "error_count", fmt.Sprint(sum.Errors))
		s.forget(j)
		if err := sum.Err(); err != nil {
			return report.Summary{}, tasks.Permanent(err)
		}
		return sum, nil
	})
}

// verdict turns an error of a job into what the task answers.
func verdict(err error) error {
	if l, ok := errors.AsType[later](err); ok {
		return tasks.Again(max(l.after, 10*time.Millisecond))
	}
	_, wrong := errors.AsType[definition.Problems](err)
	if wrong || errors.Is(err, store.ErrNoJob) || errors.Is(err, errNoStart) || errors.Is(err, errNoChunk) || errors.Is(err, errDepends) || errors.Is(err, store.ErrNames) {
		return tasks.Permanent(err) // another attempt would find the same
	}
	return err
}

// begin stores what a job is to do and returns it. A second call with the
// same job changes nothing.
func (s *Service) begin(ctx context.Context, id string, req store.Request) (*job, error) {
	if err := req.CheckNames(id); err != nil {
		return nil, err
	}
	if err := s.list(ctx, id, req); err != nil {
		return nil, err
	}
	if err := s.cfg.Client.Redis().SAdd(ctx, store.OpenJobsKey, id).Err(); err != nil {
		return nil, fmt.Errorf("store job %s: %w", id, err)
	}
	return s.job(ctx, id)
}

// verdict turns the error of a job into what the task answers. A job that
// ends with it has no more records.
func (s *Service) verdict(ctx context.Context, j *job, err error) error {
	if errors.Is(err, errNoStart) {
		if rerr := store.Close(ctx, j.rdb, j.run); rerr != nil {
			return errors.Join(err, rerr)
		}
		s.forget(j)
	}
	return verdict(err)
}

// dead tells whether the workflow of a job is over.
func (s *Service) dead(ctx context.Context, id string) (bool, error) {
	status, err := tasks.Attach[report.Summary](s.cfg.Client, id).Status(ctx)
	if errors.Is(err, tasks.ErrUnknown) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at job %s: %w", id, err)
	}
	return status != tasktype.Pending && status != tasktype.Started && status != tasktype.Retry, nil
}

// job returns a job that was begun by whichever process.
func (s *Service) job(ctx context.Context, id string) (*job, error) {
	s.mu.Lock()
	j, ok := s.jobs[id]
	s.mu.Unlock()
	if ok {
		return j, nil
	}
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if err != nil {
		return nil, err
	}
	if j, err = s.newJob(ctx, id, req); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.jobs[id]; ok {
		return other, nil
	}
	s.jobs[id] = j
	s.recorder.Wake()
	return j, nil
}

func (s *Service) newJob(ctx context.Context, id string, req store.Request) (*job, error) {
	def, err := req.Definition()
	if err != nil {
		return nil, err
	}
	if def.Site != req.Site {
		return nil, fmt.Errorf("the definition is of site %s, the request of %q: %w", def.Site, req.Site, store.ErrNames)
	}
	direct := req.Direct == report.DirectAsked
	if req.Direct == report.DirectUnproxied {
		if direct, err = s.unproxied(ctx, def); err != nil {
			return nil, err
		}
	}
	var transport http.RoundTripper // one without proxies
	if s.cfg.Transport != nil && !direct {
		transport = s.cfg.Transport(def)
	}
	rdb := s.cfg.Client.Redis()
	run := id
	if req.Resume != "" {
		id = req.Resume
	}
	q := workqueue.New(rdb, store.QueueName(def.Site, id), workqueue.Config{MaxAttempts: maxAttempts, LeaseTTL: leaseTTL, Logger: s.cfg.Logger})
	p := &pages{id: id, run: run, req: req, def: def, rdb: rdb, queue: q, log: s.cfg.Logger.With("site", def.Site, "job", id)}
	return &job{
		pages: p, finish: s.recorder.Finish, crawler: s.newCrawler(p, transport),
	}, nil
}

// newCrawler returns the crawler of a job. Without a transport it uses no
// proxies.
func (s *Service) newCrawler(p *pages, transport http.RoundTripper) *crawler {
	site := turnName(p.def)
	c := &crawler{
		pages: p, leases: &leases{queue: p.queue, log: p.log},
		breaker:   polite.NewSiteBreaker(p.rdb, site, p.def.Retries.StallMax, time.UnixMilli(p.req.Began), limit.BreakerConfig{Logger: s.cfg.Logger}),
		extractor: &extractor{def: p.def, limit: p.req.Limit, memory: s.memory, siblings: &siblings{pages: p}},
		delays:    &counters{rdb: p.rdb, key: store.DelaysKey(p.id)},
		ends:      &counters{rdb: p.rdb, key: store.SessionEndsKey(p.id)},
	}
	c.client = fetch.NewClient(fetch.Config{
		Definition: p.def, Filter: s.cfg.Filter, Transport: transport, NoProxy: s.cfg.NoProxy, OnBlocked: s.cfg.Refused, Robots: &s.robots, Logger: s.cfg.Logger,
		Clock:    &polite.SharedClock{Pacer: s.pacer, Vary: true},
		Key:      site,
		Throttle: polite.NewThrottle(p.rdb, site),
		Via:      s.cfg.Via,
		Route:    s.cfg.Route,
		Ended:    c.ends.add,
		Patience: min(max(4*p.def.Politeness.Delay, 250*time.Millisecond), 2*time.Second),
	})
	c.admission = &admission{
		limits: p.def.Limits, began: p.began, budget: newBudget(p.rdb, p.id, p.def.Limits), slots: s.slots,
		patience: slotPatience, out: p.queue.Outputs(), room: maxUnwrittenBytes, breaker: c.breaker, probe: c.probe, log: p.log,
	}
	return c
}

// turnName keeps a copy of a site apart from the site.
func turnName(def *definition.Definition) string { return def.Site + "@" + def.Base().Host }

// tidy gives back pages that this process could not give back before, and
// forgets jobs that are not open any more.
func (s *Service) tidy(ctx context.Context, open []string) {
	for _, j := range s.known() {
		if !slices.Contains(open, j.run) {
			s.drop(j)
			continue
		}
		if err := j.crawler.leases.giveBackOwed(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Debug("pages are given back later", "job", j.run, "error", err)
		}
	}
}

// known lists the jobs that this process holds something of.
func (s *Service) known() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.jobs))
}

// forget drops what this process holds of a job that has ended.
func (s *Service) forget(j *job) {
	s.drop(j)
	s.recorder.Forget(j.run)
}

// drop is forget, without the files of its records.
func (s *Service) drop(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.run] == j {
		delete(s.jobs, j.run)
		j.crawler.client.Close()
	}
}
