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
	"muster/sites"
	"muster/tasks"
)

func jobsCommand(env environment) *cli.Command {
	leaf := func(name, usage, args string, least, most int, flags []cli.Flag, fn func(context.Context, *cli.Context, *sites.Service) error) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: append(flags, jsonFlag()),
			Action: withClient(env, least, most, func(ctx context.Context, c *cli.Context, client fleet) error {
				registry, err := orchestrator.LoadSites(client.cfg)
				if err != nil { // which keeps nobody from his jobs
					fmt.Fprintf(env.stderr, "muster: %v\n", err)
				}
				s, err := sites.NewService(sites.Config{Client: client.Client, Registry: registry, OutDir: client.cfg.Records()})
				if err != nil {
					return err
				}
				defer s.Close()
				return fn(ctx, c, s)
			})}
	}
	return &cli.Command{
		Name:  "jobs",
		Usage: "list, show, retry, cancel and pause scrapes",
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
			leaf("retry", "get the pages that a scrape did not, and add their records to its files", "JOB", 1, 1,
				[]cli.Flag{&cli.BoolFlag{Name: "wait", Usage: "wait for the end and print what came of it"}},
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					if err := s.Resumable(ctx, c.Args().First()); errors.Is(err, sites.ErrNothingLeft) {
						fmt.Fprintln(env.stderr, "muster:", err)
						if c.Bool("json") {
							return printJSON(env.stdout, map[string]string{"job": ""})
						}
						return nil
					}
					run, err := s.Resume(ctx, c.Args().First())
					if errors.Is(err, tasks.ErrDuplicate) {
						return fmt.Errorf("job %s of the same site is under way; wait for it, or end it with muster jobs cancel %s", run.ID(), run.ID())
					}
					if err != nil {
						return noJob(err)
					}
					if !c.Bool("wait") {
						if c.Bool("json") {
							return printJSON(env.stdout, map[string]string{"job": run.ID()})
						}
						fmt.Fprintln(env.stdout, run.ID())
						return nil
					}
					if _, err := run.Wait(ctx); err != nil {
						return err
					}
					j, err := s.Job(ctx, run.ID())
					if err != nil {
						return err
					}
					if c.Bool("json") {
						return printJSON(env.stdout, j)
					}
					return printJob(env, j)
				}),
			leaf("health", "tell how each site did in its last scrape, against the seven days before", "", 0, 0, nil,
				func(ctx context.Context, c *cli.Context, s *sites.Service) error {
					states, err := s.States(ctx)
					if err != nil {
						return err
					}
					health := []sites.Health{}
					for _, st := range states {
						if st.Health == "" {
							continue
						}
						var h sites.Health
						if st.Last != nil {
							h = *st.Last
						} else {
							h = sites.Health{Site: st.Site, JobID: st.Job.ID, At: st.Job.Began}
						}
						h.Status, h.Alerts = st.Health, st.Alerts // those of a later job too
						health = append(health, h)
					}
					return show(env, c, health, []string{"SITE", "HEALTH", "SUCCESS", "ERRORS", "REFUSALS", "RESPONSE", "RECORDS", "AT", "WHY"}, func(h sites.Health) []string {
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
	_, err := fmt.Fprint(env.stdout, "\n"+j.Summary.Report())
	return err
}
