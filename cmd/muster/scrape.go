package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/sites"
	"muster/sites/report"
	"muster/sites/sink"
)

func scrapeCommand(env environment) *cli.Command {
	settings := append([]settingFlag{
		{name: "out", path: "sites.out", usage: "write records below `DIR`; - for the usual place, and as they come to standard output too"},
		{name: "sites-dir", path: "sites.dir", usage: "read site definitions from `DIR` too"},
		{name: "worker-processes", path: "workers.processes", usage: "run `N` workers as supervised processes, if none run yet"},
		sourceSetting, judgeSetting, localSetting,
	}, workerSettings...)
	return &cli.Command{
		Name:      "scrape",
		Usage:     "scrape sites now",
		ArgsUsage: "SITE… | --resume JOB",
		Description: `Sends the job to the workers of a running orchestrator and returns, or with
--wait stays until it has ended. Where nothing runs it brings up what it needs,
and waits.

Pages are fetched through the pool of proxies. Where no source of proxies is
configured and the pool is empty they are fetched directly, which is said in a
line; --direct does so in any case.


Where it waits it exits with 1 when a job is not complete, and when one lost
data: no records, a required field that is missing, pages that failed. How bad
that must be is said by --fail-on; slow answers alone fail nothing.`,
		Flags: append(flagsOf(settings...),
			&cli.BoolFlag{Name: "wait", Usage: "wait for the end and print what came of it"},
			&cli.BoolFlag{Name: "direct", Usage: "use no proxies, whatever is configured: the sites see the address of this machine"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N` detail pages of each site"},
			&cli.BoolFlag{Name: "csv", Usage: "write the records as CSV too"},
			&cli.StringFlag{Name: "compress", Usage: "compress the files of records at the end, with `HOW`: gz or zstd"},
			&cli.StringSliceFlag{Name: "sink", Usage: "give the records to `ADDRESS` too: sqlite:FILE, postgres://USER@HOST/DB or https://…"},
			&cli.StringFlag{Name: "resume", Usage: "go on with `JOB`: get the pages that it did not"},
			&cli.StringFlag{Name: "base-url", Usage: "get the pages from `URL` in place of the site's own, as a local copy"},
			failOnFlag(), progressFlag(), jsonFlag()),
		Action: func(c *cli.Context) error {
			least := 1
			if c.String("resume") != "" {
				least = 0
			}
			if err := arguments(c, least, -1); err != nil {
				return err
			}
			if c.Int("limit") < 0 {
				return usageError{fmt.Errorf("--limit %d: must be 1 or more, or 0 for no limit", c.Int("limit"))}
			}
			if c.String("resume") != "" && c.NArg() > 1 {
				return usageError{fmt.Errorf("--resume goes on with one job: name its site only")}
			}
			if c.Bool("direct") && c.String("resume") != "" {
				return usageError{errors.New("--resume goes on as the job was sent; leave --direct out, or send a new scrape with it")}
			}
			if how := c.String("compress"); how != "" && sink.Compressions[how] == "" {
				return usageError{fmt.Errorf("--compress %s: use gz or zstd", how)}
			}
			if c.String("compress") != "" && c.String("out") == "-" {
				return usageError{errors.New("--compress is for files; --out - prints records as they are")}
			}
			failOn, err := failOnOf(c)
			if err != nil {
				return err
			}
			for _, address := range c.StringSlice("sink") {
				if err := sink.Check(address); err != nil {
					return usageError{err}
				}
			}
			toStdout := c.String("out") == "-"
			if toStdout {
				if err := c.Set("out", ""); err != nil {
					return err
				}
			}
			loaded, err := loadConfig(env, c, settings...)
			if err != nil {
				return err
			}
			names := c.Args().Slice()
			registry, err := orchestrator.LoadSites(loaded.Config)
			if err != nil {
				return err
			}
			for _, name := range names {
				if _, err := registry.Definition(name); err != nil {
					return noSite(err)
				}
			}
			opts := orchestrator.ScrapeOptions{Limit: c.Int("limit"), Direct: c.Bool("direct"), BaseURL: c.String("base-url"), CSV: c.Bool("csv"), Compress: c.String("compress"), Resume: c.String("resume")}
			if c.IsSet("sink") {
				opts.Sinks = c.StringSlice("sink")
				if opts.Resume != "" { // the job has them; this process must have been told
					loaded.Sites.Sinks = append(loaded.Sites.Sinks, opts.Sinks...)
				}
			}
			return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
				if opts.Resume != "" {
					switch err := o.Sites.Resumable(ctx, opts.Resume); {
					case errors.Is(err, sites.ErrNothingLeft):
						fmt.Fprintln(env.stderr, "muster:", err)
						return nil
					case err != nil:
						return noJob(err)
					}
				}
				if len(names) == 0 {
					j, err := o.Sites.Job(ctx, opts.Resume)
					if err != nil {
						return noJob(err)
					}
					names = []string{j.Site}
				}
				if others, err := o.WorkersElsewhere(ctx); err != nil {
					return err
				} else if others && !c.Bool("wait") && !toStdout {
					written, err := o.Sites.WrittenElsewhere(ctx, sites.ScrapeOptions{Sinks: opts.Sinks})
					if err != nil {
						return err
					}
					if written {
						return sendScrapes(ctx, env, o, names, opts, c.Bool("json"))
					}
					fmt.Fprintln(env.stderr, "muster: no other process may write to that folder and those sinks; this one does, and waits for the end")
				}
				if toStdout {
					return streamRecords(ctx, env, o, names, opts, failOn)
				}
				round, err := o.Round(ctx, names, opts)
				display.Close()
				if round == nil {
					return err
				}
				return errors.Join(err, printRound(env, round, c.Bool("json")), round.Lost(failOn))
			})
		},
	}
}

// failOnFlag says from which loss of data on a scrape fails.
func failOnFlag() cli.Flag {
	return &cli.StringFlag{Name: "fail-on", Usage: "exit with 1 when the data of a complete job is `HOW`: degraded, critical, or never", Value: string(report.Degraded)}
}

// failOnOf is the status from which on a scrape fails; "" for none.
func failOnOf(c *cli.Context) (report.HealthStatus, error) {
	switch how := c.String("fail-on"); how {
	case string(report.Degraded), string(report.Critical):
		return report.HealthStatus(how), nil
	case "never":
		return "", nil
	default:
		return "", usageError{fmt.Errorf("--fail-on %s: must be degraded, critical or never", how)}
	}
}

// sendScrapes sends the jobs and leaves them to the workers.
func sendScrapes(ctx context.Context, env environment, o *orchestrator.Orchestrator, names []string, opts orchestrator.ScrapeOptions, asJSON bool) error {
	jobs := map[string]string{}
	err := o.SendScrapes(ctx, names, opts, func(name, id string) {
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

// printRound prints what a round has brought.
func printRound(env environment, round *orchestrator.Round, asJSON bool) error {
	if asJSON {
		return printJSON(env.stdout, round)
	}
	fmt.Fprintf(env.stdout, "proxies: %d candidates, %d alive, %d usable\n\n", round.Proxies.Candidates, round.Proxies.Alive, round.Proxies.Usable)
	t := newTable(env.stdout, "SITE", "STATUS", "HEALTH", "PAGES", "RECORDS", "NEW", "CHANGED", "GONE", "ERRORS", "TIME", "JOB")
	for _, s := range round.Sites {
		t.row(s.Site, s.Status, cmp.Or(string(s.Health), "-"), fmt.Sprint(s.Pages), fmt.Sprint(s.Records),
			fmt.Sprint(s.Changes.New), fmt.Sprint(s.Changes.Changed), fmt.Sprint(s.Changes.Gone), fmt.Sprint(s.Errors), fmt.Sprintf("%.1f s", s.Seconds), s.JobID)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(env.stdout)
	for _, s := range round.Sites {
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
	fmt.Fprintf(env.stdout, "done in %.1f s, on a Redis of mode %s\n", round.Seconds, round.Redis)
	return nil
}
