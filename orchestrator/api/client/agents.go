package client

import (
	"encoding/json"
	"net/http"
	"time"

	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/access"
)

// NewAgent is the registration of an agent.
type NewAgent struct {
	Name     string            `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._:-]*$" patternDescription:"letters, digits, and . _ : - after the first" maxLength:"100" doc:"unique; registering it again is the same agent" example:"creator-1"`
	Roles    []string          `json:"roles" minItems:"1" maxItems:"20" pattern:"^[a-z0-9_-]+$" patternDescription:"small letters, digits, _ and -" maxLength:"40" doc:"roles of work that the agent takes" example:"creator"`
	Capacity int               `json:"capacity,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"work at a time"`
	URL      string            `json:"url,omitempty" maxLength:"2000" pattern:"^https?://" patternDescription:"an http or https URL" doc:"that work is pushed to; it must match the setting agents.allow. Absent: the agent fetches its work."`
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

// LeaseRequest is the input of LeaseWork.
type LeaseRequest struct {
	AgentPath
	Body struct {
		Roles []string `json:"roles,omitempty" maxItems:"20" pattern:"^[a-z0-9_-]+$" patternDescription:"small letters, digits, _ and -" maxLength:"40" doc:"Defaults to the roles of the agent."`
		Max   int      `json:"max,omitempty" minimum:"1" maximum:"100" default:"1"`
		Wait  float64  `json:"wait_seconds,omitempty" minimum:"0" maximum:"30" doc:"how long to wait for the first"`
	} `nameHint:"LeaseRequest"`
}

// Lease is leased work.
type Lease struct {
	Assignments []agent.Body `json:"assignments" doc:"empty when no work came"`
}

// AssignmentPath is the path of an assignment.
type AssignmentPath struct {
	ID string `path:"id" maxLength:"1000" pattern:"^[A-Za-z0-9][A-Za-z0-9._:~-]*$" patternDescription:"the id of an assignment" doc:"id of the assignment"`
}

// Holder identifies the holder of an assignment and its lease.
type Holder struct {
	Agent string `json:"agent" minLength:"1" maxLength:"100" doc:"id of the agent"`
	Fence int64  `json:"fence" minimum:"0" maximum:"9007199254740991" doc:"of the assignment"`
}

// Usage maps the names of resources to the amounts used: up to 50 names of 40 characters, and numbers up to 10^12.
type Usage = map[string]int64

// AssignmentBeat is the input of HeartbeatAssignment.
type AssignmentBeat struct {
	AssignmentPath
	Body struct {
		Holder
		Usage Usage `json:"usage,omitempty" maxProperties:"50" doc:"of the assignment so far, as in {\"tokens\": 1500}"`
	} `nameHint:"AssignmentHeartbeat"`
}

// AssignmentLease is the extended lease of an assignment.
type AssignmentLease struct {
	LeaseUntil time.Time `json:"lease_until"`
	Deadline   time.Time `json:"deadline"`
}

// ItemsOfAssignment is the input of AddItems.
type ItemsOfAssignment struct {
	AssignmentPath
	Body struct {
		Holder
		Items []jobs.NewItem `json:"items" minItems:"1" maxItems:"10000"`
	} `nameHint:"NewItems"`
}

// AddedItems is the result of AddItems.
type AddedItems struct {
	Added int `json:"added" doc:"items that were not there yet"`
}

// AssignmentCompletion is the input of CompleteAssignment.
type AssignmentCompletion struct {
	AssignmentPath
	Body struct {
		Holder
		Verdict string          `json:"verdict,omitempty" maxLength:"100" doc:"one of the states of the stage. Defaults to accept." example:"accept"`
		Reason  string          `json:"reason,omitempty" maxLength:"100000" doc:"why it was rejected"`
		Items   []jobs.NewItem  `json:"items,omitempty" maxItems:"10000" doc:"are added before; only by a stage that takes the job"`
		Item    Object          `json:"item,omitempty" doc:"fields of the item to set"`
		Result  json.RawMessage `json:"result,omitempty" doc:"of a stage that takes the job: any JSON"`
		Usage   Usage           `json:"usage,omitempty" maxProperties:"50" doc:"of the whole assignment"`
	} `nameHint:"Completion"`
}

// AssignmentFailing is the input of FailAssignment.
type AssignmentFailing struct {
	AssignmentPath
	Body struct {
		Holder
		Error      string   `json:"error" pattern:"\\S" patternDescription:"text that is not blank" maxLength:"10000" doc:"why"`
		RetryAfter *float64 `json:"retry_after_seconds,omitempty" minimum:"0" maximum:"86400" doc:"Defaults to a back-off that grows."`
		Permanent  bool     `json:"permanent,omitempty" doc:"do not retry"`
		Usage      Usage    `json:"usage,omitempty" maxProperties:"50"`
	} `nameHint:"AssignmentFailure"`
}

// AssignmentRelease is the input of ReleaseAssignment.
type AssignmentRelease struct {
	AssignmentPath
	Body Holder
}

// Empty is an empty object.
type Empty struct{}

// heldWork adds the problems of operations on a leased assignment.
func heldWork(d *Declaration) {
	ofAgents(d)
	d.Problems = []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict}
}

// Operations on assignments.
var (
	LeaseWork = Declare[LeaseRequest, Lease]("POST /v1/agents/{id}/lease", "leaseWork", "assignments", "Take work, and wait for it", ofAgents, Fails(http.StatusNotFound, http.StatusTooManyRequests),
		func(d *Declaration) { d.Waits = true })
	HeartbeatAssignment = Declare[AssignmentBeat, AssignmentLease]("POST /v1/assignments/{id}/heartbeat", "heartbeatAssignment", "assignments", "Keep an assignment", heldWork)
	AddItems            = Declare[ItemsOfAssignment, AddedItems]("POST /v1/assignments/{id}/items", "addItems", "assignments", "Add items to the job, while the work continues", heldWork)
	CompleteAssignment  = Declare[AssignmentCompletion, Empty]("POST /v1/assignments/{id}/complete", "completeAssignment", "assignments", "Complete an assignment; a repeat succeeds", heldWork)
	FailAssignment      = Declare[AssignmentFailing, Empty]("POST /v1/assignments/{id}/fail", "failAssignment", "assignments", "Fail an assignment; it is tried again", heldWork)
	ReleaseAssignment   = Declare[AssignmentRelease, Empty]("POST /v1/assignments/{id}/release", "releaseAssignment", "assignments", "Return an assignment; no attempt is counted", heldWork)
)
