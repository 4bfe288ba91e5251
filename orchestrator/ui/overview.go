package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/sites/report"
	"muster/tasks/tasktype"
	taskui "muster/tasks/ui"
)

const (
	newest        = 5                // failures per kind on the overview
	newestScrapes = 25               // that are looked at for failures
	keepCounts    = 3 * time.Second  // age of cached counts
	keepReviews   = 5 * time.Second  // age of the cached number of items in review, which reads their jobs
	keepChecks    = 10 * time.Second // age of cached health checks
	keepPool      = 25 * time.Second // age of the cached statistics of the pool, which reads all of it
)

// overviewData is the first page: problems and the state of the system.
type overviewData struct {
	Attention         []attention
	Workers           []tasktype.Worker
	Slots, Busy       int
	Redis             *health.Result    // nil without checks
	Queues            []taskui.QueueRow // with waiting tasks
	waiting           []tasktype.Queue
	Waiting           int64       // tasks in them
	Running           int64       // workflows
	Open              int64       // open external tasks
	Review            reviewCount // items in review
	Failing           []taskui.FailingTask
	Hour              webui.Chart
	Lines             taskui.Hour
	Succeeded, Failed int64 // in the last hour
	Jobs              []jobCount
	Sites             *siteCounts    // nil without sites
	Pool              *proxies.Stats // nil without a pool
	Failures          []failure
}

// attention is a problem with a link to its page.
type attention struct {
	Bad             bool // false: a warning
	Subject, Reason string
	URL             string // may be ""
}

type jobCount struct {
	Status jobs.Status
	Count  int64
}

// reviewCount is the number of items in review and of their jobs.
type reviewCount struct {
	Items int64
	Jobs  int
}

// People returns the number of open tasks and of items in review.
func (d overviewData) People() int64 { return d.Open + d.Review.Items }

// trouble adds the problems of queues and tasks.
func (d *overviewData) trouble(list []taskui.Trouble) {
	for _, t := range list {
		d.Attention = append(d.Attention, attention{Bad: t.Bad, Subject: t.Subject, Reason: t.Reason, URL: strings.TrimSuffix(fleet, "/") + t.Path})
	}
}

// siteCounts counts sites by health.
type siteCounts struct{ Healthy, Degraded, Critical, Unknown, Paused int }

// Trouble returns the number of unhealthy sites.
func (s siteCounts) Trouble() int { return s.Critical + s.Degraded }

// failure is a failed job or workflow.
type failure struct {
	Subject, URL, Reason string
	At                   time.Time
}

// overviewPage is the first page.
type overviewPage struct{ *pages }

func (p overviewPage) serve() { p.page("/{$}", "overview", p.overview) }

func (p overviewPage) overview(ctx context.Context, _ *http.Request) (webui.View, error) {
	d := &overviewData{}
	for _, read := range []func(context.Context, *overviewData) error{p.readChecks, p.readFleet, p.readRates, p.readJobs, p.readSites, p.readPool, p.readFailures} {
		if err := read(ctx, d); err != nil {
			return webui.View{}, err
		}
	}
	slices.SortStableFunc(d.Attention, func(a, b attention) int {
		switch {
		case a.Bad == b.Bad:
			return 0
		case a.Bad:
			return -1
		}
		return 1
	})
	return webui.View{Name: "Overview", At: prefix + "/", Data: d, Every: 5 * time.Second}, nil
}

// checkPages maps names of health checks to pages.
var checkPages = map[string]string{"workers": fleet + "workers", "proxies": prefix + "/proxies", "agents": prefix + "/agents"}

