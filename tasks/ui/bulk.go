package ui

import (
	"context"
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

// mostChanged is the maximum number of workflows changed by one action.
const mostChanged = 500

// bulk is an action on several workflows. The query of a request selects them: with the parameter id by ID, with task and error by a
// failed task, with queue by a task that waits in a queue, otherwise with the filter of the list of workflows.
type bulk struct {
	*site
	Name, Past string                 // such as "Retry" and "Retried"
	Text       string                 // effect on each workflow
	State      tasktype.WorkflowState // of the workflows that a filter selects
	Danger     bool
	Change     func(ctx context.Context, id string) error
}

// bulks returns the actions on several workflows by path.
func (s *site) bulks() map[string]webui.Action {
	out := map[string]webui.Action{}
	for _, b := range []bulk{
		{s, "Retry", "Retried", "Their failed and skipped tasks run again.", tasktype.WorkflowFailed, false, func(ctx context.Context, id string) error { return s.client.Retry(ctx, id) }},
		{s, "Cancel", "Cancelled", "Their running and pending tasks fail with the code cancelled. Tasks that handle failures run. This cannot be undone.", tasktype.WorkflowRunning, true, s.client.Cancel},
		{s, "Revoke", "Revoked", "Their pending tasks will not run and their running tasks are canceled. This cannot be undone.", tasktype.WorkflowRunning, true, s.client.Revoke},
	} {
		out["/"+strings.ToLower(b.Name)] = webui.Action{Class: webui.Operate, Confirm: b.ask, Do: b.perform}
	}
	return out
}

// choose returns the IDs of the selected workflows, a description of the selection and the page that it is from.
func (b bulk) choose(ctx context.Context, r *http.Request) (ids []string, which, back string, err error) {
	q := r.URL.Query()
	add := func(id string) {
		if !slices.Contains(ids, id) && len(ids) < mostChanged {
			ids = append(ids, id)
		}
	}
	task, queue := q.Get("task"), q.Get("queue")
	switch {
	case q.Has("selected"):
		which, back = "selected workflows", b.cfg.Prefix+"/workflows"
		for _, id := range q["id"] {
			add(id)
		}
		if len(ids) == 0 {
			err = webui.Invalid("No workflow is selected.")
		}
	case task != "":
		which, back = fmt.Sprintf("workflows in which %.200q failed", task), b.cfg.Prefix+nameURL(task)
		var failed []tasktype.FailedNode
		failed, err = b.failures(ctx, task, q.Get("error"))
		for _, n := range failed {
			add(n.Workflow)
		}
	case queue != "":
		which, back = fmt.Sprintf("workflows with tasks that wait in queue %.200q", queue), b.cfg.Prefix+"/queues/"+url.PathEscape(queue)
		var ready []tasktype.ReservedNode
		ready, err = b.client.Reserved(ctx, mostChanged)
		for _, n := range ready {
			if n.Queue == queue {
				add(n.Workflow)
			}
		}
	default:
		which, back = string(workflowWord(b.State))+" workflows", b.cfg.Prefix+"/workflows"
		var f tasktype.WorkflowFilter
		if f, err = filterOf(q, time.Now()); err != nil {
			return nil, "", "", err
		}
		f.State, f.Limit, f.Cursor = b.State, mostChanged, ""
		var list []tasktype.Workflow
		list, _, err = b.client.Workflows(ctx, f)
		for _, w := range list {
			add(w.ID)
		}
		if f.Contains != "" {
			which += fmt.Sprintf(" with %.200q in their name", f.Contains)
		}
		if label := q.Get("label"); label != "" {
			which += fmt.Sprintf(" with the label %.200q", label)
		}
		if f.After.IsZero() && f.Contains == "" && len(f.Labels) == 0 {
			which = "all " + which
		}
	}
	if err == nil && len(ids) == 0 {
		err = webui.Invalid("There are no %s.", which)
	}
	return ids, which, back, err
}

func (b bulk) ask(ctx context.Context, r *http.Request) (webui.Question, error) {
	ids, which, back, err := b.choose(ctx, r)
	if err != nil {
		return webui.Question{}, err
	}
	count := strconv.Itoa(len(ids))
	if len(ids) == mostChanged {
		count += ", the maximum"
	}
	return webui.Question{
		Title: b.Name + " workflows", Button: b.Name + " workflows", Danger: b.Danger, Back: back, At: b.cfg.Prefix + "/workflows",
		Text:   fmt.Sprintf("Selection: %s: %s. %s", which, count, b.Text),
		Fields: []webui.Field{{Name: "most", Type: "number", Label: "Maximum number, the newest first", Value: strconv.Itoa(len(ids)), Min: 1, Max: len(ids), Required: true}},
	}, nil
}

func (b bulk) perform(ctx context.Context, r *http.Request) (webui.Result, error) {
	most, err := strconv.Atoi(r.PostFormValue("most"))
	if err != nil || most < 1 || most > mostChanged {
		return webui.Result{}, webui.Invalid("The number must be from 1 to %d.", mostChanged)
	}
	ids, _, back, err := b.choose(ctx, r)
	if err != nil {
		return webui.Result{}, err
	}
	ids = ids[:min(len(ids), most)]
	changed, why := 0, ""
	for i, id := range ids {
		switch err := b.Change(ctx, id); {
		case err == nil:
			changed++
		case unchanged(err):
			why = err.Error()
		default:
			return webui.Result{}, fmt.Errorf("%s %d of %d workflows: %w", strings.ToLower(b.Past), i, len(ids), err)
		}
	}
	done := webui.Result{To: back, Title: "Workflows " + strings.ToLower(b.Past), Text: fmt.Sprintf("%s %d workflows.", b.Past, changed)}
	if changed == 1 {
		done.Text = b.Past + " 1 workflow."
	}
	if skipped := len(ids) - changed; skipped > 0 {
		done.Text += fmt.Sprintf(" Unchanged: %d, for example because of: %.300s.", skipped, why)
	}
	return done, nil
}

// unchanged reports whether an error means that an action does not apply to a workflow in its current state.
func unchanged(err error) bool {
	return slices.ContainsFunc([]error{tasks.ErrUnknown, tasks.ErrRunning, tasks.ErrSucceeded, tasks.ErrRevoked, tasks.ErrEnded, tasks.ErrDamaged, tasks.ErrRetryInput},
		func(known error) bool { return errors.Is(err, known) })
}
