package sites

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
)

// A job exists from the time it is sent, with or without a running worker.
func TestJobThatWaits(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 1)
	s := newService(t, redistest.New(t))
	s.Registry().Replace(NewRegistry(site.Definition(t, "")))
	run := testutil.Must(s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL}))(t)
	jobs, err := s.Jobs(t.Context(), "shop.example", 10)
	if err != nil || len(jobs) != 1 || jobs[0].ID != run.ID() || jobs[0].Status != JobWaiting {
		t.Errorf("got jobs %+v, error %v, want one, WAITING", jobs, err)
	}
	if others, err := s.Jobs(t.Context(), "other.example", 10); err != nil || len(others) != 0 {
		t.Errorf("jobs of another site: got %+v, error %v, want none", others, err)
	}
	testutil.Ok(t, s.Cancel(t.Context(), run.ID()))
	if j, err := s.Job(t.Context(), run.ID()); err != nil || j.Status != JobCanceled {
		t.Errorf("got %+v, error %v, want CANCELED", j, err)
	}
}

func TestStateIncludesTheNewestJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job   Job
		down  bool
		was   report.HealthStatus
		want  report.HealthStatus
		alert string
	}{
		"it runs":            {Job{Status: JobRunning}, false, report.Healthy, report.Healthy, ""},
		"it is paused":       {Job{Status: JobPaused}, false, report.Healthy, report.Healthy, ""},
		"it failed":          {Job{Status: JobFailed, Error: "why"}, false, report.Healthy, report.Critical, "last job failed: why"},
		"it was canceled":    {Job{Status: JobCanceled}, true, report.Healthy, report.Healthy, ""},
		"nothing is written": {Job{Status: JobBlocked, Trouble: "disk is full"}, false, report.Healthy, report.Degraded, "disk is full"},
		"the site is down":   {Job{Status: JobRunning}, true, "", report.Degraded, "circuit breaker open"},
		"and was before":     {Job{Status: JobRunning}, true, report.Critical, report.Critical, "circuit breaker open"},
	} {
		st := State{Health: c.was, Job: &c.job}
		st.addJob(c.down)
		if st.Health != c.want || !strings.Contains(strings.Join(st.Alerts, ";"), c.alert) || (c.alert == "") != (len(st.Alerts) == 0) {
			t.Errorf("%s: got %s %q, want %s %q", name, st.Health, st.Alerts, c.want, c.alert)
		}
	}
}

// operated is a service with a worker and a site that an operator pauses and resumes.
type operated struct {
	*Service
	t    *testing.T
	site *sitetest.Shop
}

func operate(t *testing.T, site *sitetest.Shop) operated {
	t.Helper()
	s := configured(t, redistest.New(t), NewRegistry(site.Definition(t, "")), Config{})
	work(t, s.cfg.Client, s)
	return operated{s, t, site}
}

func (o operated) send() *tasks.Run[report.Summary] {
	o.t.Helper()
	run, err := o.Send(o.t.Context(), "shop.example", ScrapeOptions{BaseURL: o.site.URL})
	testutil.Ok(o.t, err)
	return run
}

func (o operated) pause() {
	o.t.Helper()
	testutil.Ok(o.t, o.PauseSite(o.t.Context(), "shop.example"))
}

func (o operated) unpause() {
	o.t.Helper()
	testutil.Ok(o.t, o.ResumeSite(o.t.Context(), "shop.example"))
}

// becomes waits until a job has a status.
func (o operated) becomes(id, want string) {
	o.t.Helper()
	testutil.Eventually(o.t, "job "+id+" is "+want, func() bool {
		j, err := o.Job(o.t.Context(), id)
		return err == nil && j.Status == want
	})
}

// isResumed resumes a job and checks that the result has every record.
func (o operated) isResumed(id string) (resumed string) {
	o.t.Helper()
	run, err := o.Resume(o.t.Context(), id)
	testutil.Ok(o.t, err)
	sum, err := run.Wait(o.t.Context())
	testutil.Ok(o.t, err)
	o.site.IsWhole(o.t, sum)
	return run.ID()
}

