package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/jobs"
	"muster/orchestrator/monitor"
	"muster/orchestrator/refreshwait"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Scraper sends the scrapes of an orchestrator and waits for them. Its methods
// may be called concurrently.
type Scraper struct {
	system    *System
	opts      Options
	workers   *Workers
	proxies   *ProxyKeeper
	waits     *waits
	redisMode string
}

// ScrapeOptions say how a site is scraped this time.
type ScrapeOptions struct {
	sites.ScrapeOptions        // without Resume
	Resume              string // the id of a job to resume, with its own options

	// Each gets every record of the job as it is written, one call at a time
	// for a site: a JSON object without a line end. Its error ends the wait;
	// ErrNoReader ends the job too, unless that was joined. Defaults to none.
	Each func(record []byte) error
}

// ErrNoReader says that the reader of the records of a scrape has closed its end.
var ErrNoReader = errors.New("the reader of the records is gone")

// Scraped is the result of the scrape of one site.
type Scraped struct {
	Site    string              `json:"site"`
	JobID   string              `json:"job_id"`
	Status  string              `json:"status"` // COMPLETE, INCOMPLETE, FAILED, or INTERRUPTED when only the wait has ended
	Pages   int                 `json:"pages"`
	Records int                 `json:"records"`
	Errors  int                 `json:"errors"`  // pages that were given up
	Changes report.Changes      `json:"changes"` // since the last job of the site
	Files   []string            `json:"files"`
	Seconds float64             `json:"seconds"`
	Health  report.HealthStatus `json:"health,omitempty"`
	Data    report.HealthStatus `json:"data,omitempty"`    // the health without slowness; see report.Health
	Alerts  []string            `json:"alerts,omitempty"`  // why it is not healthy
	Notices []string            `json:"notices,omitempty"` // other remarks
	Error   string              `json:"error,omitempty"`
}

// Lost returns an error when the scrape was complete and yet its data is as
// bad as limit, or worse: there are no records, say, or a required field is
// missing. Slowness alone is no loss. A limit of "" is never reached.
func (s *Scraped) Lost(limit report.HealthStatus) error {
	if limit == "" || s.Error != "" || s.Data.Severity() < limit.Severity() {
		return nil
	}
	return fmt.Errorf("scrape %s: the job is %s, but %s: %s", s.Site, s.Status, s.Data, strings.Join(s.Alerts, "; "))
}

// Names returns the sites of a round: those of the settings, or else all
// that are not merely shipped.
func (s *Scraper) Names() ([]string, error) {
	names := s.system.cfg().Sites.Names
	if len(names) == 0 {
		names = s.system.Sites.Registry().Own()
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no site to scrape: put a definition into %s, or name shipped ones in sites.names", s.system.cfg().Definitions())
	}
	for _, name := range names {
		if _, err := s.system.Sites.Registry().Definition(name); errors.As(err, new(*sites.UnknownError)) {
			return nil, fmt.Errorf("sites.names: %w", err)
		}
	}
	return names, nil
}

// Send sends the scrapes of sites, those that others depend on first,
// and calls sent with the job id of each. A scrape of a site that is running already
// is joined.
func (s *Scraper) Send(ctx context.Context, names []string, opts ScrapeOptions, sent func(name, id string)) error {
	order, err := s.order(names)
	if err != nil {
		return err
	}
	jobs := map[string]string{}
	for _, name := range order {
		run, _, err := s.send(ctx, name, opts, jobs)
		if err != nil {
			return err
		}
		jobs[name] = run.ID()
		sent(name, run.ID())
	}
	return nil
}

// order sorts sites so that each comes after those that it depends on.
func (s *Scraper) order(names []string) ([]string, error) {
	order, err := s.system.Sites.Registry().Order(names...)
	return slices.DeleteFunc(order, func(name string) bool { return !slices.Contains(names, name) }), err
}

