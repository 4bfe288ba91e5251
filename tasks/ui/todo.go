package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// ToDo is a decision that waits for a person.
type ToDo struct {
	ID           string // identifies it, in at most 1,000 bytes
	Subject, URL string // title and page of the task or item
	Of, OfURL    string // the workflow or job that it belongs to, and its page
	Text         string // the complete input
	Problem      string // why a person must decide; optional
	Since        time.Time
	Deadline     time.Time // optional
	Choices      []Choice
}

// Choice is a possible decision.
type Choice struct {
	Label    string // such as "Approve"
	Effect   string // a sentence
	Danger   bool   // it cannot be undone
	Comment  string // label of the text field for the reason; empty for none
	Required bool   // the comment must not be empty

	value json.RawMessage // declared result of an open task
}

// Decisions are decisions of a program besides its open tasks.
type Decisions interface {
	// List returns the decisions that wait, the oldest first, and whether there are more.
	List(ctx context.Context, most int) (list []ToDo, more bool, err error)
	// Count returns the number of decisions that wait. Open pages call it every few seconds.
	Count(ctx context.Context) (int64, error)
	decider
}

type decider interface {
	// Get returns a decision. Its error wraps [ErrDecided] if it does not wait any more.
	Get(ctx context.Context, id string) (ToDo, error)
	// Decide makes a decision. Its error wraps [ErrDecided] if it does not wait any more.
	Decide(ctx context.Context, id string, choice Choice, comment string) error
}

// ErrDecided means that a decision was made before, for example in another tab.
var ErrDecided = errors.New("already decided")

const (
	mostOpenTasks = 10        // tasks whose open nodes are listed together
	fewOpen       = 20        // listed nodes of each of them
	mostToDo      = 50        // listed decisions of the program
	mostDecided   = 100       // decisions made at once
	textsShown    = 100 << 10 // bytes of all texts of a page
	mostButtons   = 12        // labels of buttons for several decisions
)

// Labels of the choices of every open task.
const (
	otherResult = "Other result"
	failTask    = "Fail"
)

// toDoData lists decisions.
type toDoData struct {
	Task   string // the selected task, or empty
	List   []toDoRow
	Labels []Choice            // of the buttons for several decisions
	More   []tasktype.OpenTask // tasks with open nodes that are not listed
	Items  bool                // the program has decisions
	Other  bool                // some of them are not listed
	Next   string              // URL of the next page of the task
	Text   int                 // displayed bytes of each text
}

// toDoRow is a listed decision.
type toDoRow struct {
	ToDo
	Kind string // name of the field with its ID: task or item
}

// toDo lists the open tasks and the decisions of the program.
func (s *site) toDo(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	d := toDoData{Task: q.Get("task")}
	if len(d.Task) > 200 || len(q.Get("after")) > 500 {
		return webui.View{}, webui.Invalid("The name is too long.")
	}
	if err := s.listOpen(ctx, r, &d, q.Get("after")); err != nil {
		return webui.View{}, err
	}
	if s.cfg.Decisions != nil && d.Task == "" {
		items, more, err := s.cfg.Decisions.List(ctx, mostToDo)
		if err != nil {
			return webui.View{}, err
		}
		d.Other, d.Items = more, true
		for _, item := range items {
			d.List = append(d.List, toDoRow{ToDo: item, Kind: "item"})
		}
	}
	slices.SortStableFunc(d.List, func(a, b toDoRow) int { return a.Since.Compare(b.Since) })
	d.Text = min(shownBytes, textsShown/max(len(d.List), 1))
	for _, t := range d.List {
		for _, c := range t.Choices {
			known := slices.ContainsFunc(d.Labels, func(l Choice) bool { return l.Label == c.Label })
			if !known && len(d.Labels) < mostButtons {
				d.Labels = append(d.Labels, c)
			}
		}
	}
	return webui.View{Name: "To do", Data: d, Every: 5 * time.Second}, nil
}

