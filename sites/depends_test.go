package sites

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
)

// dependentSite returns the definition of a site that depends on shop.example.
func dependentSite(t *testing.T, site *sitetest.Shop) *definition.Definition {
	t.Helper()
	yaml := strings.Replace(string(site.Definition(t, "").YAML()), "site: shop.example", "site: dependent.example\ndepends_on: [shop.example]", 1)
	return sitetest.Parse(t, []byte(yaml))
}

// twoJobs are a job of shop.example with a page that hangs, and a dependent job of dependent.example. The process that sent them
// is gone.
type twoJobs struct {
	*Service
	t             *testing.T
	client        *tasks.Client
	first, second *sitetest.Shop
	a, b          *tasks.Run[report.Summary]
}

func sendTwo(t *testing.T, faults string) *twoJobs {
	t.Helper()
	j := &twoJobs{t: t, first: sitetest.NewShop(t, 2, 3), second: sitetest.NewShop(t, 1, 3), client: tasks.NewClient(redistest.New(t))}
	j.first.Faults = map[string][]string{"/item/1": {"hang"}, "/page/2": strings.Fields(faults)}
	t.Cleanup(func() { _ = j.client.Close() })
	registry, cfg := NewRegistry(j.first.Definition(t, ""), dependentSite(t, j.second)), Config{Client: j.client, OutDir: t.TempDir()}
	sender := testutil.Must(NewService(registry, cfg))(t)
	j.a = testutil.Must(sender.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: j.first.URL}))(t)
	j.b = testutil.Must(sender.Send(t.Context(), "dependent.example", ScrapeOptions{BaseURL: j.second.URL}))(t)
	testutil.Ok(t, sender.Close())
	j.Service = testutil.Must(NewService(registry, cfg))(t)
	return j
}

// workUntilWaiting starts a worker and returns when the first job hangs and the second one is delayed.
func (j *twoJobs) workUntilWaiting() {
	j.t.Helper()
	work(j.t, j.client, j.Service)
	<-j.first.Hangs
	testutil.Eventually(j.t, "a worker delays the second job", func() bool {
		nodes, err := j.client.Inspect().Due(j.t.Context(), 10)
		for _, n := range nodes {
			if err == nil && n.Workflow == j.b.ID() {
				return true
			}
		}
		return false
	})
}

// checkSecond checks the status of the second job, the sites that it waits for, and whether its first page was requested.
func (j *twoJobs) checkSecond(status, waitsFor string, requested bool) Job {
	j.t.Helper()
	b, err := j.Job(j.t.Context(), j.b.ID())
	testutil.Ok(j.t, err)
	if got := fmt.Sprint(b.WaitsFor); b.Status != status || got != waitsFor {
		j.t.Errorf("the second job: got status %s, waiting for %s, want %s, waiting for %s", b.Status, got, status, waitsFor)
	}
	if asked, _ := j.second.Counts("/"); (asked > 0) != requested {
		j.t.Errorf("the first page of the second site: got %d requests, want any: %v", asked, requested)
	}
	return b
}

func TestDependentScrapeWaitsUntilTheOtherIsComplete(t *testing.T) {
	t.Parallel()
	jobs := sendTwo(t, "")
	sent := testutil.Must(store.ReadRequest(t.Context(), jobs.client.Redis(), jobs.b.ID()))(t)
	jobs.workUntilWaiting()
	jobs.checkSecond(JobWaiting, "[shop.example]", false)
	close(jobs.first.Hang)
	testutil.Must(jobs.b.Wait(t.Context()))(t)
	b := jobs.checkSecond(report.StatusComplete, "[]", true)
	if at := time.UnixMilli(sent.Began); !b.Began.After(at) {
		t.Errorf("got a job that began at %s, want later than %s, when it was sent", b.Began, at)
	}
}

func TestDependentScrapeFailsUnlessTheOtherIsComplete(t *testing.T) {
	t.Parallel()
	for ended, c := range map[string]struct {
		faults string // of a listing page of the first site
		cancel bool   // the first job
	}{
		"INCOMPLETE": {faults: strings.Repeat("500 ", 9)},
		"CANCELED":   {cancel: true},
	} {
		t.Run(ended, func(t *testing.T) {
			t.Parallel()
			jobs := sendTwo(t, c.faults)
			jobs.workUntilWaiting()
			jobs.checkSecond(JobWaiting, "[shop.example]", false)
			if c.cancel {
				testutil.Ok(t, jobs.Cancel(t.Context(), jobs.a.ID()))
			}
			close(jobs.first.Hang)
			want := fmt.Sprintf("not started: it depends on shop.example, and its job %s has the status %s", jobs.a.ID(), ended)
			if _, err := jobs.b.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %q", err, want)
			}
			jobs.checkSecond(JobFailed, "[]", false)
		})
	}
}

// A scrape waits for a completed job only if After names it.
func TestDependentScrapeNeedsTheJobsOfItsRound(t *testing.T) {
	t.Parallel()
	first, second := sitetest.NewShop(t, 1, 1), sitetest.NewShop(t, 1, 1)
	first.Faults = map[string][]string{"/": strings.Fields(strings.Repeat("500 ", 9))}
	s := configured(t, redistest.New(t), NewRegistry(first.Definition(t, ""), dependentSite(t, second)), Config{})
	work(t, s.cfg.Client, s)
	a := testutil.Must(s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: first.URL}))(t)
	if _, err := a.Wait(t.Context()); err == nil {
		t.Fatal("the first scrape succeeded")
	}
	b, err := s.Send(t.Context(), "dependent.example", ScrapeOptions{BaseURL: second.URL, After: map[string]string{"shop.example": a.ID()}})
	testutil.Ok(t, err)
	if _, err := b.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), a.ID()+" has the status FAILED") {
		t.Errorf("with the job named: got error %v, want the status FAILED", err)
	}
	b = testutil.Must(s.Resume(t.Context(), b.ID()))(t)
	testutil.Must(b.Wait(t.Context()))(t)
	if b, err = s.Send(t.Context(), "dependent.example", ScrapeOptions{BaseURL: second.URL}); err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		t.Fatal(err)
	}
	testutil.Must(b.Wait(t.Context()))(t)
}
