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

// ScheduleChange is a change of an entry without parameters.
type ScheduleChange struct {
	ScheduleReference
	Body *struct{}
}

// ScheduleBackfill is the input of BackfillSchedule.
type ScheduleBackfill struct {
	ScheduleReference
	Body Backfill
}

// Operations on entries of schedulers.
var (
	ListSchedules    = declare[None, Page[Schedule]](Read, "GET /v1/schedules", "listSchedules", "List the entries of all schedulers")
	GetSchedule      = declare[ScheduleReference, Schedule](Read, "GET /v1/schedules/{name}", "getSchedule", "Get an entry of a scheduler", http.StatusNotFound)
	PauseSchedule    = declare[ScheduleChange, None](Change, "POST /v1/schedules/{name}/pause", "pauseSchedule", "Send no further ticks of an entry, except requested ticks", http.StatusNotFound)
	ResumeSchedule   = declare[ScheduleChange, None](Change, "POST /v1/schedules/{name}/resume", "resumeSchedule", "End a pause; the ticks that were due in it are not sent", http.StatusNotFound)
	TriggerSchedule  = declare[ScheduleChange, SentWorkflow](Change, "POST /v1/schedules/{name}/trigger", "triggerSchedule", "Request a tick now", http.StatusNotFound, http.StatusConflict)
	BackfillSchedule = declare[ScheduleBackfill, Backfilled](Change, "POST /v1/schedules/{name}/backfill", "backfillSchedule", "Request the ticks of a period in the past", http.StatusNotFound, http.StatusConflict)
	DeleteSchedule   = declare[ScheduleReference, None](Change, "DELETE /v1/schedules/{name}", "deleteSchedule", "Forget an entry that no running scheduler has", http.StatusNotFound, http.StatusConflict)
)

// addSchedules adds the operations on entries of schedulers.
func (s *service) addSchedules() {
	serve(s, ListSchedules, func(ctx context.Context, _ *None) (out Page[Schedule], err error) {
		list, err := s.Client.Inspect().Schedules(ctx)
		out.Data = make([]Schedule, 0, len(list))
		for i := range list {
			out.Data = append(out.Data, scheduleOf(&list[i]))
		}
		return out, err
	})
	serve(s, GetSchedule, func(ctx context.Context, in *ScheduleReference) (Schedule, error) {
		e, err := s.Client.Inspect().Schedule(ctx, in.Name)
		return scheduleOf(&e), err
	})
	serveNone(s, PauseSchedule, func(ctx context.Context, in *ScheduleChange) error { return s.Client.PauseSchedule(ctx, in.Name) })
	serveNone(s, ResumeSchedule, func(ctx context.Context, in *ScheduleChange) error { return s.Client.ResumeSchedule(ctx, in.Name) })
	route(s, TriggerSchedule.Declaration, func(ctx context.Context, in *ScheduleChange) (*sendOutput, error) {
		id, err := s.Client.TriggerSchedule(ctx, in.Name)
		return &sendOutput{"/v1/workflows/" + id, http.StatusAccepted, SentWorkflow{id}}, err
	})
	serve(s, BackfillSchedule, func(ctx context.Context, in *ScheduleBackfill) (Backfilled, error) {
		n, err := s.Client.BackfillSchedule(ctx, in.Name, in.Body.From, in.Body.To)
		if errors.Is(err, tasks.ErrInvalid) {
			err = httpproblem.BadField("body", "%v", err)
		}
		return Backfilled{n}, err
	})
	serveNone(s, DeleteSchedule, func(ctx context.Context, in *ScheduleReference) error { return s.Client.DeleteSchedule(ctx, in.Name) })
}
