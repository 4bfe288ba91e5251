package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// act is an action on a workflow, a queue or a schedule.
type act struct {
	on, verb, text string
	button         string // Defaults to the verb and the kind of object.
	danger         bool
	do             func(ctx context.Context, name string) error
	shown, refused []error // errors that the page of the object shows, and errors that the form shows
}

// actions returns the actions of the pages by path.
func (s *site) actions() map[string]webui.Action {
	workflow := func(do func(*tasks.Workflow, context.Context) error) func(context.Context, string) error {
		return func(ctx context.Context, id string) error { return do(s.client.Workflow(id), ctx) }
	}
	ended := []error{tasks.ErrEnded, tasks.ErrRevoked, tasks.ErrCancelled}
	all := map[string]webui.Action{
		"/todo/decide":                  {Class: webui.Operate, Confirm: s.askDecision, Do: s.decide},
		"/send":                         {Class: webui.Operate, Confirm: s.askSend, Do: s.send},
		"/limits/set":                   {Class: webui.Operate, Confirm: s.askLimit("Set the limit", webui.Field{Name: "n", Label: "Number", Type: "number", Max: 1_000_000, Hint: "With 0 nothing starts. Empty: as the program says."}), Do: s.setLimit},
		"/limits/hold":                  {Class: webui.Operate, Confirm: s.askLimit("Hold the limit", webui.Field{Name: "for", Label: "For", Type: "text", Max: 20, Value: "10m", Required: true, Hint: "Nothing starts for so long, such as 30s or 2h; 0s ends a hold."}), Do: s.holdLimit},
		"/schedule/put":                 {Class: webui.Operate, Confirm: s.askSchedule, Do: s.putSchedule},
		"/workflows/{id}/run-again":     {Class: webui.Operate, Confirm: s.askRunAgain, Do: s.runAgain},
		"/workers/{worker}/concurrency": {Class: webui.Operate, Confirm: s.askConcurrency, Do: s.setConcurrency},
	}
	for _, a := range []act{
		{on: "workflow", verb: "Cancel", danger: true, do: workflow((*tasks.Workflow).Cancel), shown: ended,
			text: "Running and pending tasks fail with the code cancelled. Tasks that handle failures run. This cannot be undone."},
		{on: "workflow", verb: "Retry", do: workflow(func(w *tasks.Workflow, ctx context.Context) error { return w.Retry(ctx) }), shown: []error{tasks.ErrRunning},
			refused: []error{tasks.ErrRevoked, tasks.ErrEnded, tasks.ErrDamaged, tasks.ErrCompensated, tasks.ErrInvalid},
			text:    "Failed and skipped tasks run again, and tasks that depend on their outcome. Completed tasks keep their results."},
		{on: "workflow", verb: "Pause", do: workflow((*tasks.Workflow).Pause), shown: ended,
			text: "No further tasks start until the workflow is resumed. Running tasks continue."},
		{on: "workflow", verb: "Resume", do: workflow((*tasks.Workflow).Resume), shown: ended, text: "Tasks that became ready during the pause start."},
		{on: "workflow", verb: "Revoke", danger: true, do: workflow((*tasks.Workflow).Revoke),
			text: "Pending tasks will not run, running tasks are canceled, and completed tasks are unchanged. This cannot be undone."},
		{on: "queue", verb: "Pause", do: s.client.PauseQueue, text: "Workers take no further tasks from the queue until it is resumed. Running tasks continue."},
		{on: "queue", verb: "Resume", do: s.client.ResumeQueue, text: "Workers resume taking tasks from the queue."},
		{on: "schedule", verb: "Pause", button: "Pause", do: s.client.Schedules().Pause,
			text: "No ticks are sent until the schedule is resumed, except triggered ticks. Running workflows continue."},
		{on: "schedule", verb: "Resume", button: "Resume", do: s.client.Schedules().Resume,
			text: "Ticks are sent again. Ticks that were due during the pause are not sent."},
		{on: "schedule", verb: "Trigger", button: "Trigger now", refused: []error{tasks.ErrFull},
			do: func(ctx context.Context, name string) error {
				_, err := s.client.Schedules().Trigger(ctx, name)
				return err
			},
			text: "A worker sends a tick in a few seconds, also if the schedule is paused."},
		{on: "schedule", verb: "Delete", button: "Delete", danger: true, do: s.client.Schedules().Delete,
			text: "The schedule is deleted with its counts and requested ticks. Workflows that were sent continue. A program that syncs it creates it again."},
	} {
		list := map[string]string{"workflow": "/workflows/{id}/", "queue": "/queues/{queue}/", "schedule": "/schedule/{entry}/"}[a.on]
		all[list+strings.ToLower(a.verb)] = s.action(a, list)
	}
	return all
}

