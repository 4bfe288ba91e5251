package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Inspector lists workflows, nodes and queues.
type Inspector struct {
	*advancer
	fleet  *Fleet
	wholes *wholes
}

// Active returns the nodes that workers have: each one runs, or waits a short time for a slot. Started is when it was taken.
func (in *Inspector) Active(ctx context.Context) ([]tasktype.Task, error) {
	leases, err := in.store.Leases.All(ctx)
	if err != nil {
		return nil, err
	}
	var out []tasktype.Task
	for _, l := range leases {
		if out, err = in.add(ctx, out, l.Flow, l.Node, tasktype.Task{Status: tasktype.Started, Worker: l.Worker, Started: l.Taken}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b tasktype.Task) int {
		return strings.Compare(a.Worker+"/"+a.Workflow+"/"+a.Node, b.Worker+"/"+b.Workflow+"/"+b.Node)
	})
	return out, nil
}

// add adds a node with its task and queue to a list, unless its workflow is gone or cannot be read.
func (in *Inspector) add(ctx context.Context, list []tasktype.Task, f store.Flow, node string, t tasktype.Task) ([]tasktype.Task, error) {
	sp, err := in.graphs.spec(ctx, f, node)
	if err != nil || sp == nil {
		return list, err
	}
	t.Workflow, t.Node, t.Task, t.Queue = f.ID(), node, sp.Task, sp.QueueName()
	return append(list, t), nil
}

