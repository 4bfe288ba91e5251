package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/sites"
	"muster/sites/report"
)

func jobsCommand(env environment) *cli.Command {
	leaf := func(name, usage, args string, least, most int, flags []cli.Flag, fn func(context.Context, *cli.Context, *sites.Service) error) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: append(flags, progressFlag(), jsonFlag()),
			Action: func(c *cli.Context) error {
				return withJobs(env, c, least, most, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
					return fn(ctx, c, o.Sites)
				})
			}}
	}
	return &cli.Command{
		Name:  "jobs",
		Usage: "list, show, retry, cancel and pause scrapes",
		Description: `They work on the jobs of the data folder, whether or not an orchestrator runs
on it: where none does, its Redis is brought up for as long as the command takes.`,
		Subcommands: []*cli.Command{
			leaf("list", "list the scrapes of the last week, of one site or of all", "[SITE]", 0, 1,
				[]cli.Flag{&cli.IntFlag{Name: "limit", Usage: "at most `N`, the newest", Value: 50}},
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					jobs, err := s.Jobs(ctx, c.Args().First(), c.Int("limit"))
					if err != nil {
						return err
					}
					return show(env, c, jobs, []string{"JOB", "SITE", "STATUS", "PAGES", "ERRORS", "RECORDS", "BEGAN"}, func(j sites.Job) []string {
						return []string{j.ID, j.Site, statusOf(j), fmt.Sprintf("%d/%d", j.Pages.Done+j.Pages.Skipped, j.Pages.Total), fmt.Sprint(j.Pages.Error),
							fmt.Sprint(total(j.Records)), j.Began.Format("01-02 15:04:05")}
					})
				}),
			leaf("show", "tell how a scrape comes along, or what became of it", "JOB", 1, 1, nil,
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					j, err := s.Job(ctx, c.Args().First())
					if err != nil {
						return noJob(err)
					}
					if c.Bool("json") {
						return printJSON(env.stdout, j)
					}
					return printJob(env, j)
				}),
			{
				Name: "retry", Usage: "get the pages that a scrape did not, and add their records to its files", ArgsUsage: "JOB",
				Description: `Sends the job to the workers that run and prints its id, or with --wait stays
until it has ended. Where no workers run it brings them up, and waits.`,
				Flags: append(flagsOf(workerSettings...),
					&cli.BoolFlag{Name: "wait", Usage: "wait for the end and print what came of it"},
					progressFlag(), jsonFlag()),
				Action: func(c *cli.Context) error {
					return withJobs(env, c, 1, 1, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
						return retryJob(ctx, env, c, o, display)
					}, workerSettings...)
				},
			},
			leaf("health", "tell how each site did in its last scrape, against the seven days before", "", 0, 0, nil,
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					states, err := s.States(ctx)
					if err != nil {
						return err
					}
					health := []report.Health{}
					for _, st := range states {
						if st.Health == "" {
							continue
						}
						var h report.Health
						if st.Last != nil {
							h = *st.Last
						} else {
							h = report.Health{Site: st.Site, JobID: st.Job.ID, At: st.Job.Began}
						}
						h.Status, h.Alerts = st.Health, st.Alerts // those of a later job too
						health = append(health, h)
					}
					return show(env, c, health, []string{"SITE", "HEALTH", "SUCCESS", "ERRORS", "REFUSALS", "RESPONSE", "RECORDS", "AT", "WHY"}, func(h report.Health) []string {
						share := func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }
						return []string{h.Site, string(h.Status), share(h.Success), share(h.Errors), share(h.Blocks), fmt.Sprintf("%.0f ms", h.Mean),
							fmt.Sprint(h.Records), h.At.Format("01-02 15:04"), strings.Join(slices.Concat(h.Alerts, h.Notices), "; ")}
					})
				}),
			leaf("cancel", "end a scrape, or the one of a site that is under way; what it has is kept, and retry goes on with it", "JOB-OR-SITE…", 1, -1, nil,
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					var errs []error
					for _, id := range c.Args().Slice() {
						id, err := openJob(ctx, s, id)
						if err != nil {
							errs = append(errs, err)
							continue
						}
						if j, err := s.Job(ctx, id); err == nil && j.Over() {
							fmt.Fprintf(env.stdout, "over already: %s, %s\n", id, j.Status)
							continue
						}
						if err := s.Cancel(ctx, id); err != nil {
							errs = append(errs, noJob(err))
							continue
						}
						fmt.Fprintf(env.stdout, "canceled: %s\n", id)
					}
					return errors.Join(errs...)
				}),
			leaf("pause", "fetch no more pages of a site, in all processes, until jobs resume; without a site, list those that are paused", "[SITE…]", 0, -1, nil,
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					if c.NArg() == 0 {
						paused, err := s.PausedSites(ctx)
						if err != nil {
							return err
						}
						slices.Sort(paused)
						return show(env, c, paused, []string{"PAUSED"}, func(site string) []string { return []string{site} })
					}
					return eachSite(env, s, c, "paused", func(site string) error { return s.PauseSite(ctx, site) })
				}),
			leaf("resume", "fetch the pages of a paused site again", "SITE…", 1, -1, nil,
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					return eachSite(env, s, c, "resumed", func(site string) error { return s.ResumeSite(ctx, site) })
				}),
		},
	}
}

