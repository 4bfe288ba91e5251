package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/clip"
	"muster/internal/limit"
	"muster/jobs"
	"muster/orchestrator/api/client"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/tasks/api"
)

func statusCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name:  "status",
		Usage: "show the system on one screen: health, running work, sites, proxies, open breakers",
		Description: `Parts without content are omitted. For the details of a part, see muster health,
scrapes list, jobs list, sites list, proxies list and breakers list.

    muster status --watch`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "watch", Usage: "print again every 2 seconds, until Ctrl-C"}, jsonFlag()},
	}, func(s scope, _ client.None) error {
		for {
			status, err := readStatus(s.ctx, s.api)
			if err != nil {
				return err
			}
			if s.Bool("watch") && screenOf(env.stdout).terminal {
				fmt.Fprint(env.stdout, "\x1b[H\x1b[2J") // clears it
			}
			if s.Bool("json") {
				err = printJSON(env.stdout, status)
			} else {
				err = status.print(env)
			}
			if err != nil || !s.Bool("watch") {
				return err
			}
			select {
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			case <-time.After(watchEvery):
			}
		}
	})
}

// watchEvery is how often muster status --watch prints.
const watchEvery = 2 * time.Second

// systemStatus is the state of a system, as muster status shows it.
type systemStatus struct {
	Health    health.Report        `json:"health"`
	Scrapes   []sites.Job          `json:"scrapes"` // that run
	Jobs      []client.Job         `json:"jobs"`    // that run
	Sites     []sites.State        `json:"sites"`
	Proxies   proxies.Stats        `json:"proxies"`
	Breakers  []limit.BreakerState `json:"breakers"` // that are not closed
	Schedules []api.Schedule       `json:"schedules"`
}

// shownRunning is the maximum number of running scrapes and of running jobs.
const shownRunning = 20

func readStatus(ctx context.Context, c *client.Client) (s systemStatus, err error) {
	if s.Health, err = client.GetHealthReport.Call(ctx, c, client.None{}); err != nil {
		return s, err
	}
	scrapes, err := client.All(ctx, c, client.ListScrapes, client.ScrapeFilter{Limit: 200}, 200)
	if err != nil {
		return s, err
	}
	for _, j := range scrapes {
		if !j.Over() && len(s.Scrapes) < shownRunning {
			s.Scrapes = append(s.Scrapes, j)
		}
	}
	if s.Jobs, err = client.All(ctx, c, client.ListJobs, client.JobFilter{Status: []string{string(jobs.Processing)}}, shownRunning); err != nil {
		return s, err
	}
	if s.Sites, err = client.All(ctx, c, client.ListSites, client.None{}, 0); err != nil {
		return s, err
	}
	if s.Proxies, err = client.GetProxyStats.Call(ctx, c, client.None{}); err != nil {
		return s, err
	}
	if s.Breakers, err = client.All(ctx, c, client.ListBreakers, client.None{}, 0); err != nil {
		return s, err
	}
	s.Schedules, err = client.All(ctx, c, client.ListSchedules, api.ScheduleFilter{Prefix: "scrape."}, 0)
	return s, err
}

// print prints the parts that have content, as tables.
func (s systemStatus) print(env environment) error {
	if err := printHealth(env, s.Health, false); err != nil {
		return err
	}
	next := map[string]string{}
	for _, e := range s.Schedules {
		if site, ok := strings.CutPrefix(e.Name, "scrape."); ok && !e.NextAt.IsZero() {
			next[site] = "in " + until(e.NextAt)
		}
	}
	running, work, known := newTable(env.stdout, "SCRAPE STATUS PAGES RECORDS ERRORS SINCE"),
		newTable(env.stdout, "JOB PIPELINE ITEMS DONE FAILED REVIEW"), newTable(env.stdout, "SITE HEALTH LAST NEXT WHY")
	for _, j := range s.Scrapes {
		running.row(j.ID, j.Status, fmt.Sprintf("%d/%d", pagesDone(j), j.Pages.Total), recordsOf(j), j.Pages.Error, j.Began)
	}
	for _, j := range s.Jobs {
		work.row(j.ID, j.Name, j.Items.Total, fmt.Sprintf("%.0f%%", j.Percent), j.Items.Failed, j.Items.Review)
	}
	for _, st := range s.Sites {
		last, state := "-", cmp.Or(string(st.Health), "-")
		if st.Job != nil {
			last = age(st.Job.Began)
		}
		if st.Paused {
			state += ", paused"
		}
		if last != "-" || next[st.Site] != "" {
			known.row(st.Site, state, last, next[st.Site], strings.Join(st.Alerts, "; "))
		}
	}
	alarms := newTable(env.stdout, "BREAKER "+breakerColumns)
	for _, b := range s.Breakers {
		alarms.row(breakerRow(b)...)
	}
	for _, t := range []*table{running, work, known, alarms} {
		if len(t.rows) == 1 {
			continue
		}
		fmt.Fprintln(env.stdout)
		if err := t.flush(); err != nil {
			return err
		}
	}
	if s.Proxies.Live > 0 {
		fmt.Fprintf(env.stdout, "\nproxies: %d ready, %d usable, %d cooling down, %d banned\n", s.Proxies.Ready, s.Proxies.Usable, s.Proxies.Cooling, s.Proxies.Banned)
	}
	return nil
}

func healthCommand(env environment) *cli.Command {
	c := apiCommand(env, &cli.Command{
		Name:  "health",
		Usage: "check Redis, workers, agents and the proxy pool; exit 1 if one has failed",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "only check that `URL` returns 200, as in http://localhost:8000/health"}, jsonFlag(),
		},
	}, func(s scope, _ client.None) error {
		report, err := client.GetHealthReport.Call(s.ctx, s.api, client.None{})
		if err != nil {
			return err
		}
		if err := printHealth(env, report, s.Bool("json")); err != nil {
			return err
		}
		if report.Status == health.Failed {
			return errors.New("not healthy")
		}
		return nil
	})
	system := c.Action
	c.Action = func(c *cli.Context) error {
		if c.IsSet("url") {
			return probeURL(c.Context, c.String("url"))
		}
		return system(c)
	}
	return c
}

func printHealth(env environment, report health.Report, asJSON bool) error {
	if asJSON {
		return printJSON(env.stdout, report)
	}
	t := newTable(env.stdout, "PART STATUS TIME _")
	for _, r := range report.Checks {
		t.row(r.Name, r.Status, fmt.Sprintf("%d ms", r.Millis), cmp.Or(r.Error, r.Detail))
	}
	return t.flush()
}

// probeTime is the timeout of an HTTP health check. It is below the timeout of the container's health check.
const probeTime = 5 * time.Second

// probeURL wants the status 200 from a URL.
func probeURL(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usageError{fmt.Errorf("--url %.200q: give an http or https URL, as in http://localhost:8000/health", address)}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req := http.Request{Method: http.MethodGet, URL: u}
	resp, err := http.DefaultClient.Do(req.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what there is, for the message
		return fmt.Errorf("not healthy: %s returned %s: %s", u.Redacted(), resp.Status, clip.Line(string(body), 300))
	}
	return nil
}