// listOpen adds the open nodes of the selected task, from a cursor, or some of each task.
func (s *site) listOpen(ctx context.Context, r *http.Request, d *toDoData, after string) error {
	all, err := s.OpenTasks(ctx)
	if err != nil {
		return err
	}
	listed := 0
	for _, t := range all {
		if d.Task != "" && d.Task != t.Task {
			continue
		}
		if listed++; listed > mostOpenTasks {
			d.More = append(d.More, t)
			continue
		}
		nodes, next, err := s.OpenTokens(ctx, t.Task, after)
		if err != nil {
			return err
		}
		if d.Task == "" && len(nodes) > fewOpen {
			nodes = nodes[:fewOpen]
		}
		if rest := t.Open - int64(len(nodes)); d.Task == "" && rest > 0 {
			d.More = append(d.More, tasktype.OpenTask{Task: t.Task, Open: rest})
		}
		if d.Task != "" && next != "" {
			d.Next = "?" + url.Values{"task": {t.Task}, "after": {next}}.Encode()
		}
		for _, n := range nodes {
			d.List = append(d.List, toDoRow{ToDo: s.openTask(r, n), Kind: "task"})
		}
	}
	return nil
}

// openTask returns the decision about an open node.
func (s *site) openTask(r *http.Request, n tasktype.OpenToken) ToDo {
	workflow := s.cfg.Prefix + "/workflows/" + url.PathEscape(n.Workflow)
	t := ToDo{
		ID: n.Workflow + "/" + n.Node, Subject: n.Task, URL: workflow + "/nodes/" + url.PathEscape(n.Node),
		Of: n.Workflow, OfURL: workflow, Since: n.Opened, Deadline: n.Deadline, Choices: openChoices(n.Choices),
	}
	t.Text = webui.NewJSON(shownBytes, s.given(r, n.Input)).Text
	return t
}

// openChoices returns the choices of an open node: the declared results, another result, and a failure.
func openChoices(declared []tasktype.Choice) (all []Choice) {
	for _, c := range declared {
		all = append(all, Choice{Label: c.Label, Effect: "The workflow continues with the result " + webui.Plain(clip.Line(string(c.Value), 300)) + ".", value: c.Value})
	}
	return append(all,
		Choice{Label: otherResult, Effect: "The workflow continues with this result.", Comment: "Result (JSON)", Required: true},
		Choice{Label: failTask, Effect: "The task fails without another attempt.", Danger: true, Comment: "Reason", Required: true})
}

// decision is a selected decision.
type decision struct {
	decider
	id string
}

// choice returns the decision with one of its choices.
func (d decision) choice(ctx context.Context, label string) (ToDo, Choice, error) {
	t, err := d.Get(ctx, d.id)
	if err != nil {
		return t, Choice{}, err
	}
	for _, c := range t.Choices {
		if c.Label == label {
			return t, c, nil
		}
	}
	return t, Choice{}, webui.Invalid("%s does not have the choice %.60q.", clip.Line(t.Subject, 100), label)
}

// selected returns the selected decisions of a request and the label of the choice.
func (s *site) selected(r *http.Request) (list []decision, label string, err error) {
	q := r.URL.Query()
	add := func(kind string, from decider) {
		for _, id := range q[kind] {
			if from != nil && len(id) <= 1000 && !slices.ContainsFunc(list, func(d decision) bool { return d.id == id }) {
				list = append(list, decision{from, id})
			}
		}
	}
	add("task", openTasks{s, r})
	add("item", s.cfg.Decisions)
	if len(list) == 0 {
		err = webui.Invalid("Nothing is selected.")
	}
	if len(list) > mostDecided {
		err = webui.Invalid("More than %d are selected.", mostDecided)
	}
	return list, q.Get("choice"), err
}

// refused reports whether an error concerns one decision only.
func refused(err error) bool {
	status, _, known := explain(err)
	return known && status < http.StatusInternalServerError || webui.Refused(err)
}