// withJobs runs fn with the system on the data folder, whether or not another
// runs on it. It starts no workers.
func withJobs(env environment, c *cli.Context, least, most int, fn func(context.Context, *orchestrator.Orchestrator, *monitor.Display) error, settings ...settingFlag) error {
	if err := arguments(c, least, most); err != nil {
		return err
	}
	loaded, err := loadConfig(env, c, settings...)
	if err != nil {
		return err
	}
	if _, ok := given(c, "log-level"); !ok {
		loaded.Log.Level = "warn" // the answer is what was asked for
	}
	return withSystem(env, c, loaded, true, fn)
}

// retryJob goes on with a job: on the workers that run, or else on its own.
func retryJob(ctx context.Context, env environment, c *cli.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
	id := c.Args().First()
	if err := o.Sites.Resumable(ctx, id); errors.Is(err, sites.ErrNothingLeft) {
		fmt.Fprintln(env.stderr, "muster:", err)
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]string{"job": ""})
		}
		return nil
	}
	old, err := o.Sites.Job(ctx, id)
	if err != nil {
		return noJob(err)
	}
	others, err := o.WorkersElsewhere(ctx)
	if err != nil {
		return err
	}
	if others && !c.Bool("wait") {
		id, err := o.Resume(ctx, id)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]string{"job": id})
		}
		fmt.Fprintln(env.stdout, id)
		return nil
	}
	scraped, err := o.Scrape(ctx, old.Site, orchestrator.ScrapeOptions{Resume: id})
	display.Close()
	if scraped.JobID == "" || ctx.Err() != nil {
		return err
	}
	j, jobErr := o.Sites.Job(ctx, scraped.JobID)
	if jobErr != nil {
		return errors.Join(err, jobErr)
	}
	if c.Bool("json") {
		return errors.Join(err, printJSON(env.stdout, j))
	}
	return errors.Join(err, printJob(env, j))
}

// openJob is the job that is under way of a site, or else the job of that id.
func openJob(ctx context.Context, s *sites.Service, name string) (string, error) {
	jobs, err := s.Jobs(ctx, name, 1)
	if err != nil || len(jobs) == 0 {
		return name, err
	}
	if jobs[0].Over() {
		return "", usageError{fmt.Errorf("no scrape of %s is under way; the last was %s, %s", name, jobs[0].ID, jobs[0].Status)}
	}
	return jobs[0].ID, nil
}

func eachSite(env environment, s *sites.Service, c *cli.Context, done string, fn func(site string) error) error {
	for _, site := range c.Args().Slice() {
		if err := s.Site(c.Context, site); err != nil {
			if errors.As(err, new(*sites.UnknownError)) {
				err = usageError{err}
			}
			return err
		}
	}
	for _, site := range c.Args().Slice() {
		if err := fn(site); err != nil {
			return err
		}
		fmt.Fprintf(env.stdout, "%s: %s\n", done, site)
	}
	return nil
}

// noJob makes wrong usage of a job that is not there.
func noJob(err error) error {
	if errors.Is(err, sites.ErrNoJob) {
		return usageError{fmt.Errorf("%w; see muster jobs list", err)}
	}
	return err
}

func total(byType map[string]int) int {
	n := 0
	for _, of := range byType {
		n += of
	}
	return n
}

// statusOf is the status of a job, with what it waits for.
func statusOf(j sites.Job) string {
	if len(j.WaitsFor) > 0 {
		return j.Status + ", waits for " + strings.Join(j.WaitsFor, ", ")
	}
	return j.Status
}

// printJob prints all there is to know of a job.
func printJob(env environment, j sites.Job) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(env.stdout, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("job", "%s", j.ID)
	line("site", "%s", j.Site)
	line("status", "%s", statusOf(j))
	line("began", "%s", j.Began.Format(time.RFC3339))
	if j.Resumes != "" {
		line("resumes", "%s", j.Resumes)
	}
	p := j.Pages
	line("pages", "%d of %d: %d had, %d skipped, %d errors, %d on the way, %d waiting", p.Done+p.Skipped+p.Error, p.Total, p.Done, p.Skipped, p.Error, p.InProgress, p.Delayed)
	var types []string
	for _, typ := range slices.Sorted(maps.Keys(j.Records)) {
		types = append(types, fmt.Sprintf("%d %s", j.Records[typ], typ))
	}
	line("records", "%s", strings.Join(types, ", "))
	if len(j.Delays) > 0 && j.Summary == nil {
		var delays []string
		for _, why := range slices.Sorted(maps.Keys(j.Delays)) {
			delays = append(delays, fmt.Sprintf("%s %d", why, j.Delays[why]))
		}
		line("delays", "%s", strings.Join(delays, ", "))
	}
	if p.Outputs > 0 {
		line("unwritten", "%d records wait in Redis for who writes them", p.Outputs)
	}
	if j.Trouble != "" {
		line("trouble", "%s", j.Trouble)
	}
	if j.Error != "" {
		line("error", "%s", j.Error)
	}
	if j.Summary == nil {
		return nil
	}
	_, err := fmt.Fprint(env.stdout, "\n"+j.Summary.Text())
	return err
}
