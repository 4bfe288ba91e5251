package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/counts"
	"muster/orchestrator/monitor"
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
	sites.ScrapeOptions

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
	opts.After = jobs
	run, err = s.system.Sites.Send(ctx, name, opts.ScrapeOptions)
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
	scraped := Scraped{Site: name, Status: statusFailed, Files: []string{}}
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
	def, err := s.system.Sites.Registry().Definition(name)
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
	progress := func(ctx context.Context, _ tasktype.Progress) monitor.Progress {
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
	}
	summary, err := await(ctx, s.waits, track, run, sites.ProgressPrefix(name), progress, awaited[report.Summary]{
		name:   run.ID(),
		stored: func(ctx context.Context) (report.Summary, bool, error) { return s.system.Sites.Stored(ctx, run.ID()) },
		file:   func() (report.Summary, bool, error) { return sites.Reported(folder, run.ID()) },
		marker: func(ctx context.Context) (string, error) {
			j, err := s.system.Sites.Job(ctx, run.ID())
			if j.Status == sites.JobPaused || j.Status == sites.JobBlocked || len(j.WaitsFor) > 0 { // not stalled
				return time.Now().String(), err
			}
			return fmt.Sprint(j.Pages.Total, j.Pages.Done, j.Pages.Skipped, j.Pages.Error, j.Pages.Outputs, j.Records), err
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
	if summary.Status != statusComplete {
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
	if opts.Direct || def.Proxy.Fallback == definition.FallbackDirect {
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

// Round is the result of one round.
type Round struct {
	Proxies ProxyCounts `json:"proxies"`
	Sites   []Scraped   `json:"sites"`
	Seconds float64     `json:"seconds"`
	Redis   string      `json:"redis"` // the mode: external, child or embedded
}

// Lost joins the errors of Scraped.Lost for all sites.
func (r *Round) Lost(limit report.HealthStatus) error {
	var errs []error
	for i := range r.Sites {
		errs = append(errs, r.Sites[i].Lost(limit))
	}
	return errors.Join(errs...)
}

// RoundAll runs one round over all configured sites; see Round.
func (s *Scraper) RoundAll(ctx context.Context) (*Round, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	return s.Round(ctx, names, ScrapeOptions{})
}

// Round scrapes sites, concurrently unless sites.parallel is off. It ensures that there are enough proxies before each scrape.
// The job of a site waits for the jobs of its dependencies in the round and fails unless they complete. A failed site does
// not stop the others: Round returns the results of all sites and the joined errors.
func (s *Scraper) Round(ctx context.Context, names []string, opts ScrapeOptions) (*Round, error) {
	start := time.Now()
	order, err := s.order(names)
	if err != nil {
		return nil, err
	}
	round := &Round{Sites: make([]Scraped, len(order)), Redis: s.redisMode}
	errs := make([]error, len(order))
	jobs := make([]string, len(order))        // job IDs by site; "" if the scrape was not sent
	sent := make([]chan struct{}, len(order)) // closed when the scrape was sent or has failed
	for i := range sent {
		sent[i] = make(chan struct{})
	}
	var scrapes errgroup.Group
	if !s.system.cfg().Sites.Parallel {
		scrapes.SetLimit(1)
	}
	for i, name := range order {
		scrapes.Go(func() error {
			known := sync.OnceFunc(func() { close(sent[i]) })
			defer known()
			after := map[string]string{}
			for before := range i { // dependencies precede their dependents
				if !s.dependsOn(name, order[before]) {
					continue
				}
				<-sent[before]
				if after[order[before]] = jobs[before]; jobs[before] == "" {
					why := fmt.Errorf("not started: it depends on %s, whose scrape was not started", order[before])
					round.Sites[i] = Scraped{Site: name, Status: statusFailed, Files: []string{}, Error: why.Error()}
					errs[i] = fmt.Errorf("scrape %s: %w", name, why)
					return nil
				}
			}
			round.Sites[i], errs[i] = s.scrapeAfter(ctx, name, opts, after, func(id string) { jobs[i] = id; known() })
			return nil
		})
	}
	_ = scrapes.Wait() // the errors are in errs
	round.Seconds = time.Since(start).Seconds()
	return round, errors.Join(append(errs, s.proxies.count(context.WithoutCancel(ctx), &round.Proxies))...)
}

func (s *Scraper) dependsOn(name, other string) bool {
	def, err := s.system.Sites.Registry().Definition(name)
	return err == nil && slices.Contains(def.DependsOn, other)
}

// live returns the progress of a job that has fetched done pages in the duration took.
func live(j sites.Job, done int64, took time.Duration) monitor.Progress {
	through := j.Pages.Done + j.Pages.Skipped + j.Pages.Error
	rate := float64(done) / max(took.Seconds(), 0.1)
	p := monitor.Progress{Done: through, Total: j.Pages.Total, Unit: "pages"}
	state := map[string]string{
		sites.JobPaused: "paused", sites.JobBlocked: "waits: " + j.Trouble, sites.JobWaiting: "waits for a worker",
	}[j.Status]
	if len(j.WaitsFor) > 0 {
		state = "waits for " + strings.Join(j.WaitsFor, ", ")
	}
	waits := j.Pages.Delayed > 0 && j.Pages.Delayed == j.Pages.Open()
	if state == "" && waits {
		state = "waits to retry"
		if len(j.Delays) > 0 { // the most frequent reason first
			state = "waits: " + strings.Join(counts.Names(j.Delays), ", ")
		}
	}
	p.Brief = fmt.Sprintf("%d ok %d err %d q %d rec %.1f/s", j.Pages.Done, j.Pages.Error, j.Pages.Open(), written(j), rate)
	p.Note = fmt.Sprintf("%d ok, %d errors, %d queued", j.Pages.Done, j.Pages.Error, j.Pages.Open())
	if j.Pages.Delayed > 0 {
		p.Note += fmt.Sprintf(" (%d delayed)", j.Pages.Delayed)
	}
	p.Note += fmt.Sprintf(", %d records, %.1f/s", written(j), rate)
	// The estimate is a lower bound, because the crawl may find more pages.
	if left := j.Pages.Open(); !waits && done > 0 && left > 0 && took >= 3*time.Second {
		if eta := float64(took) / float64(done) * float64(left); eta < float64(1000*time.Hour) {
			d := time.Duration(eta).Round(time.Second)
			p.Note += fmt.Sprintf(", %s left", d)
			p.Brief += fmt.Sprintf(" %s", d)
		}
	}
	if state != "" {
		p.Note, p.Brief = state+", "+p.Note, state+" "+p.Brief
	}
	return p
}

// written returns the number of records in the files of a job.
func written(j sites.Job) int {
	n := 0
	for _, of := range j.Records {
		n += of
	}
	return n
}

// reasons describes why a job is not complete.
func reasons(s report.Summary) string {
	text := ""
	if len(s.Missing) > 0 {
		text += fmt.Sprintf(", without %d listing pages, such as %s", len(s.Missing), s.Missing[0])
	}
	if len(s.Samples) > 0 {
		text += fmt.Sprintf("; %s: %s", s.Samples[0].URL, s.Samples[0].Error)
	}
	if s.Failed != "" {
		text += "; all are in " + s.Failed
	}
	return text
}
