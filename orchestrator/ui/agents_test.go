package ui

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"muster/jobs/agent"
)

// agents are agents that change as they are told.
type agents struct {
	mu   sync.Mutex // guards the fields below
	list []agent.Agent
	past []agent.Activity
}

func (f *agents) List(context.Context) ([]agent.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, nil
}

func (f *agents) Get(_ context.Context, id string) (agent.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.list {
		if a.ID == id {
			return a, nil
		}
	}
	return agent.Agent{}, agent.ErrNoAgent
}

func (f *agents) Activity(context.Context, int) ([]agent.Activity, error) { return f.past, nil }

func (f *agents) Drain(_ context.Context, id string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list[0].State = map[bool]string{true: agent.StateDraining, false: agent.StateHealthy}[on]
	return nil
}

func (f *agents) Remove(context.Context, string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
	return nil
}

func TestPagesOfAgents(t *testing.T) {
	t.Parallel()
	hour := time.Now().UTC().Truncate(time.Hour)
	f := &agents{list: []agent.Agent{
		{ID: "one-1", Name: hostile, Roles: []string{"creator", hostile}, Capacity: 4, Held: 3, State: agent.StateHealthy, Done: 12_000, Usage: map[string]int64{"tokens": 5000, hostile: 1}, Labels: map[string]string{hostile: hostile}},
		{ID: "two-2", Name: "two", Roles: []string{"validator"}, Capacity: 1, State: agent.StateUnavailable, URL: "http://two.example/", Breaker: "open", Health: "refused " + hostile, Checked: time.Now()},
	}, past: []agent.Activity{{Hour: hour, Agent: "one-1", Name: hostile, Assignments: 7, Failed: 2, Tokens: 90}, {Hour: hour.Add(-100 * time.Hour), Agent: "one-1", Assignments: 1}}}
	w := newWorld(t, func(cfg *Config) { cfg.Agents, cfg.Logger = f, slog.New(slog.DiscardHandler) })
	showsText(t, w.h, "/agents", "3 of 4", "1 unavailable", "12\u202f000", "refused &lt;script&gt;", "5 succeeded, 2 failed", `\u202e`, `<span class="badge FAILURE">open</span>`)
	showsText(t, w.h, "/agents?role=validator", "two")
	showsText(t, w.h, "/agents?role=none", "No agent has this role")
	showsText(t, w.h, "/agents/one-1", "5\u202f000 tokens", "3 of 4", "5 succeeded, 2 failed", "/drain", "/remove")
	showsText(t, w.h, "/agents/two-2", "refused", "http://two.example/", "It has ended no assignment")

	w.done("/agents/one-1/drain", nil, "/ui/agents/one-1")
	showsText(t, w.h, "/agents/one-1", "draining", "/undrain")
	w.done("/agents/one-1/undrain", nil, "/ui/agents/one-1")
	showsText(t, w.h, "/agents/one-1", "healthy")
	w.done("/agents/one-1/remove", nil, "/ui/agents")
	showsText(t, w.h, "/agents", "No agent is registered")
	if code, _ := get(t, w.h, "/agents/one-1"); code != http.StatusNotFound {
		t.Errorf("an agent that was removed: got %d, want 404", code)
	}
}
