// Package sites turns the pages of sites into records.
//
// A Service sends scrapes of the sites of a Registry, and a Reader reads their progress and results. A scrape is a workflow
// of tasks, which package crawl runs. To follow a scrape, read Service.Send (service.go), then the package comment of
// sites/crawl.
package sites

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/logctx"
	"muster/sites/crawl"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/sites/sink"
	"muster/tasks"
	"muster/tasks/limit"
	"muster/tasks/otel"
	"muster/tasks/workqueue"
)

// Queue is the task queue that scrapes run in.
const Queue = store.Queue

// ErrNoJob is the error for the id of a job that does not exist, or that ended
// more than a week ago.
var ErrNoJob = store.ErrNoJob

// Config sets up a Service.
type Config struct {
	Client    *tasks.Client                                       // stores jobs and their pages. Required.
	Registry  *Registry                                           // Defaults to the shipped sites.
	OutDir    string                                              // the folder for records, in {site}/{job}. Defaults to "out".
	Transport func(site *definition.Definition) http.RoundTripper // carries the requests to a site. Defaults to one without proxies.
	Filter    *addressfilter.Filter                               // which addresses that are not public are allowed without a proxy, beside those of definitions; see fetch.Config. Defaults to none.
	NoProxy   error                                               // the error of Transport when it has no proxy. Defaults to none.
	Unproxied func(context.Context) (bool, error)                 // reports whether this process has no proxies and scrapes without them; see report.Direct. Defaults to never.
	Refused   func(*http.Response)                                // called with each answer of Transport that is a block page with a good status. Defaults to none.
	Via       func(*http.Response) string                         // returns the proxy that an answer of Transport came through, or "". Defaults to none.
	Route     func(before fetch.Route) fetch.Route                // returns a route through Transport for a session; see fetch.Config. Defaults to none.
	Sinks     []string                                            // addresses of sinks for records beside the files; see sink.Open. Defaults to none.
	Secret    string                                              // signs what webhooks get; see sink.Options. Defaults to none.
	// Observe is called before a page is fetched, and what it returns when it has been. The page is fetched with the
	// context that it returns. Defaults to none.
	Observe  func(ctx context.Context, v Visit) (context.Context, func(Visited))
	MaxPages int          // maximum of pages in flight, of all sites and in all processes. Defaults to 0: no limit.
	Memory   int64        // maximum of memory for this process, in bytes, which bounds the pages that are parsed at once. Defaults to 0: no limit.
	Logger   *slog.Logger // Defaults to none.
	// Judged is called with the health of a site when a job of the site has ended, and with the status after the job
	// before, "" if there was none. If it returns an error, or the process dies, it is called again. Defaults to none.
	Judged func(ctx context.Context, h report.Health, before report.HealthStatus) error
	// BreakerChanged is called when the breaker of a site opens or closes; see limit.BreakerConfig. Defaults to none.
	BreakerChanged func(context.Context, limit.BreakerState)
	// WriterLease is how long the process that writes a job's records may be
	// silent before another takes over. Defaults to 15 seconds.
	WriterLease time.Duration
}

// Visit is the fetch of a page.
type Visit = crawl.Visit

// Visited is how a fetch ended.
type Visited = crawl.Visited