func TestPausedSiteIsNotFetched(t *testing.T) {
	t.Parallel()
	o := operate(t, sitetest.NewShop(t, 1, 3))
	o.pause()
	run := o.send()
	o.becomes(run.ID(), JobPaused)
	if asked, _ := o.site.Counts("/"); asked != 0 {
		t.Errorf("got %d requests for a page of a paused site, want none", asked)
	}
	if paused, err := o.PausedSites(t.Context()); err != nil || !slices.Equal(paused, []string{"shop.example"}) {
		t.Errorf("got paused sites %v, %v, want shop.example", paused, err)
	}
	o.unpause()
	sum := testutil.Must(run.Wait(t.Context()))(t)
	o.site.IsWhole(t, sum)
}

func TestSecondScrapeOfASiteJoinsOrIsRefused(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 5)
	site.Faults = map[string][]string{"/item/3": {"hang"}}
	o := operate(t, site)
	run := o.send()
	testutil.Eventually(t, "the request for the slow page", func() bool { asked, _ := site.Counts("/item/3"); return asked > 0 })
	same, err := o.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL})
	if !errors.Is(err, tasks.ErrDuplicate) || same.ID() != run.ID() {
		t.Errorf("got %v, want to join %s", err, run.ID())
	}
	if _, err := o.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL, Limit: 3}); err == nil || !strings.Contains(err.Error(), "different limit") {
		t.Errorf("got %v, want an error that names the limit", err)
	}
	close(site.Hang)
	testutil.Must(run.Wait(t.Context()))(t)
}

func TestFailedPagesAreFetchedByResume(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 20)
	site.Faults = map[string][]string{"/item/4": strings.Fields(strings.Repeat("500 ", 4))}
	o := operate(t, site)
	run := o.send()
	testutil.Must(run.Wait(t.Context()))(t)
	j, err := o.Job(t.Context(), run.ID())
	if err != nil || j.Status != report.StatusComplete || j.Pages.Done != 20 || j.Pages.Error != 1 || j.Records["item"] != 19 || j.Summary == nil {
		t.Errorf("got %+v, %v, want a complete job with 20 pages, an error and 19 items", j, err)
	}
	resumed := o.isResumed(run.ID())
	jobs, err := o.Jobs(t.Context(), "shop.example", 10)
	if err != nil || len(jobs) != 2 || jobs[0].ID != resumed || jobs[0].Resumes != run.ID() {
		t.Errorf("got %+v, %v, want %s, which resumes %s", jobs, err, resumed, run.ID())
	}
	if _, err := o.Job(t.Context(), "none"); !errors.Is(err, ErrNoJob) {
		t.Errorf("got %v, want %v", err, ErrNoJob)
	}
}

func TestCanceledJobCanBeResumed(t *testing.T) {
	t.Parallel()
	o := operate(t, sitetest.NewShop(t, 1, 5))
	o.pause()
	run := o.send()
	o.becomes(run.ID(), JobPaused)
	testutil.Ok(t, o.Cancel(t.Context(), run.ID()))
	o.becomes(run.ID(), JobCanceled)
	o.unpause()
	o.isResumed(run.ID())
}

func TestJobIsBlockedWhileTheDiskOfRedisIsFull(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	site := sitetest.NewShop(t, 1, 3)
	s := newService(t, srv.Client())
	def := site.Definition(t, "")
	req := begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL})
	testutil.Must(store.Scrape(req).Send(t.Context(), s.cfg.Client, tasks.ID("j1")))(t)
	srv.FillDisk()
	j, err := s.Job(t.Context(), "j1")
	if err != nil || j.Status != JobBlocked || !strings.Contains(j.Trouble, "disk") || !strings.Contains(j.Trouble, srv.Dir) {
		t.Errorf("got %s, %q, %v; want %s, and the disk of %s", j.Status, j.Trouble, err, JobBlocked, srv.Dir)
	}
	srv.FreeDisk()
	testutil.Eventually(t, "the job is not blocked", func() bool {
		j = testutil.Must(s.Job(t.Context(), "j1"))(t)
		return j.Status != JobBlocked
	})
	if j.Status != JobWaiting || j.Trouble != "" {
		t.Errorf("with room: got %s, %q, want %s", j.Status, j.Trouble, JobWaiting)
	}
}
