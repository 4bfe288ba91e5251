package api

import (
	"net/http"
	"strings"
	"testing"

	"muster/orchestrator/agent"
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

func TestOverviewListsJobs(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	f.jobs.job.Waiting = "no agent of role <b>"
	shows(t, handler(t, withSites(t, cfg)), "/ui/", 200, `href="/ui/jobs/`+aJob+`"`, "no agent of role &lt;b&gt;", "one (creator)", `<span class="badge healthy">healthy</span>`)
	if f.jobs.filter.Limit != newestJobs {
		t.Errorf("got a list of %d jobs, want %d", f.jobs.filter.Limit, newestJobs)
	}
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
