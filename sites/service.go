// Package sites scrapes web sites and writes records.
//
// A Service sends scrapes of the sites in a Registry, and reads their progress and results. A scrape is a workflow of tasks,
// which package crawl implements. To follow a scrape through the code, start with Service.Send in service.go, then read the
// package comment of sites/crawl.
package sites

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/logctx"
	"muster/internal/wrap"
	"muster/sites/crawl"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/sites/sink"
	"muster/tasks"
	"muster/tasks/otel"
	"muster/tasks/workqueue"
)

// Queue is the task queue of scrapes.
const Queue = store.Queue

// ErrNoJob means that a job does not exist or ended more than a week ago.
var ErrNoJob = store.ErrNoJob

// Config configures a Service. NewService sets its Secrets.
type Config = crawl.Config

// A Service scrapes sites. It is safe for concurrent use. Close releases its resources.
type Service struct {
	*crawl.Worker
	cfg      Config
	registry *Registry
	recorder *record.Recorder
}

// NewService returns a Service for the sites of a registry, by default the shipped sites.
func NewService(registry *Registry, cfg Config) (*Service, error) {
	if cfg.Client == nil {
		return nil, errors.New("sites: Config.Client is missing")
	}
	if registry == nil {
		var err error
		if registry, err = LoadRegistry("", false); err != nil {
			return nil, err
		}
	}
	cfg.OutDir = cmp.Or(cfg.OutDir, "out")
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Secrets = registry.withSecrets
	worker, err := crawl.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Service{worker, cfg, registry, worker.Recorder()}, nil
}

// Registry returns the sites of the service.
func (s *Service) Registry() *Registry { return s.registry }

// Cancel cancels a scrape: no more pages are fetched, but the records of fetched pages are written. Resume continues it.
func (s *Service) Cancel(ctx context.Context, id string) error {
	if _, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id); err != nil {
		return err
	}
	return wrap.Err(s.cfg.Client.Workflow(id).Revoke(ctx), "cancel job %s", id)
}

// ScrapeOptions are the options of one scrape.
type ScrapeOptions struct {
	Limit   int    // maximum number of records. Defaults to 0: no limit.
	BaseURL string // replaces the site's base_url, for example by a mirror. Defaults to base_url.
	OutDir  string // Defaults to the service's. Only this process and processes configured with this directory write to it: keep Run running.
	Direct  bool   // sends requests without proxies and overrides the definition and the settings. Defaults to false.
	// After maps sites to jobs. If the scraped site depends on a site in After, the scrape waits for that job, which may already
	// have ended; for other dependencies it waits for the running job. Defaults to none.
	After map[string]string
	CSV   bool // also writes a CSV file per type of record at the end. Defaults to false.
	Full  bool // fetches all pages, whatever refetch of the definition says. Defaults to false.
	// Sinks are addresses of sinks for records, in addition to the files. Defaults to the service's. Only this process and
	// processes configured with the same sinks open them; any process opens sqlite: files below the records directory.
	Sinks []string
	// Tick is the time of the schedule that sends the scrape: its job has the ID of the site and the tick. Defaults to a random ID.
	Tick time.Time
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
	return store.Request{Site: def.Site, File: def.File(), YAML: string(def.YAML()), BaseURL: o.BaseURL, Limit: o.Limit, CSV: o.CSV, Full: o.Full, OutDir: dir, Home: home, Sinks: to, Direct: direct, After: after}, nil
}

// decideDirect returns the reason for sending a scrape without proxies, or "".
func (s *Service) decideDirect(ctx context.Context, def *definition.Definition, asked bool) (report.Direct, error) {
	if asked {
		return report.DirectAsked, nil
	}
	unproxied, err := s.Unproxied(ctx, def)
	if err != nil || !unproxied {
		return "", err
	}
	return report.DirectUnproxied, nil
}

// destination returns the directory and the sinks of a scrape.
func (s *Service) destination(o ScrapeOptions) (dir string, sinks []string, err error) {
	if sinks = o.Sinks; sinks == nil {
		sinks = s.cfg.Sinks
	}
	dir, err = filepath.Abs(cmp.Or(o.OutDir, s.cfg.OutDir))
	return dir, sinks, wrap.Err(err, "output directory")
}

// WrittenElsewhere reports whether another process writes the records of a scrape with these options. If not, this process must
// keep running.
func (s *Service) WrittenElsewhere(ctx context.Context, o ScrapeOptions) (bool, error) {
	dir, to, err := s.destination(o)
	if err != nil {
		return false, err
	}
	return s.recorder.WrittenElsewhere(ctx, dir, to)
}