// send sends a scrape, which waits for those of jobs that its site depends on.
// It also reports whether the scrape was running already.
func (s *Scraper) send(ctx context.Context, name string, opts ScrapeOptions, jobs map[string]string) (run *tasks.AsyncResult[report.Summary], joined bool, err error) {
	if opts.Resume != "" {
		run, err = s.system.Sites.Resume(ctx, opts.Resume)
		if errors.Is(err, tasks.ErrDuplicate) { // a job that resumes another one
			return nil, false, fmt.Errorf("job %s of the same site is under way; wait for it, or end it with muster jobs cancel %s", run.ID(), run.ID())
		}
	} else {
		opts.After = jobs
		run, err = s.system.Sites.Send(ctx, name, opts.ScrapeOptions)
	}
	if err == nil {
		s.track(ctx, name, opts.Resume, run.ID())
	}
	if errors.Is(err, tasks.ErrDuplicate) {
		s.opts.Logger.InfoContext(ctx, "joining the scrape that is under way", "site", name, "job", run.ID())
		return run, true, nil
	}
	return run, false, err
}

// track adds a scrape that was sent to the list of all jobs. The name of the site
// may be empty when it resumes another.
func (s *Scraper) track(ctx context.Context, name, resumes, id string) {
	if name == "" {
		j, err := s.system.Sites.Job(ctx, resumes)
		if err != nil { // the monitor lists it
			return
		}
		name = j.Site
	}
	s.system.track(ctx, id, jobs.KindScrape, name)
}

// Scrape scrapes a site and waits for the end. It first makes sure that there are
// enough proxies, if the site uses any. The result is valid also with
// an error.
func (s *Scraper) Scrape(ctx context.Context, name string, opts ScrapeOptions) (Scraped, error) {
	return s.scrapeAfter(ctx, name, opts, nil, func(string) {})
}

// scrapeAfter is Scrape of a site that may depend on some that have the given
// jobs. It calls sent with the id of its own.
func (s *Scraper) scrapeAfter(ctx context.Context, name string, opts ScrapeOptions, jobs map[string]string, sent func(id string)) (Scraped, error) {
	began := time.Now()
	scraped := Scraped{Site: name, Status: string(refreshwait.Failed), Files: []string{}}
	err := s.scrape(ctx, name, opts, jobs, sent, &scraped)
	scraped.Seconds = time.Since(began).Seconds()
	if err != nil {
		if ctx.Err() != nil { // the error of a step that ctx interrupted is not the cause
			scraped.Status, err = "INTERRUPTED", context.Cause(ctx)
		}
		scraped.Error = err.Error()
		err = fmt.Errorf("scrape %s: %w", name, err)
	}
	return scraped, err
}

func (s *Scraper) scrape(ctx context.Context, name string, opts ScrapeOptions, jobs map[string]string, sent func(id string), scraped *Scraped) error {
	def, err := s.definition(ctx, name, opts)
	if err != nil {
		return err
	}
	if err := s.proxiesFor(ctx, def, opts); err != nil {
		return err
	}
	if err := s.workers.Start(ctx); err != nil {
		return err
	}
	run, joined, err := s.send(ctx, name, opts, jobs)
	if err != nil {
		return err
	}
	scraped.JobID = run.ID()
	folder, err := s.folder(ctx, name, run.ID())
	if err != nil {
		return err
	}
	sent(run.ID())
	ctx, follow := s.follow(ctx, run.ID(), opts.Each)
	track, began := s.opts.Display.Track(name), time.Now()
	first := int64(-1) // pages done at the first progress: of the job that this one resumes
	var seen sites.Job // at the last progress
	summary, err := await(ctx, s.waits, track, run, awaited[report.Summary]{
		name: run.ID(), prefix: sites.ProgressPrefix(name),
		stored: func(ctx context.Context) (report.Summary, bool, error) { return s.system.Sites.Stored(ctx, run.ID()) },
		file:   func() (report.Summary, bool, error) { return sites.Reported(folder, run.ID()) },
		moves: func(ctx context.Context) (string, error) {
			j, err := s.system.Sites.Job(ctx, run.ID())
			if j.Status == sites.JobPaused || j.Status == sites.JobBlocked || len(j.WaitsFor) > 0 { // it will continue at some time
				return time.Now().String(), err
			}
			return fmt.Sprint(j.Pages.Total, j.Pages.Done, j.Pages.Skipped, j.Pages.Error, j.Pages.Outputs, j.Records), err
		},
		progress: func(ctx context.Context, _ tasktype.Progress) monitor.Progress {
			j, err := s.system.Sites.Job(ctx, run.ID())
			if err != nil {
				return monitor.Progress{} // only for show; the wait reports errors
			}
			seen = j
			done := j.Pages.Done + j.Pages.Skipped + j.Pages.Error
			if first < 0 {
				first = done
			}
			return live(j, done-first, time.Since(began))
		},
	})
	defer s.system.ended(ctx, run.ID())
	if err = follow(err); err != nil {
		if errors.Is(err, ErrNoReader) && !joined {
			err = errors.Join(err, s.system.Sites.Cancel(context.WithoutCancel(ctx), run.ID()))
		}
		scraped.Pages, scraped.Records, scraped.Errors = int(seen.Pages.Done), written(seen), int(seen.Pages.Error)
		track.Fail(err.Error())
		return err
	}
	scraped.Status, scraped.Pages, scraped.Records, scraped.Errors, scraped.Files = summary.Status, summary.Pages, summary.Records, summary.Errors, summary.Files
	scraped.Changes, scraped.Health, scraped.Data = summary.Changes, summary.Health.Status, summary.Health.Data
	scraped.Alerts, scraped.Notices = summary.Health.Alerts, summary.Health.Notices
	note := fmt.Sprintf("%d pages, %d records, %d errors", summary.Pages, summary.Records, summary.Errors)
	if scraped.Health.Severity() > report.Healthy.Severity() {
		note += ", " + string(scraped.Health)
	}
	if summary.Status != string(refreshwait.Complete) {
		track.Fail(note)
		return fmt.Errorf("the job ended as %s%s", summary.Status, reasons(summary))
	}
	track.Done(note)
	return nil
}

