package ui

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// pageSize is the number of workflows per page.
const pageSize = 50

// workflowStates lists the states of a listing in display order.
var workflowStates = []tasktype.WorkflowState{tasktype.WorkflowRunning, tasktype.WorkflowFailed, tasktype.WorkflowSucceeded, tasktype.WorkflowRevoked}

// spans are the choices of the time filter.
var spans = []webui.Option{{Value: "", Text: "any time"}, {Value: "1h", Text: "last hour"}, {Value: "24h", Text: "last day"}, {Value: "168h", Text: "last week"}}

const (
	mostFailed = 300             // failed workflows whose errors a filter by error reads at once
	failedTime = 2 * time.Second // for reading them, half of the timeout of a page
)

// flowFilter selects workflows. The index of workflows has no errors and queues, so a filter by one of them selects only failed or
// running workflows, and reads a limited number of them.
type flowFilter struct {
	tasktype.WorkflowFilter
	Error    string // code, task or part of the message of the failure; empty for all
	Queue    string // with a task that waits in it; empty for all
	Archived bool   // selects workflows of the archive
	Filter   *webui.Filter
}

// Indexed reports whether the index selects the workflows.
func (f flowFilter) Indexed() bool { return f.Error == "" && f.Queue == "" }

// String describes the filter without the state.
func (f flowFilter) String() string {
	var parts []string
	for _, c := range f.Filter.Chips {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, ", ")
}

// filterOf returns the filter of a request.
func (s *site) filterOf(q url.Values) (f flowFilter, err error) {
	fields := []webui.Field{{Name: "name", Label: "Name", Hint: "part of it"}, {Name: "label", Label: "Label", Hint: "key=value", Max: 300}, {Name: "task", Label: "Task", Hint: "first or last task"}}
	if f.Archived = s.cfg.Archive != nil && q.Get("archive") != ""; f.Archived {
		fields = append(fields, webui.Field{Name: "start", Label: "From", Hint: "2026-01-31", Max: 10}, webui.Field{Name: "end", Label: "Until", Hint: "2026-01-31", Max: 10})
	} else {
		fields = append(fields, webui.Field{Name: "error", Label: "Error", Hint: "code or text"}, webui.Field{Name: "queue", Label: "Queue", Hint: "name"}, webui.Field{Name: "within", Label: "Time", Options: spans})
	}
	if f.Filter, err = webui.NewFilter(q, fields...); err != nil {
		return f, err
	}
	f.WorkflowFilter = tasktype.WorkflowFilter{State: tasktype.WorkflowState(q.Get("state")), Contains: f.Filter.Get("name"), Name: f.Filter.Get("task"), Cursor: q.Get("after"), Limit: pageSize}
	if f.State != "" && !slices.Contains(workflowStates, f.State) {
		return f, webui.Invalid("Unknown state %.40q.", f.State)
	}
	if f.Labels, err = labelsOf(q); err != nil {
		return f, err
	}
	if f.Archived && q.Get("error")+q.Get("queue") != "" {
		return f, webui.Invalid("The archive has no filter by error or queue.")
	}
	if f.Archived {
		return f, f.setDays()
	}
	if within, err := time.ParseDuration(f.Filter.Get("within")); err == nil {
		f.After = time.Now().Add(-within)
	}
	switch f.Error, f.Queue = f.Filter.Get("error"), f.Filter.Get("queue"); {
	case f.Error != "" && f.Queue != "":
		return f, webui.Invalid("Filter by error or by queue: tasks of failed workflows do not wait in a queue.")
	case f.Error != "":
		f.State = tasktype.WorkflowFailed
	case f.Queue != "":
		f.State = tasktype.WorkflowRunning
	}
	return f, nil
}

// labelsOf returns the labels in the parameters of a list.
func labelsOf(q url.Values) (map[string]string, error) {
	texts := slices.DeleteFunc(slices.Clone(q["label"]), func(text string) bool { return text == "" }) // of an empty form field
	if len(texts) > 20 {
		return nil, webui.Invalid("There are more than 20 labels.")
	}
	labels, err := tasktype.ParseLabels(texts)
	if err != nil {
		err = webui.Invalid("Invalid parameter: %v.", err)
	}
	return labels, err
}

