package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/internal/httpproblem"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Schedule is an entry of a scheduler.
type Schedule struct {
	Name      string    `json:"name"`
	Spec      string    `json:"spec" doc:"its times, as a cron expression; UTC unless it begins with CRON_TZ" example:"CRON_TZ=Europe/Berlin 0 3 * * *"`
	NextAt    time.Time `json:"next_at,omitzero" doc:"next tick"`
	LastAt    time.Time `json:"last_at,omitzero" doc:"last tick that was sent"`
	Workflow  string    `json:"workflow,omitempty" doc:"ID of the workflow of the last tick"`
	Sent      int64     `json:"sent" doc:"ticks that were sent"`
	Missed    int64     `json:"missed" doc:"ticks that were skipped"`
	Requested int64     `json:"requested,omitempty" doc:"ticks that were triggered, backfilled or queued and not yet sent"`
	Overlap   string    `json:"overlap,omitempty" enum:"skip,queue,cancel" doc:"policy for ticks while an earlier workflow is running; absent if overlaps are allowed"`
	PausedAt  time.Time `json:"paused_at,omitzero" doc:"since when it is paused"`
	Scheduler string    `json:"scheduler,omitempty" doc:"name of the running scheduler that leads it; absent without one"`
	Error     string    `json:"error,omitempty" doc:"why the last tick was not sent"`
}

func scheduleOf(e *tasktype.ScheduleEntry) Schedule {
	return Schedule{e.Name, e.Spec, utc(e.Next), utc(e.Last), e.Workflow, e.Sent, e.Missed, e.Requested, e.Overlap, utc(e.Paused), e.Leader, e.Error}
}

// Backfill is a period whose ticks are to be sent.
type Backfill struct {
	From time.Time `json:"from" doc:"first time"`
	To   time.Time `json:"to" doc:"last time, not in the future"`
}

// Backfilled is the result of a backfill.
type Backfilled struct {
	Ticks int `json:"ticks" doc:"number of requested ticks"`
}

// ScheduleReference names an entry in a path.
type ScheduleReference struct {
	Name string `path:"name" minLength:"1" maxLength:"200" doc:"name of the entry"`
}

type emptyScheduleInput struct {
	ScheduleReference
	Body *struct{}
}

type backfillInput struct {
	ScheduleReference
	Body Backfill
}

type schedulesOutput struct{ Body page[Schedule] }

type scheduleOutput struct{ Body Schedule }

type backfillOutput struct{ Body Backfilled }

// addSchedules adds the operations on entries of the schedule.
func (s *service) addSchedules() {
	const entry = "/v1/schedules/{name}"
	missing := http.StatusNotFound
	route(s, Read, http.MethodGet, "/v1/schedules", "listSchedules", "List the entries of all schedulers", s.schedules)
	route(s, Read, http.MethodGet, entry, "getSchedule", "Get an entry of a scheduler", s.schedule, missing)
	route(s, Change, http.MethodPost, entry+"/pause", "pauseSchedule", "Send no further ticks of an entry, except requested ticks", func(ctx context.Context, in *emptyScheduleInput) (*struct{}, error) {
		return nil, s.Client.PauseSchedule(ctx, in.Name)
	}, missing)
	route(s, Change, http.MethodPost, entry+"/resume", "resumeSchedule", "End a pause; the ticks that were due in it are not sent", func(ctx context.Context, in *emptyScheduleInput) (*struct{}, error) {
		return nil, s.Client.ResumeSchedule(ctx, in.Name)
	}, missing)
	route(s, Change, http.MethodPost, entry+"/trigger", "triggerSchedule", "Request a tick now", s.trigger, missing, http.StatusConflict)
	route(s, Change, http.MethodPost, entry+"/backfill", "backfillSchedule", "Request the ticks of a period in the past", s.backfill, missing, http.StatusConflict)
	route(s, Change, http.MethodDelete, entry, "deleteSchedule", "Forget an entry that no running scheduler has", func(ctx context.Context, in *ScheduleReference) (*struct{}, error) {
		return nil, s.Client.DeleteSchedule(ctx, in.Name)
	}, missing, http.StatusConflict)
}

func (s *service) schedules(ctx context.Context, _ *struct{}) (*schedulesOutput, error) {
	list, err := s.Client.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	out := &schedulesOutput{page[Schedule]{Data: make([]Schedule, 0, len(list))}}
	for i := range list {
		out.Body.Data = append(out.Body.Data, scheduleOf(&list[i]))
	}
	return out, nil
}

func (s *service) schedule(ctx context.Context, in *ScheduleReference) (*scheduleOutput, error) {
	e, err := s.Client.Schedule(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &scheduleOutput{scheduleOf(&e)}, nil
}

func (s *service) trigger(ctx context.Context, in *emptyScheduleInput) (*sendOutput, error) {
	id, err := s.Client.TriggerSchedule(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &sendOutput{"/v1/workflows/" + id, http.StatusAccepted, SentWorkflow{id}}, nil
}

func (s *service) backfill(ctx context.Context, in *backfillInput) (*backfillOutput, error) {
	n, err := s.Client.BackfillSchedule(ctx, in.Name, in.Body.From, in.Body.To)
	if errors.Is(err, tasks.ErrPeriod) {
		return nil, httpproblem.BadField("body", "%v", err)
	}
	if err != nil {
		return nil, err
	}
	return &backfillOutput{Backfilled{n}}, nil
}
