package api

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

// maxWait limits the wait of a request for work.
const maxWait = 30 * time.Second

type leaseInput struct {
	client.AgentPath
	Body struct {
		Roles []string `json:"roles,omitempty" maxItems:"20" pattern:"^[a-z0-9_-]+$" patternDescription:"small letters, digits, _ and -" maxLength:"40" doc:"Defaults to the roles of the agent."`
		Max   int      `json:"max,omitempty" minimum:"1" maximum:"100" default:"1"`
		Wait  float64  `json:"wait_seconds,omitempty" minimum:"0" maximum:"30" doc:"how long to wait for the first"`
	} `nameHint:"LeaseRequest"`
}

type leaseOutput struct {
	Body struct {
		Assignments []agent.Body `json:"assignments" doc:"empty when no work came"`
	} `nameHint:"Lease"`
}

// AssignmentPath is the path of an assignment.
type AssignmentPath struct {
	ID string `path:"id" maxLength:"1000" pattern:"^[A-Za-z0-9][A-Za-z0-9._:~-]*$" patternDescription:"the id of an assignment" doc:"id of the assignment"`
}

var assignmentID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:~-]*$`) // of AssignmentPath

// Holder identifies the holder of an assignment and its lease.
type Holder struct {
	Agent string `json:"agent" minLength:"1" maxLength:"100" doc:"id of the agent"`
	Fence int64  `json:"fence" minimum:"0" maximum:"9007199254740991" doc:"of the assignment"`
}

// Usage maps the names of resources to the amounts used.
type Usage map[string]int64

// Schema is for huma.
func (Usage) Schema(huma.Registry) *huma.Schema {
	least, most := 0.0, float64(maxUsage)
	number := &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least, Maximum: &most}
	number.PrecomputeMessages()
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: number}
}

// maxUsage is the largest number of a usage.
const maxUsage = 1 << 50

// check rejects amounts that cannot be added up.
func (u Usage) check() error {
	if len(u) > 50 {
		return badField("body.usage", "at most 50 names are kept")
	}
	for name, n := range u {
		if name == "" || len(name) > 100 || n < 0 || n > maxUsage {
			return badField("body.usage."+keyOf([]byte(name)), "a name of up to 100 bytes and a number from 0 to 2^50 are expected")
		}
	}
	return nil
}

type assignmentBeatInput struct {
	AssignmentPath
	Body struct {
		Holder
		Usage Usage `json:"usage,omitempty" maxProperties:"50" doc:"of the assignment so far, as in {\"tokens\": 1500}"`
	} `nameHint:"AssignmentHeartbeat"`
}

type assignmentBeatOutput struct {
	Body struct {
		LeaseUntil time.Time `json:"lease_until"`
		Deadline   time.Time `json:"deadline"`
	} `nameHint:"AssignmentLease"`
}

type addItemsInput struct {
	AssignmentPath
	Body struct {
		Holder
		Items []NewItem `json:"items" minItems:"1" maxItems:"10000"`
	} `nameHint:"NewItems"`
}

type addItemsOutput struct {
	Body struct {
		Added int `json:"added" doc:"items that were not there yet"`
	} `nameHint:"AddedItems"`
}

type completeInput struct {
	AssignmentPath
	Body struct {
		Holder
		Verdict string          `json:"verdict,omitempty" maxLength:"100" doc:"one of the states of the stage. Defaults to accept." example:"accept"`
		Reason  string          `json:"reason,omitempty" maxLength:"100000" doc:"why it was rejected"`
		Items   []NewItem       `json:"items,omitempty" maxItems:"10000" doc:"are added before; only by a stage that takes the job"`
		Item    Object          `json:"item,omitempty" doc:"fields of the item to set"`
		Result  json.RawMessage `json:"result,omitempty" doc:"of a stage that takes the job: any JSON"`
		Usage   Usage           `json:"usage,omitempty" maxProperties:"50" doc:"of the whole assignment"`
	} `nameHint:"Completion"`
}

type failInput struct {
	AssignmentPath
	Body struct {
		Holder
		Error      string   `json:"error" pattern:"\\S" patternDescription:"text that is not blank" maxLength:"10000" doc:"why"`
		RetryAfter *float64 `json:"retry_after_seconds,omitempty" minimum:"0" maximum:"86400" doc:"Defaults to a back-off that grows."`
		Permanent  bool     `json:"permanent,omitempty" doc:"do not retry"`
		Usage      Usage    `json:"usage,omitempty" maxProperties:"50"`
	} `nameHint:"AssignmentFailure"`
}

type releaseInput struct {
	AssignmentPath
	Body Holder
}

// emptyOutput is an empty object.
type emptyOutput struct {
	Body struct{} `nameHint:"Empty"`
}

// work implements the operations on assignments.
type work struct {
	agents        *agent.Service
	untilShutdown func(context.Context) (context.Context, context.CancelFunc)
}

// addAssignments adds the operations on assignments.
func addAssignments(s *server) {
	w := work{s.cfg.Agents, s.untilShutdown}
	held := []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict}
	op := describe(s, http.MethodPost, "/v1/agents/{id}/lease", "leaseWork", tagWork, "Take work, and wait for it", http.StatusNotFound, http.StatusTooManyRequests)
	ofAgents(&op)
	op.Metadata[waitsKey] = true
	route(s, op, maxBody, w.lease)

	op = describe(s, http.MethodPost, "/v1/assignments/{id}/heartbeat", "heartbeatAssignment", tagWork, "Keep an assignment", held...)
	ofAgents(&op)
	routeAfter(s, op, maxBody, w.held, func(ctx context.Context, in *assignmentBeatInput) (*assignmentBeatOutput, error) {
		if err := in.Body.Usage.check(); err != nil {
			return nil, err
		}
		a, err := w.agents.Beat(ctx, in.ID, in.Body.Agent, in.Body.Fence, in.Body.Usage)
		out := &assignmentBeatOutput{}
		out.Body.LeaseUntil, out.Body.Deadline = a.Work.Expires, a.Work.Deadline
		return out, err
	})
	op = describe(s, http.MethodPost, "/v1/assignments/{id}/items", "addItems", tagWork, "Add items to the job, while the work continues", held...)
	ofAgents(&op)
	routeAfter(s, op, maxItemsBody, w.held, func(ctx context.Context, in *addItemsInput) (*addItemsOutput, error) {
		added, err := w.agents.AddItems(ctx, in.ID, in.Body.Agent, in.Body.Fence, newItems(in.Body.Items))
		out := &addItemsOutput{}
		out.Body.Added = added
		return out, err
	})
	op = describe(s, http.MethodPost, "/v1/assignments/{id}/complete", "completeAssignment", tagWork, "Complete an assignment; a repeat succeeds", held...)
	ofAgents(&op)
	routeAfter(s, op, maxItemsBody, w.held, w.complete)

	op = describe(s, http.MethodPost, "/v1/assignments/{id}/fail", "failAssignment", tagWork, "Fail an assignment; it is tried again", held...)
	ofAgents(&op)
	routeAfter(s, op, maxBody, w.held, w.fail)

	op = describe(s, http.MethodPost, "/v1/assignments/{id}/release", "releaseAssignment", tagWork, "Return an assignment; no attempt is counted", held...)
	ofAgents(&op)
	routeAfter(s, op, maxBody, w.held, func(ctx context.Context, in *releaseInput) (*emptyOutput, error) {
		return &emptyOutput{}, w.agents.Release(ctx, in.ID, in.Body.Agent, in.Body.Fence)
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

func (w work) lease(ctx context.Context, in *leaseInput) (*leaseOutput, error) {
	if err := owns(ctx, w.agents, in.ID); err != nil {
		return nil, err
	}
	if len(in.Body.Roles) == 0 && access.CallerOf(ctx).AgentRoles != "" {
		a, err := w.agents.Get(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		in.Body.Roles = a.Roles
	}
	if err := mayHave(ctx, in.Body.Roles); err != nil {
		return nil, err
	}
	wait := min(time.Duration(in.Body.Wait*float64(time.Second)), maxWait)
	polling, cancel := w.untilShutdown(ctx)
	defer cancel()
	list, err := w.agents.Lease(polling, in.ID, in.Body.Roles, in.Body.Max, wait)
	if err != nil && (polling.Err() == nil || ctx.Err() != nil) {
		return nil, err
	}
	out := &leaseOutput{} // empty at shutdown
	out.Body.Assignments = []agent.Body{}
	for _, a := range list {
		out.Body.Assignments = append(out.Body.Assignments, a.Body())
	}
	return out, nil
}

func (w work) complete(ctx context.Context, in *completeInput) (*emptyOutput, error) {
	b := in.Body
	if err := b.Usage.check(); err != nil {
		return nil, err
	}
	if b.Item != nil && b.Result != nil {
		return nil, badField("body.result", "item and result exclude each other; set item in a stage of items and result in a stage of the job")
	}
	answer := jobs.Answer{Items: newItems(b.Items), Verdict: b.Verdict, Reason: b.Reason, Patch: b.Result, Usage: b.Usage}
	if b.Item != nil {
		answer.Patch = json.RawMessage(b.Item)
	}
	return &emptyOutput{}, w.agents.Complete(ctx, in.ID, b.Agent, b.Fence, answer)
}

func (w work) fail(ctx context.Context, in *failInput) (*emptyOutput, error) {
	b := in.Body
	if err := b.Usage.check(); err != nil {
		return nil, err
	}
	var after *time.Duration
	if b.RetryAfter != nil {
		d := time.Duration(*b.RetryAfter * float64(time.Second))
		after = &d
	}
	return &emptyOutput{}, w.agents.Fail(ctx, in.ID, b.Agent, b.Fence, b.Error, after, b.Permanent, b.Usage)
}