// action returns an action below a path, which contains the name of the object.
func (s *site) action(a act, path string) webui.Action {
	list, rest, _ := strings.Cut(path, "/{")
	at, name := s.cfg.Prefix+list, strings.TrimSuffix(rest, "}/")
	back := func(r *http.Request) string {
		if a.on == "workflow" {
			return at + "/" + url.PathEscape(r.PathValue(name))
		}
		return at
	}
	find := func(ctx context.Context, r *http.Request) error {
		switch a.on {
		case "queue":
			return findQueue(ctx, s.client, r)
		case "schedule":
			_, err := s.client.Inspect().Schedule(ctx, r.PathValue(name))
			return err
		}
		return nil
	}
	return webui.Action{
		Class: webui.Operate,
		Confirm: func(ctx context.Context, r *http.Request) (webui.Question, error) {
			return webui.Question{
				Title: a.verb + " " + a.on + " " + r.PathValue(name), Button: cmp.Or(a.button, a.verb+" the "+a.on), Text: a.text, Danger: a.danger, Back: back(r), At: at,
			}, find(ctx, r)
		},
		Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
			err := find(ctx, r)
			if err == nil {
				err = a.do(ctx, r.PathValue(name))
			}
			is := func(known error) bool { return errors.Is(err, known) }
			switch {
			case slices.ContainsFunc(a.shown, is):
				err = nil
			case slices.ContainsFunc(a.refused, is):
				err = webui.Invalid("%v", err)
			}
			return webui.Result{To: back(r)}, err
		},
	}
}

func (s *site) askRunAgain(_ context.Context, r *http.Request) (webui.Question, error) {
	list, id := s.cfg.Prefix+"/workflows", r.PathValue("id")
	return webui.Question{Title: "Run workflow " + id + " again", Button: "Run again", Back: list + "/" + url.PathEscape(id), At: list,
		Text: "A new workflow runs the tasks with the same inputs. This one stays as it is.",
		Fields: []webui.Field{{Name: "from", Label: "From node", Type: "text", Max: 200, Value: r.URL.Query().Get("from"),
			Hint: "Only this node runs, and the nodes that depend on it or have no success. Empty for all."}}}, nil
}

func (s *site) runAgain(ctx context.Context, r *http.Request) (webui.Result, error) {
	var opts []tasks.RetryOption
	if from := strings.TrimSpace(r.PostFormValue("from")); from != "" {
		opts = append(opts, tasks.FromNode(from))
	}
	again, err := s.client.Workflow(r.PathValue("id")).RunAgain(ctx, opts...)
	switch {
	case errors.Is(err, tasks.ErrRunning), errors.Is(err, tasks.ErrDamaged), errors.Is(err, tasks.ErrInvalid):
		return webui.Result{}, webui.Invalid("%v", err)
	case err != nil:
		return webui.Result{}, err
	}
	return webui.Result{To: s.cfg.Prefix + "/workflows/" + again.ID()}, nil
}

// askLimit returns the form of a change of a limit, for one key or all.
func (s *site) askLimit(title string, change webui.Field) func(context.Context, *http.Request) (webui.Question, error) {
	return func(_ context.Context, r *http.Request) (webui.Question, error) {
		q, back := r.URL.Query(), s.cfg.Prefix+"/queues"
		return webui.Question{Title: title, Text: "Running tasks are not stopped.", Button: title, Back: back, At: back, Fields: []webui.Field{
			{Name: "limit", Label: "Limit", Type: "text", Max: 200, Value: q.Get("limit"), Required: true},
			{Name: "key", Label: "Key", Type: "text", Max: 1000, Value: q.Get("key"), Hint: tasktype.AllKeys + " is all keys."}, change,
		}}, nil
	}
}

func (s *site) setLimit(ctx context.Context, r *http.Request) (webui.Result, error) {
	name, key, text := r.PostFormValue("limit"), r.PostFormValue("key"), r.PostFormValue("n")
	n, err := strconv.Atoi(text)
	switch {
	case text == "":
		err = s.client.ResetLimit(ctx, name, key)
	case err != nil:
		err = webui.Invalid("Number must be a number.")
	default:
		err = s.client.SetLimit(ctx, name, key, n)
	}
	return s.limited(err)
}