// Send sends a scrape of a site with a new ID. It begins when the jobs of the sites that it depends on are complete, and fails if
// one of them terminates otherwise. While a scrape of the site is running, Send returns that scrape with tasks.ErrDuplicate, or a
// RunningError if its options differ.
func (s *Service) Send(ctx context.Context, name string, o ScrapeOptions) (*tasks.Run[report.Summary], error) {
	def, err := s.registry.Definition(name)
	if err != nil {
		return nil, err
	}
	req, err := s.request(ctx, def, o)
	if err != nil {
		return nil, err
	}
	run, err := s.send(ctx, req, o.Tick)
	if errors.Is(err, tasks.ErrDuplicate) {
		if other := s.different(ctx, run.ID(), req); other != nil {
			return nil, other
		}
	}
	return run, err
}

// send sends a scrape, of which a site has one at a time, and stores its job, as a worker that starts the job does.
func (s *Service) send(ctx context.Context, req store.Request, tick time.Time) (*tasks.Run[report.Summary], error) {
	run, err := store.Scrape(req).Send(ctx, s.cfg.Client, newID(req.Site, tick), tasks.Name(req.Site), tasks.ProgressKeys(ProgressPrefix(req.Site)),
		tasks.Unique("scrape:"+req.Site, store.Keep), otel.Trace(ctx), tasks.Headers(logctx.Headers(ctx)))
	if err != nil {
		return run, err
	}
	if err := store.AddJob(ctx, s.cfg.Client.Redis(), run.ID(), req); err != nil {
		s.cfg.Logger.WarnContext(ctx, "cannot list the job before it begins", "job", run.ID(), "error", err)
	}
	return run, nil
}

// different returns an error if a request differs from the request of the running job. It assumes no difference if that job has
// not stored its request yet.
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
		"records directory":  under.OutDir != req.OutDir, "sinks": !slices.Equal(under.Sinks, req.Sinks), "CSV": under.CSV != req.CSV,
		"choice of --full": under.Full != req.Full,
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
	Different   []string // names of different options
}

// Error names the different options and the remedy.
func (e *RunningError) Error() string {
	return fmt.Sprintf("job %[2]s is scraping site %[1]s with a different %[3]s; wait for it or cancel it with muster scrapes cancel %[2]s", e.Site, e.JobID, strings.Join(e.Different, ", "), e.JobID)
}

// newID returns the id of a new job, for a tick if that is not zero.
func newID(site string, tick time.Time) tasks.SendOption {
	if !tick.IsZero() {
		return tasks.ID(idOf(site) + strconv.FormatInt(tick.UnixMilli(), 10))
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return tasks.ID(idOf(site) + hex.EncodeToString(id[:]))
}

// idOf returns the prefix of the IDs of a site's jobs.
func idOf(site string) string { return "scrape_" + strings.ReplaceAll(site, ".", "_") + "_" }

// Resume sends a scrape that continues a failed, cancelled or incomplete one. It fetches the failed and missing pages, and
// appends the records to the same files.
func (s *Service) Resume(ctx context.Context, id string) (*tasks.Run[report.Summary], error) {
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
	// The ledger may have changed since the job loaded its pages.
	if err := s.cfg.Client.Redis().Del(ctx, store.KnownKey(req.Resume)).Err(); err != nil {
		return nil, fmt.Errorf("resume job %s: %w", id, err)
	}
	run, err := s.send(ctx, req, time.Time{})
	if err == nil {
		err = store.Close(ctx, s.cfg.Client.Redis(), id) // the new workflow writes the remaining records
	}
	return run, err
}

// ProgressPrefix returns the prefix of the progress keys of a site's jobs.
func ProgressPrefix(site string) string { return store.ProgressPrefix(site) }

// dependencies returns the jobs that a scrape waits for, by site: for each dependency the job in known, or the running job. These
// were sent earlier, so two jobs never wait for each other.
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

// PauseSite stops fetching pages of a site in all processes until ResumeSite, for the running job and for new ones. Pages in
// flight are completed.
func (s *Service) PauseSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SAdd(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("pause site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Pause(ctx); return err })
}

// ResumeSite reverts PauseSite.
func (s *Service) ResumeSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SRem(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("resume site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Resume(ctx); return err })
}

// eachOpen calls fn with the page queue of each running job of a site.
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
		err = fn(workqueue.New(rdb, store.QueueName(site, req.PagesOf(id)), workqueue.Config{}))
		if err != nil && !errors.Is(err, workqueue.ErrNoQueue) { // without pages, the job itself looks whether it is paused
			return err
		}
	}
	return nil
}
