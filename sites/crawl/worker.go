// Package crawl runs the tasks of scrapes in a worker: collect queues the start pages, crawlers fetch pages until none is
// left, and aggregate adds up the results (tasks.go). To follow a page, read slot.run, which is the crawl loop (loop.go), then
// crawler.visit and crawler.conclude (crawler.go).
//
// This is the life of a page:
//
//  1. A page is an item of the work queue of its job, put there by collect or by the page that links to it.
//  2. Its ID is a hash of its kind and canonical URL, so a page is queued once, whatever leads to it.
//  3. A crawler is a task that keeps a slot of a worker for at most 700 ms at a time, and leases ready pages: all crawlers
//     of the job together at most max_per_domain, and a few ahead.
//  4. Admission delays or refuses a page if the site is down, if all page slots are taken, or if too many records wait to be
//     written.
//  5. Package fetch requests the page as robots.txt and the clock of the site allow; a page whose turn is not soon is
//     returned to the queue, and that is not an attempt.
//  6. When the response has been read, the page is no longer in flight, and the next request may begin.
//  7. The extractor turns the response into records and links, and the limits of the job decide which links are followed.
//  8. One script settles the page with its records and the pages that it leads to; if the worker dies before, the lease
//     expires or is taken over, and another crawler fetches the page.
//  9. The class of a failure decides whether the page is retried, waits, or is given up.
//  10. When no page is left or a limit is reached, the crawlers return, and aggregate counts the pages by their results.
package crawl

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"muster/internal/limit"
	"muster/internal/tracing/observed"
	"muster/internal/webhook"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/record"
	"muster/sites/report"
	"muster/sites/sink"
	"muster/tasks"
)

// Config configures a Worker.
type Config struct {
	// Secrets returns a definition of a job with its secrets. rebased means that the scrape has another base URL. Defaults to
	// definitions without secrets.
	Secrets func(def *definition.Definition, rebased bool) (*definition.Definition, error)

	Client    *tasks.Client                                       // stores jobs and their pages. Required.
	OutDir    string                                              // directory for records, which go to {site}/{job}. Required here; sites.NewService has the default "out".
	Transport func(site *definition.Definition) http.RoundTripper // sends the requests to a site. Defaults to a transport without proxies.
	Unproxied func(context.Context) (bool, error)                 // reports whether this process scrapes without proxies because it has none; see report.Direct. Defaults to never.
	Sinks     []string                                            // addresses of sinks for records, in addition to the files; see sink.Open. Defaults to none.
	Secret    string                                              // key that signs webhook requests; see sink.Options. Defaults to none.
	// Observe is called before each fetch, and the returned function after it. The fetch uses the returned context. Defaults to
	// none.
	Observe  func(ctx context.Context, p observed.Page) (context.Context, func(observed.End))
	MaxPages int // maximum number of pages in flight over all sites and processes. Defaults to 0: no limit.
	// Fetch configures the clients of all jobs: Filter, which applies to webhooks too, NoProxy, OnBlocked, Via, Route, Browser,
	// Extractors and Cache. Its other fields are those of a job.
	Fetch fetch.Config
	// BrowserProxy returns the URL of the proxy of Fetch.Browser for a visitor of a site. Defaults to none.
	BrowserProxy func(site *definition.Definition, visitor string) (string, error)
	Memory       int64        // memory limit of this process in bytes, which limits the pages parsed concurrently. Defaults to 0: no limit.
	Logger       *slog.Logger // Defaults to none.
	// Judged is called with the health of a site after each of its jobs, and with the status after the previous job, or "". It is
	// called again if it returns an error or the process crashes. Defaults to none.
	Judged func(ctx context.Context, h report.Health, before report.HealthStatus) error
	// BreakerChanged is called when the circuit breaker of a site opens or closes; see limit.BreakerConfig. Defaults to none.
	BreakerChanged func(context.Context, limit.BreakerState)
}

// A Worker runs the tasks of scrapes in this process and writes their records. It is safe for concurrent use. Close releases its
// resources.
type Worker struct {
	cfg      Config
	recorder *record.Recorder
	handlers *handlers
}

// New returns a Worker.
func New(cfg Config) (*Worker, error) {
	for _, address := range cfg.Sinks {
		if err := sink.Check(address); err != nil {
			return nil, err
		}
	}
	if cfg.Secret != "" {
		if err := webhook.CheckSecret(cfg.Secret); err != nil {
			return nil, fmt.Errorf("secret of webhooks: %w", err)
		}
	}
	if cfg.Secrets == nil {
		cfg.Secrets = func(def *definition.Definition, _ bool) (*definition.Definition, error) { return def, nil }
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	jobs := newLocalJobs(cfg)
	recorder, err := record.New(record.Config{
		Client: cfg.Client, OutDir: cfg.OutDir, Sinks: cfg.Sinks,
		Judged: cfg.Judged, Secret: cfg.Secret, Filter: cfg.Fetch.Filter, Round: jobs.tidy, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	jobs.recorder = recorder
	return &Worker{cfg: cfg, recorder: recorder, handlers: &handlers{client: cfg.Client, rdb: cfg.Client.Redis(), jobs: jobs}}, nil
}

// Recorder returns the writer of records.
func (w *Worker) Recorder() *record.Recorder { return w.recorder }

// Register binds the tasks of scrapes to their handlers.
func (w *Worker) Register(mux *tasks.Mux) { w.handlers.register(mux) }

// Run writes the records of all jobs with a directory that this process may write to, until ctx is done. Unwritten records wait
// in Redis. Call Run in processes that run the tasks of scrapes, and in processes that send scrapes with their own OutDir or
// Sinks.
func (w *Worker) Run(ctx context.Context) error { return w.recorder.Run(ctx) }

// Close releases the resources of the worker. Call it after Run has returned.
func (w *Worker) Close() error {
	w.handlers.jobs.close()
	return w.recorder.Close()
}

// Unproxied reports whether a scrape uses no proxies because this process has none and the definition has no fallback.
func (w *Worker) Unproxied(ctx context.Context, def *definition.Definition) (bool, error) {
	return w.cfg.isUnproxied(ctx, def)
}

func (c *Config) isUnproxied(ctx context.Context, def *definition.Definition) (bool, error) {
	if c.Unproxied == nil || def.Proxy.Fallback != "" {
		return false, nil
	}
	return c.Unproxied(ctx)
}
