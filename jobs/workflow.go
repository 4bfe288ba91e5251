package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/tracing"
	"muster/jobs/pipeline"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Queue is the task queue that the workflows of jobs run in.
const Queue = "jobs"

// StageTask is the task of a stage, which agents complete through their job.
const StageTask = "job.stage"

// step is a segment of a job.
type step struct {
	Job     string `json:"job"`
	Segment int    `json:"segment"`
}

// The tasks of a job's workflow. They have no time limit: the monitor ends a job that takes too long.
var (
	startTask  = tasks.New[string, string]("job.start", tasks.Queue(Queue), tasks.MaxRetry(50))
	stageTask  = tasks.New[step, string](StageTask, tasks.Queue(Queue), tasks.MaxRetry(50))
	finishTask = tasks.New[string, string]("job.finish", tasks.Queue(Queue), tasks.MaxRetry(50))
	failTask   = tasks.New[tasks.Failure, string]("job.fail", tasks.Queue(Queue), tasks.MaxRetry(50))
)

// segments are the parts of a pipeline that follow each other: each is a stage that takes the job, and the stages
// behind it that take its items.
func segments(p *pipeline.Pipeline) [][]pipeline.Stage {
	var parts [][]pipeline.Stage
	for _, st := range p.Stages {
		if len(parts) == 0 || st.Takes == pipeline.TakesJob {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], st)
	}
	return parts
}

// workflow returns the workflow of a job.
func workflow(id string, p *pipeline.Pipeline, at time.Time) tasks.Signature[string] {
	var begin []tasks.CallOption
	if !at.IsZero() {
		begin = append(begin, tasks.At(at))
	}
	sig := startTask.S(id, begin...)
	for i := range segments(p) {
		sig = tasks.After(sig, stageTask.S(step{Job: id, Segment: i}))
	}
	return tasks.OnError(tasks.After(sig, finishTask.S(id)), failTask)
}

// phaseFinish is the phase of a job that waits for items which were given new attempts after its last stage.
const phaseFinish = "finish"

// flow runs the workflows of jobs.
type flow struct {
	*store
	reader *Reader
}

// send sends the workflow of a job. Sending it again changes nothing.
func (s *flow) send(ctx context.Context, id string, p *pipeline.Pipeline, at time.Time, headers map[string]string) error {
	_, err := workflow(id, p, at).Send(ctx, s.cfg.Client, tasks.ID(id), tasks.FairnessKey("jobs"), tasks.Headers(headers))
	if errors.Is(err, tasks.ErrDuplicate) {
		return nil
	}
	return err
}

// register binds the tasks of the workflow to their handlers.
func (s *flow) register(mux *tasks.Mux) {
	tasks.Handle(mux, startTask, s.start)
	tasks.Handle(mux, stageTask, s.openStage)
	tasks.Handle(mux, finishTask, s.finish)
	tasks.Handle(mux, failTask, s.fail)
}

// start waits for the jobs that a job comes after.
func (s *flow) start(ctx context.Context, id string) (string, error) {
	r, err := s.open(ctx, id)
	if err != nil {
		return "", err
	}
	if err := s.joinTrace(ctx, id, r); err != nil {
		return "", err
	}
	if len(r.list("after")) == 0 {
		return id, nil
	}
	return s.wait(ctx, id, "start")
}

// joinTrace gives a job that was created without a trace that of its first task, for the spans of its items.
func (s *flow) joinTrace(ctx context.Context, id string, r record) error {
	headers := r.headers()
	parent := tracing.Parent(ctx)
	if parent == "" || headers["traceparent"] != "" {
		return nil
	}
	if headers == nil {
		headers = map[string]string{}
	}
	headers["traceparent"] = parent
	_, err := s.note(ctx, id, "", "", "", "headers", encode(headers))
	return err
}

// open reads a job that has not ended. The error for others ends the workflow.
func (s *flow) open(ctx context.Context, id string) (record, error) {
	r, err := s.read(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil, tasks.Permanent(err)
	}
	if err != nil {
		return nil, err
	}
	if r.status().Terminal() {
		return nil, tasks.Permanent(fmt.Errorf("%w: %s", ErrTerminal, r.status()))
	}
	return r, nil
}

// wait notes which node of the workflow waits for what, and lets it wait.
func (s *flow) wait(ctx context.Context, id, phase string) (string, error) {
	if _, err := s.note(ctx, id, "", "", "", "phase", phase, "node", tasks.InfoFrom(ctx).Node); err != nil {
		return "", err
	}
	// What it waits for may have happened already, and would not be noticed again.
	if err := s.later(ctx, id, 0); err != nil {
		return "", err
	}
	return tasks.ResultPending[string](ctx)
}

// openStage opens a segment of a job and waits for its end.
func (s *flow) openStage(ctx context.Context, in step) (string, error) {
	r, err := s.open(ctx, in.Job)
	if err != nil {
		return "", err
	}
	p, err := r.pipeline()
	if err != nil {
		return "", tasks.Permanent(err)
	}
	parts := segments(p)
	if in.Segment >= len(parts) {
		return "", tasks.Permanent(fmt.Errorf("job %s has no segment %d", in.Job, in.Segment))
	}
	if in.Segment == 0 {
		if err := s.move(ctx, in.Job, Processing, []Status{Created}, "job.started", ""); err != nil && !errors.Is(err, ErrTerminal) {
			return "", err
		}
	}
	if first := parts[in.Segment][0]; first.Takes == pipeline.TakesJob {
		if _, err := s.queue(in.Job).Enqueue(ctx, workqueue.Item{
			ID: stageID(first.Name), Kind: first.Name, ResourceKeys: []string{lane(first.Name)}, MaxAttempts: s.attempts(first), Payload: []byte("{}"),
		}); err != nil {
			return "", err
		}
		if err := s.ready(ctx, in.Job, first.Worker(), 0); err != nil {
			return "", err
		}
	}
	return s.wait(ctx, in.Job, fmt.Sprint(in.Segment))
}

// attempts returns how often a stage may try an item: the first attempt and the retries.
func (s *store) attempts(st pipeline.Stage) int {
	if st.MaxRetries != nil {
		return 1 + *st.MaxRetries
	}
	return 1 + s.limits.Load().MaxRetries
}

// finish ends a job whose stages have all been completed.
func (s *flow) finish(ctx context.Context, id string) (string, error) {
	r, err := s.open(ctx, id)
	if err != nil {
		return "", err
	}
	done, err := s.complete(ctx, id, r)
	if err != nil {
		return "", err
	}
	if !done {
		return s.wait(ctx, id, phaseFinish)
	}
	return id, nil
}

// fail ends a job whose workflow has failed for a reason of its own.
func (s *flow) fail(ctx context.Context, f tasks.Failure) (string, error) {
	id := tasks.InfoFrom(ctx).Workflow
	r, err := s.read(ctx, id)
	if errors.Is(err, ErrNotFound) || err == nil && r.status().Terminal() {
		return id, nil
	}
	if err != nil {
		return "", err
	}
	return id, s.end(ctx, id, r, Failed, "job.failed", f.Message)
}

// stageID and itemID are the ids in the work queue.
func stageID(name string) string { return "stage/" + name }
func itemID(key string) string   { return "item/" + key }

// lane is the resource key of what waits for a stage.
func lane(stage string) string { return "stage:" + stage }
