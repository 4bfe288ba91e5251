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
	shown          []error // errors that the page of the object shows
}

// actions returns the actions of the pages by path.
func (s *site) actions() map[string]webui.Action {
	workflow := func(do func(*tasks.Workflow, context.Context) error) func(context.Context, string) error {
		return func(ctx context.Context, id string) error { return do(s.client.Workflow(id), ctx) }
	}
	ended := []error{tasks.ErrEnded, tasks.ErrRevoked, tasks.ErrCancelled}
	all := map[string]webui.Action{
		"/todo/decide": s.decide,
		"/send":        s.send,
		"/limits/set": s.limit("Set the limit", webui.Field{Name: "n", Label: "Number", Type: "number", Max: 1_000_000, Hint: "With 0 nothing starts. Empty: as the program says."},
			func(ctx context.Context, f webui.Form) error {
				if f["n"] == "" {
					return s.client.ResetLimit(ctx, f["limit"], f["key"])
				}
				return s.client.SetLimit(ctx, f["limit"], f["key"], f.Int("n"))
			}),
		"/limits/hold": s.limit("Hold the limit", webui.Field{Name: "for", Label: "For", Type: "duration", Max: 20, Value: "10m", Required: true, Hint: "Nothing starts for so long, such as 30s or 2h; 0s ends a hold."},
			func(ctx context.Context, f webui.Form) error {
				return s.client.HoldLimit(ctx, f["limit"], f["key"], time.Now().Add(f.Duration("for")))
			}),
		"/schedule/put":                 s.putSchedule,
		"/workflows/{id}/run-again":     s.runAgain,
		"/workers/{worker}/concurrency": s.setConcurrency,
	}
	for _, a := range []act{
		{on: "workflow", verb: "Cancel", danger: true, do: workflow((*tasks.Workflow).Cancel), shown: ended,
			text: "Running and pending tasks fail with the code cancelled. Tasks that handle failures run. This cannot be undone."},
		{on: "workflow", verb: "Retry", do: workflow(func(w *tasks.Workflow, ctx context.Context) error { return w.Retry(ctx) }), shown: []error{tasks.ErrRunning},
			text: "Failed and skipped tasks run again, and tasks that depend on their outcome. Completed tasks keep their results."},
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
		{on: "schedule", verb: "Trigger", button: "Trigger now", text: "A worker sends a tick in a few seconds, also if the schedule is paused.",
			do: func(ctx context.Context, name string) error {
				_, err := s.client.Schedules().Trigger(ctx, name)
				return err
			}},
		{on: "schedule", verb: "Delete", button: "Delete", danger: true, do: s.client.Schedules().Delete,
			text: "The schedule is deleted with its counts and requested ticks. Workflows that were sent continue. A program that syncs it creates it again."},
	} {
		path := map[string]string{"workflow": "/workflows/{id}/", "queue": "/queues/{queue}/", "schedule": "/schedule/{entry}/"}[a.on]
		all[path+strings.ToLower(a.verb)] = s.action(a, path)
	}
	return all
}

// action returns an action below a path, which contains the name of the object.
func (s *site) action(a act, path string) webui.Action {
	list, param, _ := strings.Cut(strings.TrimSuffix(path, "}/"), "/{")
	return func(ctx context.Context, r *http.Request) (webui.Question, error) {
		name, back := r.PathValue(param), s.cfg.Prefix+list
		var err error
		switch a.on {
		case "workflow":
			back += "/" + url.PathEscape(name)
		case "queue":
			err = s.findQueue(ctx, name)
		case "schedule":
			_, err = s.Schedule(ctx, name)
		}
		return webui.Question{
			Title: a.verb + " " + a.on + " " + name, Button: cmp.Or(a.button, a.verb+" the "+a.on), Text: a.text, Danger: a.danger, Back: back,
			Do: func(ctx context.Context, _ webui.Form) (webui.Result, error) {
				err := a.do(ctx, name)
				if slices.ContainsFunc(a.shown, func(known error) bool { return errors.Is(err, known) }) {
					err = nil
				}
				return webui.Result{}, err
			},
		}, err
	}
}

