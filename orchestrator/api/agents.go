package api

import (
	"context"
	"net/http"
	"time"

	"muster/jobs/agent"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

// NewAgent is the registration of an agent.
type NewAgent struct {
	Name     string            `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._:-]*$" maxLength:"100" doc:"unique; registering it again is the same agent" example:"creator-1"`
	Roles    []string          `json:"roles" minItems:"1" maxItems:"20" pattern:"^[a-z0-9_-]+$" patternDescription:"small letters, digits, _ and -" maxLength:"40" doc:"roles of work that the agent takes" example:"creator"`
	Capacity int               `json:"capacity,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"work at a time"`
	URL      string            `json:"url,omitempty" maxLength:"2000" pattern:"^https?://" doc:"that work is pushed to; it must match the setting agents.allow. Absent: the agent fetches its work."`
	Labels   map[string]string `json:"labels,omitempty" maxProperties:"20" doc:"for people"`
}

type registerOutput struct {
	Body struct {
		ID        string  `json:"id"`
		Secret    string  `json:"secret,omitempty" doc:"signs the requests to an agent with a URL; it is shown once"`
		Heartbeat float64 `json:"heartbeat_seconds" doc:"how often a heartbeat is expected"`
		Lease     float64 `json:"lease_seconds" doc:"time after which an assignment expires without a heartbeat"`
	} `nameHint:"RegisteredAgent"`
}

// AgentPath is the path of an agent.
type AgentPath struct {
	ID string `path:"id" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._:-]*$" patternDescription:"the id of an agent" doc:"id of the agent" example:"5c9d1f6e-1f0b-4d77-8a55-0a5b34b9a1f0"`
}

// AgentHealth is the health of an agent.
type AgentHealth struct {
	Name         string   `json:"name"`
	Role         string   `json:"role" doc:"the first of its roles"`
	Roles        []string `json:"roles"`
	URL          string   `json:"url,omitempty"`
	Status       string   `json:"status" doc:"healthy, unavailable, draining or new"`
	Message      string   `json:"message" doc:"why it is unavailable"`
	LastActivity string   `json:"last_activity,omitempty" doc:"last activity according to its health check"`
	CurrentJob   string   `json:"current_job_id,omitempty"`
}

type agentsHealthOutput struct {
	Body struct {
		Agents []AgentHealth `json:"agents"`
	} `nameHint:"AgentHealthList"`
}

type activityInput struct {
	Hours int `query:"hours" default:"24" minimum:"1" maximum:"24" doc:"number of hours, including the current one"`
}

type beatInput struct {
	AgentPath
	Body *struct{} `nameHint:"AgentHeartbeat"`
}

type beatOutput struct {
	Body struct {
		State string `json:"state" doc:"draining: it gets no more work"`
	} `nameHint:"AgentState"`
}

// agentRegistry registers agents and reports their state.
type agentRegistry struct {
	agents *agent.Service
	lease  time.Duration // without a heartbeat
}

// addAgents adds the registry of agents.
func addAgents(s *server) {
	registry := agentRegistry{s.cfg.Agents, s.cfg.Lease}
	op := describe(s, http.MethodGet, "/v1/agents", "listAgents", tagAgents, "List the agents")
	route(s, op, 0, body(func(ctx context.Context, _ *nothing) (client.Page[agent.Agent], error) {
		return pageOf(registry.agents.List(ctx))
	}))
	op = describe(s, http.MethodGet, "/agents/health", "getAgentsHealth", tagAgents, "The health of all agents")
	route(s, op, 0, registry.health)

	op = describe(s, http.MethodGet, "/v1/agents/activity", "getAgentsActivity", tagAgents, "Get the activity of agents by hour: assignments, requests, tokens and durations")
	example(&op, http.StatusOK, client.Page[agent.Activity]{Data: []agent.Activity{{
		Hour: time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC), Agent: "creator-1-5c9d1f6e", Name: "creator-1", Assignments: 12, Failed: 1, Requests: 40, Tokens: 90_000, AverageSeconds: 31.5,
	}}})
	route(s, op, 0, body(func(ctx context.Context, in *activityInput) (client.Page[agent.Activity], error) {
		return pageOf(registry.agents.Activity(ctx, in.Hours))
	}))

	op = describe(s, http.MethodPost, "/v1/agents", "registerAgent", tagAgents, "Register an agent")
	op.DefaultStatus = http.StatusCreated
	needs(&op, access.Agent)
	route(s, op, maxBody, registry.register)

	op = describe(s, http.MethodGet, "/v1/agents/{id}", "getAgent", tagAgents, "Get an agent", http.StatusNotFound)
	route(s, op, 0, body(func(ctx context.Context, in *AgentPath) (agent.Agent, error) {
		return registry.agents.Get(ctx, in.ID)
	}))
	op = describe(s, http.MethodDelete, "/v1/agents/{id}", "deleteAgent", tagAgents, "Delete an agent; its work goes to others", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Agent)
	route(s, op, 0, func(ctx context.Context, in *AgentPath) (*nothing, error) {
		if err := owns(ctx, registry.agents, in.ID); err != nil {
			return nil, err
		}
		return nil, registry.agents.Remove(ctx, in.ID)
	})
	op = describe(s, http.MethodPost, "/v1/agents/{id}/heartbeat", "heartbeatAgent", tagAgents, "Send a heartbeat of an agent", http.StatusNotFound)
	ofAgents(&op)
	route(s, op, maxBody, func(ctx context.Context, in *beatInput) (*beatOutput, error) {
		if err := owns(ctx, registry.agents, in.ID); err != nil {
			return nil, err
		}
		a, err := registry.agents.Heartbeat(ctx, in.ID)
		out := &beatOutput{}
		out.Body.State = a.State
		return out, err
	})
	for _, c := range []struct {
		verb, id, summary string
		paused            bool
	}{
		{"pause", "pauseAgent", "Give an agent no new work until it is resumed", true},
		{"resume", "resumeAgent", "Give a paused agent work again", false},
	} {
		op = describe(s, http.MethodPost, "/v1/agents/{id}/"+c.verb, c.id, tagAgents, c.summary, http.StatusNotFound)
		route(s, op, 0, body(func(ctx context.Context, in *AgentPath) (out agent.Agent, err error) {
			if err := registry.agents.Drain(ctx, in.ID, c.paused); err != nil {
				return out, err
			}
			return registry.agents.Get(ctx, in.ID)
		}))
	}
}

