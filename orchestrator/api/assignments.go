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
		added, err := w.agents.AddItems(ctx, in.ID, in.Body.Agent, in.Body.Fence, newItems(in.Body.Items))
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
	answer := jobs.Answer{Items: newItems(b.Items), Verdict: b.Verdict, Reason: b.Reason, Patch: b.Result, Usage: b.Usage}
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