// folder is where a job that was sent writes its records.
func (s *Scraper) folder(ctx context.Context, site, id string) (string, error) {
	folder, err := s.system.Sites.Folder(ctx, id)
	if errors.Is(err, sites.ErrNoJob) { // a scheduled one that no worker has begun
		return filepath.Join(s.system.cfg().Records(), site, id), nil
	}
	return folder, err
}

// definition returns the definition of a scrape: that of the site, or that of the job that it resumes.
func (s *Scraper) definition(ctx context.Context, name string, opts ScrapeOptions) (*definition.Definition, error) {
	if opts.Resume != "" {
		return s.system.Sites.JobDefinition(ctx, opts.Resume)
	}
	return s.system.Sites.Registry().Definition(name)
}

// follow calls each, if not nil, with the records of a job as they are written.
// Call the returned function with the error of the wait for the job: if the job
// has ended, it delivers the remaining records. The returned context is done
// when each fails.
func (s *Scraper) follow(ctx context.Context, id string, each func([]byte) error) (context.Context, func(error) error) {
	if each == nil {
		return ctx, func(err error) error { return err }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		err := s.system.Sites.Follow(ctx, id, each)
		if err != nil {
			cancel(err)
		}
		done <- err
	}()
	return ctx, func(err error) error {
		if err != nil && !errors.As(err, new(*tasks.Failure)) {
			cancel(err)
		}
		if followed := <-done; err == nil {
			err = followed
		}
		cancel(nil)
		return err
	}
}

// proxiesFor makes sure that there are enough proxies for a site, unless the scrape goes direct. With too few of them it
// returns nil only where the fallback is direct.
func (s *Scraper) proxiesFor(ctx context.Context, def *definition.Definition, opts ScrapeOptions) error {
	direct := opts.Direct || def.Proxy.Fallback == definition.FallbackDirect
	if opts.Resume != "" {
		j, err := s.system.Sites.Job(ctx, opts.Resume)
		if err != nil {
			return err
		}
		direct = direct || j.Direct == report.DirectAsked
	}
	if direct {
		return nil
	}
	if def.Proxy.Fallback == "" {
		if unproxied, err := s.system.unproxied(ctx); err != nil || unproxied {
			return err
		}
	}
	err := s.proxies.Ensure(ctx)
	if errors.Is(err, ErrFewProxies) && cmp.Or(def.Proxy.Fallback, s.system.cfg().Proxies.Fallback) == definition.FallbackDirect {
		s.opts.Logger.WarnContext(ctx, "the site may see this machine's own address", "site", def.Site, "why", ErrFewProxies)
		return nil
	}
	return err
}
