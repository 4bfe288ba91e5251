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

	"muster/orchestrator/monitor"
	"muster/orchestrator/refreshwait"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Scraper sends scrapes and waits for them. Its methods may be called concurrently.
type Scraper struct {
	system    *System
	opts      Options
	workers   *Workers
	proxies   *ProxyKeeper
	waits     *waits
	redisMode string
}

// ScrapeOptions are the options of one scrape.
type ScrapeOptions struct {
	sites.ScrapeOptions        // without Resume
	Resume              string // ID of a job to resume with its original options

	// Each is called with every record of the job as it is written: a JSON object without a newline. Calls for one site do
	// not overlap. An error of Each stops the wait; ErrNoReader also cancels the job, unless Scrape joined a running one.
	// Optional.
	Each func(record []byte) error
}

// ErrNoReader means that the consumer of the records of a scrape has closed its end.
var ErrNoReader = errors.New("the reader of the records has disconnected")

// Scraped is the result of the scrape of one site.
type Scraped struct {
	Site    string              `json:"site"`
	JobID   string              `json:"job_id"`
	Status  string              `json:"status"` // COMPLETE, INCOMPLETE or FAILED; INTERRUPTED if the wait was canceled
	Pages   int                 `json:"pages"`
	Records int                 `json:"records"`
	Errors  int                 `json:"errors"`  // failed pages
	Changes report.Changes      `json:"changes"` // since the last job of the site
	Files   []string            `json:"files"`
	Seconds float64             `json:"seconds"`
	Health  report.HealthStatus `json:"health,omitempty"`
	Data    report.HealthStatus `json:"data,omitempty"`    // health without response times; see report.Health
	Alerts  []string            `json:"alerts,omitempty"`  // reasons for an unhealthy status
	Notices []string            `json:"notices,omitempty"` // other remarks
	Error   string              `json:"error,omitempty"`
}

// Lost returns an error if the scrape completed but its data is as bad as limit or worse, for example without records or
// required fields. Slow responses do not count. An empty limit is never reached.
func (s *Scraped) Lost(limit report.HealthStatus) error {
	if limit == "" || s.Error != "" || s.Data.Severity() < limit.Severity() {
		return nil
	}
	return fmt.Errorf("scrape %s: the job is %s, but %s: %s", s.Site, s.Status, s.Data, strings.Join(s.Alerts, "; "))
}

