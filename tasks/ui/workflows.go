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
	"muster/tasks/tasktype"
)

// pageSize is the number of workflows per page.
const pageSize = 50

// workflowStates lists the states of a listing in display order.
var workflowStates = []tasktype.WorkflowState{tasktype.WorkflowRunning, tasktype.WorkflowFailed, tasktype.WorkflowSucceeded, tasktype.WorkflowRevoked}

// spans are the choices of the time filter.
var spans = []webui.Option{{Value: "", Text: "any time"}, {Value: "1h", Text: "last hour"}, {Value: "24h", Text: "last day"}, {Value: "168h", Text: "last week"}}

type workflowsData struct {
	Query  string
	Labels []string // key=value
	Within string
	State  tasktype.WorkflowState
	Spans  []webui.Option
	Tabs   []tab
	List   []flowRow
	Next   string // URL of the next page; empty on the last
	Filter string // query of the actions on all workflows of the listing
	Failed bool   // some may be retried
	Live   bool   // some may be cancelled
}

// tab is a link to the workflows of a state.
type tab struct {
	State tasktype.WorkflowState // empty for all
	Count int64                  // number in the index
	URL   string
}

// filterOf returns the filter of a request.
func filterOf(q url.Values, now time.Time) (tasktype.WorkflowFilter, error) {
	f := tasktype.WorkflowFilter{State: tasktype.WorkflowState(q.Get("state")), Contains: strings.TrimSpace(q.Get("name")), Cursor: q.Get("after")}
	if f.State != "" && !slices.Contains(workflowStates, f.State) {
		return f, webui.Invalid("Unknown state %.40q.", f.State)
	}
	if len(f.Contains) > 200 || len(f.Cursor) > 500 {
		return f, webui.Invalid("The name or cursor is too long.")
	}
	texts := slices.DeleteFunc(slices.Clone(q["label"]), func(text string) bool { return text == "" }) // of an empty form field
	if len(texts) > 20 {
		return f, webui.Invalid("There are more than 20 labels.")
	}
	var err error
	if f.Labels, err = tasktype.ParseLabels(texts); err != nil {
		return f, webui.Invalid("Invalid parameter: %v.", err)
	}
	if within := q.Get("within"); within != "" {
		if !slices.ContainsFunc(spans, func(o webui.Option) bool { return o.Value == within }) {
			return f, webui.Invalid("Invalid parameter within: must be one of the choices.")
		}
		d, err := time.ParseDuration(within)
		if err != nil {
			return f, webui.Invalid("Invalid parameter within: must be a duration.")
		}
		f.After = now.Add(-d)
	}
	return f, nil
}

// workflows lists workflows by state, part of the name and time, the newest first. It reads a limited part of the
// index.
func (s *site) workflows(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	f, err := filterOf(q, time.Now())
	if err != nil {
		return webui.View{}, err
	}
	d := workflowsData{State: f.State, Query: f.Contains, Within: q.Get("within"), Spans: spans}
	for _, k := range slices.Sorted(maps.Keys(f.Labels)) {
		d.Labels = append(d.Labels, k+"="+f.Labels[k])
	}
	f.Limit = pageSize
	list, next, err := s.client.Workflows(ctx, f)
	if err != nil {
		return webui.View{}, err
	}
	counts, err := s.client.CountWorkflows(ctx)
	if err != nil {
		return webui.View{}, err
	}
	if d.List, err = s.rows(ctx, list); err != nil {
		return webui.View{}, err
	}
	own := url.Values{}
	for _, name := range []string{"name", "within"} {
		if v := q.Get(name); v != "" {
			own.Set(name, v)
		}
	}
	for _, label := range d.Labels {
		own.Add("label", label)
	}
	listed := func(state tasktype.WorkflowState) bool {
		return counts[state] > 0 && (f.State == "" || f.State == state)
	}
	d.Filter, d.Failed, d.Live = "?"+own.Encode(), listed(tasktype.WorkflowFailed), listed(tasktype.WorkflowRunning)
	d.Tabs = append(d.Tabs, tab{URL: s.cfg.Prefix + "/workflows?" + own.Encode()})
	for _, state := range workflowStates {
		own.Set("state", string(state))
		d.Tabs = append(d.Tabs, tab{state, counts[state], s.cfg.Prefix + "/workflows?" + own.Encode()})
	}
	if next != "" {
		q.Set("after", next)
		d.Next = "?" + q.Encode()
	}
	return webui.View{Name: "Workflows", At: s.cfg.Prefix + "/workflows", Data: d}, nil
}

// search redirects to the workflow with an ID, or to the list of workflows with a name.
func (s *site) search(w http.ResponseWriter, r *http.Request) {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(q) > 200 {
		s.Fail(w, r, webui.Invalid("The search term is too long."))
		return
	}
	to := s.cfg.Prefix + "/workflows"
	if q != "" {
		_, err := tasks.Attach[any](s.client, q).Progress(r.Context())
		switch {
		case err == nil:
			to += "/" + url.PathEscape(q)
		case errors.Is(err, tasks.ErrUnknown):
			to += "?name=" + url.QueryEscape(q)
		default:
			s.Fail(w, r, err)
			return
		}
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