// ownerOf returns the owner of the agents that the caller of a request registers:
// itself if it is an agent. Others may act for all agents anyway.
func ownerOf(ctx context.Context) string {
	if caller := access.CallerOf(ctx); caller.Role == access.Agent {
		return caller.Owner()
	}
	return ""
}

// owns returns an error if the caller of a request may not act for an agent: it is an
// agent, and does not own that one.
func owns(ctx context.Context, agents *agent.Service, id string) error {
	me := ownerOf(ctx)
	if me == "" {
		return nil
	}
	owner, err := agents.Owner(ctx, id)
	if err == nil && owner != me {
		err = agent.ErrNotOwner
	}
	return err
}

// mayHave returns an error if agents of the caller of a request may not have one of roles.
func mayHave(ctx context.Context, roles []string) error {
	caller := access.CallerOf(ctx)
	for _, role := range roles {
		if !caller.MayHave(role) {
			return problem(http.StatusForbidden, "the key is bound to agents of the role %s, and may not have the role %s", caller.AgentRoles, role)
		}
	}
	return nil
}

// reads returns an error if the caller of a request may not read a job: it is an agent without an assignment of the job.
func (s *server) reads(ctx context.Context, jobID string) error {
	me := ownerOf(ctx)
	if me == "" {
		return nil
	}
	works := false
	if s.cfg.Agents != nil {
		var err error
		if works, err = s.cfg.Agents.WorksOn(ctx, me, jobID); err != nil {
			return err
		}
	}
	if !works {
		return problem(http.StatusForbidden, "a key of the role agent may read the jobs that its agents hold an assignment of, and job %s is not one of them", jobID)
	}
	return nil
}

func (r agentRegistry) register(ctx context.Context, in *request[NewAgent]) (*registerOutput, error) {
	n := in.Body
	if err := mayHave(ctx, n.Roles); err != nil {
		return nil, err
	}
	for key, value := range n.Labels {
		if len(key) > 100 || len(value) > 1000 {
			return nil, badField("body.labels."+keyOf([]byte(key)), "a label has a name of up to 100 bytes and a text of up to 1000")
		}
	}
	a, secret, err := r.agents.Register(ctx, agent.Registration{Name: n.Name, Roles: n.Roles, Capacity: n.Capacity, URL: n.URL, Labels: n.Labels, Owner: ownerOf(ctx)})
	if err != nil {
		return nil, err
	}
	out := &registerOutput{}
	out.Body.ID, out.Body.Secret = a.ID, secret
	out.Body.Lease, out.Body.Heartbeat = r.lease.Seconds(), r.lease.Seconds()/3
	return out, nil
}

func (r agentRegistry) health(ctx context.Context, _ *nothing) (*agentsHealthOutput, error) {
	list, err := r.agents.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &agentsHealthOutput{}
	out.Body.Agents = []AgentHealth{}
	for _, a := range list {
		h := AgentHealth{Name: a.Name, Roles: orEmpty(a.Roles), URL: a.URL, Status: a.State, Message: a.Health, LastActivity: a.Activity, CurrentJob: a.CurrentJob}
		if len(a.Roles) > 0 {
			h.Role = a.Roles[0]
		}
		out.Body.Agents = append(out.Body.Agents, h)
	}
	return out, nil
}