func (s *site) holdLimit(ctx context.Context, r *http.Request) (webui.Result, error) {
	d, err := time.ParseDuration(r.PostFormValue("for"))
	if err != nil {
		return webui.Result{}, webui.Invalid("For must be a duration such as 10m.")
	}
	return s.limited(s.client.HoldLimit(ctx, r.PostFormValue("limit"), r.PostFormValue("key"), time.Now().Add(d)))
}

// limited returns the result of a change of a limit.
func (s *site) limited(err error) (webui.Result, error) {
	if errors.Is(err, tasks.ErrInvalid) {
		err = webui.Invalid("%v", err)
	}
	return webui.Result{To: s.cfg.Prefix + "/queues"}, err
}

// askSend returns a form with a field for each field of the input of a task, or for the whole input.
func (s *site) askSend(ctx context.Context, r *http.Request) (webui.Question, error) {
	task := r.URL.Query().Get("task")
	queue, sample, err := s.client.Inspect().Sample(ctx, task)
	if err != nil {
		return webui.Question{}, err
	}
	back := s.cfg.Prefix + nameURL(task)
	fields := []webui.Field{{Name: "task", Label: "Task", Type: "text", Max: 100, Value: task, Required: true}}
	for _, name := range inputFields(sample) {
		f := webui.Field{Name: "input." + name, Label: name, Type: "text", Max: 10_000}
		var value any
		_ = json.Unmarshal(fieldOf(sample, name), &value)
		switch v := value.(type) {
		case string:
			f.Value = v
		case bool:
			f.Type = "checkbox"
		case float64:
			f.Value, f.Hint = "0", "A number."
		case []any:
			f.Type, f.Max, f.Value, f.Hint = "textarea", maxInput, "[]", "JSON, such as "+string(fieldOf(sample, name))+"."
		default:
			f.Type, f.Max, f.Value, f.Hint = "textarea", maxInput, string(fieldOf(sample, name)), "JSON."
		}
		fields = append(fields, f)
	}
	if len(fields) == 1 {
		fields = append(fields, webui.Field{Name: "input", Label: "Input", Type: "textarea", Max: maxInput, Value: cmp.Or(string(sample), "null"), Required: true, Hint: "JSON."})
	}
	fields = append(fields, webui.Field{Name: "queue", Label: "Queue", Type: "text", Max: 100, Value: cmp.Or(queue, "default"), Required: true})
	return webui.Question{Title: "Start a task", Text: "It runs with the default options of tasks, such as the number of retries.", Button: "Start", Back: back, At: s.cfg.Prefix + "/names", Fields: fields}, nil
}

// maxInput limits the length of an input of a form.
const maxInput = 100_000

// fieldOf returns a field of a JSON object.
func fieldOf(object json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields)
	return fields[name]
}

// inputFields returns the names of the fields of a sample in their order; none if it is not an object.
func inputFields(sample json.RawMessage) (names []string) {
	d := json.NewDecoder(bytes.NewReader(sample))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil || d.Decode(new(json.RawMessage)) != nil {
			return nil
		}
		names = append(names, name.(string)) //nolint:forcetypeassert // the decoder returns keys as strings
	}
	return names
}

// send starts a task with the values of the form of askSend: text where the sample has a text, else JSON.
func (s *site) send(ctx context.Context, r *http.Request) (webui.Result, error) {
	task := r.PostFormValue("task")
	_, sample, err := s.client.Inspect().Sample(ctx, task)
	if err != nil {
		return webui.Result{}, err
	}
	input := json.RawMessage(r.PostFormValue("input"))
	if !r.PostForm.Has("input") {
		object := map[string]json.RawMessage{}
		for _, name := range inputFields(sample) {
			text := r.PostFormValue("input." + name)
			value := json.RawMessage(text)
			switch sampled := fieldOf(sample, name); {
			case sampled[0] == '"':
				value, _ = json.Marshal(text)
			case sampled[0] == 't' || sampled[0] == 'f':
				value, _ = json.Marshal(text != "")
			case !json.Valid(value):
				return webui.Result{}, webui.Invalid("%s must be JSON.", name)
			}
			object[name] = value
		}
		input, _ = json.Marshal(object)
	}
	if !json.Valid(input) {
		return webui.Result{}, webui.Invalid("The input must be JSON.")
	}
	run, err := tasks.New[json.RawMessage, json.RawMessage](task).S(input, tasks.Queue(r.PostFormValue("queue"))).Send(ctx, s.client)
	if errors.Is(err, tasks.ErrInvalid) {
		return webui.Result{}, webui.Invalid("%v", err)
	}
	if err != nil {
		return webui.Result{}, err
	}
	return webui.Result{To: s.cfg.Prefix + "/workflows/" + run.ID()}, nil
}

