package client

import (
	"net/http"

	"muster/jobs/agent"
	"muster/orchestrator/access"
)

// NewAgent is the registration of an agent.
type NewAgent struct {
	Name     string            `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._:-]*$" maxLength:"100" doc:"unique; registering it again is the same agent" example:"creator-1"`
	Roles    []string          `json:"roles" minItems:"1" maxItems:"20" pattern:"^[a-z0-9_-]+$" patternDescription:"small letters, digits, _ and -" maxLength:"40" doc:"roles of work that the agent takes" example:"creator"`
	Capacity int               `json:"capacity,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"work at a time"`
	URL      string            `json:"url,omitempty" maxLength:"2000" pattern:"^https?://" doc:"that work is pushed to; it must match the setting agents.allow. Absent: the agent fetches its work."`
	Labels   map[string]string `json:"labels,omitempty" maxProperties:"20" doc:"for people"`
}

// AgentPath is the path of an agent.
type AgentPath struct {
	ID string `path:"id" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._:-]*$" patternDescription:"the id of an agent" doc:"id of the agent" example:"5c9d1f6e-1f0b-4d77-8a55-0a5b34b9a1f0"`
}

// ActivityFilter selects hours of the work of agents.
type ActivityFilter struct {
	Hours int `query:"hours" default:"24" minimum:"1" maximum:"24" doc:"number of hours, including the current one"`
}

// AgentBeat is the input of HeartbeatAgent.
type AgentBeat struct {
	AgentPath
	Body *struct{} `nameHint:"AgentHeartbeat"`
}

// RegisteredAgent is the result of a registration.
type RegisteredAgent struct {
	ID        string  `json:"id"`
	Secret    string  `json:"secret,omitempty" doc:"signs the requests to an agent with a URL; it is shown once"`
	Heartbeat float64 `json:"heartbeat_seconds" doc:"how often a heartbeat is expected"`
	Lease     float64 `json:"lease_seconds" doc:"time after which an assignment expires without a heartbeat"`
}

// AgentState is the result of a heartbeat.
type AgentState struct {
	State string `json:"state" doc:"draining: it gets no more work"`
}

// Operations on agents.
var (
	ListAgents        = Declare[None, Page[agent.Agent]]("GET /v1/agents", "listAgents", "agents", "List the agents")
	GetAgentsActivity = Declare[ActivityFilter, Page[agent.Activity]]("GET /v1/agents/activity", "getAgentsActivity", "agents",
		"Get the activity of agents by hour: assignments, requests, tokens and durations")
	RegisterAgent  = Declare[With[NewAgent], RegisteredAgent]("POST /v1/agents", "registerAgent", "agents", "Register an agent", Roles(access.Agent), Returns(http.StatusCreated))
	GetAgent       = Declare[AgentPath, agent.Agent]("GET /v1/agents/{id}", "getAgent", "agents", "Get an agent", Fails(http.StatusNotFound))
	DeleteAgent    = Declare[AgentPath, None]("DELETE /v1/agents/{id}", "deleteAgent", "agents", "Delete an agent; its work goes to others", Roles(access.Agent), Fails(http.StatusNotFound, http.StatusConflict))
	HeartbeatAgent = Declare[AgentBeat, AgentState]("POST /v1/agents/{id}/heartbeat", "heartbeatAgent", "agents", "Send a heartbeat of an agent", ofAgents, Fails(http.StatusNotFound))
	PauseAgent     = Declare[AgentPath, agent.Agent]("POST /v1/agents/{id}/pause", "pauseAgent", "agents", "Give an agent no new work until it is resumed", Fails(http.StatusNotFound))
	ResumeAgent    = Declare[AgentPath, agent.Agent]("POST /v1/agents/{id}/resume", "resumeAgent", "agents", "Give a paused agent work again", Fails(http.StatusNotFound))
)
