package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/jobs/agent"
)

const (
	activityHours = agent.MaxHours
	activityEvery = 5 * time.Second // interval of reads of the activity, which is counted by hour
)

// Activity returns the activity of an agent in the last hours; of all agents for "". It is read every few seconds.
func (p *pages) Activity(ctx context.Context, id string) ([]agent.Activity, error) {
	all, err := cached(ctx, &p.known.activity, activityEvery, func(ctx context.Context) ([]agent.Activity, error) { return p.Agents.Activity(ctx, activityHours) })
	return slices.DeleteFunc(slices.Clone(all), func(a agent.Activity) bool { return id != "" && a.Agent != id }), err
}

// byHour returns a chart of the activity of agents in the last hours.
func byHour(list []agent.Activity) *webui.Chart {
	now := time.Now()
	c := webui.NewChart("Assignments that ended in the last day, by hour", now.Add(-(activityHours-1)*time.Hour), now, time.Hour)
	for _, a := range list {
		c.Add(a.Hour, a.Assignments-a.Failed, a.Failed)
	}
	return c
}

type agentsData struct {
	States map[string]int // number of agents by state
	Filter *webui.Filter
	Rows   []agent.Agent // of the role, those with problems first
	Held   int
	Slots  int
}

// listAgents lists the agents.
func (p *pages) listAgents(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	filter, err := webui.NewFilter(q)
	if err != nil {
		return webui.View{}, err
	}
	list, err := p.Agents.List(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d, roles, wanted := agentsData{Filter: filter, States: map[string]int{}}, map[string]bool{}, q.Get("role")
	for _, a := range list {
		for _, role := range a.Roles {
			roles[role] = true
		}
		if d.States[a.State]++; a.State == agent.StateHealthy {
			d.Held, d.Slots = d.Held+a.Held, d.Slots+a.Capacity
		}
		if wanted == "" || slices.Contains(a.Roles, wanted) {
			d.Rows = append(d.Rows, a)
		}
	}
	filter.Name = "Role"
	filter.AddTab(q, "role", "", "All roles", -1)
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		filter.AddTab(q, "role", role, line(40, role), -1)
	}
	first := []string{agent.StateUnavailable, agent.StateDraining, agent.StateNew, agent.StateHealthy}
	slices.SortStableFunc(d.Rows, func(a, b agent.Agent) int { return slices.Index(first, a.State) - slices.Index(first, b.State) })
	return webui.View{Name: "Agents", Data: d}, nil
}

func (p *pages) oneAgent(ctx context.Context, r *http.Request) (webui.View, error) {
	a, err := p.Agents.Get(ctx, r.PathValue("agent"))
	return webui.View{Name: "Agent " + webui.Plain(a.Name), Data: a}, noAgent(err)
}

// noAgent returns the error of an agent that does not exist.
func noAgent(err error) error {
	if errors.Is(err, agent.ErrNoAgent) {
		return webui.NotFound("Agent not found. Agents without heartbeats are removed after a while; they register again when they reconnect.")
	}
	return err
}

// agentActions returns the actions on agents by path.
func (p *pages) agentActions() map[string]webui.Action {
	action := func(q func(agent.Agent) webui.Question, do func(ctx context.Context, id string) error) webui.Action {
		return func(ctx context.Context, r *http.Request) (webui.Question, error) {
			a, err := p.Agents.Get(ctx, r.PathValue("agent"))
			if err != nil {
				return webui.Question{}, noAgent(err)
			}
			a.Name = webui.Plain(a.Name)
			ask := q(a)
			ask.Back = cmp.Or(ask.Back, agentsAt+"/"+url.PathEscape(a.ID))
			ask.Do = func(ctx context.Context, _ webui.Form) (webui.Result, error) {
				return webui.Result{}, noAgent(do(ctx, a.ID))
			}
			return ask, nil
		}
	}
	return map[string]webui.Action{
		"/agents/{agent}/drain": action(func(a agent.Agent) webui.Question {
			return webui.Question{Title: "Drain agent " + a.Name, Button: "Drain the agent", Text: fmt.Sprintf("The agent gets no new work until it is resumed. Its %d current assignments continue.", a.Held)}
		}, func(ctx context.Context, id string) error { return p.Agents.Drain(ctx, id, true) }),
		"/agents/{agent}/undrain": action(func(a agent.Agent) webui.Question {
			return webui.Question{Title: "Give agent " + a.Name + " work again", Button: "Give it work", Text: "It gets new work as before it was drained."}
		}, func(ctx context.Context, id string) error { return p.Agents.Drain(ctx, id, false) }),
		"/agents/{agent}/remove": action(func(a agent.Agent) webui.Question {
			q := webui.Question{Title: "Remove agent " + a.Name, Button: "Remove the agent", Danger: true, Back: agentsAt}
			q.Text = fmt.Sprintf("It is forgotten, and the %d assignments that it works on go to others. If it still runs it must register again.", a.Held)
			if a.Static {
				q.Text += " It is in the setting agents.static, and comes back from there."
			}
			return q
		}, p.Agents.Remove),
	}
}