func (p overviewPage) readChecks(ctx context.Context, d *overviewData) error {
	if p.cfg.Check == nil {
		return nil
	}
	r, err := cached(ctx, &p.known.checks, keepChecks, func(ctx context.Context) (health.Report, error) { return p.cfg.Check(ctx), nil })
	for _, c := range r.Checks {
		if c.Name == "redis" {
			d.Redis = &c
		}
		if c.Status != health.OK {
			d.Attention = append(d.Attention, attention{Bad: c.Status == health.Failed, Subject: c.Name, Reason: cmp.Or(c.Error, c.Detail), URL: checkPages[c.Name]})
		}
	}
	return err
}

func (p overviewPage) readFleet(ctx context.Context, d *overviewData) (err error) {
	if d.Workers, err = p.cfg.Client.Inspect().Workers(ctx); err != nil {
		return err
	}
	for i := range d.Workers {
		d.Slots += d.Workers[i].Concurrency
		d.Busy += d.Workers[i].Active
	}
	queues, err := cached(ctx, &p.known.queues, keepCounts, p.cfg.Client.Inspect().Queues)
	if err != nil {
		return err
	}
	d.trouble(taskui.Queues(queues))
	d.waiting, d.Waiting = taskui.Waiting(queues)
	counts, err := p.cfg.Client.Inspect().CountWorkflows(ctx)
	if err != nil {
		return err
	}
	d.Running = counts[tasktype.WorkflowRunning]
	d.Open, err = taskui.Open(ctx, p.cfg.Client)
	return err
}

func (p overviewPage) readRates(ctx context.Context, d *overviewData) error {
	now := time.Now()
	points, err := p.cfg.Client.Inspect().Rates(ctx, tasktype.RateFilter{Since: now.Add(-time.Hour)})
	if err != nil {
		return err
	}
	all := make([]webui.Point, len(points))
	for i, r := range points {
		all[i] = webui.Point{At: r.Time, Succeeded: r.Succeeded, Failed: r.Failed}
		d.Succeeded += r.Succeeded
		d.Failed += r.Failed
	}
	d.Hour = webui.NewChart("Tasks that ended in the last hour, by minute", all, now.Add(-time.Hour), now, time.Minute)
	if d.Lines, err = p.known.history.Hour(ctx, p.cfg.Client, points); err != nil {
		return err
	}
	d.Queues = d.Lines.Rows(d.waiting)
	failing, trouble, err := taskui.Failing(ctx, p.cfg.Client, points)
	d.Failing = failing
	d.trouble(trouble)
	return err
}

func (p overviewPage) readJobs(ctx context.Context, d *overviewData) error {
	if p.cfg.Jobs == nil {
		return nil
	}
	totals, err := p.cfg.Jobs.Totals(ctx)
	for _, s := range jobs.Statuses {
		if n := totals[s]; n > 0 {
			d.Jobs = append(d.Jobs, jobCount{s, n})
		}
	}
	if err != nil {
		return err
	}
	if d.Review, err = p.known.inReview(ctx, p.cfg.Jobs); err != nil {
		return err
	}
	stuck, err := cached(ctx, &p.known.stuck, keepChecks, p.cfg.Jobs.Stuck)
	for _, s := range stuck[:min(len(stuck), mostAlerts)] {
		why := fmt.Sprintf("it is stuck in %s: %s", s.Stage, s.Reason)
		d.Attention = append(d.Attention, attention{Subject: "job " + webui.Short(s.JobID) + " of " + s.Name, Reason: why, URL: prefix + "/jobs/" + url.PathEscape(s.JobID)})
	}
	return err
}

// mostAlerts limits the sites and the jobs among the problems.
const mostAlerts = 10

