package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/sites/sink"
)

// cacheSetting is the directory of the cache of pages.
var cacheSetting = settingFlag{"cache", "sites.cache", "take pages from the cache in `DIR`, and store fetched ones there, to try a definition without new requests"}

// scrapeSettings are the settings that scrape has flags for.
var scrapeSettings = []settingFlag{
	{"out", "sites.out", "write records below `DIR`; - writes to the default directory, and also to standard output"}, cacheSetting,
}

func scrapeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "scrape",
		Usage:     "scrape sites now",
		ArgsUsage: "SITE|FILE|URL…",
		Description: `SITE is a name from muster sites list, FILE is a site definition, and URL is a
page of a site: it selects the site with this host.

If an orchestrator is running, the command sends the job to its workers and
returns; with --wait it returns when the job has finished. Otherwise it starts
a Redis and a worker, and waits.

Pages are fetched through the proxy pool. If no proxy source is configured and
the pool is empty, pages are fetched directly, with a warning; --direct always
fetches directly.

A command that waits exits with 1 if a job is incomplete or lost data: no
records, missing required fields, failed pages. --fail-on sets the threshold;
slow responses alone are not a failure.`,
		Flags: append(flagsOf(scrapeSettings...),
			programFlag("wait"), programFlag("limit"),
			&cli.BoolFlag{Name: "direct", Usage: "use no proxies, whatever is configured: the sites see the address of this machine"},
			&cli.BoolFlag{Name: "csv", Usage: "also write the records as CSV"},
			&cli.BoolFlag{Name: "full", Usage: "fetch all pages, whatever refetch of the definition says"},
			&cli.StringSliceFlag{Name: "sink", Usage: "also write the records to `ADDRESS`: sqlite:FILE, postgres://USER@HOST/DB, https://…, or s3://BUCKET/PREFIX for the finished files"},
			&cli.StringFlag{Name: "base-url", Usage: "fetch the pages from `URL` instead of the site, for example from a local copy"},
			failOnFlag(), jsonFlag()),
		BashComplete: completeSites(env),
		Action:       func(c *cli.Context) error { return scrape(env, c) },
	}
}

// scrapeArgs are the arguments of scrape, checked.
type scrapeArgs struct {
	names            []string                 // of sites, files and pages; then of sites alone
	defs             []*definition.Definition // of files
	opts             orchestrator.ScrapeOptions
	failOn           report.HealthStatus
	toStdout         bool
	wait, printsJSON bool
}

func scrapeArgsOf(c *cli.Context) (scrapeArgs, error) {
	failOn, err := failOnOf(c)
	if err != nil {
		return scrapeArgs{}, err
	}
	a := scrapeArgs{
		names: c.Args().Slice(), failOn: failOn, toStdout: c.String("out") == "-", wait: c.Bool("wait"), printsJSON: c.Bool("json"),
	}
	a.opts.ScrapeOptions = sites.ScrapeOptions{Limit: c.Int("limit"), Direct: c.Bool("direct"), BaseURL: c.String("base-url"), CSV: c.Bool("csv"), Full: c.Bool("full")}
	if c.IsSet("sink") {
		a.opts.Sinks = c.StringSlice("sink")
	}
	for _, address := range a.opts.Sinks {
		if err := sink.Check(address); err != nil {
			return a, usageError{err}
		}
	}
	if a.opts.Limit < 0 {
		return a, usageError{fmt.Errorf("--limit %d: must be 1 or more, or 0 for no limit", a.opts.Limit)}
	}
	return a, nil
}

func scrape(env environment, c *cli.Context) error {
	args, err := scrapeArgsOf(c)
	if err != nil {
		return err
	}
	if args.toStdout { // the files go to the default directory
		if err := c.Set("out", ""); err != nil {
			return err
		}
	}
	loaded, err := loadSources(env, c, config.Sources{Check: checkSecrets(args.names...)}, scrapeSettings...)
	if err != nil {
		return err
	}
	registry, err := orchestrator.LoadSites(loaded.Config)
	if err != nil {
		return err
	}
	if err := args.resolve(env, registry); err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		o.Sites.Registry().Add(args.defs...)
		if workers, err := o.Workers.Elsewhere(ctx); err == nil && workers && c.IsSet("cache") {
			fmt.Fprintln(env.stderr, "muster: --cache has no effect on the workers that are running; set sites.cache for them, or stop them")
		}
		return scrapeWith(ctx, env, o, display, args)
	})
}

