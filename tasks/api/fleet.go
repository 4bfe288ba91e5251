package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"muster/internal/httpproblem"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Worker is a live worker, or one that responded to a ping.
type Worker struct {
	tasktype.Worker
	Replied *bool         `json:"replied,omitempty" doc:"whether it responded to the ping; absent without ping"`
	After   time.Duration `json:"after_ns,omitempty" doc:"response time of the ping"`
}

// Concurrency is how many tasks workers run at once.
type Concurrency struct {
	Concurrency int    `json:"concurrency" minimum:"1" maximum:"100000" doc:"tasks at once"`
	Worker      string `json:"worker,omitempty" maxLength:"200" doc:"name of a worker; defaults to all running workers"`
}

// TaskQueue is a queue that was paused or resumed.
type TaskQueue struct {
	Name    string `json:"name"`
	Paused  bool   `json:"paused"`
	Workers int    `json:"workers" doc:"running workers of the queue"`
}

// maxTasks is the largest number of tasks in a list.
const maxTasks = 10_000

// Ping is the input of ListWorkers.
type Ping struct {
	For string `query:"ping" cli:"timeout=2s" maxLength:"50" doc:"ping the workers and wait so long for their replies, up to 1m" example:"2s"`
}

// QueueChange is a change of a queue without parameters.
type QueueChange struct {
	Queue string `path:"queue" maxLength:"100" pattern:"^[^\\s\\x00-\\x1f<>{}:|]+$" patternDescription:"the name of a queue" doc:"name of the queue" example:"default"`
	Body  *struct{}
}