// decide makes a choice for the selected decisions.
func (s *site) decide(ctx context.Context, r *http.Request) (webui.Question, error) {
	list, label, err := s.selected(r)
	if err != nil {
		return webui.Question{}, err
	}
	type chosen struct {
		decision
		ToDo
		Choice
	}
	var found []chosen
	var skipped error
	// skip notes an error that concerns one of several decisions.
	skip := func(err error) error {
		if err != nil && len(list) > 1 && refused(err) {
			skipped, err = err, nil
		}
		return err
	}
	for _, d := range list {
		t, c, err := d.choice(ctx, label)
		if err == nil {
			found = append(found, chosen{d, t, c})
		}
		if err := skip(err); err != nil {
			return webui.Question{}, err
		}
	}
	if len(found) == 0 {
		return webui.Question{}, skipped
	}
	first := found[0]
	q := webui.Question{
		Title: label + ": " + clip.Line(first.Subject, 100), Button: label, Danger: first.Danger, Back: s.cfg.Prefix + "/todo",
		Text: first.Effect + " Input: " + clip.Line(first.Text, 2000),
	}
	if len(list) > 1 {
		q.Title, q.Text = fmt.Sprintf("%s: %d selected", label, len(found)), first.Effect
		if slices.ContainsFunc(found, func(c chosen) bool { return c.Effect != first.Effect }) {
			q.Text = ""
		}
	}
	if skipped != nil {
		q.Text += fmt.Sprintf(" Not included: %d, for example: %.300s", len(list)-len(found), skipped)
	}
	if first.Comment != "" {
		q.Fields = []webui.Field{{Name: "comment", Type: "textarea", Label: first.Comment, Required: first.Required}}
		if label == otherResult {
			q.Fields[0].Hint = `A string requires quotes: "yes".`
		}
	}
	q.Do = func(ctx context.Context, f webui.Form) (done webui.Result, err error) {
		decided := 0
		for _, c := range found {
			err := c.decider.Decide(ctx, c.id, c.Choice, strings.TrimSpace(f["comment"]))
			if err == nil {
				decided++
			}
			if err := skip(err); err != nil {
				return done, err
			}
		}
		if skipped != nil {
			done.Title, done.Text = "Decisions", fmt.Sprintf("%s: %d. Unchanged: %d, for example: %.500s", label, decided, len(list)-decided, skipped)
		}
		return done, nil
	}
	return q, nil
}

// openTasks are the decisions about open nodes. Their IDs are WORKFLOW/NODE.
type openTasks struct {
	*site
	r *http.Request
}

// Get returns the decision about a node.
func (o openTasks) Get(ctx context.Context, id string) (ToDo, error) {
	workflow, node, _ := strings.Cut(id, "/")
	d, err := o.client.Workflow(workflow).Node(ctx, node)
	switch {
	case err != nil:
		return ToDo{}, err
	case d.Open:
		return o.openTask(o.r, tasktype.OpenToken{Workflow: workflow, Node: node, Task: d.Task, Input: d.Input, Opened: d.Opened, Choices: d.Choices}), nil
	case d.Ended.IsZero():
		return ToDo{}, webui.Invalid("%s of workflow %s is not open: it is %s.", clip.Line(d.Task, 100), workflow, word(d.Status))
	}
	text := fmt.Sprintf("%s of workflow %s has %s at %s", clip.Line(d.Task, 100), workflow, word(d.Status), d.Ended.UTC().Format("15:04:05 UTC"))
	if d.Status == tasktype.Success && o.cfg.Data(o.r) {
		raw, err := o.result(ctx, workflow, node)
		if err != nil {
			return ToDo{}, err
		}
		text += " with the result " + clip.Line(string(raw), 300)
	}
	return ToDo{}, fmt.Errorf("%w: %s", ErrDecided, text)
}

// Decide completes or fails a node.
func (o openTasks) Decide(ctx context.Context, id string, choice Choice, comment string) error {
	value := choice.value
	if choice.Label == otherResult && value == nil {
		if value = json.RawMessage(comment); !json.Valid(value) {
			return webui.Invalid(`Invalid JSON. A string requires quotes: "yes".`)
		}
	}
	workflow, node, _ := strings.Cut(id, "/")
	var err error
	if value != nil {
		err = o.client.Workflow(workflow).CompleteNode(ctx, node, value)
	} else {
		err = o.client.Workflow(workflow).FailNode(ctx, node, tasks.Permanent(errors.New(comment)))
	}
	if errors.Is(err, tasks.ErrCompleted) || errors.Is(err, tasks.ErrNotOpen) || errors.Is(err, tasks.ErrStale) { // decided by another client
		if _, other := o.Get(ctx, id); other != nil {
			return other
		}
		return webui.Invalid("Another client decides %.100s at the same time.", id)
	}
	return err
}

// given returns the input of a task, or a placeholder if the client may not see it.
func (s *site) given(r *http.Request, input json.RawMessage) json.RawMessage {
	if s.cfg.Data(r) {
		return input
	}
	return json.RawMessage("hidden")
}
