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

// Task is a node that runs or waits for a worker or its time.
type Task struct {
	Workflow  string          `json:"workflow" doc:"ID"`
	Node      string          `json:"node" doc:"ID within the workflow"`
	Task      string          `json:"task"`
	Queue     string          `json:"queue"`
	Status    tasktype.Status `json:"status"`
	Worker    string          `json:"worker,omitempty" doc:"that runs it, or will after the tasks it took before"`
	StartedAt time.Time       `json:"started_at,omitzero" doc:"when the worker took it"`
	DueAt     time.Time       `json:"due_at,omitzero" doc:"its earliest start"`
}

// maxTasks is the largest number of tasks in a list.
const maxTasks = 10_000

type workersInput struct {
	Ping string `query:"ping" maxLength:"50" doc:"ping the workers and wait so long for their replies, up to 1m" example:"2s"`
}

type workersOutput struct{ Body page[Worker] }

type concurrencyInput struct{ Body Concurrency }

type queuesOutput struct{ Body page[tasktype.Queue] }

type queueInput struct {
	Queue string `path:"queue" maxLength:"100" pattern:"^[^\\s\\x00-\\x1f<>{}:|]+$" patternDescription:"the name of a queue" doc:"name of the queue" example:"default"`
	Body  *struct{}
}

type queueOutput struct{ Body TaskQueue }

