package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"muster/orchestrator/job"
	"muster/orchestrator/tracing"
	"muster/tasks"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// queueRunInput says which process works on which queue.
type queueRunInput struct {
	Queue string `json:"queue"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
}

// How long the process of a run may be silent, after which the job has failed,
// and how often it says that it lives.
const (
	queueRunSilence = 3 * time.Minute
	queueRunBeat    = 30 * time.Second
)

// queueRunKept is how long the state of a run is kept after its end.
const queueRunKept = 7 * 24 * time.Hour

// queueRuns is the task queue of queueRunTask.
const queueRuns = "queue-runs"

// queueRunTask is answered by the process of the run. Nothing else takes from its
// queue: the process opens the task itself, so that a run needs no orchestrator.
var queueRunTask = tasks.New[queueRunInput, workqueue.Stats]("queue.run",
	tasks.External(), tasks.Queue(queueRuns), tasks.MaxRetry(0))

// ErrRunEnded says that the job of a run of a queue has ended, though the run has
// not: it was cancelled, or this process was silent for too long.
var ErrRunEnded = errors.New("the job of this run was cancelled, or was silent for too long")

// QueueRun is the job of a process that works on a queue.
type QueueRun struct {
	system *System
	handle *tasks.AsyncResult[workqueue.Stats]
	token  string // set by Run once the task is open
}

// NewQueueRun sends the job of a run of a queue and lists it. Call Run and End.
func (s *System) NewQueueRun(ctx context.Context, queue string) (*QueueRun, error) {
	return s.newQueueRun(ctx, queue, queueRunSilence)
}

func (s *System) newQueueRun(ctx context.Context, queue string, silence time.Duration) (*QueueRun, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	in := queueRunInput{Queue: queue, Host: host, PID: os.Getpid()}
	run, err := queueRunTask.S(in, tasks.Timeout(silence)).Send(ctx, s.Client, tasks.ID("queue_"+hex.EncodeToString(id[:])), tasks.Retention(queueRunKept), tasks.Headers(tracing.Headers(ctx)))
	if err != nil {
		return nil, fmt.Errorf("send the job of the run: %w", err)
	}
	s.track(ctx, run.ID(), job.KindQueue, queue)
	return &QueueRun{system: s, handle: run}, nil
}

// ID returns the id of the job.
func (r *QueueRun) ID() string { return r.handle.ID() }

// Run opens the job and keeps it alive until ctx is done. It returns ErrRunEnded
// when the job has ended before that.
func (r *QueueRun) Run(ctx context.Context) error {
	if err := r.open(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ended := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		for watching.Err() == nil {
			if _, err := r.handle.Wait(watching); err == nil || errors.As(err, new(*tasks.Failure)) || errors.Is(err, tasks.ErrUnknown) {
				return
			}
			_ = sleepFor(watching, time.Second) // Redis is down, which the run reports
		}
	}()
	defer func() { stop(); <-ended }()
	beat := time.NewTicker(queueRunBeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return ErrRunEnded
		case <-beat.C:
			if err := r.system.Client.Extend(ctx, r.token, queueRunSilence); errors.Is(err, tasks.ErrCompleted) || errors.Is(err, tasks.ErrUnknown) {
				return ErrRunEnded
			}
		}
	}
}

// End completes the job with what is in the queue, or fails it with the cause of
// the end. Call it when Run has returned.
func (r *QueueRun) End(ctx context.Context, left workqueue.Stats, cause error) error {
	defer r.system.ended(ctx, r.ID())
	if r.token == "" { // too short to be opened, or Redis was down
		opening, cancel := context.WithTimeout(ctx, workersUp)
		defer cancel()
		switch err := r.open(opening); {
		case errors.Is(err, ErrRunEnded): // it was cancelled before it was open
			return nil
		case err != nil:
			return err
		}
		if r.token == "" {
			return fmt.Errorf("end job %s: %w", r.ID(), context.Cause(opening))
		}
	}
	var err error
	if cause == nil {
		err = tasks.Complete(ctx, r.system.Client, queueRunTask, r.token, left)
	} else {
		err = r.system.Client.Fail(ctx, r.token, tasks.Permanent(cause))
	}
	if errors.Is(err, tasks.ErrCompleted) { // it was cancelled
		return nil
	}
	return err
}

// open makes the token of the job, once a worker of its queue has opened it. This
// process is that worker for the moment that it takes.
func (r *QueueRun) open(ctx context.Context) error {
	worker, err := tasks.NewWorker(r.system.Client, tasks.NewMux(), tasks.WorkerConfig{Release: Version,
		Queues: map[string]int{queueRuns: 1}, Concurrency: 1, Logger: r.system.logger,
	})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }()
	defer func() { stop(); <-ended }()
	for ctx.Err() == nil {
		nodes, err := r.system.Client.Nodes(ctx, r.ID())
		if errors.Is(err, tasks.ErrUnknown) {
			return ErrRunEnded
		}
		for _, n := range nodes {
			switch {
			case n.Task != queueRunTask.Name():
			case n.Status.Terminal():
				return ErrRunEnded
			case n.Status == tasktype.Started:
				r.token, err = r.system.Client.NewToken(ctx, r.ID(), n.ID)
				if err == nil {
					return nil
				}
			}
		}
		_ = sleepFor(ctx, 20*time.Millisecond) // ctx ends the loop
	}
	return nil
}

// sleepFor waits for d, or until ctx is done.
func sleepFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// queueKind are the runs of queues. Their items are those of the queue.
type queueKind struct{ client *tasks.Client }

// State returns how far a run is: while it works, with what is in the queue now.
func (k queueKind) State(ctx context.Context, id string) (job.State, error) {
	nodes, err := k.client.Nodes(ctx, id)
	if errors.Is(err, tasks.ErrUnknown) {
		return unknown(), nil
	}
	if err != nil {
		return job.State{}, err
	}
	if len(nodes) != 1 || nodes[0].Task != queueRunTask.Name() {
		return job.State{}, fmt.Errorf("job %s is not a run of a queue", id)
	}
	run := nodes[0]
	s := workflowState(run.Status)
	s.Ended = run.Ended
	if s.Status == job.Created {
		s.Waiting = "the process of the run begins"
	}
	switch f := run.Failure; {
	case f == nil:
	case f.Code == tasktype.CodeTimeout:
		s.Error = fmt.Sprintf("the process of the run was killed, or could not reach Redis for %s", queueRunSilence)
	case s.Status == job.Failed:
		s.Error = f.Message
	}
	switch run.Status {
	case tasktype.Success:
		left, err := tasks.NodeValue[workqueue.Stats](ctx, k.client, id, run.ID)
		s.Items = countsOf(left)
		return s, err
	case tasktype.Started:
		s.Items, err = k.now(ctx, id)
	}
	return s, err
}

// now counts what is in the queue of a run that works.
func (k queueKind) now(ctx context.Context, id string) (job.Counts, error) {
	for cursor := ""; ; {
		page, next, err := k.client.OpenTokens(ctx, queueRunTask.Name(), cursor)
		if err != nil {
			return job.Counts{}, err
		}
		for _, open := range page {
			if open.Workflow != id {
				continue
			}
			var in queueRunInput
			if err := json.Unmarshal(open.Input, &in); err != nil {
				return job.Counts{}, fmt.Errorf("input of job %s: %w", id, err)
			}
			stats, err := workqueue.New(k.client.Redis(), in.Queue, workqueue.Config{}).Stats(ctx)
			return countsOf(stats), err
		}
		if cursor = next; next == "" { // it has ended a moment ago
			return job.Counts{}, nil
		}
	}
}

// Cancel ends a run: its process stops, and the items stay in the queue.
func (k queueKind) Cancel(ctx context.Context, id string) error { return k.client.Revoke(ctx, id) }

// Forget does nothing: no list but that of all jobs has a run.
func (k queueKind) Forget(context.Context, string) error { return nil }