func (s *site) askSchedule(context.Context, *http.Request) (webui.Question, error) {
	back := s.cfg.Prefix + "/schedule"
	return webui.Question{Title: "New schedule", Text: "A schedule with the same name is changed.", Button: "Save the schedule", Back: back, At: back, Fields: []webui.Field{
		{Name: "name", Label: "Name", Type: "text", Max: 200, Required: true},
		{Name: "spec", Label: "Times", Type: "text", Max: 200, Required: true, Hint: "Minute, hour, day, month, weekday in UTC, as in CRON_TZ=Europe/Berlin 0 3 * * *, or @every 90s."},
		{Name: "task", Label: "Task", Type: "text", Max: 100, Required: true},
		{Name: "input", Label: "Input", Type: "textarea", Value: "null", Required: true, Hint: "JSON."},
		{Name: "queue", Label: "Queue", Type: "text", Max: 100, Value: "default", Required: true},
		{Name: "overlap", Label: "While an earlier workflow is running", Type: "select", Options: []webui.Option{{Text: "run both"}, {Value: "skip", Text: "skip the tick"}, {Value: "queue", Text: "wait for its end"}, {Value: "cancel", Text: "cancel it"}}},
		{Name: "catch_up", Label: "Missed ticks to send", Type: "number", Value: "0", Max: 1000, Hint: "Ticks that were due while no worker was running, the latest."},
	}}, nil
}

func (s *site) putSchedule(ctx context.Context, r *http.Request) (webui.Result, error) {
	input := json.RawMessage(r.PostFormValue("input"))
	catchUp, err := strconv.Atoi(r.PostFormValue("catch_up"))
	if err != nil || !json.Valid(input) {
		return webui.Result{}, webui.Invalid("Missed ticks must be a number, and the input JSON.")
	}
	opts := []tasks.SendOption{tasks.Queue(r.PostFormValue("queue"))}
	if policy := r.PostFormValue("overlap"); policy != "" {
		opts = append(opts, tasks.Overlap(tasks.OverlapPolicy(policy)))
	}
	err = s.client.Schedules().Put(ctx, tasks.Schedule{Name: r.PostFormValue("name"), Spec: r.PostFormValue("spec"), CatchUp: catchUp, Options: opts,
		Work: tasks.New[json.RawMessage, json.RawMessage](r.PostFormValue("task")).S(input)})
	if errors.Is(err, tasks.ErrInvalid) {
		err = webui.Invalid("%v", err)
	}
	return webui.Result{To: s.cfg.Prefix + "/schedule"}, err
}

// findQueue returns an error if the queue of a request has no tasks and no workers.
func findQueue(ctx context.Context, client *tasks.Client, r *http.Request) error {
	name := r.PathValue("queue")
	all, err := client.Inspect().Queues(ctx)
	if err != nil || slices.ContainsFunc(all, func(q tasktype.Queue) bool { return q.Name == name }) {
		return err
	}
	live, err := client.Inspect().Workers(ctx)
	if err != nil || slices.ContainsFunc(live, func(w tasktype.Worker) bool { return w.Queues[name] > 0 }) {
		return err
	}
	return webui.NotFound("Queue not found.")
}

func (s *site) askConcurrency(ctx context.Context, r *http.Request) (webui.Question, error) {
	live, err := s.client.Inspect().Workers(ctx)
	if err != nil {
		return webui.Question{}, err
	}
	for i := range live {
		if w := &live[i]; w.Name == r.PathValue("worker") {
			return webui.Question{
				Title: "Concurrency of worker " + w.Name, Text: "The setting applies until the worker restarts.", Button: "Set concurrency",
				Back: s.cfg.Prefix + "/workers", At: s.cfg.Prefix + "/workers",
				Fields: []webui.Field{{
					Name: "number", Type: "number", Label: fmt.Sprintf("Concurrent tasks, 1 to %d", w.MaxConcurrency),
					Value: strconv.Itoa(w.Concurrency), Min: 1, Max: w.MaxConcurrency, Required: true,
				}},
			}, nil
		}
	}
	return webui.Question{}, webui.NotFound("No live worker has this name.")
}

func (s *site) setConcurrency(ctx context.Context, r *http.Request) (webui.Result, error) {
	n, err := strconv.Atoi(r.PostFormValue("number"))
	if err != nil || n < 1 {
		return webui.Result{}, webui.Invalid("The number must be at least 1.")
	}
	return webui.Result{To: s.cfg.Prefix + "/workers"}, s.client.SetConcurrency(ctx, r.PathValue("worker"), n)
}
