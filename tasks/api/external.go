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

type openInput struct {
	Task   string `query:"task" maxLength:"100" doc:"name of the task. Without it, the list has the first nodes of each task and no further page."`
	Cursor string `query:"cursor" maxLength:"5000" doc:"next of the previous page; needs task"`
}

type openOutput struct{ Body page[OpenTask] }

// NodeResult is the result of an external task.
type NodeResult struct {
	Result json.RawMessage `json:"result" doc:"result of the task, any JSON value"`
}

// NodeFailure is the failure of an external task.
type NodeFailure struct {
	Message   string `json:"message" minLength:"1" maxLength:"4096" doc:"reason of the failure"`
	Code      string `json:"code,omitempty" maxLength:"100" doc:"code of the failure; defaults to error"`
	Permanent bool   `json:"permanent,omitempty" doc:"no further attempt"`
}

// NodeExtension moves the deadline of an external task.
type NodeExtension struct {
	For string `json:"for" minLength:"1" maxLength:"50" doc:"time until the new deadline" example:"10m"`
}

// Tokened is a request by the holder of a token, which the task passed on.
type Tokened struct {
	Token string `json:"token" minLength:"1" maxLength:"5000" doc:"the token, a secret"`
}

type completeInput struct {
	NodeReference
	Body NodeResult
}

// Signal is a result for an external task of a workflow, by the name of the task.
type Signal struct {
	Task string `json:"task" minLength:"1" maxLength:"200" doc:"name of the task"`
	NodeResult
}

type signalInput struct {
	Reference
	Body Signal
}

type failInput struct {
	NodeReference
	Body NodeFailure
}

type extendInput struct {
	NodeReference
	Body NodeExtension
}

type completeTokenInput struct {
	Body struct {
		Tokened
		NodeResult
	} `nameHint:"TokenResult"`
}

type failTokenInput struct {
	Body struct {
		Tokened
		NodeFailure
	} `nameHint:"TokenFailure"`
}

type extendTokenInput struct {
	Body struct {
		Tokened
		NodeExtension
	} `nameHint:"TokenExtension"`
}

// addExternal adds the operations on tasks that are completed externally: by node, or by a token.
func (s *service) addExternal() {
	route(s, ReadValues, http.MethodGet, "/v1/open-tasks", "listOpenTasks", "List the nodes that wait for external completion", s.open)
	const node, token = "/v1/workflows/{id}/nodes/{node}/", "/v1/tokens/"
	missing := []int{http.StatusNotFound, http.StatusConflict}
	route(s, Change, http.MethodPost, node+"complete", "completeNode", "Complete an open task with its result", func(ctx context.Context, in *completeInput) (*struct{}, error) {
		return nil, s.Client.CompleteNode(ctx, in.ID, in.Node, in.Body.Result)
	}, missing...)
	route(s, Change, http.MethodPost, "/v1/workflows/{id}/signals", "signalWorkflow", "Complete the open task of a name, or the next one that opens",
		func(ctx context.Context, in *signalInput) (*struct{}, error) {
			err := s.Client.Signal(ctx, in.ID, in.Body.Task, in.Body.Result)
			if errors.Is(err, tasks.ErrInvalid) {
				return nil, httpproblem.BadField("body", "%v", err)
			}
			return nil, err
		}, missing...)
	route(s, Change, http.MethodPost, node+"fail", "failNode", "Fail an open task", func(ctx context.Context, in *failInput) (*struct{}, error) {
		return nil, s.Client.FailNode(ctx, in.ID, in.Node, in.Body.cause())
	}, missing...)
	route(s, Change, http.MethodPost, node+"extend", "extendNode", "Move the deadline of an open task", func(ctx context.Context, in *extendInput) (*struct{}, error) {
		d, err := in.Body.duration()
		if err != nil {
			return nil, err
		}
		return nil, s.Client.ExtendNode(ctx, in.ID, in.Node, d)
	}, missing...)
	route(s, Change, http.MethodPost, token+"complete", "completeToken", "Complete the task of a token with its result", func(ctx context.Context, in *completeTokenInput) (*struct{}, error) {
		return nil, s.Client.Complete(ctx, in.Body.Token, in.Body.Result)
	}, missing...)
	route(s, Change, http.MethodPost, token+"fail", "failToken", "Fail the task of a token", func(ctx context.Context, in *failTokenInput) (*struct{}, error) {
		return nil, s.Client.Fail(ctx, in.Body.Token, in.Body.cause())
	}, missing...)
	route(s, Change, http.MethodPost, token+"extend", "extendToken", "Move the deadline of the task of a token", func(ctx context.Context, in *extendTokenInput) (*struct{}, error) {
		d, err := in.Body.duration()
		if err != nil {
			return nil, err
		}
		return nil, s.Client.Extend(ctx, in.Body.Token, d)
	}, missing...)
}

func (s *service) open(ctx context.Context, in *openInput) (*openOutput, error) {
	var list []tasktype.OpenToken
	var next string
	var err error
	if in.Task != "" {
		list, next, err = s.Client.OpenTokens(ctx, in.Task, in.Cursor)
	} else if in.Cursor != "" {
		err = httpproblem.BadField("query.cursor", "needs task")
	} else {
		list, err = s.openOfAll(ctx)
	}
	if err != nil {
		return nil, err
	}
	out := &openOutput{page[OpenTask]{Data: []OpenTask{}, Next: next}}
	for _, t := range list {
		out.Body.Data = append(out.Body.Data, OpenTask{t.Workflow, t.Node, t.Task, t.Input, t.Attempt, utc(t.Opened), utc(t.Deadline)})
	}
	return out, nil
}

// openOfAll returns the first open nodes of each task.
func (s *service) openOfAll(ctx context.Context) ([]tasktype.OpenToken, error) {
	open, err := s.Client.OpenTasks(ctx)
	if err != nil {
		return nil, err
	}
	var list []tasktype.OpenToken
	for _, o := range open {
		page, _, err := s.Client.OpenTokens(ctx, o.Task, "")
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