// setDays sets the time of archived workflows: they ended from one day to another, in UTC.
func (f *flowFilter) setDays() error {
	for _, day := range []struct {
		name  string
		at    *time.Time
		after int
	}{{"start", &f.After, 0}, {"end", &f.Before, 1}} {
		text := f.Filter.Get(day.name)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return webui.Invalid("Invalid day %.40q: use a form such as 2026-01-31.", text)
		}
		*day.at = at.AddDate(0, 0, day.after)
	}
	return nil
}

// selecting returns the parameters that select workflows, without the state and the position in the list.
func selecting(q url.Values) url.Values {
	q = maps.Clone(q)
	maps.DeleteFunc(q, func(name string, values []string) bool {
		return slices.Contains([]string{"state", "after", "archive", "pause"}, name) || strings.Join(values, "") == ""
	})
	return q
}

// find returns workflows that a filter selects, the newest first, and the cursor of the next page. For a filter without an index, read is
// the number of workflows or tasks that it has read, or 0 if that was all of them.
func (s *site) find(ctx context.Context, f flowFilter) (found []flowRow, next string, read int, err error) {
	var list []tasktype.Workflow
	switch {
	case f.Queue != "":
		return s.waiting(ctx, f)
	case f.Error != "":
		return s.failed(ctx, f)
	case f.Archived:
		list, next, err = s.cfg.Archive.List(ctx, f.WorkflowFilter)
		for _, w := range list {
			found = append(found, flowRow{Workflow: w})
		}
		return found, next, 0, err
	}
	if list, next, err = s.Workflows(ctx, f.WorkflowFilter); err == nil {
		found, err = s.rows(ctx, list)
	}
	return found, next, 0, err
}

// failed returns failed workflows with an error: a full page and at most nine more, or those among the first mostFailed or, if Redis
// is slow, fewer.
func (s *site) failed(ctx context.Context, f flowFilter) (found []flowRow, next string, read int, err error) {
	want, limit := strings.ToLower(f.Error), f.Limit
	f.Limit = 10 // the time is checked after so many
	for began := time.Now(); ; {
		list, after, err := s.Workflows(ctx, f.WorkflowFilter)
		if err != nil {
			return nil, "", 0, err
		}
		rows, err := s.rows(ctx, list)
		if err != nil {
			return nil, "", 0, err
		}
		for _, row := range rows {
			if e := row.Failure; e.Code == f.Error || e.Task == f.Error || strings.Contains(strings.ToLower(e.Message), want) {
				found = append(found, row)
			}
		}
		read += len(list)
		if f.Cursor = after; after == "" {
			return found, "", 0, nil
		}
		if len(found) >= limit || read >= mostFailed || time.Since(began) > failedTime {
			return found, after, read, nil
		}
	}
}

// waiting returns running workflows with a task that waits in a queue, the longest waiting first. It reads three tasks for each workflow of
// a page: the graph of each is read from Redis.
func (s *site) waiting(ctx context.Context, f flowFilter) (found []flowRow, next string, read int, err error) {
	most := 3 * f.Limit
	ready, err := s.Reserved(ctx, f.Queue, most)
	if err != nil {
		return nil, "", 0, err
	}
	seen := map[string]bool{}
	for i, n := range ready {
		if seen[n.Workflow] {
			continue
		}
		if seen[n.Workflow] = true; len(found) == f.Limit {
			return found, "", i, nil
		}
		w, err := s.client.Workflow(n.Workflow).Info(ctx)
		if errors.Is(err, tasks.ErrNotFound) {
			continue // has expired
		}
		if err != nil {
			return nil, "", 0, err
		}
		if f.matches(w.Workflow) {
			found = append(found, flowRow{Workflow: w.Workflow})
		}
	}
	if len(ready) == most {
		read = most
	}
	return found, "", read, nil
}

