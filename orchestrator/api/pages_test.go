package api

import (
	"net/http"
	"strings"
	"testing"

	"muster/orchestrator/agent"
	"muster/orchestrator/job"
	"muster/sites"
)

// withSites adds the service of sites to cfg.
func withSites(t *testing.T, cfg Config) Config {
	t.Helper()
	s, err := sites.NewService(sites.Config{Client: cfg.Client, OutDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	cfg.Sites = s
	return cfg
}

// shows checks that a page has texts.
func shows(t *testing.T, h http.Handler, path string, code int, texts ...string) {
	t.Helper()
	w := ask(t, h, "GET", path)
	if w.Code != code {
		t.Errorf("%s: got %d, want %d", path, w.Code, code)
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: got a page without %q:\n%s", path, text, w.Body)
		}
	}
}

func TestJobPages(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	f.jobs.job.Waiting, f.jobs.job.ErrorMessage, f.jobs.job.Prompt = "no agent of role <b>", "it broke", "<script>alert(1)</script>"
	f.jobs.job.Stages[1].Error = "timed out"
	h := handler(t, withSites(t, cfg))
	shows(t, h, "/ui/jobs/"+aJob, 200, `<span class="status processing">processing</span>`, "pipeline of default", "4 of 10", "4 integrated", "6 pending",
		"waits: no agent of role &lt;b&gt;", "it broke", "validator", "timed out", "About 1m0s remain.", "Used: requests 2, tokens 1500.", "&lt;script&gt;",
		`href="/jobs/`+aJob+`"`, `href="/jobs/`+aJob+`/report?format=text"`, `href="/jobs/`+aJob+`/events"`, `href="/jobs/`+aJob+`/document"`, `http-equiv="refresh"`)
	shows(t, h, "/ui/", 200, `href="/ui/jobs/`+aJob+`"`, "no agent of role &lt;b&gt;", "one (creator)", `<span class="badge healthy">healthy</span>`)
	if f.jobs.filter.Limit != newestJobs {
		t.Errorf("got a list of %d jobs, want %d", f.jobs.filter.Limit, newestJobs)
	}
	shows(t, h, "/ui/jobs/"+noJob, 404, "no such job")

	f.jobs.job.Status, f.jobs.job.Kind = job.Completed, job.KindRefresh
	if w := ask(t, h, "GET", "/ui/jobs/"+aJob); w.Code != http.StatusOK || strings.Contains(w.Body.String(), `http-equiv="refresh"`) {
		t.Errorf("a job that has ended: got %d %s, want a page that is not read again", w.Code, w.Body)
	}
}

// A scrape has a page of its own kind, whether it is listed or not, and a short one when its report is gone.
func TestPagesOfScrapes(t *testing.T) {
	t.Parallel()
	cfg := scraped(t)
	var all struct{ Jobs []sites.Job }
	getJSON(t, handler(t, cfg), "/sites/shop.example", &all)
	id := all.Jobs[0].ID
	shows(t, handler(t, cfg), "/ui/jobs/"+id, 200, "3 records are written", "COMPLETE")
	fake := &fakeJobs{job: job.Job{ID: id, Kind: job.KindScrape, Name: "shop.example", Status: job.Completed}}
	cfg.Jobs = fake
	shows(t, handler(t, cfg), "/ui/jobs/"+id, 200, "3 records are written", "COMPLETE", "scrape of shop.example", `href="/jobs/`+id+`/events"`)
	const old = "shop.example_1"
	fake.job.ID = old
	shows(t, handler(t, cfg), "/ui/jobs/"+old, 200, "scrape of shop.example", "completed")
}

func TestAgentsByState(t *testing.T) {
	t.Parallel()
	list := []agent.Agent{{Name: "a", Roles: []string{"x", "y"}, State: agent.StateUnavailable, Capacity: 2}}
	for range shownAgents + 3 {
		list = append(list, agent.Agent{Name: "b", State: agent.StateHealthy, Capacity: 4, Held: 1})
	}
	got := agentsByState(list)
	if len(got) != 2 || got[0].State != agent.StateHealthy || got[0].Count != shownAgents+3 || len(got[0].Names) != shownAgents || got[0].More != 3 ||
		got[0].Held != shownAgents+3 || got[0].Capacity != 4*(shownAgents+3) || got[1].Count != 1 || got[1].Names[0] != "a (x, y)" {
		t.Errorf("got %+v, want %d healthy agents of which %d are named, and one that is unavailable", got, shownAgents+3, shownAgents)
	}
}