func (s *site) runAgain(_ context.Context, r *http.Request) (webui.Question, error) {
	list, id := s.cfg.Prefix+"/workflows/", r.PathValue("id")
	return webui.Question{Title: "Run workflow " + id + " again", Button: "Run again", Back: list + url.PathEscape(id),
		Text: "A new workflow runs the tasks with the same inputs. This one stays as it is.",
		Fields: []webui.Field{{Name: "from", Label: "From node", Type: "text", Max: 200, Value: r.URL.Query().Get("from"),
			Hint: "Only this node runs, and the nodes that depend on it or have no success. Empty for all."}},
		Do: func(ctx context.Context, f webui.Form) (webui.Result, error) {
			var opts []tasks.RetryOption
			if f["from"] != "" {
				opts = append(opts, tasks.FromNode(f["from"]))
			}
			again, err := s.client.Workflow(id).RunAgain(ctx, opts...)
			if err != nil {
				return webui.Result{}, err
			}
			return webui.Result{To: list + again.ID()}, nil
		}}, nil
}

// limit returns a change of a limit, for one key or all.
func (s *site) limit(title string, field webui.Field, change func(context.Context, webui.Form) error) webui.Action {
	return func(_ context.Context, r *http.Request) (webui.Question, error) {
		q := r.URL.Query()
		return webui.Question{Title: title, Text: "Running tasks are not stopped.", Button: title, Back: s.cfg.Prefix + "/queues", Fields: []webui.Field{
			{Name: "limit", Label: "Limit", Type: "text", Max: 200, Value: q.Get("limit"), Required: true},
			{Name: "key", Label: "Key", Type: "text", Max: 1000, Value: q.Get("key"), Hint: tasktype.AllKeys + " is all keys."}, field,
		}, Do: func(ctx context.Context, f webui.Form) (webui.Result, error) { return webui.Result{}, change(ctx, f) }}, nil
	}
}