// Names returns the sites of a round: sites.names, or all sites that the user defined.
func (s *Scraper) Names() ([]string, error) {
	names := s.system.cfg().Sites.Names
	if len(names) == 0 {
		names = s.system.Sites.Registry().CustomNames()
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

// Send sends the scrapes of sites, dependencies first, and calls sent with the job ID of each. It joins a running scrape of
// the same site.
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

// order sorts sites by their dependencies.
func (s *Scraper) order(names []string) ([]string, error) {
	order, err := s.system.Sites.Registry().Order(names...)
	return slices.DeleteFunc(order, func(name string) bool { return !slices.Contains(names, name) }), err
}

// send sends a scrape that waits for the jobs of its dependencies. It reports whether it joined a running scrape.
func (s *Scraper) send(ctx context.Context, name string, opts ScrapeOptions, jobs map[string]string) (run *tasks.Run[report.Summary], joined bool, err error) {
	if opts.Resume != "" {
		run, err = s.system.Sites.Resume(ctx, opts.Resume)
		if errors.Is(err, tasks.ErrDuplicate) { // the running job resumes another one
			return nil, false, fmt.Errorf("job %s of the same site is running; wait for it or cancel it with muster scrapes cancel %s", run.ID(), run.ID())
		}
	} else {
		opts.After = jobs
		run, err = s.system.Sites.Send(ctx, name, opts.ScrapeOptions)
	}
	if errors.Is(err, tasks.ErrDuplicate) {
		s.opts.Logger.InfoContext(ctx, "joining the running scrape", "site", name, "job", run.ID())
		return run, true, nil
	}
	return run, false, err
}

// Scrape scrapes a site and waits for the result. It first ensures that there are enough proxies, if the site uses any. The
// result is valid even if the error is not nil.
func (s *Scraper) Scrape(ctx context.Context, name string, opts ScrapeOptions) (Scraped, error) {
	return s.scrapeAfter(ctx, name, opts, nil, func(string) {})
}

// scrapeAfter is Scrape for a site that may depend on the sites of jobs. It calls sent with the job ID.
func (s *Scraper) scrapeAfter(ctx context.Context, name string, opts ScrapeOptions, jobs map[string]string, sent func(id string)) (Scraped, error) {
	start := time.Now()
	scraped := Scraped{Site: name, Status: string(refreshwait.Failed), Files: []string{}}
	err := s.scrape(ctx, name, opts, jobs, sent, &scraped)
	if scraped.Seconds == 0 { // it was not sent
		scraped.Seconds = time.Since(start).Seconds()
	}
	if err != nil {
		if ctx.Err() != nil { // err is a consequence of the cancellation
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
	track, start := s.opts.Display.Track(name), time.Now()
	defer func() { scraped.Seconds = track.Took().Seconds() }()
	first := int64(-1) // pages done by the resumed job, read at the first progress
	var seen sites.Job // state at the last progress
	summary, err := await(ctx, s.waits, track, run, awaited[report.Summary]{
		name: run.ID(), prefix: sites.ProgressPrefix(name),
		stored: func(ctx context.Context) (report.Summary, bool, error) { return s.system.Sites.Stored(ctx, run.ID()) },
		file:   func() (report.Summary, bool, error) { return sites.Reported(folder, run.ID()) },
		marker: func(ctx context.Context) (string, error) {
			j, err := s.system.Sites.Job(ctx, run.ID())
			if j.Status == sites.JobPaused || j.Status == sites.JobBlocked || len(j.WaitsFor) > 0 { // not stalled
				return time.Now().String(), err
			}
			return fmt.Sprint(j.Pages.Total, j.Pages.Done, j.Pages.Skipped, j.Pages.Error, j.Pages.Outputs, j.Records), err
		},
		progress: func(ctx context.Context, _ tasktype.Progress) monitor.Progress {
			j, err := s.system.Sites.Job(ctx, run.ID())
			if err != nil {
				return monitor.Progress{} // the wait reports errors
			}
			seen = j
			done := j.Pages.Done + j.Pages.Skipped + j.Pages.Error
			if first < 0 {
				first = done
			}
			return live(j, done-first, time.Since(start))
		},
	})
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

// folder returns the directory of the records of a job.
func (s *Scraper) folder(ctx context.Context, site, id string) (string, error) {
	folder, err := s.system.Sites.Folder(ctx, id)
	if errors.Is(err, sites.ErrNoJob) { // a scheduled scrape that has not started
		return filepath.Join(s.system.cfg().Records(), site, id), nil
	}
	return folder, err
}

// definition returns the definition of the site, or of the job to resume.
func (s *Scraper) definition(ctx context.Context, name string, opts ScrapeOptions) (*definition.Definition, error) {
	if opts.Resume != "" {
		return s.system.Sites.JobDefinition(ctx, opts.Resume)
	}
	return s.system.Sites.Registry().Definition(name)
}

// follow calls each, if not nil, with the records of a job as they are written. Pass the error of the wait to the returned
// function: if the job has finished, it delivers the remaining records. The returned context is canceled when each fails.
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

// proxiesFor ensures that there are enough proxies for a site, unless the scrape is direct. If there are too few, it
// returns nil only if the fallback is direct.
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
		s.opts.Logger.WarnContext(ctx, "too few proxies: the site may see the address of this machine", "site", def.Site, "why", ErrFewProxies)
		return nil
	}
	return err
}
