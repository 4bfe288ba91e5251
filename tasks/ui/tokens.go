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
	mostOpenTasks = 10  // tasks whose open nodes are on one page
	fewOpen       = 20  // open nodes of each of them
	inputShown    = 120 // characters of an input in a table
)

// tokensData are the nodes that wait for an answer from outside, by task.
type tokensData struct {
	Task  string // the only one, or empty
	Lists []openList
	More  []tasktype.OpenTask // tasks without a list
	Next  string              // the address of the next page of the task
}

// openList are nodes of a task that wait.
type openList struct {
	tasktype.OpenTask
	Nodes []openNode
	All   string // the address of all of them, if there are more
}

// openNode is a node that waits, with the beginning of its input.
type openNode struct {
	tasktype.OpenToken
	Input string
}

// tokens lists the nodes that wait for an answer.
func (s *site) tokens(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	d := tokensData{Task: q.Get("task")}
	if len(d.Task) > 200 || len(q.Get("after")) > 500 {
		return webui.View{}, webui.Invalid("It is too long.")
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

// answers are the actions that answer for nodes.
type answers struct{ *site }

// openQuestion returns the node of a request that waits for an answer, with the question that both answers have in
// common.
func (s answers) openQuestion(ctx context.Context, r *http.Request) (tasktype.NodeDetail, webui.Question, error) {
	id, node := r.PathValue("id"), r.PathValue("node")
	d, err := s.client.Node(ctx, id, node)
	if err != nil {
		return d, webui.Question{}, err
	}
	if !d.Open {
		return d, webui.Question{}, webui.Invalid("This node does not wait for an answer: it is %s.", stateWord(d.Status))
	}
	return d, webui.Question{
		Text: "The input is " + clip.Line(string(s.given(r, d.Input)), 2000) + ". A token that was given out for the node is refused from then on.",
		Back: s.cfg.Prefix + "/workflows/" + url.PathEscape(id) + "/nodes/" + url.PathEscape(node), At: s.cfg.Prefix + "/tokens",
	}, nil
}

func (s answers) askComplete(ctx context.Context, r *http.Request) (webui.Question, error) {
	d, q, err := s.openQuestion(ctx, r)
	q.Title, q.Button = "Answer for "+d.Task, "Complete the task"
	q.Fields = []webui.Field{{Name: "value", Type: "textarea", Label: "Answer, as JSON", Hint: `A text needs its quotes: "yes". The workflow continues with it.`, Required: true}}
	return q, err
}

func (s answers) complete(ctx context.Context, r *http.Request) (webui.Done, error) {
	value := strings.TrimSpace(r.PostFormValue("value"))
	if !json.Valid([]byte(value)) {
		return webui.Done{}, webui.Invalid(`The answer is not JSON. A text needs its own quotes: "yes". Go back and try again.`)
	}
	return s.settle(ctx, r, func(token string) error { return s.client.Complete(ctx, token, json.RawMessage(value)) })
}

func (s answers) askFail(ctx context.Context, r *http.Request) (webui.Question, error) {
	d, q, err := s.openQuestion(ctx, r)
	q.Title, q.Button, q.Danger = "Fail "+d.Task, "Fail the attempt", true
	q.Fields = []webui.Field{
		{Name: "message", Type: "text", Label: "Why", Max: 2000, Required: true},
		{Name: "permanent", Type: "checkbox", Label: "Do not open it again, even if it has attempts left"},
	}
	return q, err
}

func (s answers) fail(ctx context.Context, r *http.Request) (webui.Done, error) {
	message := strings.TrimSpace(r.PostFormValue("message"))
	if message == "" {
		return webui.Done{}, webui.Invalid("Say why it fails.")
	}
	cause := errors.New(message)
	if r.PostFormValue("permanent") != "" {
		cause = tasks.Permanent(cause)
	}
	return s.settle(ctx, r, func(token string) error { return s.client.Fail(ctx, token, cause) })
}

// settle answers for a node that waits, with a new token.
func (s answers) settle(ctx context.Context, r *http.Request, answer func(token string) error) (webui.Done, error) {
	id, node := r.PathValue("id"), r.PathValue("node")
	token, err := s.client.NewToken(ctx, id, node)
	if err == nil {
		err = answer(token)
	}
	if errors.Is(err, tasks.ErrCompleted) || errors.Is(err, tasks.ErrNotOpen) || errors.Is(err, tasks.ErrStale) {
		err = webui.Invalid("%s", err)
	}
	return webui.Done{To: s.cfg.Prefix + "/workflows/" + url.PathEscape(id) + "/nodes/" + url.PathEscape(node)}, err
}

// given is the input of a task, or in place of it a word for those who may not see it.
func (s *site) given(r *http.Request, input json.RawMessage) json.RawMessage {
	if s.cfg.Data(r) {
		return input
	}
	return json.RawMessage("hidden")
}