// send starts a task. Its form has a field for each field of the input: a text where the sample of the input has a text, else JSON.
// Without a sample it has one field for the whole input.
func (s *site) send(ctx context.Context, r *http.Request) (webui.Question, error) {
	task := r.URL.Query().Get("task")
	queue, sample, err := s.Sample(ctx, task)
	if err != nil {
		return webui.Question{}, err
	}
	fields, names := []webui.Field{{Name: "task", Label: "Task", Type: "text", Max: 100, Value: task, Required: true}}, inputFields(sample)
	var samples map[string]json.RawMessage
	_ = json.Unmarshal(sample, &samples)
	for _, name := range names {
		f := webui.Field{Name: "input." + name, Label: name, Type: "text", Max: 10_000}
		var value any
		_ = json.Unmarshal(samples[name], &value)
		switch v := value.(type) {
		case string:
			f.Value = v
		case bool:
			f.Type = "checkbox"
		case float64:
			f.Value, f.Hint = "0", "A number."
		case []any:
			f.Type, f.Max, f.Value, f.Hint = "json", maxInput, "[]", "JSON, such as "+string(samples[name])+"."
		default:
			f.Type, f.Max, f.Value, f.Hint = "json", maxInput, string(samples[name]), "JSON."
		}
		fields = append(fields, f)
	}
	if len(names) == 0 {
		fields = append(fields, webui.Field{Name: "input", Label: "Input", Type: "json", Max: maxInput, Value: cmp.Or(string(sample), "null"), Required: true, Hint: "JSON."})
	}
	fields = append(fields, webui.Field{Name: "queue", Label: "Queue", Type: "text", Max: 100, Value: cmp.Or(queue, "default"), Required: true})
	return webui.Question{Title: "Start a task", Text: "It runs with the default options of tasks, such as the number of retries.", Button: "Start", Back: s.cfg.Prefix + nameURL(task), Fields: fields,
		Do: func(ctx context.Context, f webui.Form) (webui.Result, error) {
			input := json.RawMessage(f["input"])
			if len(names) > 0 {
				object := map[string]json.RawMessage{}
				for _, name := range names {
					text := f["input."+name]
					value := json.RawMessage(text)
					switch sampled := samples[name]; {
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
			run, err := tasks.New[json.RawMessage, json.RawMessage](f["task"]).S(input, tasks.Queue(f["queue"])).Send(ctx, s.client)
			if err != nil {
				return webui.Result{}, err
			}
			return webui.Result{To: s.cfg.Prefix + "/workflows/" + run.ID()}, nil
		}}, nil
}

// maxInput limits the length of an input of a form.
const maxInput = 100_000

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

func (s *site) putSchedule(context.Context, *http.Request) (webui.Question, error) {
	return webui.Question{Title: "New schedule", Text: "A schedule with the same name is changed.", Button: "Save the schedule", Back: s.cfg.Prefix + "/schedule", Fields: []webui.Field{
		{Name: "name", Label: "Name", Type: "text", Max: 200, Required: true},
		{Name: "spec", Label: "Times", Type: "text", Max: 200, Required: true, Hint: "Minute, hour, day, month, weekday in UTC, as in CRON_TZ=Europe/Berlin 0 3 * * *, or @every 90s."},
		{Name: "task", Label: "Task", Type: "text", Max: 100, Required: true},
		{Name: "input", Label: "Input", Type: "json", Value: "null", Required: true, Hint: "JSON."},
		{Name: "queue", Label: "Queue", Type: "text", Max: 100, Value: "default", Required: true},
		{Name: "overlap", Label: "While an earlier workflow is running", Type: "select", Options: []webui.Option{{Text: "run both"}, {Value: "skip", Text: "skip the tick"}, {Value: "queue", Text: "wait for its end"}, {Value: "cancel", Text: "cancel it"}}},
		{Name: "catch_up", Label: "Missed ticks to send", Type: "number", Value: "0", Max: 1000, Hint: "Ticks that were due while no worker was running, the latest."},
	}, Do: func(ctx context.Context, f webui.Form) (webui.Result, error) {
		opts := []tasks.SendOption{tasks.Queue(f["queue"])}
		if policy := f["overlap"]; policy != "" {
			opts = append(opts, tasks.Overlap(tasks.OverlapPolicy(policy)))
		}
		return webui.Result{}, s.client.Schedules().Put(ctx, tasks.Schedule{Name: f["name"], Spec: f["spec"], CatchUp: f.Int("catch_up"), Options: opts,
			Work: tasks.New[json.RawMessage, json.RawMessage](f["task"]).S(json.RawMessage(f["input"]))})
	}}, nil
}

// findQueue returns an error if a queue has no tasks and no workers.
func (s *site) findQueue(ctx context.Context, name string) error {
	q, err := s.queueOf(ctx, name)
	if err != nil || q.Name != "" {
		return err
	}
	live, err := s.WorkersOf(ctx, name)
	if err == nil && len(live) == 0 {
		err = webui.NotFound("Queue not found.")
	}
	return err
}

func (s *site) setConcurrency(ctx context.Context, r *http.Request) (webui.Question, error) {
	live, err := s.Workers(ctx)
	i := slices.IndexFunc(live, func(w tasktype.Worker) bool { return w.Name == r.PathValue("worker") })
	if err == nil && i < 0 {
		err = webui.NotFound("No live worker has this name.")
	}
	if err != nil {
		return webui.Question{}, err
	}
	w := live[i]
	return webui.Question{
		Title: "Concurrency of worker " + w.Name, Text: "The setting applies until the worker restarts.", Button: "Set concurrency", Back: s.cfg.Prefix + "/workers",
		Fields: []webui.Field{{
			Name: "number", Type: "number", Label: fmt.Sprintf("Concurrent tasks, 1 to %d", w.MaxConcurrency),
			Value: strconv.Itoa(w.Concurrency), Min: 1, Max: w.MaxConcurrency, Required: true,
		}},
		Do: func(ctx context.Context, f webui.Form) (webui.Result, error) {
			return webui.Result{}, s.client.SetConcurrency(ctx, w.Name, f.Int("number"))
		},
	}, nil
}