// scrapeWith sends the scrapes to the workers that run elsewhere, or runs them here and prints the result.
func scrapeWith(ctx context.Context, env environment, o *orchestrator.Orchestrator, display *monitor.Display, args scrapeArgs) error {
	if !args.wait && !args.toStdout {
		elsewhere, err := runsElsewhere(ctx, env, o, args.opts)
		if err != nil {
			return err
		}
		if elsewhere {
			return sendScrapes(ctx, env, o, args.names, args.opts, args.printsJSON)
		}
	}
	if args.toStdout {
		return streamRecords(ctx, env, o, args)
	}
	round, err := o.Scraper.Round(ctx, args.names, args.opts)
	display.Close()
	if round == nil {
		return err
	}
	err = errors.Join(err, printRound(env, round, args.printsJSON), round.Lost(args.failOn))
	return withJobState(ctx, o, err, "scrapes", jobsOf(round), sameCommand)
}

// jobsOf lists the jobs of a round that were sent.
func jobsOf(round *orchestrator.Round) []string {
	var ids []string
	for _, s := range round.Sites {
		if s.JobID != "" {
			ids = append(ids, s.JobID)
		}
	}
	return ids
}

// sameCommand resumes interrupted scrapes: it joins the running ones.
const sameCommand = "the same command"

// runsElsewhere reports whether other processes can do the scrapes: workers run, and one may write the records.
func runsElsewhere(ctx context.Context, env environment, o *orchestrator.Orchestrator, opts orchestrator.ScrapeOptions) (bool, error) {
	workers, err := o.Workers.Elsewhere(ctx)
	if err != nil || !workers {
		return false, err
	}
	writers, err := o.Sites.WrittenElsewhere(ctx, opts.ScrapeOptions)
	if err == nil && !writers {
		fmt.Fprintln(env.stderr, "muster: no other process may write to this directory and these sinks; this one does, and waits for the end")
	}
	return writers, err
}

// failOnFlag is the flag for the loss of data that fails a scrape.
func failOnFlag() cli.Flag {
	return &cli.StringFlag{Name: "fail-on", Usage: "exit with 1 if the data of a complete job is `HOW`: degraded, critical, or never", Value: string(report.Degraded)}
}

// failOnOf is the least bad status that fails a scrape; "" if none does.
func failOnOf(c *cli.Context) (report.HealthStatus, error) {
	how := report.HealthStatus(c.String("fail-on"))
	if err := oneOf("fail-on", string(how), []report.HealthStatus{report.Degraded, report.Critical, "never"}); err != nil || how == "never" {
		return "", err
	}
	return how, nil
}

