package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	List   []tasktype.Workflow
	Next   string // URL of the next page; empty on the last
	Revoke string // URL of the action that revokes the running workflows of the listing
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
	d.List = list
	own := url.Values{}
	for _, name := range []string{"name", "within"} {
		if v := q.Get(name); v != "" {
			own.Set(name, v)
		}
	}
	for _, label := range d.Labels {
		own.Add("label", label)
	}
	if counts[tasktype.WorkflowRunning] > 0 && (f.State == "" || f.State == tasktype.WorkflowRunning) {
		d.Revoke = s.cfg.Prefix + "/revoke?" + own.Encode()
	}
	d.Tabs = append(d.Tabs, tab{URL: s.cfg.Prefix + "/workflows?" + own.Encode()})
	for _, state := range workflowStates {
		own.Set("state", string(state))
		d.Tabs = append(d.Tabs, tab{state, counts[state], s.cfg.Prefix + "/workflows?" + own.Encode()})
	}
	if next != "" {
		q.Set("after", next)
		d.Next = "?" + q.Encode()
	}
	return webui.View{Name: "Workflows", At: s.cfg.Prefix + "/workflows", Data: d, Cost: listCost + len(d.List)}, nil
}

// mostRevoked is the maximum number of workflows revoked by one action.
const mostRevoked = 500

// runningOf returns up to most running workflows that match the filter of a request, the newest first.
func (s *site) runningOf(ctx context.Context, r *http.Request, most int) ([]tasktype.Workflow, error) {
	f, err := filterOf(r.URL.Query(), time.Now())
	if err != nil {
		return nil, err
	}
	f.State, f.Limit, f.Cursor = tasktype.WorkflowRunning, most, ""
	list, _, err := s.client.Workflows(ctx, f)
	return list, err
}

func (s *site) askRevokeMany(ctx context.Context, r *http.Request) (webui.Question, error) {
	list, err := s.runningOf(ctx, r, mostRevoked)
	if err != nil {
		return webui.Question{}, err
	}
	if len(list) == 0 {
		return webui.Question{}, webui.Invalid("The filter selects no running workflow.")
	}
	which := "all running workflows"
	if q := r.URL.Query(); strings.TrimSpace(q.Get("name")) != "" {
		which = fmt.Sprintf("running workflows with %.200q in their name", strings.TrimSpace(q.Get("name")))
	} else if q.Get("label") != "" {
		which = fmt.Sprintf("running workflows with the label %.200q", q.Get("label"))
	}
	count := strconv.Itoa(len(list))
	if len(list) == mostRevoked {
		count = "the newest " + count
	}
	return webui.Question{
		Title: "Revoke workflows", Button: "Revoke workflows", Danger: true, Back: s.cfg.Prefix + "/workflows", At: s.cfg.Prefix + "/workflows",
		Text:   "The filter selects " + which + ": " + count + ". Their pending tasks will not run and their running tasks are canceled. This cannot be undone.",
		Fields: []webui.Field{{Name: "most", Type: "number", Label: "Maximum number, the newest first", Value: strconv.Itoa(len(list)), Min: 1, Max: len(list), Required: true}},
	}, nil
}

func (s *site) revokeMany(ctx context.Context, r *http.Request) (webui.Done, error) {
	most, err := strconv.Atoi(r.PostFormValue("most"))
	if err != nil || most < 1 || most > mostRevoked {
		return webui.Done{}, webui.Invalid("The number must be from 1 to %d.", mostRevoked)
	}
	list, err := s.runningOf(ctx, r, most)
	if err != nil {
		return webui.Done{}, err
	}
	done := webui.Done{To: s.cfg.Prefix + "/workflows?state=revoked", Title: "Workflows revoked"}
	for i, w := range list {
		if err := s.client.Revoke(ctx, w.ID); err != nil && !errors.Is(err, tasks.ErrUnknown) {
			return webui.Done{}, fmt.Errorf("revoked %d of %d workflows: %w", i, len(list), err)
		}
	}
	done.Text = fmt.Sprintf("Revoked %d workflows.", len(list))
	return done, nil
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
