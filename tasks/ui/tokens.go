package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	mostOpenTasks = 10  // maximum number of tasks with a list of open nodes on a page
	fewOpen       = 20  // open nodes listed per task
	inputShown    = 120 // characters of an input in a table
)

// tokensData lists the nodes that wait for external completion, by task.
type tokensData struct {
	Task  string // the selected task, or empty
	Lists []openList
	More  []tasktype.OpenTask // tasks without a list
	Next  string              // URL of the next page of the task
}

// openList is a task with open nodes.
type openList struct {
	tasktype.OpenTask
	Nodes []openNode
	All   string // URL of the complete list, if there are more nodes
}

// openNode is an open node with the start of its input.
type openNode struct {
	tasktype.OpenToken
	Input string
}

// tokens lists the open nodes.
func (s *site) tokens(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	d := tokensData{Task: q.Get("task")}
	if len(d.Task) > 200 || len(q.Get("after")) > 500 {
		return webui.View{}, webui.Invalid("The name is too long.")
	}
	all, err := s.client.OpenTasks(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for _, t := range all {
		if d.Task != "" && d.Task != t.Task {
			continue
		}
		if len(d.Lists) == mostOpenTasks {
			d.More = append(d.More, t)
			continue
		}
		list := openList{OpenTask: t}
		nodes, next, err := s.client.OpenTokens(ctx, t.Task, q.Get("after"))
		if err != nil {
			return webui.View{}, err
		}
		if d.Task == "" && len(nodes) > fewOpen {
			nodes, next = nodes[:fewOpen], ""
		}
		if d.Task == "" && int64(len(nodes)) < t.Open {
			list.All = "?" + url.Values{"task": {t.Task}}.Encode()
		}
		for _, n := range nodes {
			list.Nodes = append(list.Nodes, openNode{n, clip.Line(string(s.given(r, n.Input)), inputShown)})
		}
		if next != "" && d.Task != "" {
			d.Next = "?" + url.Values{"task": {t.Task}, "after": {next}}.Encode()
		}
		d.Lists = append(d.Lists, list)
	}
	return webui.View{Name: "Open tasks", At: s.cfg.Prefix + "/tokens", Data: d}, nil
}

// completions are the actions that complete or fail open nodes.
type completions struct{ *site }

// openQuestion returns the open node of a request, with the common part of the questions.
func (s completions) openQuestion(ctx context.Context, r *http.Request) (tasktype.NodeDetail, webui.Question, error) {
	id, node := r.PathValue("id"), r.PathValue("node")
	d, err := s.client.Node(ctx, id, node)
	if err != nil {
		return d, webui.Question{}, err
	}
	if !d.Open {
		return d, webui.Question{}, webui.Invalid("This node is not open: it is %s.", stateWord(d.Status))
	}
	return d, webui.Question{
		Text: "Input: " + clip.Line(string(s.given(r, d.Input)), 2000) + ". Existing tokens of the node become invalid.",
		Back: s.cfg.Prefix + "/workflows/" + url.PathEscape(id) + "/nodes/" + url.PathEscape(node), At: s.cfg.Prefix + "/tokens",
	}, nil
}

func (s completions) askComplete(ctx context.Context, r *http.Request) (webui.Question, error) {
	d, q, err := s.openQuestion(ctx, r)
	q.Title, q.Button = "Complete "+d.Task, "Complete the task"
	q.Fields = []webui.Field{{Name: "value", Type: "textarea", Label: "Result (JSON)", Hint: `A string requires quotes: "yes". The workflow continues with this value.`, Required: true}}
	return q, err
}

func (s completions) complete(ctx context.Context, r *http.Request) (webui.Result, error) {
	value := strings.TrimSpace(r.PostFormValue("value"))
	if !json.Valid([]byte(value)) {
		return webui.Result{}, webui.Invalid(`Invalid JSON. A string requires quotes: "yes".`)
	}
	return s.settle(ctx, r, func(token string) error { return s.client.Complete(ctx, token, json.RawMessage(value)) })
}

func (s completions) askFail(ctx context.Context, r *http.Request) (webui.Question, error) {
	d, q, err := s.openQuestion(ctx, r)
	q.Title, q.Button, q.Danger = "Fail "+d.Task, "Fail the attempt", true
	q.Fields = []webui.Field{
		{Name: "message", Type: "text", Label: "Why", Max: 2000, Required: true},
		{Name: "permanent", Type: "checkbox", Label: "Do not retry, even if attempts remain"},
	}
	return q, err
}

func (s completions) fail(ctx context.Context, r *http.Request) (webui.Result, error) {
	message := strings.TrimSpace(r.PostFormValue("message"))
	if message == "" {
		return webui.Result{}, webui.Invalid("A reason is required.")
	}
	cause := errors.New(message)
	if r.PostFormValue("permanent") != "" {
		cause = tasks.Permanent(cause)
	}
	return s.settle(ctx, r, func(token string) error { return s.client.Fail(ctx, token, cause) })
}

// settle completes or fails an open node with a new token.
func (s completions) settle(ctx context.Context, r *http.Request, submit func(token string) error) (webui.Result, error) {
	id, node := r.PathValue("id"), r.PathValue("node")
	token, err := s.client.NewToken(ctx, id, node)
	if err == nil {
		err = submit(token)
	}
	if errors.Is(err, tasks.ErrCompleted) || errors.Is(err, tasks.ErrNotOpen) || errors.Is(err, tasks.ErrStale) {
		err = webui.Invalid("%s", err)
	}
	return webui.Result{To: s.cfg.Prefix + "/workflows/" + url.PathEscape(id) + "/nodes/" + url.PathEscape(node)}, err
}

// given returns the input of a task, or a placeholder if the client may not see it.
func (s *site) given(r *http.Request, input json.RawMessage) json.RawMessage {
	if s.cfg.Data(r) {
		return input
	}
	return json.RawMessage("hidden")
}