// sendScrapes sends the jobs to the workers, prints their ids and does not wait.
func sendScrapes(ctx context.Context, env environment, o *orchestrator.Orchestrator, names []string, opts orchestrator.ScrapeOptions, asJSON bool) error {
	jobs := map[string]string{}
	err := o.Scraper.Send(ctx, names, opts, func(name, id string) {
		jobs[name] = id
		if !asJSON {
			fmt.Fprintf(env.stdout, "%s: job %s\n", name, id)
		}
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(env.stdout, jobs)
	}
	return nil
}

// printRound prints the result of a round.
func printRound(env environment, round *orchestrator.Round, asJSON bool) error {
	if asJSON {
		return printJSON(env.stdout, round)
	}
	if round.Proxies == (orchestrator.ProxyCounts{}) {
		fmt.Fprint(env.stdout, "proxies: none\n\n")
	} else {
		fmt.Fprintf(env.stdout, "proxies: %d candidates, %d alive, %d usable\n\n", round.Proxies.Candidates, round.Proxies.Alive, round.Proxies.Usable)
	}
	t := newTable(env.stdout, "SITE STATUS HEALTH PAGES RECORDS NEW CHANGED GONE ERRORS")
	for _, s := range round.Sites {
		t.row(s.Site, s.Status, s.Health, s.Pages, s.Records, s.Changes.New, s.Changes.Changed, s.Changes.Gone, s.Errors)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(env.stdout)
	for _, s := range round.Sites {
		if s.JobID != "" {
			fmt.Fprintf(env.stdout, "%s: job %s, %.1f s\n", s.Site, s.JobID, s.Seconds)
		}
		for _, file := range s.Files {
			fmt.Fprintf(env.stdout, "%s: %s\n", s.Site, file)
		}
		if s.Error != "" {
			fmt.Fprintf(env.stdout, "%s: %s\n", s.Site, strings.TrimSpace(s.Error))
		}
		for _, alert := range s.Alerts {
			fmt.Fprintf(env.stdout, "%s: %s: %s\n", s.Site, s.Health, alert)
		}
		for _, notice := range s.Notices {
			fmt.Fprintf(env.stdout, "%s: notice: %s\n", s.Site, notice)
		}
	}
	fmt.Fprintf(env.stdout, "done in %.1f s (Redis: %s)\n", round.Seconds, round.Redis)
	return nil
}

// resolve turns the arguments of scrape into site names: a definition file is
// added to the registry, and a URL selects the site that it belongs to.
func (a *scrapeArgs) resolve(env environment, registry *sites.Registry) error {
	for i, name := range a.names {
		switch {
		case isDefinitionFile(name):
			def, err := loadDefinition(name)
			if err != nil {
				return err
			}
			a.defs = append(a.defs, def)
			registry.Add(def)
			a.names[i] = def.Site
		case strings.Contains(name, "://"):
			site, err := siteOfPage(registry, name)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintf(env.stderr, "muster: %s is of the site %s, which is scraped from its start\n", withoutPassword(name), site)
			a.names[i] = site
		default:
			if _, err := registry.Definition(name); err != nil {
				return noSite(err)
			}
		}
	}
	if errs := registry.MissingSecrets(os.LookupEnv, a.names...); len(errs) > 0 && len(a.names) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

// isDefinitionFile reports whether an argument is a file rather than the name of a site.
func isDefinitionFile(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// loadDefinition reads a definition that the user has named.
func loadDefinition(file string) (*definition.Definition, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, usageError{fmt.Errorf("read site definition: %w", err)}
	}
	return definition.Load(file)
}

// siteOfPage returns the site that starts at the host of a page.
func siteOfPage(registry *sites.Registry, page string) (string, error) {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is neither a site, nor a definition in a .yaml file, nor an http or https URL", withoutPassword(page))
	}
	var found []string
	for _, name := range registry.Names() {
		def, err := registry.Definition(name)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(def.StartPages(), func(p definition.StartPage) bool {
			start, err := url.Parse(p.URL)
			return err == nil && strings.EqualFold(start.Host, u.Host)
		}) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no site starts at %s; draft a definition with muster sites init %s > FILE.yaml, then muster scrape FILE.yaml", u.Host, u.Redacted())
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d sites start at %s: name one of %s", len(found), u.Host, strings.Join(found, ", "))
}

// streamRecords scrapes sites and prints their records as they are found, one a
// line. The scrapes end when the reader closes standard output.
func streamRecords(ctx context.Context, env environment, o *orchestrator.Orchestrator, args scrapeArgs) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := startLines(ctx, env.stdout, cancel)
	args.opts.Each = out.put
	round, err := o.Scraper.Round(ctx, args.names, args.opts)
	if outErr := out.end(); err == nil {
		err = outErr
	}
	if round == nil {
		return err
	}
	return withJobState(ctx, o, errors.Join(err, round.Lost(args.failOn)), "scrapes", jobsOf(round), sameCommand)
}

// lineWriter prints the lines of many goroutines. While its reader does not read
// they wait, until ctx is done.
type lineWriter struct {
	ctx   context.Context
	lines chan []byte
	done  chan struct{} // closed when all lines are written, or none will be
}

// startLines prints to w, until a write fails: then it calls failed.
func startLines(ctx context.Context, w io.Writer, failed context.CancelCauseFunc) *lineWriter {
	l := &lineWriter{ctx: ctx, lines: make(chan []byte), done: make(chan struct{})}
	// A write to a pipe whose reader does not read cannot be canceled: then
	// this goroutine ends with the process.
	go func() {
		defer close(l.done)
		for line := range l.lines {
			if _, err := w.Write(line); err != nil {
				if errors.Is(err, syscall.EPIPE) {
					err = orchestrator.ErrNoReader
				} else {
					err = fmt.Errorf("print records: %w; they are also in the directory of the job", err)
				}
				failed(err)
				return
			}
		}
	}()
	return l
}

// put prints a line.
func (l *lineWriter) put(line []byte) error {
	select {
	case l.lines <- append(slices.Clip(line), '\n'): // a copy
		return nil
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// end waits until all lines are printed, and returns why they were not. Do not
// call put after it.
func (l *lineWriter) end() error {
	close(l.lines)
	select {
	case <-l.done:
	case <-l.ctx.Done():
	}
	return context.Cause(l.ctx)
}
