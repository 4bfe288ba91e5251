package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// pageSize is how many workflows are on a page.
const pageSize = 50

// workflowStates are the states of a listing, in the order in which they are offered.
var workflowStates = []tasktype.WorkflowState{tasktype.WorkflowRunning, tasktype.WorkflowFailed, tasktype.WorkflowSucceeded, tasktype.WorkflowRevoked}

type workflowsData struct {
	State tasktype.WorkflowState
	Query string
	All   []tasktype.WorkflowState
	List  []tasktype.Workflow
	Next  string // the address of the next page; empty on the last
}

// workflows lists workflows, the newest first, by state and name.
func (s *site) workflows(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	d := workflowsData{State: tasktype.WorkflowState(q.Get("state")), Query: strings.TrimSpace(q.Get("name")), All: workflowStates}
	if d.State != "" && !slices.Contains(workflowStates, d.State) {
		return webui.View{}, webui.Invalid("There is no state %.40q.", d.State)
	}
	if len(d.Query) > 200 || len(q.Get("after")) > 500 {
		return webui.View{}, webui.Invalid("It is too long.")
	}
	list, next, err := s.client.Workflows(ctx, tasks.WorkflowFilter{State: d.State, Name: d.Query, Cursor: q.Get("after"), Limit: pageSize})
	if err != nil {
		return webui.View{}, err
	}
	d.List = list
	if next != "" {
		q.Set("after", next)
		d.Next = "?" + q.Encode()
	}
	return webui.View{Name: "Workflows", At: s.cfg.Prefix + "/workflows", Data: d}, nil
}

// search leads to the workflow with an id, or lists those with a name.
func (s *site) search(w http.ResponseWriter, r *http.Request) {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(q) > 200 {
		s.Fail(w, r, webui.Invalid("It is too long."))
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