func (p overviewPage) readSites(ctx context.Context, d *overviewData) error {
	if p.cfg.Sites == nil {
		return nil
	}
	states, err := cached(ctx, &p.known.sites, keepCounts, p.cfg.Sites.States)
	if err != nil {
		return err
	}
	d.Sites = &siteCounts{}
	states = slices.Clone(states)
	slices.SortStableFunc(states, func(a, b sites.State) int { return b.Health.Severity() - a.Health.Severity() })
	for i := range states {
		st := &states[i]
		switch st.Health {
		case report.Healthy:
			d.Sites.Healthy++
		case report.Degraded:
			d.Sites.Degraded++
		case report.Critical:
			d.Sites.Critical++
		default:
			d.Sites.Unknown++
		}
		at := siteURL(st.Site)
		if st.Paused {
			if d.Sites.Paused++; d.Sites.Paused <= mostAlerts {
				d.Attention = append(d.Attention, attention{Subject: st.Site, Reason: "it is paused", URL: at})
			}
		}
		if len(st.Alerts) > 0 && d.Sites.Degraded+d.Sites.Critical <= mostAlerts {
			d.Attention = append(d.Attention, attention{Bad: st.Health == report.Critical, Subject: st.Site, Reason: st.Alerts[0], URL: at})
		}
	}
	return nil
}

func (p overviewPage) readPool(ctx context.Context, d *overviewData) error {
	if p.cfg.Proxies == nil {
		return nil
	}
	s, err := p.known.pool.Get(ctx, "", func(ctx context.Context) (proxies.Stats, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, webui.AskTime)
		defer cancel()
		s, err := p.cfg.Proxies.Stats(ctx)
		return s, max(keepPool, poolEvery(s.Live)), err
	})
	if err != nil {
		return err
	}
	d.Pool = &s
	if s.Stale {
		d.Attention = append(d.Attention, attention{Subject: "proxies", Reason: "the last refresh found no proxies; the previous pool is kept", URL: prefix + "/proxies/sources"})
	}
	return nil
}

// readFailures reads the last failed jobs, scrapes and workflows. A scrape, which is a workflow, is listed once.
func (p overviewPage) readFailures(ctx context.Context, d *overviewData) error {
	listed := map[string]bool{}
	if p.cfg.Jobs != nil {
		page, err := p.cfg.Jobs.List(ctx, jobs.Filter{Statuses: []jobs.Status{jobs.Failed}, Limit: newest})
		if err != nil {
			return err
		}
		for i := range page.Jobs {
			j := &page.Jobs[i]
			at := prefix + "/jobs/" + url.PathEscape(j.ID)
			d.Failures = append(d.Failures, failure{Subject: "job of " + j.Name, URL: at, Reason: j.ErrorMessage, At: cmp.Or(j.CompletedAt, j.UpdatedAt)})
		}
	}
	if p.cfg.Sites != nil {
		scrapes, err := p.cfg.Sites.Jobs(ctx, "", newestScrapes)
		if err != nil {
			return err
		}
		for i := range scrapes {
			j := &scrapes[i]
			if !j.Over() || j.Status == report.StatusComplete || j.Status == sites.JobCanceled || len(listed) == newest {
				continue
			}
			listed[j.ID] = true
			f := failure{Subject: "scrape of " + j.Site, URL: scrapeURL(j.ID), Reason: cmp.Or(j.Error, "it is "+j.Status), At: j.Began}
			if j.Summary != nil {
				f.At = j.Began.Add(time.Duration(j.Summary.Seconds * float64(time.Second)))
			}
			d.Failures = append(d.Failures, f)
		}
	}
	list, _, err := p.cfg.Client.Inspect().Workflows(ctx, tasktype.WorkflowFilter{State: tasktype.WorkflowFailed, Limit: newest})
	if err != nil {
		return err
	}
	for _, w := range list {
		if listed[w.ID] {
			continue
		}
		why, err := p.known.failures.Of(ctx, p.cfg.Client, w)
		if err != nil {
			return err
		}
		d.Failures = append(d.Failures, failure{Subject: cmp.Or(w.Name, "workflow"), URL: fleet + "workflows/" + url.PathEscape(w.ID), Reason: why.Message, At: w.Ended})
	}
	slices.SortStableFunc(d.Failures, func(a, b failure) int { return b.At.Compare(a.At) })
	return nil
}
