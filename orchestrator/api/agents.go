package api

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

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

// agentRegistry registers agents and reports their state.
type agentRegistry struct {
	agents *agent.Service
	lease  time.Duration // without a heartbeat
}

// addAgents adds the registry of agents.
func addAgents(s *server) {
	registry := agentRegistry{s.cfg.Agents, s.cfg.Lease}
	implement(s, client.ListAgents, func(ctx context.Context, _ *client.None) (client.Page[agent.Agent], error) {
		return pageOf(registry.agents.List(ctx))
	})
	op := describe(s, http.MethodGet, "/agents/health", "getAgentsHealth", tagAgents, "The health of all agents")
	route(s, op, 0, registry.health)
	op = s.operationOf(client.GetAgentsActivity.Declaration)
	example(&op, http.StatusOK, client.Page[agent.Activity]{Data: []agent.Activity{{
		Hour: time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC), Agent: "creator-1-5c9d1f6e", Name: "creator-1", Assignments: 12, Failed: 1, Requests: 40, Tokens: 90_000, AverageSeconds: 31.5,
	}}})
	route(s, op, 0, body(func(ctx context.Context, in *client.ActivityFilter) (client.Page[agent.Activity], error) {
		return pageOf(registry.agents.Activity(ctx, in.Hours))
	}))
	implement(s, client.RegisterAgent, registry.register)
	implement(s, client.GetAgent, func(ctx context.Context, in *client.AgentPath) (agent.Agent, error) {
		return registry.agents.Get(ctx, in.ID)
	})
	implementNone(s, client.DeleteAgent, func(ctx context.Context, in *client.AgentPath) error {
		if err := owns(ctx, registry.agents, in.ID); err != nil {
			return err
		}
		return registry.agents.Remove(ctx, in.ID)
	})
	implement(s, client.HeartbeatAgent, func(ctx context.Context, in *client.AgentBeat) (out client.AgentState, err error) {
		if err := owns(ctx, registry.agents, in.ID); err != nil {
			return out, err
		}
		a, err := registry.agents.Heartbeat(ctx, in.ID)
		return client.AgentState{State: a.State}, err
	})
	drain := func(paused bool) func(context.Context, *client.AgentPath) (agent.Agent, error) {
		return func(ctx context.Context, in *client.AgentPath) (out agent.Agent, err error) {
			if err := registry.agents.Drain(ctx, in.ID, paused); err != nil {
				return out, err
			}
			return registry.agents.Get(ctx, in.ID)
		}
	}
	implement(s, client.PauseAgent, drain(true))
	implement(s, client.ResumeAgent, drain(false))
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

func (r agentRegistry) register(ctx context.Context, in *client.With[client.NewAgent]) (out client.RegisteredAgent, err error) {
	n := in.Body
	if err := mayHave(ctx, n.Roles); err != nil {
		return out, err
	}
	a, secret, err := r.agents.Register(ctx, agent.Registration{Name: n.Name, Roles: n.Roles, Capacity: n.Capacity, URL: n.URL, Labels: n.Labels, Owner: ownerOf(ctx)})
	if err != nil {
		return out, err
	}
	return client.RegisteredAgent{ID: a.ID, Secret: secret, Lease: r.lease.Seconds(), Heartbeat: r.lease.Seconds() / 3}, nil
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

// maxWait limits the wait of a request for work.
const maxWait = 30 * time.Second

var assignmentID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:~-]*$`) // of client.AssignmentPath

// work implements the operations on assignments.
type work struct {
	agents        *agent.Service
	untilShutdown func(context.Context) (context.Context, context.CancelFunc)
}

// addAssignments adds the operations on assignments.
func addAssignments(s *server) {
	w := work{s.cfg.Agents, s.untilShutdown}
	implement(s, client.LeaseWork, w.lease)
	implementAfter(s, client.HeartbeatAssignment, maxBody, w.held, func(ctx context.Context, in *client.AssignmentBeat) (client.AssignmentLease, error) {
		a, err := w.agents.Beat(ctx, in.ID, in.Body.Agent, in.Body.Fence, in.Body.Usage)
		return client.AssignmentLease{LeaseUntil: a.Work.Expires, Deadline: a.Work.Deadline}, err
	})
	implementAfter(s, client.AddItems, maxItemsBody, w.held, func(ctx context.Context, in *client.ItemsOfAssignment) (client.AddedItems, error) {
		added, err := w.agents.AddItems(ctx, in.ID, in.Body.Agent, in.Body.Fence, in.Body.Items)
		return client.AddedItems{Added: added}, err
	})
	implementAfter(s, client.CompleteAssignment, maxItemsBody, w.held, w.complete)
	implementAfter(s, client.FailAssignment, maxBody, w.held, w.fail)
	implementAfter(s, client.ReleaseAssignment, maxBody, w.held, func(ctx context.Context, in *client.AssignmentRelease) (client.Empty, error) {
		return client.Empty{}, w.agents.Release(ctx, in.ID, in.Body.Agent, in.Body.Fence)
	})
}

// held returns an error unless the assignment in the path of a request exists and the caller may act for its agent.
func (w work) held(r *http.Request) error {
	id := r.PathValue("id")
	if len(id) > 1000 || !assignmentID.MatchString(id) {
		return badField("path.id", "expected the id of an assignment")
	}
	holder, err := w.agents.Holder(r.Context(), id)
	if err != nil {
		return err
	}
	return owns(r.Context(), w.agents, holder)
}

func (w work) lease(ctx context.Context, in *client.LeaseRequest) (out client.Lease, err error) {
	if err := owns(ctx, w.agents, in.ID); err != nil {
		return out, err
	}
	if len(in.Body.Roles) == 0 && access.CallerOf(ctx).AgentRoles != "" {
		a, err := w.agents.Get(ctx, in.ID)
		if err != nil {
			return out, err
		}
		in.Body.Roles = a.Roles
	}
	if err := mayHave(ctx, in.Body.Roles); err != nil {
		return out, err
	}
	wait := min(time.Duration(in.Body.Wait*float64(time.Second)), maxWait)
	polling, cancel := w.untilShutdown(ctx)
	defer cancel()
	list, err := w.agents.Lease(polling, in.ID, in.Body.Roles, in.Body.Max, wait)
	if err != nil && (polling.Err() == nil || ctx.Err() != nil) {
		return out, err
	}
	out.Assignments = []agent.Body{} // empty at shutdown
	for _, a := range list {
		out.Assignments = append(out.Assignments, a.Body())
	}
	return out, nil
}

func (w work) complete(ctx context.Context, in *client.AssignmentCompletion) (client.Empty, error) {
	b := in.Body
	if b.Item != nil && b.Result != nil {
		return client.Empty{}, badField("body.result", "item and result exclude each other; set item in a stage of items and result in a stage of the job")
	}
	answer := jobs.Answer{Items: b.Items, Verdict: b.Verdict, Reason: b.Reason, Patch: b.Result, Usage: b.Usage}
	if b.Item != nil {
		answer.Patch = json.RawMessage(b.Item)
	}
	return client.Empty{}, w.agents.Complete(ctx, in.ID, b.Agent, b.Fence, answer)
}

func (w work) fail(ctx context.Context, in *client.AssignmentFailing) (client.Empty, error) {
	b := in.Body
	var after *time.Duration
	if b.RetryAfter != nil {
		d := time.Duration(*b.RetryAfter * float64(time.Second))
		after = &d
	}
	return client.Empty{}, w.agents.Fail(ctx, in.ID, b.Agent, b.Fence, b.Error, after, b.Permanent, b.Usage)
}