// Due returns nodes that wait for their time.
func (in *Inspector) Due(ctx context.Context, limit int) ([]tasktype.Task, error) {
	waiting, err := in.store.Agenda.Waiting(ctx, limit)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(waiting, func(a, b store.Waiting) int { return a.Due.Compare(b.Due) })
	var out []tasktype.Task
	for _, w := range waiting {
		if len(out) == limit {
			break
		}
		t := tasktype.Task{Status: tasktype.Pending, Due: w.Due}
		if w.Retry {
			t.Status = tasktype.Retry
		}
		if out, err = in.add(ctx, out, w.Flow, w.Node, t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// CountDue counts delayed tasks by queue: the first nodes of workflows up to the limit, and all of asynq's own tasks.
func (in *Inspector) CountDue(ctx context.Context, limit int) ([]tasktype.DueCount, error) {
	names, err := in.store.Queues.Names(ctx)
	if err != nil {
		return nil, err
	}
	foreign, err := in.store.Queues.Foreign(ctx, names)
	if err != nil {
		return nil, err
	}
	counts := map[string]tasktype.DueCount{}
	for q, f := range foreign {
		counts[q] = f.DueCount
	}
	waiting, err := in.store.Agenda.Waiting(ctx, limit)
	if err != nil {
		return nil, err
	}
	for _, w := range waiting {
		c := counts[w.Queue]
		if w.Retry {
			c.Retry++
		} else {
			c.Scheduled++
		}
		if w.Queue != "" {
			counts[w.Queue] = c
		}
	}
	out := make([]tasktype.DueCount, 0, len(counts))
	for queue, c := range counts {
		c.Queue = queue
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b tasktype.DueCount) int { return strings.Compare(a.Queue, b.Queue) })
	return out, nil
}

// Reserved returns up to limit nodes of a queue, or of each queue if queue is "", that are ready.
func (in *Inspector) Reserved(ctx context.Context, queue string, limit int) ([]tasktype.Task, error) {
	queues := []string{queue}
	if queue == "" {
		var err error
		if queues, err = in.store.Queues.Names(ctx); err != nil {
			return nil, err
		}
	}
	var out []tasktype.Task
	for _, q := range queues {
		els, err := in.store.Queues.Ready(ctx, q, limit)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", q, err)
		}
		n := 0
		for _, el := range els {
			for _, node := range el.Nodes {
				if n++; n > limit {
					break
				}
				if out, err = in.add(ctx, out, el.Flow, node, tasktype.Task{Status: tasktype.Pending}); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// Queues returns the queues that work was sent to.
func (in *Inspector) Queues(ctx context.Context) ([]tasktype.Queue, error) {
	names, err := in.store.Queues.Names(ctx)
	if err != nil {
		return nil, err
	}
	depths, err := in.store.Queues.Depths(ctx, names)
	if err != nil {
		return nil, err
	}
	leases, err := in.store.Leases.All(ctx)
	if err != nil {
		return nil, err
	}
	active := map[string]int64{}
	for _, l := range leases {
		active[l.Queue()]++
	}
	foreign, err := in.store.Queues.Foreign(ctx, names)
	if err != nil {
		return nil, err
	}
	live, err := in.fleet.Workers(ctx)
	if err != nil {
		return nil, err
	}
	waiting, err := in.store.Unhandled.Tasks(ctx)
	if err != nil {
		return nil, err
	}
	unhandled := map[string]map[string]int64{}
	for _, u := range waiting {
		if unhandled[u.Queue] == nil {
			unhandled[u.Queue] = map[string]int64{}
		}
		unhandled[u.Queue][u.Task] = u.Nodes
	}
	var out []tasktype.Queue
	for _, n := range names {
		f := foreign[n]
		info := tasktype.Queue{Name: n, Pending: depths[n].Ready + f.Pending, Active: active[n] + f.Active, Archived: f.Archived, Asynq: f.Pending + f.Active + f.Archived, Paused: f.Paused, Unhandled: unhandled[n]}
		for _, since := range []time.Time{f.Since, depths[n].Since} {
			if !since.IsZero() {
				info.Latency = max(info.Latency, in.clock.Now().Sub(since))
			}
		}
		for i := range live {
			if live[i].Queues[n] > 0 {
				info.Workers++
			}
		}
		out = append(out, info)
	}
	return out, nil
}

// maxPage and defaultPage are how many workflows a page of the index has.
const (
	maxPage     = 1000
	defaultPage = 100
)

// Workflows returns a page of the index of workflows, the latest first, and the cursor of the next.
func (in *Inspector) Workflows(ctx context.Context, q tasktype.WorkflowFilter) (page []tasktype.Workflow, next string, err error) {
	if q.State != "" && !slices.Contains(store.WorkflowStates, q.State) {
		return nil, "", fmt.Errorf("%q is not a state of a workflow: use running, success, failure or revoked", q.State)
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, "", fmt.Errorf("limit %d must be 1 to %d", q.Limit, maxPage)
	}
	list, next, err := in.store.Index.Workflows(ctx, q, in.graphs.caption)
	if err != nil {
		return nil, "", err
	}
	for i := range list {
		page = append(page, list[i].Workflow)
	}
	return page, next, nil
}

// Ended returns workflows that ended after a position, as [store.Index.Ended] does.
func (in *Inspector) Ended(ctx context.Context, after string, limit int) (events []tasktype.WorkflowEvent, next string, gap bool, err error) {
	if limit < 1 || limit > maxPage {
		return nil, after, false, fmt.Errorf("limit %d must be 1 to %d", limit, maxPage)
	}
	return in.store.Index.Ended(ctx, after, limit)
}

// mostStuck bounds the ready nodes of a queue that a call of FindStuck looks at.
const mostStuck = 1000

// FindStuck adds events of workflows with a ready task that no live worker may take, because its queue is paused or has no worker, or no worker has
// its handler, and that have not changed for a time.
func (in *Inspector) FindStuck(ctx context.Context, after time.Duration) error {
	queues, err := in.Queues(ctx)
	if err != nil {
		return err
	}
	var blocked []store.Flow
	for i := range queues {
		q := &queues[i]
		if q.Pending > 0 && (q.Paused || q.Workers == 0) {
			els, err := in.store.Queues.Ready(ctx, q.Name, mostStuck)
			if err != nil {
				return err
			}
			for _, el := range els {
				blocked = append(blocked, el.Flow)
			}
		}
		for task := range q.Unhandled {
			flows, err := in.store.Unhandled.Flows(ctx, store.UnhandledTask{Queue: q.Name, Task: task}, mostStuck)
			if err != nil {
				return err
			}
			blocked = append(blocked, flows...)
		}
	}
	now, err := in.redisTime(ctx, 0)
	if err != nil {
		return err
	}
	var stuck []store.Flow
	seen := map[string]bool{}
	for _, f := range blocked {
		if seen[f.Ref] {
			continue
		}
		seen[f.Ref] = true
		fields, err := in.store.Flows.Fields(ctx, f, store.FieldRevision, store.FieldStopped)
		if err != nil {
			return err
		}
		fl, err := in.graphs.load(ctx, f.Ref)
		if errors.Is(err, ErrUnknown) {
			continue
		}
		if err != nil {
			return err
		}
		changed, _ := strconv.ParseInt(fields[store.FieldRevision], 10, 64)
		if fields[store.FieldStopped] == "" && now.Sub(time.UnixMilli(max(changed, fl.Created))) >= after {
			stuck = append(stuck, fl.Flow)
		}
	}
	return in.store.Index.Mark(ctx, stuck)
}

// Rates returns the counts that q asks for, by time, queue and task.
func (in *Inspector) Rates(ctx context.Context, q tasktype.RateFilter) ([]tasktype.RatePoint, error) {
	switch q.Step {
	case 0, time.Minute, time.Hour:
	default:
		return nil, fmt.Errorf("step %s must be a minute or an hour", q.Step)
	}
	if q.Until.IsZero() {
		q.Until = in.clock.Now()
	}
	return in.store.Counts.Rates(ctx, q)
}

// History returns the series that f selects, by name.
func (in *Inspector) History(ctx context.Context, f tasktype.HistoryFilter) ([]tasktype.Series, error) {
	if f.Until.IsZero() {
		f.Until = in.clock.Now()
	}
	return in.store.History.Read(ctx, f)
}

// Log returns the stored log lines of a workflow.
func (in *Inspector) Log(ctx context.Context, refOrID string) ([]tasktype.LogLine, error) {
	f, err := in.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return nil, err
	}
	lines, err := in.store.Flows.Log(ctx, f)
	if err == nil && len(lines) == 0 {
		_, err = in.graphs.load(ctx, f.Ref)
	}
	return lines, err
}

// Durations returns how long handlers ran in the hours since a time; an empty queue or task is any.
func (in *Inspector) Durations(ctx context.Context, queue, task string, since time.Time) ([]tasktype.DurationPoint, error) {
	return in.store.Counts.Durations(ctx, queue, task, since, in.clock.Now())
}

// Sample returns the sample of a task, or an empty one.
func (in *Inspector) Sample(ctx context.Context, task string) (s Sample, err error) {
	raw, err := in.store.Workers.Sample(ctx, task)
	if err == nil && raw != nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// Failures returns up to limit of the last nodes of a task that have failed, the newest first.
func (in *Inspector) Failures(ctx context.Context, task string, limit int) ([]tasktype.FailedNode, error) {
	return in.store.Counts.Failures(ctx, task, min(max(limit, 1), defaultPage))
}

// Bounds of changes of all workflows.
const (
	allPage   = 500 // workflows that are read at once
	allAtOnce = 8
	allErrors = 20 // that are returned
)

// ChangeAll changes the workflows in a state that a filter selects, and returns how many it has changed. It skips workflows that
// are gone or that another call has changed, continues after other errors, and returns the first of them.
func (in *Inspector) ChangeAll(ctx context.Context, q tasktype.WorkflowFilter, state tasktype.WorkflowState, change func(ctx context.Context, ref string) error) (n int, err error) {
	if q.State != "" && q.State != state {
		return 0, fmt.Errorf("state %q of the filter must be empty or %q", q.State, state)
	}
	q.State, q.Limit = state, allPage
	var errs []error
	failed := 0
	for {
		page, next, err := in.store.Index.Workflows(ctx, q, in.graphs.caption)
		if err != nil {
			return n, errors.Join(append(errs, err)...)
		}
		results := make([]error, len(page))
		var group errgroup.Group
		group.SetLimit(allAtOnce)
		for i := range page {
			group.Go(func() error {
				results[i] = change(ctx, page[i].Ref)
				return nil
			})
		}
		_ = group.Wait()
		for _, err := range results {
			switch {
			case err == nil:
				n++
			case errors.Is(err, ErrUnknown) || errors.Is(err, ErrEnded) || errors.Is(err, ErrSucceeded) || errors.Is(err, tasktype.ErrRevoked),
				errors.Is(err, ErrRunning) && !errors.Is(err, errBusy): // of a retry
			default:
				if failed++; failed <= allErrors {
					errs = append(errs, err)
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if next == "" {
			break
		}
		q.Cursor = next
	}
	if failed > allErrors {
		errs = append(errs, fmt.Errorf("and %d more workflows with errors", failed-allErrors))
	}
	return n, errors.Join(errs...)
}
