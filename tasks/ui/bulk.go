package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	mostChanged = 500             // workflows changed by an action that reads them without the index
	mostCounted = 10_000          // counted workflows of a filter
	changeTime  = 8 * time.Second // timeout of an action on all workflows of a filter
)

// bulk is an action on several workflows. The query of a request selects them: with the parameter selected by ID, with failed and group
// by a failed task, otherwise with the filter of the list of workflows.
type bulk struct {
	*site
	Name, Past string                 // such as "Retry" and "Retried"
	Text       string                 // effect on each workflow
	State      tasktype.WorkflowState // of the workflows that a filter selects
	Danger     bool
	Change     func(*tasks.Workflow, context.Context) error
	All        func(context.Context, tasktype.WorkflowFilter) (int, error) // changes all workflows of a filter; nil if only selected ones can be changed
}

// bulks returns the actions on several workflows by path.
func (s *site) bulks() map[string]webui.Action {
	out := map[string]webui.Action{}
	retry := func(w *tasks.Workflow, ctx context.Context) error { return w.Retry(ctx) }
	for _, b := range []bulk{
		{s, "Retry", "Retried", "Their failed and skipped tasks run again.", tasktype.WorkflowFailed, false, retry, s.client.RetryAll},
		{s, "Cancel", "Cancelled", "Their running and pending tasks fail with the code cancelled. Tasks that handle failures run. This cannot be undone.", tasktype.WorkflowRunning, true, (*tasks.Workflow).Cancel, s.client.CancelAll},
		{s, "Revoke", "Revoked", "Their pending tasks will not run and their running tasks are canceled. This cannot be undone.", tasktype.WorkflowRunning, true, (*tasks.Workflow).Revoke, nil},
	} {
		out["/"+strings.ToLower(b.Name)] = b.ask
	}
	return out
}

// selection contains the workflows of an action.
type selection struct {
	ids    []string                 // empty if the filter selects them
	filter *tasktype.WorkflowFilter // nil if they were read
	which  string                   // description
	count  string                   // number
	back   string                   // page of the selection
}

// choose returns the workflows that a request selects.
func (b bulk) choose(ctx context.Context, r *http.Request) (selection, error) {
	q := r.URL.Query()
	sel, err := selection{back: b.cfg.Prefix + "/workflows"}, error(nil)
	add := func(id string) {
		if !slices.Contains(sel.ids, id) && len(sel.ids) < mostChanged {
			sel.ids = append(sel.ids, id)
		}
	}
	task := q.Get("failed")
	switch {
	case q.Has("selected"):
		sel.which = "selected workflows"
		for _, id := range q["id"] {
			add(id)
		}
		if len(sel.ids) == 0 {
			return sel, webui.Invalid("No workflow is selected.")
		}
	case task != "":
		sel.which, sel.back = fmt.Sprintf("workflows in which %.200q failed", task), b.cfg.Prefix+nameURL(task)
		failed, err := b.failures(ctx, task, q.Get("group"))
		if err != nil {
			return sel, err
		}
		for _, n := range failed {
			add(n.Workflow)
		}
	case b.All == nil:
		return sel, webui.Invalid("No workflow is selected.")
	default:
		return b.filtered(ctx, q)
	}
	if len(sel.ids) == 0 {
		err = webui.Invalid("There are no %s.", sel.which)
	}
	sel.count = webui.Number(len(sel.ids))
	return sel, err
}

// filtered returns the workflows that the filter of a query selects.
func (b bulk) filtered(ctx context.Context, q url.Values) (selection, error) {
	f, err := b.filterOf(selecting(q))
	if err != nil {
		return selection{}, err
	}
	if !f.Indexed() && f.State != b.State {
		return selection{}, webui.Invalid("The filter selects %s workflows.", word(f.State))
	}
	f.State, f.Limit = b.State, 0
	sel := selection{which: fmt.Sprintf("%s workflows (%s)", word(b.State), cmp.Or(f.String(), "all")), back: b.cfg.Prefix + "/workflows?" + selecting(q).Encode()}
	n, more := 0, false
	if f.Indexed() {
		sel.filter = &f.WorkflowFilter
		if n, more, err = b.countAll(ctx, f.WorkflowFilter); err != nil {
			return sel, err
		}
	} else {
		f.Limit = mostChanged
		found, _, read, err := b.find(ctx, f)
		if err != nil {
			return sel, err
		}
		for _, w := range found {
			sel.ids = append(sel.ids, w.ID)
		}
		n, more = len(found), read > 0
	}
	sel.count = webui.Number(n)
	switch {
	case n == 0:
		err = webui.Invalid("There are no %s.", sel.which)
	case more && sel.filter != nil:
		sel.count = "more than " + sel.count
	case more:
		sel.count += ", and possibly more; repeat the action for them"
	}
	return sel, err
}

