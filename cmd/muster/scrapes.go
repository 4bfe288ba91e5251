package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
	"muster/sites"
	"muster/sites/report"
)

func scrapesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "scrapes",
		Usage: "list scrapes of the last week, show, retry and cancel them",
		Description: `Start scrapes with muster scrape. A SITE stands for its last scrape.

    muster scrapes list
    muster scrapes get SITE --wait
    muster scrapes retry SCRAPE`,
		Subcommands: []*cli.Command{scrapesListCommand(env), scrapesGetCommand(env), scrapesRetryCommand(env), scrapesCancelCommand(env)},
	}
}

func scrapesListCommand(env environment) *cli.Command {
	return list(env, &cli.Command{Name: "list", Usage: "list scrapes, newest first: all, or those of a site", ArgsUsage: "[SITE]"},
		client.ListScrapes, "No scrapes found", "SCRAPE SITE STATUS PAGES RECORDS STARTED", func(j sites.Job) []any {
			return []any{j.ID, j.Site, statusOf(j), fmt.Sprintf("%d/%d", pagesDone(j), j.Pages.Total), recordsOf(j), j.Began}
		})
}

// recordsOf returns the number of records of a scrape.
func recordsOf(j sites.Job) (n int) {
	for _, records := range j.Records {
		n += records
	}
	return n
}

// onScrape makes c a command on one scrape, which its argument names by ID or by site.
func onScrape(env environment, c *cli.Command, fn func(scope, sites.Job) error) *cli.Command {
	c.Flags = append(c.Flags, jsonFlag())
	return apiCommand(env, c, func(s scope, in client.ScrapePath) error {
		j, err := s.scrape(in.ID)
		if err != nil {
			return err
		}
		return fn(s, j)
	})
}

// scrape returns the last scrape of a site, or else the scrape with an ID.
func (s scope) scrape(name string) (sites.Job, error) {
	list, err := client.All(s.ctx, s.api, client.ListScrapes, client.ScrapeFilter{Site: name, Limit: 1}, 1)
	if err == nil && len(list) > 0 {
		return list[0], nil
	}
	j, err := client.GetScrape.Call(s.ctx, s.api, client.ScrapePath{ID: name})
	if err != nil {
		return j, fmt.Errorf("scrape %s: %w; see muster scrapes list", cell(name, 110), err)
	}
	return j, nil
}

func scrapesGetCommand(env environment) *cli.Command {
	return onScrape(env, &cli.Command{
		Name: "get", Usage: "show the pages of a scrape, and its report once it has ended", ArgsUsage: "SCRAPE|SITE",
		Flags: []cli.Flag{programFlag("wait"), programFlag("timeout")},
	}, func(s scope, j sites.Job) error {
		if s.Bool("wait") {
			return s.waitedScrape(j)
		}
		return s.showScrape(j)
	})
}

// waitedScrape waits for a scrape and shows it. It returns an error unless the scrape is COMPLETE.
func (s scope) waitedScrape(j sites.Job) (err error) {
	track := s.display.Track(j.Site)
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for id := j.ID; !j.Over(); {
		track.Update(monitor.Progress{Done: pagesDone(j), Total: j.Pages.Total, Unit: "pages", Note: statusOf(j)})
		select {
		case <-s.ctx.Done():
			return withJobState(s.ctx, s.own, context.Cause(s.ctx), "scrapes", []string{id}, "muster scrapes retry "+id+" --wait")
		case <-tick.C:
		}
		if j, err = client.GetScrape.Call(s.ctx, s.api, client.ScrapePath{ID: id}); err != nil {
			return err
		}
	}
	if j.Status == report.StatusComplete {
		track.Done(j.Status)
	} else {
		track.Fail(j.Status)
		err = fmt.Errorf("scrape %s is %s", j.ID, j.Status)
	}
	s.display.Close()
	return errors.Join(s.showScrape(j), err)
}

func scrapesRetryCommand(env environment) *cli.Command {
	return onScrape(env, &cli.Command{
		Name: "retry", Usage: "fetch the failed and unfinished pages of a finished scrape", ArgsUsage: "SCRAPE|SITE",
		Description: `Starts a scrape that appends its records to the same files, and prints its ID.
Running workers do the work; --wait waits for the result. If no worker is
running, the command starts one and waits.`,
		Flags: []cli.Flag{programFlag("wait"), programFlag("timeout")},
	}, func(s scope, j sites.Job) error {
		started, err := client.ResumeScrape.Call(s.ctx, s.api, client.ScrapeChange{ScrapePath: client.ScrapePath{ID: j.ID}})
		if hasCode(err, "scrape_complete") {
			return s.nothingLeft(client.StartedScrape{}, err)
		}
		if err != nil {
			return err
		}
		stop, serving, err := s.serve(false)
		if err != nil || !serving && !s.Bool("wait") {
			return showDone(s, started, err, "%s", started.JobID)
		}
		next, err := client.GetScrape.Call(s.ctx, s.api, client.ScrapePath{ID: started.JobID})
		if err == nil {
			err = s.waitedScrape(next)
		}
		return errors.Join(err, stop())
	})
}

// nothingLeft prints why a job or scrape is not retried.
func (s scope) nothingLeft(object, why any) error {
	fmt.Fprintln(s.env.stderr, "muster:", why)
	if s.Bool("json") {
		return printJSON(s.env.stdout, object)
	}
	return nil
}

func scrapesCancelCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "cancel", Usage: "cancel running scrapes; their records are written", ArgsUsage: "SCRAPE|SITE…",
		Description: "muster scrapes retry fetches the other pages.",
		Flags:       []cli.Flag{jsonFlag()},
	}, func(s scope, in client.ScrapePath) error {
		j, err := s.scrape(in.ID)
		if err == nil && j.Over() {
			err = fmt.Errorf("no scrape of %s is running; the last was %s, %s", j.Site, j.ID, j.Status)
		} else if err == nil {
			j, err = client.CancelScrape.Call(s.ctx, s.api, client.ScrapeChange{ScrapePath: client.ScrapePath{ID: j.ID}})
		}
		return showDone(s, j, err, "Scrape %s cancelled", j.ID)
	})
}

// pagesDone returns the number of finished pages of a scrape.
func pagesDone(j sites.Job) int64 { return j.Pages.Done + j.Pages.Skipped + j.Pages.Error }

// showScrape prints the state of a scrape, and its report if it has ended.
func (s scope) showScrape(j sites.Job) error {
	if s.Bool("json") {
		return printJSON(s.env.stdout, j)
	}
	summary := j.Summary
	j.Summary = nil
	err := printFields(s.env.stdout, j)
	if err == nil && summary != nil {
		_, err = fmt.Fprint(s.env.stdout, "\n"+summary.Text())
	}
	return err
}

// statusOf is the status of a scrape, with the sites whose jobs it waits for.
func statusOf(j sites.Job) string {
	if len(j.WaitsFor) > 0 {
		return j.Status + ", waits for " + strings.Join(j.WaitsFor, ", ")
	}
	return j.Status
}