// matches reports whether the filter selects a running workflow that waits in its queue.
func (f flowFilter) matches(w tasktype.Workflow) bool {
	for k, v := range f.Labels {
		if got, ok := w.Labels[k]; !ok || got != v {
			return false
		}
	}
	return w.State == f.State && !w.Created.Before(f.After) && strings.Contains(strings.ToLower(w.Name), strings.ToLower(f.Contains)) &&
		(f.Name == "" || w.Name == f.Name || strings.HasPrefix(w.Name, f.Name+" → ") || strings.HasSuffix(w.Name, " → "+f.Name))
}

type workflowsData struct {
	flowFilter
	List   []flowRow
	Next   string // URL of the next page; empty on the last
	Action string // query of the actions on all workflows of the listing
	Failed bool   // some may be retried
	Live   bool   // some may be cancelled
	Bound  int    // number of workflows or tasks that were read for a filter without an index; 0 if all were read
}

// Filtered reports whether the listing has a filter.
func (d workflowsData) Filtered() bool { return d.State != "" || len(d.Filter.Chips) > 0 }

// workflows lists the workflows that a filter selects, the newest first.
func (s *site) workflows(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	f, err := s.filterOf(q)
	if err != nil {
		return webui.View{}, err
	}
	d, next := workflowsData{flowFilter: f}, ""
	if d.List, next, d.Bound, err = s.find(ctx, f); err != nil {
		return webui.View{}, err
	}
	d.Next = webui.After(q, next)
	if f.Archived {
		f.Filter.AddTab(q, "archive", "", "In Redis", -1)
		f.Filter.AddTab(q, "state", "", "Archive", -1)
		for _, state := range workflowStates[1:] {
			f.Filter.AddTab(q, "state", string(state), word(state), -1)
		}
		return webui.View{Name: "Archived workflows", Data: d}, nil
	}
	counts, err := s.CountWorkflows(ctx)
	if err != nil {
		return webui.View{}, err
	}
	listed := func(state tasktype.WorkflowState) bool {
		return counts[state] > 0 && (f.State == "" || f.State == state) && (f.Indexed() || len(d.List) > 0)
	}
	own := selecting(q)
	d.Action, d.Failed, d.Live = "?"+own.Encode(), listed(tasktype.WorkflowFailed), listed(tasktype.WorkflowRunning)
	own.Del("error")
	own.Del("queue")
	own.Set("state", string(f.State))
	f.Filter.AddTab(own, "state", "", "All", -1)
	for _, state := range workflowStates {
		f.Filter.AddTab(own, "state", string(state), word(state), counts[state])
	}
	if s.cfg.Archive != nil {
		f.Filter.AddTab(own, "archive", "1", "Archive", -1)
	}
	every := 4 * time.Second
	if !f.Indexed() { // it reads hundreds of workflows
		every = 30 * time.Second
	}
	return webui.View{Name: "Workflows", Data: d, Every: every}, nil
}

// archived shows an archived workflow.
func (s *site) archived(ctx context.Context, r *http.Request) (webui.View, error) {
	id := r.PathValue("id")
	if s.cfg.Archive == nil || !s.cfg.Data(r) {
		return webui.View{}, engine.ErrUnknown
	}
	raw, err := s.cfg.Archive.Get(ctx, id)
	if err == nil && raw == nil {
		err = engine.ErrUnknown
	}
	return webui.View{Name: "Archived workflow " + id, At: s.cfg.Prefix + "/workflows", Data: webui.NewJSON(2<<20, raw)}, err
}

// search redirects to the workflow with an ID, or to the list of workflows with a name.
func (s *site) search(w http.ResponseWriter, r *http.Request) {
	q, to := strings.TrimSpace(r.URL.Query().Get("q")), s.cfg.Prefix+"/workflows"
	if len(q) > 200 {
		s.Fail(w, r, webui.Invalid("The search term is too long."))
		return
	}
	if q != "" {
		_, err := s.client.Workflow(q).Progress(r.Context())
		switch {
		case err == nil:
			to += "/" + url.PathEscape(q)
		case errors.Is(err, tasks.ErrNotFound):
			to += "?name=" + url.QueryEscape(q)
		default:
			s.Fail(w, r, err)
			return
		}
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
