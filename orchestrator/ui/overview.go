package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/sites/report"
	taskui "muster/tasks/ui"
)

const (
	newest        = 5                // failures per kind on the overview
	newestScrapes = 25               // that are looked at for failures
	mostAlerts    = 10               // sites, and jobs, among the problems
	keepCounts    = 3 * time.Second  // age of cached counts
	keepReviews   = 5 * time.Second  // age of the cached number of items in review, which reads their jobs
	keepChecks    = 10 * time.Second // age of cached health checks
	keepPool      = 25 * time.Second // age of the cached statistics of the pool, which reads all of it
)

// known caches data for all pages that takes many Redis commands. It is safe for concurrent use.
type known struct {
	checks   webui.Cache[health.Report]
	activity webui.Cache[[]agent.Activity]
	stuck    webui.Cache[[]jobs.Stuck]
	review   webui.Cache[int64]
	sites    webui.Cache[[]sites.State]
	pool     webui.Cache[proxies.Stats]
}

// cached returns the only value of a cache, if it is not older than keep, or reads it.
func cached[T any](ctx context.Context, c *webui.Cache[T], keep time.Duration, read func(context.Context) (T, error)) (T, error) {
	return c.Get(ctx, "", func(ctx context.Context) (T, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, webui.AskTime)
		defer cancel()
		v, err := read(ctx)
		return v, keep, err
	})
}

// overview returns what the orchestrator adds to the overview: health checks, jobs, sites and the pool.
func (p *pages) overview(ctx context.Context) (d taskui.Extra, err error) {
	for _, add := range []struct {
		has bool
		to  func(context.Context, *taskui.Extra) error
	}{{p.Check != nil, p.addChecks}, {p.Sites != nil, p.addSites}, {p.Proxies != nil, p.addPool}, {p.Jobs != nil, p.addJobs}} {
		if add.has && err == nil {
			err = add.to(ctx, &d)
		}
	}
	return d, err
}

// checkPages maps names of health checks to pages.
var checkPages = map[string]string{"workers": fleet + "workers", "proxies": poolURL, "agents": agentsAt, "scrapes": scrapesURL}

func (p *pages) addChecks(ctx context.Context, d *taskui.Extra) error {
	r, err := cached(ctx, &p.known.checks, keepChecks, func(ctx context.Context) (health.Report, error) { return p.Check(ctx), nil })
	for _, c := range r.Checks {
		if c.Status != health.OK {
			d.Alerts = append(d.Alerts, taskui.Alert{Bad: c.Status == health.Failed, Subject: c.Name, Reason: cmp.Or(c.Error, c.Detail), URL: checkPages[c.Name]})
		}
	}
	return err
}

// addJobs adds the jobs: how many run, the stuck ones, and those that failed last.
func (p *pages) addJobs(ctx context.Context, d *taskui.Extra) error {
	totals, err := p.Jobs.Totals(ctx)
	if err != nil {
		return err
	}
	t := taskui.Tile{Title: "Running jobs", URL: jobsAt, Note: fmt.Sprintf("%d completed, %d failed", totals[jobs.Completed], totals[jobs.Failed])}
	running := int64(0)
	for _, s := range jobs.Statuses {
		if !s.Terminal() {
			running += totals[s]
		}
	}
	t.Value = webui.Number(running)
	d.Tiles = append(d.Tiles, t)
	stuck, err := cached(ctx, &p.known.stuck, keepChecks, p.Jobs.Stuck)
	if err != nil {
		return err
	}
	for _, s := range stuck[:min(len(stuck), mostAlerts)] {
		why := fmt.Sprintf("it is stuck in %s: %s", s.Stage, s.Reason)
		d.Alerts = append(d.Alerts, taskui.Alert{Subject: "job " + webui.Short(s.JobID) + " of " + s.Name, Reason: why, URL: jobURL(s.JobID)})
	}
	page, err := p.Jobs.List(ctx, jobs.Filter{Statuses: []jobs.Status{jobs.Failed}, Limit: newest, NoUsage: true})
	for i := range page.Jobs {
		j := &page.Jobs[i]
		d.Failures = append(d.Failures, taskui.FailureGroup{Subject: "job of " + j.Name, URL: jobURL(j.ID), Error: j.ErrorMessage, Count: 1, Last: cmp.Or(j.CompletedAt, j.UpdatedAt)})
	}
	return err
}

// addSites adds the sites by their health, and the scrapes that failed last.
func (p *pages) addSites(ctx context.Context, d *taskui.Extra) error {
	states, err := cached(ctx, &p.known.sites, keepCounts, p.Sites.States)
	if err != nil {
		return err
	}
	states = slices.Clone(states)
	slices.SortStableFunc(states, func(a, b sites.State) int { return b.Health.Severity() - a.Health.Severity() })
	count, paused := map[report.HealthStatus]int{}, 0
	for i := range states {
		st := &states[i]
		count[st.Health]++
		if st.Paused {
			if paused++; paused <= mostAlerts {
				d.Alerts = append(d.Alerts, taskui.Alert{Subject: st.Site, Reason: "it is paused", URL: siteURL(st.Site)})
			}
		}
		if len(st.Alerts) > 0 && count[report.Critical]+count[report.Degraded] <= mostAlerts {
			d.Alerts = append(d.Alerts, taskui.Alert{Bad: st.Health == report.Critical, Subject: st.Site, Reason: st.Alerts[0], URL: siteURL(st.Site)})
		}
	}
	t := taskui.Tile{Title: "Sites in trouble", URL: sitesURL, Value: strconv.Itoa(count[report.Critical] + count[report.Degraded])}
	t.Note = fmt.Sprintf("%d critical, %d degraded, %d healthy, %d not scraped lately", count[report.Critical], count[report.Degraded], count[report.Healthy],
		len(states)-count[report.Critical]-count[report.Degraded]-count[report.Healthy])
	switch {
	case count[report.Critical] > 0:
		t.Tone = "bad"
	case count[report.Degraded] > 0:
		t.Tone = "warn"
	}
	d.Tiles = append(d.Tiles, t)
	scrapes, err := p.Sites.Jobs(ctx, "", newestScrapes)
	for i := range scrapes {
		j := &scrapes[i]
		if !j.Over() || j.Status == report.StatusComplete || j.Status == sites.JobCanceled {
			continue
		}
		f := taskui.FailureGroup{Subject: "scrape of " + j.Site, URL: scrapeURL(j.ID), Error: cmp.Or(j.Error, "it is "+j.Status), Count: 1, Last: j.Began}
		if j.Summary != nil {
			f.Last = j.Began.Add(time.Duration(j.Summary.Seconds * float64(time.Second)))
		}
		d.Failures = append(d.Failures, f)
	}
	return err
}

func (p *pages) addPool(ctx context.Context, d *taskui.Extra) error {
	s, err := p.known.pool.Get(ctx, "", func(ctx context.Context) (proxies.Stats, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, webui.AskTime)
		defer cancel()
		s, err := p.Proxies.Stats(ctx)
		return s, max(keepPool, poolEvery(s.Live)), err
	})
	if err != nil {
		return err
	}
	t := taskui.Tile{Title: "Proxies ready", URL: poolURL, Value: webui.Number(int64(s.Ready)), Note: fmt.Sprintf("%d in the pool, %d cooling, %d banned", s.Live, s.Cooling, s.Banned)}
	if s.Stale {
		t.Tone = "warn"
		d.Alerts = append(d.Alerts, taskui.Alert{Subject: "proxies", Reason: "the last refresh found no proxies; the previous pool is kept", URL: sourcesURL})
	}
	d.Tiles = append(d.Tiles, t)
	return nil
}
