package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"muster/internal/httpproblem"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// OpenFilter selects open tasks.
type OpenFilter struct {
	Task   string `query:"task" maxLength:"100" doc:"name of the task. Without it, the list has the first nodes of each task and no further page."`
	Cursor string `query:"cursor" maxLength:"5000" doc:"next of the previous page; needs task"`
}

// NodeResult is the result of an external task.
type NodeResult struct {
	Result json.RawMessage `json:"result" cli:"result" doc:"result of the task, any JSON value"`
}

// NodeFailure is the failure of an external task.
type NodeFailure struct {
	Message   string `json:"message" cli:"error" minLength:"1" maxLength:"4096" doc:"reason of the failure"`
	Code      string `json:"code,omitempty" cli:"code" maxLength:"100" doc:"code of the failure; defaults to error"`
	Permanent bool   `json:"permanent,omitempty" cli:"permanent" doc:"no further attempt"`
}

// NodeExtension moves the deadline of an external task.
type NodeExtension struct {
	For string `json:"for" minLength:"1" maxLength:"50" doc:"time until the new deadline" example:"10m"`
}

// Tokened is a request by the holder of a token, which the task passed on.
type Tokened struct {
	Token string `json:"token" minLength:"1" maxLength:"5000" doc:"the token, a secret"`
}

// Signal is a result for an external task of a workflow, by the name of the task.
type Signal struct {
	Task string `json:"task" minLength:"1" maxLength:"200" doc:"name of the task"`
	NodeResult
}

// TokenResult is the result of the task of a token.
type TokenResult struct {
	Tokened
	NodeResult
}

// TokenFailure is the failure of the task of a token.
type TokenFailure struct {
	Tokened
	NodeFailure
}

// TokenExtension moves the deadline of the task of a token.
type TokenExtension struct {
	Tokened
	NodeExtension
}

// Operations on tasks that are completed externally: by node, or by a token.
var (
	ListOpenTasks  = declare[OpenFilter, Page[tasktype.OpenToken]](ReadValues, "GET /v1/open-tasks", "listOpenTasks", "List the nodes that wait for external completion")
	CompleteNode   = declare[ToNode[NodeResult], None](Change, "POST /v1/workflows/{id}/nodes/{node}/complete", "completeNode", "Complete an open task with its result", http.StatusNotFound, http.StatusConflict)
	SignalWorkflow = declare[ToWorkflow[Signal], None](Change, "POST /v1/workflows/{id}/signals", "signalWorkflow", "Complete the open task of a name, or the next one that opens", http.StatusNotFound, http.StatusConflict)
	FailNode       = declare[ToNode[NodeFailure], None](Change, "POST /v1/workflows/{id}/nodes/{node}/fail", "failNode", "Fail an open task", http.StatusNotFound, http.StatusConflict)
	ExtendNode     = declare[ToNode[NodeExtension], None](Change, "POST /v1/workflows/{id}/nodes/{node}/extend", "extendNode", "Move the deadline of an open task", http.StatusNotFound, http.StatusConflict)
	CompleteToken  = declare[With[TokenResult], None](Change, "POST /v1/tokens/complete", "completeToken", "Complete the task of a token with its result", http.StatusNotFound, http.StatusConflict)
	FailToken      = declare[With[TokenFailure], None](Change, "POST /v1/tokens/fail", "failToken", "Fail the task of a token", http.StatusNotFound, http.StatusConflict)
	ExtendToken    = declare[With[TokenExtension], None](Change, "POST /v1/tokens/extend", "extendToken", "Move the deadline of the task of a token", http.StatusNotFound, http.StatusConflict)
)

// addExternal adds the operations on tasks that are completed externally.
func (s *service) addExternal() {
	serve(s, ListOpenTasks, s.open)
	serveNone(s, CompleteNode, func(ctx context.Context, in *ToNode[NodeResult]) error {
		return s.Client.Workflow(in.ID).CompleteNode(ctx, in.Node, in.Body.Result)
	})
	serveNone(s, SignalWorkflow, func(ctx context.Context, in *ToWorkflow[Signal]) error {
		return s.Client.Workflow(in.ID).Signal(ctx, in.Body.Task, in.Body.Result)
	})
	serveNone(s, FailNode, func(ctx context.Context, in *ToNode[NodeFailure]) error {
		return s.Client.Workflow(in.ID).FailNode(ctx, in.Node, in.Body.cause())
	})
	serveNone(s, ExtendNode, func(ctx context.Context, in *ToNode[NodeExtension]) error {
		d, err := in.Body.duration()
		if err != nil {
			return err
		}
		return s.Client.Workflow(in.ID).ExtendNode(ctx, in.Node, d)
	})
	serveNone(s, CompleteToken, s.completeToken)
	serveNone(s, FailToken, s.failToken)
	serveNone(s, ExtendToken, func(ctx context.Context, in *With[TokenExtension]) error {
		d, err := in.Body.duration()
		if err != nil {
			return err
		}
		return s.Client.Extend(ctx, in.Body.Token, d)
	})
}

func (s *service) completeToken(ctx context.Context, in *With[TokenResult]) error {
	return s.Client.Complete(ctx, in.Body.Token, in.Body.Result)
}

func (s *service) failToken(ctx context.Context, in *With[TokenFailure]) error {
	return s.Client.Fail(ctx, in.Body.Token, in.Body.cause())
}

func (s *service) open(ctx context.Context, in *OpenFilter) (out Page[tasktype.OpenToken], err error) {
	switch {
	case in.Task != "":
		out.Data, out.Next, err = s.Client.Inspect().OpenTokens(ctx, in.Task, in.Cursor)
	case in.Cursor != "":
		err = httpproblem.BadField("query.cursor", "needs task")
	default:
		out.Data, err = s.openOfAll(ctx)
	}
	out.Data = append([]tasktype.OpenToken{}, out.Data...)
	return out, err
}

// openOfAll returns the first open nodes of each task.
func (s *service) openOfAll(ctx context.Context) ([]tasktype.OpenToken, error) {
	open, err := s.Client.Inspect().OpenTasks(ctx)
	if err != nil {
		return nil, err
	}
	var list []tasktype.OpenToken
	for _, o := range open {
		page, _, err := s.Client.Inspect().OpenTokens(ctx, o.Task, "")
		if err != nil {
			return nil, err
		}
		if list = append(list, page...); len(list) >= maxTasks {
			break
		}
	}
	return list, nil
}

// cause returns the error that the client has described.
func (f *NodeFailure) cause() error {
	cause := errors.New(f.Message)
	if f.Code != "" {
		cause = tasks.WithCode(f.Code, cause)
	}
	if f.Permanent {
		cause = tasks.Permanent(cause)
	}
	return cause
}

func (e *NodeExtension) duration() (time.Duration, error) {
	d, err := durationOf("body.for", e.For)
	if err == nil && d == 0 {
		err = httpproblem.BadField("body.for", "must be above 0")
	}
	return d, err
}