// countAll counts the workflows that a filter selects. It stops at mostCounted, with more set.
func (b bulk) countAll(ctx context.Context, f tasktype.WorkflowFilter) (n int, more bool, err error) {
	for f.Limit = 1000; ; {
		list, next, err := b.Workflows(ctx, f)
		if err != nil {
			return 0, false, err
		}
		if n += len(list); next == "" || n >= mostCounted {
			return n, next != "", nil
		}
		f.Cursor = next
	}
}

func (b bulk) ask(ctx context.Context, r *http.Request) (webui.Question, error) {
	sel, err := b.choose(ctx, r)
	queue := "" // paused first
	if q := r.URL.Query(); q.Has("pause") {
		queue = q.Get("queue")
	}
	if queue != "" {
		b.Text += fmt.Sprintf(" The queue %q is paused first.", queue)
		if r.Method == http.MethodPost && webui.Refused(err) { // workers took the last task after the question
			err = nil
		}
	}
	return webui.Question{
		Title: b.Name + " workflows", Button: b.Name + " workflows", Danger: b.Danger, Back: sel.back,
		Text: fmt.Sprintf("Selection: %s: %s. %s", sel.which, sel.count, b.Text),
		Do: func(ctx context.Context, _ webui.Form) (webui.Result, error) {
			if queue == "" {
				return b.perform(ctx, sel)
			}
			err := b.client.PauseQueue(ctx, queue)
			if err == nil {
				sel, err = b.choose(ctx, r)
			}
			switch {
			case webui.Refused(err):
				return webui.Result{To: b.cfg.Prefix + "/queues/" + url.PathEscape(queue), Title: "Queue paused", Text: fmt.Sprintf("The queue %q is paused. Nothing was waiting in it.", queue)}, nil
			case err != nil:
				return webui.Result{}, err
			}
			return b.perform(ctx, sel)
		},
	}, err
}

// perform changes the workflows of a selection.
func (b bulk) perform(ctx context.Context, sel selection) (done webui.Result, err error) {
	changed, skipped := 0, ""
	if sel.filter != nil {
		changing, cancel := context.WithTimeout(ctx, changeTime)
		defer cancel()
		changed, err = b.All(changing, *sel.filter)
		switch {
		case err == nil:
		case tasks.Unavailable(err) && changing.Err() == nil:
			return webui.Result{}, fmt.Errorf("%s %d workflows: %w", strings.ToLower(b.Past), changed, err)
		case changing.Err() != nil:
			skipped = " More are left: repeat the action."
		default:
			skipped = fmt.Sprintf(" Some are unchanged: %.300s.", err)
		}
	}
	for i, id := range sel.ids {
		switch err := b.Change(b.client.Workflow(id), ctx); {
		case err == nil:
			changed++
		case unchanged(err):
			skipped = fmt.Sprintf(" Unchanged: %d, for example because of: %.300s.", i+1-changed, err)
		default:
			return webui.Result{}, fmt.Errorf("%s %d of %d workflows: %w", strings.ToLower(b.Past), i, len(sel.ids), err)
		}
	}
	done = webui.Result{Title: "Workflows " + strings.ToLower(b.Past), Text: fmt.Sprintf("%s %s workflows.", b.Past, webui.Number(changed))}
	if changed == 1 {
		done.Text = b.Past + " 1 workflow."
	}
	done.Text += skipped
	return done, nil
}

// inapplicable are errors of actions that do not apply to a workflow in its current state.
var inapplicable = []error{tasks.ErrRunning, tasks.ErrRevoked, tasks.ErrEnded, tasks.ErrDamaged, tasks.ErrCompensated, tasks.ErrInvalid}

// unchanged reports whether an error means that an action does not apply to a workflow.
func unchanged(err error) bool {
	return slices.ContainsFunc(append(inapplicable, tasks.ErrNotFound), func(known error) bool { return errors.Is(err, known) })
}