// Service scrapes sites. It may be used by many goroutines. Close it.
type Service struct {
	*Reader
	cfg    Config
	worker *crawl.Worker
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
	if cfg.OutDir == "" {
		cfg.OutDir = "out"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	worker, err := crawl.New(crawl.Config{
		Client: cfg.Client, Secrets: cfg.Registry.withSecrets, OutDir: cfg.OutDir, Sinks: cfg.Sinks, Secret: cfg.Secret, WriterLease: cfg.WriterLease,
		Transport: cfg.Transport, Filter: cfg.Filter, NoProxy: cfg.NoProxy, Unproxied: cfg.Unproxied, Refused: cfg.Refused, Via: cfg.Via, Route: cfg.Route,
		Observe: cfg.Observe, MaxPages: cfg.MaxPages, Memory: cfg.Memory, Judged: cfg.Judged, BreakerChanged: cfg.BreakerChanged, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Service{
		Reader: &Reader{client: cfg.Client, registry: cfg.Registry, recorder: worker.Recorder(), log: cfg.Logger},
		cfg:    cfg,
		worker: worker,
	}, nil
}

// Run writes the records of all jobs whose folder this process sees and may
// write to, until ctx ends. Records that are not written wait in Redis. It must
// run in processes that run tasks of scrapes, and in those that send scrapes with
// an OutDir or Sinks of their own.
func (s *Service) Run(ctx context.Context) error { return s.worker.Run(ctx) }

// Close closes what the service has open. Call it when Run has returned.
func (s *Service) Close() error { return s.worker.Close() }

// Register binds the tasks of scrapes to their handlers.
func (s *Service) Register(mux *tasks.Mux) { s.worker.Register(mux) }

// Registry returns the sites of the service.
func (s *Service) Registry() *Registry { return s.cfg.Registry }

// Cancel ends a scrape: no more pages are fetched, and the records of those that
// were fetched are written. Resume continues it.
func (s *Service) Cancel(ctx context.Context, id string) error {
	if _, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id); err != nil {
		return err
	}
	if err := s.cfg.Client.Revoke(ctx, id); err != nil {
		return fmt.Errorf("cancel job %s: %w", id, err)
	}
	return nil
}

// Unlist takes a scrape off the list of scrapes, for one that is over and was deleted. What it has stored expires as ever.
func (s *Service) Unlist(ctx context.Context, id string) error {
	if err := s.cfg.Client.Redis().ZRem(ctx, store.JobsKey, id).Err(); err != nil {
		return fmt.Errorf("take job %s off the list: %w", id, err)
	}
	return nil
}

// ScrapeOptions change one scrape.
type ScrapeOptions struct {
	Limit   int    // maximum of detail pages, and of records of a type from listing pages. Defaults to 0: no limit.
	BaseURL string // a copy of the site to scrape instead. Defaults to the site's own base_url.
	OutDir  string // Defaults to the service's. Only processes that have this folder in their settings write to it, and this one: keep Run running.
	Direct  bool   // use no proxies, whatever the definition and the settings say. Defaults to false.
	// After are jobs by their sites. If the site depends on one of these, the
	// scrape waits for that job, which may have ended; for other sites it waits
	// for the job that is under way. Defaults to none.
	After map[string]string
	CSV   bool // also make a CSV file of each type of record at the end. Defaults to false.
	// Sinks are addresses of sinks for the records beside the files. Defaults to
	// the service's. As with OutDir, only processes that have them in their
	// settings open them, and this one; any process opens sqlite: files below the
	// folder for records.
	Sinks []string
}

// Scrape returns the signature of a scrape, for callers that send it themselves,
// with SendOptions. They must then call sent with its id, which is that of the
// job.
func (s *Service) Scrape(ctx context.Context, name string, o ScrapeOptions) (work tasks.Signature[report.Summary], sent func(ctx context.Context, id string), err error) {
	def, err := s.cfg.Registry.Definition(name)
	if err != nil {
		return work, nil, err
	}
	req, err := s.request(ctx, def, o)
	if err != nil {
		return work, nil, err
	}
	return store.Scrape(req), func(ctx context.Context, id string) { s.sent(ctx, req, id) }, nil
}

func (s *Service) request(ctx context.Context, def *definition.Definition, o ScrapeOptions) (store.Request, error) {
	if _, err := def.WithBase(o.BaseURL); err != nil {
		return store.Request{}, err
	}
	dir, to, err := s.destination(o)
	if err != nil {
		return store.Request{}, err
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
	return store.Request{Site: def.Site, File: def.File(), YAML: string(def.YAML()), BaseURL: o.BaseURL, Limit: o.Limit, CSV: o.CSV, OutDir: dir, Home: home, Sinks: to, Direct: direct, After: after}, nil
}

// decideDirect returns why a scrape that is sent now uses no proxies, or "".
func (s *Service) decideDirect(ctx context.Context, def *definition.Definition, asked bool) (report.Direct, error) {
	if asked {
		return report.DirectAsked, nil
	}
	unproxied, err := s.worker.Unproxied(ctx, def)
	if err != nil || !unproxied {
		return "", err
	}
	return report.DirectUnproxied, nil
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

// WrittenElsewhere reports whether a process other than this one writes the
// records of a scrape with these options. If none does, this one must keep
// running.
func (s *Service) WrittenElsewhere(ctx context.Context, o ScrapeOptions) (bool, error) {
	dir, to, err := s.destination(o)
	if err != nil {
		return false, err
	}
	return s.recorder.WrittenElsewhere(ctx, dir, to)
}

// Send sends a scrape of a site with a new id. The scrape begins when the jobs of
// the sites that it depends on are complete, and fails when one of these ends
// otherwise. While another scrape of the site is under way, Send returns that one
// with tasks.ErrDuplicate, or an error when its options differ.
func (s *Service) Send(ctx context.Context, name string, o ScrapeOptions) (*tasks.AsyncResult[report.Summary], error) {
	def, err := s.cfg.Registry.Definition(name)
	if err != nil {
		return nil, err
	}
	req, err := s.request(ctx, def, o)
	if err != nil {
		return nil, err
	}
	run, err := store.Scrape(req).Send(ctx, s.cfg.Client, append(s.SendOptions(name), newID(name), otel.Trace(ctx), tasks.Headers(logctx.Headers(ctx)))...)
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

// sent stores a job that was sent. A worker that begins the job does the same.
func (s *Service) sent(ctx context.Context, req store.Request, id string) {
	if err := store.AddJob(ctx, s.cfg.Client.Redis(), id, req); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the job is not listed before it begins", "job", id, "error", err)
	}
}

// different returns an error when a request differs from that of a job under
// way. A job whose request is not stored yet is assumed to be the same.
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
		"folder for records": under.OutDir != req.OutDir, "sinks": !slices.Equal(under.Sinks, req.Sinks), "CSV": under.CSV != req.CSV,
	} {
		if differs {
			what = append(what, name)
		}
	}
	if len(what) == 0 {
		return nil
	}
	slices.Sort(what)
	return &RunningError{Site: req.Site, JobID: id, Different: what}
}

// RunningError means that a scrape of the site is running with other options.
type RunningError struct {
	Site, JobID string
	Different   []string // names of the options
}

// Error names the options that differ, and the next step.
func (e *RunningError) Error() string {
	return fmt.Sprintf("site %s is being scraped by job %s, with another %s: wait for it, or end it with muster jobs cancel %s", e.Site, e.JobID, strings.Join(e.Different, ", "), e.JobID)
}

// newID returns the id of a new job.
func newID(site string) tasks.SendOption {
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return tasks.ID(idOf(site) + hex.EncodeToString(id[:]))
}

// idOf is the prefix of the ids that Send gives to the jobs of a site.
func idOf(site string) string { return "scrape_" + strings.ReplaceAll(site, ".", "_") + "_" }

// Resume sends a scrape that continues another, which may have failed, been
// canceled, or completed without some pages. Pages that are done are not fetched
// again, failed ones are, and the records are added to the same files.
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
	run, err := store.Scrape(req).Send(ctx, s.cfg.Client, append(s.SendOptions(req.Site), newID(req.Site), otel.Trace(ctx), tasks.Headers(logctx.Headers(ctx)))...)
	if err == nil {
		s.sent(ctx, req, run.ID())
	}
	return run, err
}

// SendOptions returns the options that a scrape of a site is sent with: its
// progress keys are {prefix}:{job}:… with the prefix scrape_{site}, and one job
// at a time scrapes the site.
func (s *Service) SendOptions(name string) []tasks.SendOption {
	return []tasks.SendOption{tasks.ProgressKeys(ProgressPrefix(name)), tasks.Unique("scrape:"+name, store.Keep)}
}

// ProgressPrefix is the prefix of the progress keys of a site's jobs.
func ProgressPrefix(site string) string { return store.ProgressPrefix(site) }

// dependencies returns the jobs that a scrape of a site waits for, by their
// sites: for each site that it depends on the job in known, or else the job that
// is under way. They were sent earlier, so that no two jobs wait for each other.
func (s *Service) dependencies(ctx context.Context, def *definition.Definition, known map[string]string) (map[string]string, error) {
	if len(def.DependsOn) == 0 {
		return nil, nil
	}
	after := map[string]string{}
	for _, site := range def.DependsOn {
		if id := known[site]; id != "" {
			after[site] = id
			continue
		}
		newest, err := s.Jobs(ctx, site, 1)
		if err != nil {
			return nil, err
		}
		if len(newest) > 0 && !newest[0].Over() {
			after[site] = newest[0].ID
		}
	}
	return after, nil
}

// PauseSite stops the fetching of pages of a site, in all processes, until
// ResumeSite. It holds for the job under way and for jobs that begin meanwhile.
// Pages in flight are completed.
func (s *Service) PauseSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SAdd(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("pause site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Pause(ctx); return err })
}

// ResumeSite ends PauseSite.
func (s *Service) ResumeSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SRem(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("resume site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Resume(ctx); return err })
}

// eachOpen calls fn with the queue of each job of a site under way.
func (s *Service) eachOpen(ctx context.Context, site string, fn func(*workqueue.Queue) error) error {
	rdb := s.cfg.Client.Redis()
	open, err := rdb.SMembers(ctx, store.OpenJobsKey).Result()
	if err != nil {
		return fmt.Errorf("list open jobs: %w", err)
	}
	for _, id := range open {
		req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
		if errors.Is(err, store.ErrNoJob) || err == nil && req.Site != site {
			continue
		}
		if err != nil {
			return err
		}
		if err := fn(workqueue.New(rdb, store.QueueName(site, req.PagesOf(id)), workqueue.Config{})); err != nil {
			return err
		}
	}
	return nil
}