// TaskFilter selects tasks.
type TaskFilter struct {
	State string `query:"state" default:"running" enum:"running,ready,scheduled" doc:"running: taken by a worker; ready: waiting for a worker; scheduled: waiting for a time"`
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"number of tasks; there are no further pages"`
}

// LimitFilter selects limits.
type LimitFilter struct {
	Limit string `query:"limit" cli:"arg" maxLength:"100" doc:"only this limit"`
}

// LimitChange is a change of a limit.
type LimitChange struct {
	Limit string `path:"limit" minLength:"1" maxLength:"100" doc:"name of the limit"`
	Body  struct {
		Key       string     `json:"key" cli:"key=*" maxLength:"10000" doc:"key whose limit changes; * for all keys, empty for a limit without keys"`
		N         *int       `json:"n,omitempty" minimum:"0" maximum:"1000000" doc:"what it allows from now on; with 0 nothing starts"`
		Reset     bool       `json:"reset,omitempty" doc:"end the change of the number"`
		HoldUntil *time.Time `json:"hold_until,omitempty" doc:"nothing starts until then, at most a year ahead; a time that has passed ends the hold"`
	}
}

// RateFilter selects counts of outcomes.
type RateFilter struct {
	Queue string    `query:"queue" maxLength:"100" doc:"only tasks of this queue"`
	Task  string    `query:"task" maxLength:"100" doc:"only tasks with this name"`
	Since time.Time `query:"since" doc:"from the minute or hour of this time; defaults to an hour ago"`
	Step  string    `query:"step" default:"minute" enum:"minute,hour" doc:"counts by minute are kept for 24 hours, by hour for 30 days"`
}

// Operations on workers, their queues and the tasks in them.
var (
	ListWorkers     = declare[Ping, Page[Worker]](Read, "GET /v1/workers", "listWorkers", "List the live workers")
	SetConcurrency  = declare[With[Concurrency], None](Change, "POST /v1/workers/concurrency", "setConcurrency", "Set how many tasks workers run at once", http.StatusNotFound)
	ListTaskQueues  = declare[None, Page[tasktype.Queue]](Read, "GET /v1/task-queues", "listTaskQueues", "List the queues of tasks")
	PauseTaskQueue  = declare[QueueChange, TaskQueue](Change, "POST /v1/task-queues/{queue}/pause", "pauseTaskQueue", "Pause a queue of tasks: workers take no more from it")
	ResumeTaskQueue = declare[QueueChange, TaskQueue](Change, "POST /v1/task-queues/{queue}/resume", "resumeTaskQueue", "Resume a paused queue of tasks")
	ListLimits      = declare[LimitFilter, Page[tasktype.Limit]](Read, "GET /v1/limits", "listLimits", "List the limits that tasks wait for or that were changed, by key")
	ChangeLimit     = declare[LimitChange, None](Change, "PUT /v1/limits/{limit}", "changeLimit", "Change what a limit of tasks allows, or hold it")
	ListTasks       = declare[TaskFilter, Page[tasktype.Task]](Read, "GET /v1/tasks", "listTasks", "List running, ready or scheduled tasks")
	ListTaskRates   = declare[RateFilter, Page[tasktype.RatePoint]](Read, "GET /v1/task-rates", "listTaskRates", "Count the outcomes of tasks by minute or hour")
)

// addFleet adds the operations on workers, their queues and the tasks in them.
func (s *service) addFleet() {
	serve(s, ListWorkers, s.workers)
	serveNone(s, SetConcurrency, func(ctx context.Context, in *With[Concurrency]) error {
		return s.Client.SetConcurrency(ctx, in.Body.Worker, in.Body.Concurrency)
	})
	serve(s, ListTaskQueues, func(ctx context.Context, _ *None) (Page[tasktype.Queue], error) {
		list, err := s.Client.Inspect().Queues(ctx)
		return Page[tasktype.Queue]{Data: append([]tasktype.Queue{}, list...)}, err
	})
	serve(s, PauseTaskQueue, func(ctx context.Context, in *QueueChange) (TaskQueue, error) {
		return s.changed(ctx, in.Queue, true, s.Client.PauseQueue(ctx, in.Queue))
	})
	serve(s, ResumeTaskQueue, func(ctx context.Context, in *QueueChange) (TaskQueue, error) {
		return s.changed(ctx, in.Queue, false, s.Client.ResumeQueue(ctx, in.Queue))
	})
	serve(s, ListLimits, func(ctx context.Context, in *LimitFilter) (Page[tasktype.Limit], error) {
		list, err := s.Client.Inspect().Limits(ctx, in.Limit)
		return Page[tasktype.Limit]{Data: list}, err
	})
	serveNone(s, ChangeLimit, s.changeLimit)
	serve(s, ListTasks, s.tasks)
	serve(s, ListTaskRates, s.rates)
}

func (s *service) changeLimit(ctx context.Context, in *LimitChange) error {
	b := &in.Body
	if b.N == nil && !b.Reset && b.HoldUntil == nil || b.N != nil && b.Reset {
		return httpproblem.BadField("body", "give n, reset or hold_until, and not both n and reset")
	}
	if b.HoldUntil != nil { // first, because its value can be rejected
		if err := s.Client.HoldLimit(ctx, in.Limit, b.Key, *b.HoldUntil); err != nil {
			return err
		}
	}
	switch {
	case b.N != nil:
		return s.Client.SetLimit(ctx, in.Limit, b.Key, *b.N)
	case b.Reset:
		return s.Client.ResetLimit(ctx, in.Limit, b.Key)
	}
	return nil
}

func (s *service) workers(ctx context.Context, in *Ping) (out Page[Worker], err error) {
	ping, err := durationOf("query.ping", in.For)
	if err != nil {
		return out, err
	}
	var pongs []tasktype.Pong
	if ping > 0 {
		if pongs, err = s.Client.Inspect().PingWorkers(ctx, min(ping, maxWait)); err != nil {
			return out, err
		}
	}
	live, err := s.Client.Inspect().Workers(ctx)
	if err != nil && (ping == 0 || !tasks.Refused(err)) { // workers reply while Redis rejects writes, but without their properties
		return out, err
	}
	out.Data = []Worker{}
	for _, w := range live {
		out.Data = append(out.Data, Worker{Worker: w})
	}
	for _, p := range pongs {
		i := slices.IndexFunc(out.Data, func(w Worker) bool { return w.Name == p.Worker })
		if i < 0 {
			i, out.Data = len(out.Data), append(out.Data, Worker{Worker: tasktype.Worker{Name: p.Worker}})
		}
		out.Data[i].Replied, out.Data[i].After = &p.Answered, p.After
	}
	return out, nil
}

// changed returns a queue that was paused or resumed, unless err is not nil.
func (s *service) changed(ctx context.Context, name string, paused bool, err error) (out TaskQueue, _ error) {
	if err != nil {
		return out, err
	}
	live, err := s.Client.Inspect().Workers(ctx)
	out = TaskQueue{Name: name, Paused: paused}
	for _, w := range live {
		if w.Queues[name] > 0 {
			out.Workers++
		}
	}
	return out, err
}

func (s *service) tasks(ctx context.Context, in *TaskFilter) (out Page[tasktype.Task], err error) {
	switch in.State {
	case "ready":
		out.Data, err = s.Client.Inspect().Reserved(ctx, "", in.Limit)
	case "scheduled":
		out.Data, err = s.Client.Inspect().Due(ctx, in.Limit)
	default:
		out.Data, err = s.Client.Inspect().Active(ctx)
	}
	out.Data = append([]tasktype.Task{}, out.Data[:min(in.Limit, len(out.Data))]...)
	return out, err
}

func (s *service) rates(ctx context.Context, in *RateFilter) (out Page[tasktype.RatePoint], err error) {
	f := tasktype.RateFilter{Queue: in.Queue, Task: in.Task, Since: in.Since, Step: time.Minute}
	if f.Since.IsZero() {
		f.Since = time.Now().Add(-time.Hour)
	}
	if in.Step == "hour" {
		f.Step = time.Hour
	} else if time.Since(f.Since) > 24*time.Hour+time.Minute {
		return out, httpproblem.BadField("query.since", "counts by minute are kept for 24 hours; use step=hour")
	}
	points, err := s.Client.Inspect().Rates(ctx, f)
	return Page[tasktype.RatePoint]{Data: append([]tasktype.RatePoint{}, points...)}, err
}
