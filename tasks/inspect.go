package tasks

import (
	"context"
	"encoding/json"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// Inspector lists workflows, queues, workers and schedules. It may be used by many goroutines at once.
type Inspector struct{ eng *engine.Engine }

// Inspect returns the Inspector of c.
func (c *Client) Inspect() *Inspector { return &Inspector{c.eng} }

// Workflows returns a page of the workflows that f selects, the latest first, and the cursor
// of the next page: call again with it in f.Cursor until it is empty. A page can be short, or empty, although
// others follow it.
//
// All running workflows are listed. Of the ended workflows, the last 100,000 failed ones and the last 10,000 of each other
// state are listed (on a Redis Cluster, of each shard), for as long as their results are kept. A workflow that ends between two
// pages moves to the beginning of the list: to miss none, list the running ones, and then those that ended since.
func (i *Inspector) Workflows(ctx context.Context, f tasktype.WorkflowFilter) (page []tasktype.Workflow, next string, err error) {
	page, next, err = i.eng.Inspector.Workflows(ctx, f)
	return page, next, wrap(err, "list workflows")
}

// CountWorkflows returns how many workflows [Inspector.Workflows] can list in each state. The number of running workflows is
// exact; the others may include workflows whose results are no longer kept, which are not listed.
func (i *Inspector) CountWorkflows(ctx context.Context) (map[tasktype.WorkflowState]int64, error) {
	counts, err := i.eng.Store().Index.Counts(ctx)
	return counts, wrap(err, "count workflows")
}

// Workers returns the live workers, by name.
func (i *Inspector) Workers(ctx context.Context) ([]tasktype.Worker, error) {
	ws, err := i.eng.Fleet.Workers(ctx)
	return ws, wrap(err, "list workers")
}

// PingWorkers pings every live worker, and returns for each whether it responded within wait. It returns as soon as all
// have responded.
func (i *Inspector) PingWorkers(ctx context.Context, wait time.Duration) ([]tasktype.Pong, error) {
	ps, err := i.eng.Fleet.Ping(ctx, wait)
	return ps, wrap(err, "ping workers")
}

// Queues returns the state of all queues that tasks were sent to.
func (i *Inspector) Queues(ctx context.Context) ([]tasktype.Queue, error) {
	qs, err := i.eng.Inspector.Queues(ctx)
	return qs, wrap(err, "list queues")
}

// Active returns the nodes that workers have, by worker. Each node is running, or waits briefly for a slot.
func (i *Inspector) Active(ctx context.Context) ([]tasktype.Task, error) {
	as, err := i.eng.Inspector.Active(ctx)
	return as, wrap(err, "list active nodes")
}

// Due returns at most limit nodes that wait for their time, the earliest first.
func (i *Inspector) Due(ctx context.Context, limit int) ([]tasktype.Task, error) {
	ds, err := i.eng.Inspector.Due(ctx, limit)
	return ds, wrap(err, "list scheduled nodes")
}

// Reserved returns at most limit nodes of a queue, or of each queue if queue is "", that are ready and that no worker has taken yet.
func (i *Inspector) Reserved(ctx context.Context, queue string, limit int) ([]tasktype.Task, error) {
	rs, err := i.eng.Inspector.Reserved(ctx, queue, limit)
	return rs, wrap(err, "list reserved nodes")
}

// CountDue counts the tasks that wait for their time, by queue, without reading their inputs: the first limit tasks of
// workflows (on a Redis Cluster, of each shard), and all of asynq's own tasks. [Inspector.Due] lists the tasks of workflows.
func (i *Inspector) CountDue(ctx context.Context, limit int) ([]tasktype.DueCount, error) {
	counts, err := i.eng.Inspector.CountDue(ctx, limit)
	return counts, wrap(err, "count scheduled tasks")
}

// Outbox returns the size of the outbox and its delay. The outbox has the nodes that wait for
// their time, and the steps that workers repeat if the process that should take them has died.
func (i *Inspector) Outbox(ctx context.Context) (tasktype.Outbox, error) {
	o, err := i.eng.Store().Agenda.Outbox(ctx)
	return o, wrap(err, "read outbox")
}

// Rates returns the counts that f selects, by time, queue and task. A minute or hour in which no task ended has
// no point. Counts by minute are kept for 24 hours, counts by hour for 30 days. When there are very many tasks, tasks that
// first ended late in an hour (or day) are counted together, as the task "(other)" of their queue. Workers store counts once a
// second; a killed worker loses the counts of its last second.
func (i *Inspector) Rates(ctx context.Context, f tasktype.RateFilter) ([]tasktype.RatePoint, error) {
	points, err := i.eng.Inspector.Rates(ctx, f)
	return points, wrap(err, "read rates")
}

// Durations returns how long the handlers of tasks ran, by hour, queue and task, for the last 24 hours. Each
// attempt that ended with a value, a failure or another attempt to follow counts.
func (i *Inspector) Durations(ctx context.Context, f tasktype.DurationFilter) ([]tasktype.DurationPoint, error) {
	points, err := i.eng.Inspector.Durations(ctx, f.Queue, f.Task, f.Since)
	return points, wrap(err, "read durations")
}

// History returns the series that f selects, by name: depths of queues and memory of workers, every minute of the last 25
// hours. A minute in which no worker was running has no value. It includes at most 300 series per hour.
func (i *Inspector) History(ctx context.Context, f tasktype.HistoryFilter) ([]tasktype.Series, error) {
	list, err := i.eng.Inspector.History(ctx, f)
	return list, wrap(err, "read history")
}

// Failures returns at most limit of the last 100 nodes of a task that failed in the last day, the newest first (on a
// Redis Cluster, the last 100 of each shard). Nodes of workflows whose results are no longer kept are left out.
func (i *Inspector) Failures(ctx context.Context, task string, limit int) ([]tasktype.FailedNode, error) {
	list, err := i.eng.Inspector.Failures(ctx, task, limit)
	return list, wrap(err, "list failed nodes of task %s", task)
}

// Sample returns the default queue of a task, and an example of its input as JSON, with all fields of its type, which the last worker with
// a handler stored at its start. input is nil if none did in the last 30 days.
func (i *Inspector) Sample(ctx context.Context, task string) (queue string, input json.RawMessage, err error) {
	s, err := i.eng.Inspector.Sample(ctx, task)
	return s.Queue, s.Input, wrap(err, "read sample")
}

// OpenTasks returns the tasks with open nodes, which wait for an external result, by name and with the number of nodes:
// at most 1,000 tasks (on a Redis Cluster, of each shard). [Inspector.OpenTokens] lists the nodes.
func (i *Inspector) OpenTasks(ctx context.Context) ([]tasktype.OpenTask, error) {
	list, err := i.eng.Store().Tokens.Tasks(ctx)
	return list, err
}

// OpenTokens returns a page of the nodes of a task that wait for external completion, by workflow and node, and the cursor of
// the next page. The cursor of the first page is empty; call again until next is empty. A page has at most 100 nodes,
// and fewer when their inputs are large; it can be empty although others follow. It has no tokens: see
// [Workflow.NewToken].
func (i *Inspector) OpenTokens(ctx context.Context, task, cursor string) (page []tasktype.OpenToken, next string, err error) {
	page, next, err = i.eng.Completer.Open(ctx, task, cursor)
	return page, next, wrap(err, "open tokens of task %s", task)
}

// Schedules returns a page of the schedules that f selects, by name, and the cursor of the next page: call again with it in f.Cursor until it
// is empty. With labels, a page can be short, or empty, although others follow it.
func (i *Inspector) Schedules(ctx context.Context, f tasktype.ScheduleFilter) (page []tasktype.ScheduleEntry, next string, err error) {
	page, next, err = i.eng.Schedules.List(ctx, f)
	return page, next, wrap(err, "list schedules")
}

// Schedule returns the schedule with this name. It returns [ErrNotFound].
func (i *Inspector) Schedule(ctx context.Context, name string) (tasktype.ScheduleEntry, error) {
	st, _, err := i.eng.Schedules.Get(ctx, name)
	if err != nil {
		return tasktype.ScheduleEntry{}, changeError("read", name, err)
	}
	return st.ScheduleEntry, nil
}