type tasksInput struct {
	State string `query:"state" default:"running" enum:"running,ready,scheduled" doc:"running: taken by a worker; ready: waiting for a worker; scheduled: waiting for a time"`
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"number of tasks; there are no further pages"`
}

type tasksOutput struct{ Body page[Task] }

type ratesInput struct {
	Queue string    `query:"queue" maxLength:"100" doc:"only tasks of this queue"`
	Task  string    `query:"task" maxLength:"100" doc:"only tasks with this name"`
	Since time.Time `query:"since" doc:"from the minute or hour of this time; defaults to an hour ago"`
	Step  string    `query:"step" default:"minute" enum:"minute,hour" doc:"counts by minute are kept for 24 hours, by hour for 30 days"`
}

type ratesOutput struct{ Body page[tasktype.RatePoint] }

// addFleet adds the operations on workers, their queues and the tasks in them.
func (s *service) addFleet() {
	route(s, Read, http.MethodGet, "/v1/workers", "listWorkers", "List the live workers", s.workers)
	route(s, Change, http.MethodPost, "/v1/workers/concurrency", "setConcurrency", "Set how many tasks workers run at once", s.concurrency, http.StatusNotFound)
	route(s, Read, http.MethodGet, "/v1/task-queues", "listTaskQueues", "List the queues of tasks", s.queues)
	route(s, Change, http.MethodPost, "/v1/task-queues/{queue}/pause", "pauseTaskQueue", "Pause a queue of tasks: workers take no more from it", s.pause)
	route(s, Change, http.MethodPost, "/v1/task-queues/{queue}/resume", "resumeTaskQueue", "Resume a paused queue of tasks", s.resume)
	route(s, Read, http.MethodGet, "/v1/tasks", "listTasks", "List running, ready or scheduled tasks", s.tasks)
	route(s, Read, http.MethodGet, "/v1/task-rates", "listTaskRates", "Count the outcomes of tasks by minute or hour", s.rates)
}

func (s *service) workers(ctx context.Context, in *workersInput) (*workersOutput, error) {
	ping, err := durationOf("query.ping", in.Ping)
	if err != nil {
		return nil, err
	}
	var pongs []tasktype.Pong
	if ping > 0 {
		if pongs, err = s.Client.PingWorkers(ctx, min(ping, maxWait)); err != nil {
			return nil, err
		}
	}
	live, err := s.Client.Workers(ctx)
	if err != nil && (ping == 0 || !tasks.Refused(err)) { // workers reply while Redis rejects writes, but without their properties
		return nil, err
	}
	out := &workersOutput{page[Worker]{Data: []Worker{}}}
	for _, w := range live {
		out.Body.Data = append(out.Body.Data, Worker{Worker: w})
	}
	for _, p := range pongs {
		i := slices.IndexFunc(out.Body.Data, func(w Worker) bool { return w.Name == p.Worker })
		if i < 0 {
			i, out.Body.Data = len(out.Body.Data), append(out.Body.Data, Worker{Worker: tasktype.Worker{Name: p.Worker}})
		}
		out.Body.Data[i].Replied, out.Body.Data[i].After = &p.Answered, p.After
	}
	return out, nil
}

func (s *service) concurrency(ctx context.Context, in *concurrencyInput) (*struct{}, error) {
	return nil, s.Client.SetConcurrency(ctx, in.Body.Worker, in.Body.Concurrency)
}

func (s *service) queues(ctx context.Context, _ *struct{}) (*queuesOutput, error) {
	list, err := s.Client.Queues(ctx)
	return &queuesOutput{page[tasktype.Queue]{Data: append([]tasktype.Queue{}, list...)}}, err
}

func (s *service) pause(ctx context.Context, in *queueInput) (*queueOutput, error) {
	return s.changed(ctx, in.Queue, true, s.Client.PauseQueue(ctx, in.Queue))
}

func (s *service) resume(ctx context.Context, in *queueInput) (*queueOutput, error) {
	return s.changed(ctx, in.Queue, false, s.Client.ResumeQueue(ctx, in.Queue))
}

// changed returns a queue that was paused or resumed, unless err is not nil.
func (s *service) changed(ctx context.Context, name string, paused bool, err error) (*queueOutput, error) {
	if err != nil {
		return nil, err
	}
	live, err := s.Client.Workers(ctx)
	out := &queueOutput{TaskQueue{Name: name, Paused: paused}}
	for _, w := range live {
		if w.Queues[name] > 0 {
			out.Body.Workers++
		}
	}
	return out, err
}

func (s *service) tasks(ctx context.Context, in *tasksInput) (*tasksOutput, error) {
	out := &tasksOutput{page[Task]{Data: []Task{}}}
	list := &out.Body.Data
	switch in.State {
	case "ready":
		nodes, err := s.Client.Reserved(ctx, in.Limit)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			*list = append(*list, Task{Workflow: n.Workflow, Node: n.Node, Task: n.Task, Queue: n.Queue, Status: tasktype.Pending})
		}
	case "scheduled":
		nodes, err := s.Client.Due(ctx, in.Limit)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			*list = append(*list, Task{Workflow: n.Workflow, Node: n.Node, Task: n.Task, Queue: n.Queue, Status: n.Status, DueAt: n.Due.UTC()})
		}
	default:
		nodes, err := s.Client.Active(ctx)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			*list = append(*list, Task{Workflow: n.Workflow, Node: n.Node, Task: n.Task, Queue: n.Queue, Status: tasktype.Started, Worker: n.Worker, StartedAt: utc(n.Started)})
		}
	}
	*list = (*list)[:min(in.Limit, len(*list))]
	return out, nil
}

func (s *service) rates(ctx context.Context, in *ratesInput) (*ratesOutput, error) {
	f := tasktype.RateFilter{Queue: in.Queue, Task: in.Task, Since: in.Since, Step: time.Minute}
	if f.Since.IsZero() {
		f.Since = time.Now().Add(-time.Hour)
	}
	if in.Step == "hour" {
		f.Step = time.Hour
	} else if time.Since(f.Since) > 24*time.Hour+time.Minute {
		return nil, httpproblem.BadField("query.since", "counts by minute are kept for 24 hours; use step=hour")
	}
	points, err := s.Client.Rates(ctx, f)
	return &ratesOutput{page[tasktype.RatePoint]{Data: append([]tasktype.RatePoint{}, points...)}}, err
}
