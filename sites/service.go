// Package sites turns the pages of sites into records.
//
// A Service scrapes the sites of a Registry. A scrape is a workflow of tasks:
// collect fetches the listing pages and cuts the pages they lead to into chunks,
// scrape fetches the pages of one chunk, aggregate adds everything up. Each page
// is an item of the job's work queue and is settled together with its records, so
// that a job continues after a crash without fetching a done page again and
// without writing a record twice. Pages that must wait do so in the queue; no
// worker sleeps for them.
package sites

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/webhook"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/sites/sink"
	"muster/tasks"
	"muster/tasks/limit"
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
type Visit struct {
	Site, Kind, URL string
	Item            string // id in the queue of the job
	Attempt         int    // from 1
}

// Visited is how a fetch ended.
type Visited struct {
	Status  int           // of HTTP; 0 without an answer
	Via     string        // the proxy, as Config.Via names it
	Class   string        // of the error
	Delayed bool          // the page was not requested: it must wait for its turn, or its job stops
	Took    time.Duration // response time of the site; 0 without a page
	Records int
	Err     error
}

// unproxied reports whether a scrape uses no proxies because this process has
// none and the definition has no fallback for that.
func (c *Config) unproxied(ctx context.Context, def *definition.Definition) (bool, error) {
	if c.Unproxied == nil || def.Proxy.Fallback != "" {
		return false, nil
	}
	return c.Unproxied(ctx)
}

// Service scrapes sites. It may be used by many goroutines. Close it.
type Service struct {
	*Reader
	cfg      Config
	recorder *record.Recorder
	handlers *handlers
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
	if cfg.Secret != "" {
		if err := webhook.CheckSecret(cfg.Secret); err != nil {
			return nil, fmt.Errorf("the secret of webhooks: %w", err)
		}
	}
	if cfg.OutDir == "" {
		cfg.OutDir = "out"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	jobs := newLocalJobs(cfg)
	recorder, err := record.New(record.Config{
		Client: cfg.Client, OutDir: cfg.OutDir, Sinks: cfg.Sinks, Lease: cfg.WriterLease,
		Judged: cfg.Judged, Secret: cfg.Secret, Filter: cfg.Filter, Round: jobs.tidy, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	jobs.recorder = recorder
	return &Service{
		Reader:   &Reader{client: cfg.Client, registry: cfg.Registry, recorder: recorder, log: cfg.Logger},
		cfg:      cfg,
		recorder: recorder,
		handlers: &handlers{client: cfg.Client, rdb: cfg.Client.Redis(), jobs: jobs},
	}, nil
}

// Run writes the records of all jobs whose folder this process sees and may
// write to, until ctx ends. Records that are not written wait in Redis. It must
// run in processes that run tasks of scrapes, and in those that send scrapes with
// an OutDir or Sinks of their own.
func (s *Service) Run(ctx context.Context) error { return s.recorder.Run(ctx) }

// Close closes what the service has open. Call it when Run has returned.
func (s *Service) Close() error {
	s.handlers.jobs.close()
	return s.recorder.Close()
}

// Register binds the tasks of scrapes to their handlers.
func (s *Service) Register(mux *tasks.Mux) { s.handlers.register(mux) }

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
