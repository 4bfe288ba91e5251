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
	"strings"
	"time"

	"muster/internal/webui"
	"muster/jobs/agent"
)

const (
	activityHours = agent.MaxHours
	activityEvery = 5 * time.Second // interval of reads of the activity, which is counted by hour
	agentsListed  = 200
)

// agentPages show agents.
type agentPages struct {
	agents *agent.Service
	past   *webui.Cache[[]agent.Activity]
}

// agents adds the pages of agents.
func (p *pages) agents() {
	show := agentPages{p.cfg.Agents, &webui.Cache[[]agent.Activity]{}}
	p.page("/agents", "agents", show.list)
	p.page("/agents/{agent}", "agent", show.one)
	p.actions(show.changes())
}

// activity returns the activity of agents, which is read every few seconds.
func (p agentPages) activity(ctx context.Context) ([]agent.Activity, error) {
	return cached(ctx, p.past, activityEvery, func(ctx context.Context) ([]agent.Activity, error) { return p.agents.Activity(ctx, activityHours) })
}

// byHour returns a chart of the activity of agents in the last hours.
func byHour(title string, list []agent.Activity, now time.Time) webui.Chart {
	c := webui.Chart{Title: title, Bars: make([]webui.Bar, activityHours)}
	first := now.UTC().Truncate(time.Hour).Add(-(activityHours - 1) * time.Hour)
	for i := range c.Bars {
		c.Bars[i].Label = first.Add(time.Duration(i) * time.Hour).Format("15:04 UTC")
	}
	for _, a := range list {
		if i := int(a.Hour.Sub(first) / time.Hour); i >= 0 && i < len(c.Bars) {
			c.Bars[i].Good += a.Assignments - a.Failed
			c.Bars[i].Bad += a.Failed
		}
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Label = webui.Tooltip(b.Label, b.Good, b.Bad)
	}
	return c
}

// agentRow is an agent of a list.
type agentRow struct{ agent.Agent }

// Does returns the roles of the agent.
func (a agentRow) Does() string { return strings.Join(a.Roles, ", ") }

type agentsData struct {
	Counts []part // by state
	Filter *webui.Filter
	Rows   []agentRow
	More   int
	All    int
	Held   int
	Slots  int
	Day    webui.Chart
}

// list lists the agents, those with problems first.
func (p agentPages) list(ctx context.Context, r *http.Request) (webui.View, error) {
	list, err := p.agents.List(ctx)
	if err != nil {
		return webui.View{}, err
	}
	did, err := p.activity(ctx)
	if err != nil {
		return webui.View{}, err
	}
	q := r.URL.Query()
	d, role := agentsData{Filter: webui.NewFilter(q), All: len(list), Day: byHour("Assignments of agents that ended in the last day, by hour", did, time.Now())}, q.Get("role")
	roles, states := map[string]bool{}, map[string]int64{}
	for _, a := range list {
		for _, role := range a.Roles {
			roles[role] = true
		}
		states[a.State]++
		if a.State == agent.StateHealthy {
			d.Held, d.Slots = d.Held+a.Held, d.Slots+a.Capacity
		}
		if role == "" || slices.Contains(a.Roles, role) {
			d.Rows = append(d.Rows, agentRow{a})
		}
	}
	for _, st := range agent.States {
		d.Counts = append(d.Counts, part{State: st, N: states[st]})
	}
	d.Filter.Name = "Role"
	d.Filter.AddTab(q, "role", "", "All roles", -1)
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		d.Filter.AddTab(q, "role", role, line(40, role), -1)
	}
	first := []string{agent.StateUnavailable, agent.StateDraining, agent.StateNew, agent.StateHealthy}
	slices.SortStableFunc(d.Rows, func(a, b agentRow) int { return slices.Index(first, a.State) - slices.Index(first, b.State) })
	if len(d.Rows) > agentsListed {
		d.Rows, d.More = d.Rows[:agentsListed], len(d.Rows)-agentsListed
	}
	return webui.View{Name: "Agents", Data: d}, nil
}

type agentData struct {
	agentRow
	Used   []total
	Labels []field
	Hours  []agent.Activity
	Day    webui.Chart
}

func (p agentPages) one(ctx context.Context, r *http.Request) (webui.View, error) {
	a, err := p.agents.Get(ctx, r.PathValue("agent"))
	if err != nil {
		return webui.View{}, noAgent(err)
	}
	did, err := p.activity(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d := agentData{agentRow: agentRow{a}, Used: totals(a.Usage)}
	for _, h := range did {
		if h.Agent == a.ID {
			d.Hours = append(d.Hours, h)
		}
	}
	d.Day = byHour("Assignments that ended in the last day, by hour", d.Hours, time.Now())
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		d.Labels = append(d.Labels, field{name, a.Labels[name]})
	}
	return webui.View{Name: "Agent " + webui.Plain(a.Name), Data: d}, nil
}

// noAgent returns the error of an agent that does not exist.
func noAgent(err error) error {
	if errors.Is(err, agent.ErrNoAgent) {
		return webui.NotFound("Agent not found. Agents without heartbeats are removed after a while; they register again when they reconnect.")
	}
	return err
}

// changes returns the actions on agents by path.
func (p agentPages) changes() map[string]webui.Action {
	action := func(q func(agent.Agent) webui.Question, do func(ctx context.Context, id string) error) webui.Action {
		return func(ctx context.Context, r *http.Request) (webui.Question, error) {
			a, err := p.agents.Get(ctx, r.PathValue("agent"))
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
		}, func(ctx context.Context, id string) error { return p.agents.Drain(ctx, id, true) }),
		"/agents/{agent}/undrain": action(func(a agent.Agent) webui.Question {
			return webui.Question{Title: "Give agent " + a.Name + " work again", Button: "Give it work", Text: "It gets new work as before it was drained."}
		}, func(ctx context.Context, id string) error { return p.agents.Drain(ctx, id, false) }),
		"/agents/{agent}/remove": action(func(a agent.Agent) webui.Question {
			q := webui.Question{Title: "Remove agent " + a.Name, Button: "Remove the agent", Danger: true, Back: agentsAt}
			q.Text = fmt.Sprintf("It is forgotten, and the %d assignments that it works on go to others. If it still runs it must register again.", a.Held)
			if a.Static {
				q.Text += " It is in the setting agents.static, and comes back from there."
			}
			return q
		}, p.agents.Remove),
	}
}
