package ui

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

func TestPagesOfAgents(t *testing.T) {
	t.Parallel()
	away := "http://" + testutil.FreeAddr(t) + "/"
	var agents *agent.Service
	w := newWorld(t, func(cfg *Config) {
		var err error
		if agents, err = agent.New(agent.Config{Client: cfg.Client, Jobs: cfg.Jobs, Allow: []string{away}, HealthEvery: time.Second, Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		cfg.Agents = agents
	})
	must := func(err error) {
		t.Helper()
		testutil.Ok(t, err)
	}
	register := func(r agent.Registration) string {
		t.Helper()
		a, _, err := agents.Register(w.ctx, r)
		must(err)
		return a.ID
	}
	one := register(agent.Registration{Name: hostile, Roles: []string{"creator", "validator"}, Capacity: 4, Labels: map[string]string{hostile: hostile}})
	two := register(agent.Registration{Name: "two", Roles: []string{"writer"}, URL: away})
	stop := testutil.Background(t, agents.Run)
	testutil.Eventually(t, "an agent is unavailable", func() bool {
		a, err := agents.Get(w.ctx, two)
		return err == nil && a.Health != ""
	})
	stop()
	lease := func(role string) (got agent.Assignment) {
		t.Helper()
		testutil.Eventually(t, "work for "+role, func() bool {
			list, err := agents.Lease(w.ctx, one, []string{role}, 1, 0)
			must(err)
			if len(list) == 1 {
				got = list[0]
			}
			return len(list) == 1
		})
		return got
	}
	w.create("default", "p")
	a := lease("creator")
	_, err := agents.AddItems(w.ctx, a.ID, one, a.Fence, []jobs.NewItem{{Key: "a", Text: "t"}, {Key: "b", Text: "t"}})
	must(err)
	v := lease("validator")
	must(agents.Complete(w.ctx, v.ID, one, v.Fence, jobs.Answer{Usage: map[string]int64{"tokens": 5000}}))
	v = lease("validator")
	must(agents.Fail(w.ctx, v.ID, one, v.Fence, "unclear "+hostile, nil, true, nil))

	showsText(t, w.h, "/agents", "1 of 4", "1 unavailable", "refused", "1 succeeded, 1 failed", `\u202e`)
	showsText(t, w.h, "/agents?role=writer", "two")
	showsText(t, w.h, "/agents?role=none", "No agent has this role")
	showsText(t, w.h, "/agents/"+one, "5\u202f000 tokens", "1 of 4", "1 succeeded, 1 failed", "/drain", "/remove", "unclear &lt;script&gt;")
	showsText(t, w.h, "/agents/"+two, "refused", away[:len(away)-1], "It has ended no assignment")

	w.done("/agents/"+one+"/drain", nil, "/ui/agents/"+one)
	showsText(t, w.h, "/agents/"+one, "draining", "/undrain")
	w.done("/agents/"+one+"/undrain", nil, "/ui/agents/"+one)
	showsText(t, w.h, "/agents/"+one, "healthy")
	w.done("/agents/"+one+"/remove", nil, "/ui/agents")
	w.done("/agents/"+two+"/remove", nil, "/ui/agents")
	showsText(t, w.h, "/agents", "No agent is registered")
	if code, _ := get(t, w.h, "/agents/"+one); code != http.StatusNotFound {
		t.Errorf("an agent that was removed: got %d, want 404", code)
	}
}
