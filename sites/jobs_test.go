package sites

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A job is known from when it is sent, whether or not a worker is there to begin it.
func TestJobThatWaits(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 1)
	s := newService(t, redistest.New(t))
	s.cfg.Registry = NewRegistry(site.definition(t, ""))
	run, err := s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := s.Jobs(t.Context(), "shop.example", 10)
	if err != nil || len(jobs) != 1 || jobs[0].ID != run.ID() || jobs[0].Status != JobWaiting {
		t.Errorf("got %+v, %v", jobs, err)
	}
	if others, err := s.Jobs(t.Context(), "other.example", 10); err != nil || len(others) != 0 {
		t.Errorf("of another site: %+v, %v", others, err)
	}
	if err := s.Cancel(t.Context(), run.ID()); err != nil {
		t.Fatal(err)
	}
	if j, err := s.Job(t.Context(), run.ID()); err != nil || j.Status != JobCanceled {
		t.Errorf("got %+v, %v", j, err)
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
		"it failed":          {Job{Status: JobFailed, Error: "why"}, false, report.Healthy, report.Critical, "the last job failed: why"},
		"it was canceled":    {Job{Status: JobCanceled}, true, report.Healthy, report.Healthy, ""},
		"nothing is written": {Job{Status: JobBlocked, Trouble: "disk is full"}, false, report.Healthy, report.Degraded, "disk is full"},
		"the site is down":   {Job{Status: JobRunning}, true, "", report.Degraded, "breaker is open"},
		"and was before":     {Job{Status: JobRunning}, true, report.Critical, report.Critical, "breaker is open"},
	} {
		st := State{Health: c.was, Job: &c.job}
		st.addJob(c.down)
		if st.Health != c.want || !strings.Contains(strings.Join(st.Alerts, ";"), c.alert) || (c.alert == "") != (len(st.Alerts) == 0) {
			t.Errorf("%s: got %s %q, want %s %q", name, st.Health, st.Alerts, c.want, c.alert)
		}
	}
}

// What an operator does with jobs while they run.
func TestJobs(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 20)
	site.faults = map[string][]string{"/item/3": {"hang"}, "/item/4": strings.Fields(strings.Repeat("500 ", 4))}
	def := site.definition(t, "")
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(def)})
	if err != nil {
		t.Fatal(err)
	}
	work(t, client, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	status := func(id, want string) {
		t.Helper()
		var last Job
		testutil.Eventually(t, "job "+id+" is "+want, func() bool {
			last, err = s.Job(ctx, id)
			return err == nil && last.Status == want
		})
	}

	if err := s.PauseSite(ctx, "shop.example"); err != nil {
		t.Fatal(err)
	}
	run, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	status(run.ID(), JobPaused)
	if asked, _ := site.counts("/"); asked != 0 {
		t.Error("a page of a paused site was fetched")
	}
	if paused, err := s.PausedSites(ctx); err != nil || len(paused) != 1 {
		t.Errorf("got %v, %v", paused, err)
	}
	if err := s.ResumeSite(ctx, "shop.example"); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the page that hangs is asked for", func() bool { asked, _ := site.counts("/item/3"); return asked > 0 })

	// Another one that asks for the same joins, one that does not is refused.
	same, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL})
	if !errors.Is(err, tasks.ErrDuplicate) || same.ID() != run.ID() {
		t.Errorf("got %v, want to join %s", err, run.ID())
	}
	if _, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL, Limit: 3}); err == nil || !strings.Contains(err.Error(), "another limit") {
		t.Errorf("got %v, want a refusal", err)
	}
	close(site.hang)
	if _, err := run.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	j, err := s.Job(ctx, run.ID())
	if err != nil || j.Status != report.StatusComplete || j.Pages.Done != 20 || j.Pages.Error != 1 || j.Records["item"] != 19 || j.Summary == nil {
		t.Errorf("got %+v, %v", j, err)
	}

	again, err := s.Resume(ctx, run.ID())
	if err != nil {
		t.Fatal(err)
	}
	sum, err := again.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	site.isWhole(t, sum)
	jobs, err := s.Jobs(ctx, "shop.example", 10)
	if err != nil || len(jobs) != 2 || jobs[0].ID != again.ID() || jobs[0].Resumes != run.ID() {
		t.Errorf("got %+v, %v", jobs, err)
	}
	if jobs, err := s.Jobs(ctx, "other.example", 10); err != nil || len(jobs) != 0 {
		t.Errorf("got %+v, %v", jobs, err)
	}

	// One that is canceled is told so, and can be resumed.
	if err := s.PauseSite(ctx, "shop.example"); err != nil {
		t.Fatal(err)
	}
	stopped, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	status(stopped.ID(), JobPaused)
	if err := s.Cancel(ctx, stopped.ID()); err != nil {
		t.Fatal(err)
	}
	status(stopped.ID(), JobCanceled)
	if err := s.ResumeSite(ctx, "shop.example"); err != nil {
		t.Fatal(err)
	}
	if again, err = s.Resume(ctx, stopped.ID()); err != nil {
		t.Fatal(err)
	}
	if sum, err = again.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	site.isWhole(t, sum)
	if _, err := s.Job(ctx, "none"); !errors.Is(err, store.ErrNoJob) {
		t.Errorf("got %v", err)
	}
}

// A job that has begun waits for a worker when there is none any more.
func TestBegunJobWaitsForAWorker(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 3)
	site.faults = map[string][]string{"/item/1": {"hang"}}
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(site.definition(t, ""))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	mux := tasks.NewMux()
	s.Register(mux)
	testutil.Background(t, s.Run)
	w, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{Queue: 1}, Grace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	run, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-site.hangs:
	case <-time.After(patience):
		t.Fatal("the page that hangs is not asked for")
	}
	if j, err := s.Job(t.Context(), run.ID()); err != nil || j.Status != JobRunning {
		t.Errorf("with a worker: got %s, %v, want RUNNING", j.Status, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if j, err := s.Job(t.Context(), run.ID()); err != nil || j.Status != JobWaiting {
		t.Errorf("without a worker: got %s, %v, want WAITING", j.Status, err)
	}
}
