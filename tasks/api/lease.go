package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"muster/internal/httpproblem"
	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// TaskLease asks for tasks to run.
type TaskLease struct {
	Tasks []string `json:"tasks" minItems:"1" maxItems:"100" maxLength:"100" doc:"names of the tasks that the caller can run"`
	Queue string   `json:"queue,omitempty" maxLength:"100" doc:"defaults to default"`
	Max   int      `json:"max,omitempty" minimum:"1" maximum:"100" doc:"most tasks to lease; defaults to 1. Inputs of more than 1 MiB together can make them fewer."`
	Wait  string   `json:"wait,omitempty" maxLength:"50" doc:"how long to wait for the first task, up to 1m; defaults to 30s" example:"30s"`
	Lease string   `json:"lease,omitempty" maxLength:"50" doc:"time until the leases expire, from 1s to 1h; defaults to 30s" example:"30s"`
}

// LeasedTasks are tasks that the caller runs.
type LeasedTasks struct {
	Tasks []tasktype.LeasedTask `json:"tasks" doc:"empty if no task was ready in time"`
}

// TaskBeat extends a lease.
type TaskBeat struct {
	Tokened
	Lease string `json:"lease,omitempty" maxLength:"50" doc:"time until the lease expires, from 1s to 1h, at most until the timeout of the attempt; defaults to 30s" example:"30s"`
}

// Operations of programs that run tasks.
var (
	LeaseTasks   = declare[With[TaskLease], LeasedTasks](Change, "POST /v1/tasks/lease", "leaseTasks", "Take tasks to run, and wait for them", http.StatusTooManyRequests)
	BeatTask     = declare[With[TaskBeat], None](Change, "POST /v1/tasks/beat", "beatTask", "Extend the lease of a task", http.StatusNotFound, http.StatusConflict)
	CompleteTask = declare[With[TokenResult], None](Change, "POST /v1/tasks/complete", "completeTask", "Complete a leased task with its result", http.StatusNotFound, http.StatusConflict)
	FailTask     = declare[With[TokenFailure], None](Change, "POST /v1/tasks/fail", "failTask", "Fail a leased task", http.StatusNotFound, http.StatusConflict)
)

// leaseTime returns the duration of a lease.
func leaseTime(text string) (time.Duration, error) {
	d, err := durationOf("body.lease", cmp.Or(text, "30s"))
	if err == nil && (d < time.Second || d > time.Hour) {
		err = httpproblem.BadField("body.lease", "must be from 1s to 1h, not %s", d)
	}
	return d, err
}

// addLeases adds the operations of programs that run tasks.
func (s *service) addLeases() {
	serve(s, LeaseTasks, s.lease)
	serveNone(s, BeatTask, func(ctx context.Context, in *With[TaskBeat]) error {
		d, err := leaseTime(in.Body.Lease)
		if err != nil {
			return err
		}
		return s.Client.Beat(ctx, in.Body.Token, d)
	})
	serveNone(s, CompleteTask, s.completeToken)
	serveNone(s, FailTask, s.failToken)
}

func (s *service) lease(ctx context.Context, in *With[TaskLease]) (out LeasedTasks, err error) {
	wait, err := durationOf("body.wait", cmp.Or(in.Body.Wait, "30s"))
	if err != nil {
		return out, err
	}
	length, err := leaseTime(in.Body.Lease)
	if err != nil {
		return out, err
	}
	waiting, end, err := s.begin(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	leased, err := s.Client.Lease(waiting, tasktype.LeaseRequest{Queue: in.Body.Queue, Tasks: in.Body.Tasks, Max: in.Body.Max, Wait: min(wait, maxWait), For: length})
	out.Tasks = append([]tasktype.LeasedTask{}, leased...)
	switch {
	case errors.Is(err, engine.ErrLeases):
		err = httpproblem.New(http.StatusTooManyRequests, "%v", err)
	case waiting.Err() != nil && ctx.Err() == nil: // the server stops
		err = nil
	}
	return out, err
}
