package api

import (
	"context"
	"net/http"
	"time"

	"muster/internal/httpproblem"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Schedule is a schedule with its ticks.
type Schedule struct {
	Name      string            `json:"name"`
	Group     string            `json:"group,omitempty" doc:"set of a program that it belongs to"`
	Spec      string            `json:"spec" doc:"its times, as a cron expression; UTC unless it begins with CRON_TZ" example:"CRON_TZ=Europe/Berlin 0 3 * * *"`
	Tasks     string            `json:"tasks" doc:"first and last task of its workflows"`
	Labels    map[string]string `json:"labels,omitempty" doc:"labels of its workflows"`
	NextAt    time.Time         `json:"next_at,omitzero" doc:"next tick"`
	LastAt    time.Time         `json:"last_at,omitzero" doc:"last tick that was sent"`
	Workflow  string            `json:"workflow,omitempty" doc:"ID of the workflow of the last tick"`
	Sent      int64             `json:"sent" doc:"ticks that were sent"`
	Missed    int64             `json:"missed" doc:"ticks that were skipped"`
	Requested int64             `json:"requested,omitempty" doc:"ticks that were triggered, backfilled or caught up with and not yet sent"`
	Overlap   string            `json:"overlap,omitempty" enum:"skip,queue,replace,cancel" doc:"policy for ticks while an earlier workflow is running; absent if overlaps are allowed"`
	CatchUp   int               `json:"catch_up,omitempty" doc:"how many missed ticks are sent"`
	Jitter    string            `json:"jitter,omitempty" doc:"longest random delay of a tick" example:"5m0s"`
	PausedAt  time.Time         `json:"paused_at,omitzero" doc:"since when it is paused"`
	Error     string            `json:"error,omitempty" doc:"why the last tick was not sent"`
}

func scheduleOf(e *tasktype.ScheduleEntry) Schedule {
	s := Schedule{e.Name, e.Group, e.Spec, e.Tasks, e.Labels, utc(e.Next), utc(e.Last), e.Workflow, e.Sent, e.Missed, e.Requested, e.Overlap, e.CatchUp, "", utc(e.Paused), e.Error}
	if e.Jitter > 0 {
		s.Jitter = e.Jitter.String()
	}
	return s
}

// NewSchedule is the content of a schedule to put.
type NewSchedule struct {
	Spec    string      `json:"spec" minLength:"1" maxLength:"200" doc:"times, as a cron expression, @every 90s or @daily; UTC unless it begins with CRON_TZ" example:"CRON_TZ=Europe/Berlin 0 3 * * *"`
	Send    NewWorkflow `json:"send" doc:"what each tick sends, without id, start_at and deadline_at; overlap needs no unique key"`
	CatchUp int         `json:"catch_up,omitempty" minimum:"0" maximum:"1000" doc:"how many ticks are sent that were due while no worker was running, the latest"`
	Jitter  string      `json:"jitter,omitempty" maxLength:"50" doc:"longest random delay of a tick" example:"5m"`
}

// ScheduleFilter selects schedules.
type ScheduleFilter struct {
	Prefix string   `query:"prefix" cli:"arg" maxLength:"200" doc:"only schedules whose names begin with this text"`
	Labels []string `query:"label,explode" maxItems:"20" doc:"only schedules whose workflows have this label, KEY=VALUE; may be repeated"`
	Limit  int      `query:"limit" cli:"-" default:"100" minimum:"1" maximum:"1000" doc:"schedules per page"`
	Cursor string   `query:"cursor" maxLength:"600" doc:"next of the previous page"`
}

// Backfill is a period whose ticks are to be sent.
type Backfill struct {
	From time.Time `json:"from" cli:"from" doc:"first time"`
	To   time.Time `json:"to" cli:"to" doc:"last time, not in the future"`
}

// Backfilled is the result of a backfill.
type Backfilled struct {
	Ticks int `json:"ticks" doc:"number of requested ticks"`
}

// ScheduleReference names a schedule in a path.
type ScheduleReference struct {
	Name string `path:"name" minLength:"1" maxLength:"200" doc:"name of the schedule"`
}

// ScheduleChange is a change of a schedule without parameters.
type ScheduleChange struct {
	ScheduleReference
	Body *struct{}
}

// ToSchedule is the input of an operation on a schedule.
type ToSchedule[T any] struct {
	ScheduleReference
	Body T
}

// Operations on schedules.
var (
	ListSchedules    = declare[ScheduleFilter, Page[Schedule]](Read, "GET /v1/schedules", "listSchedules", "List schedules by name")
	GetSchedule      = declare[ScheduleReference, Schedule](Read, "GET /v1/schedules/{name}", "getSchedule", "Get a schedule", http.StatusNotFound)
	PutSchedule      = declare[ToSchedule[NewSchedule], None](Change, "PUT /v1/schedules/{name}", "putSchedule", "Create or change a schedule; with the same spec and jitter, it keeps the time of its next tick")
	PauseSchedule    = declare[ScheduleChange, None](Change, "POST /v1/schedules/{name}/pause", "pauseSchedule", "Send no further ticks of a schedule, except requested ticks", http.StatusNotFound)
	ResumeSchedule   = declare[ScheduleChange, None](Change, "POST /v1/schedules/{name}/resume", "resumeSchedule", "End a pause; the ticks that were due in it are not sent", http.StatusNotFound)
	TriggerSchedule  = declare[ScheduleChange, SentWorkflow](Change, "POST /v1/schedules/{name}/trigger", "triggerSchedule", "Request a tick now", http.StatusNotFound, http.StatusConflict)
	BackfillSchedule = declare[ToSchedule[Backfill], Backfilled](Change, "POST /v1/schedules/{name}/backfill", "backfillSchedule", "Request the ticks of a period in the past", http.StatusNotFound, http.StatusConflict)
	DeleteSchedule   = declare[ScheduleReference, None](Change, "DELETE /v1/schedules/{name}", "deleteSchedule", "Delete a schedule; its workflows continue", http.StatusNotFound)
)

// addSchedules adds the operations on schedules.
func (s *service) addSchedules() {
	serve(s, ListSchedules, func(ctx context.Context, in *ScheduleFilter) (out Page[Schedule], err error) {
		labels, err := tasktype.ParseLabels(in.Labels)
		if err != nil {
			return out, httpproblem.BadField("query.label", "%v", err)
		}
		list, next, err := s.Client.Inspect().Schedules(ctx, tasktype.ScheduleFilter{Prefix: in.Prefix, Labels: labels, Limit: in.Limit, Cursor: in.Cursor})
		out = Page[Schedule]{Data: make([]Schedule, 0, len(list)), Next: next}
		for i := range list {
			out.Data = append(out.Data, scheduleOf(&list[i]))
		}
		return out, err
	})
	serveNone(s, PutSchedule, s.putSchedule)
	serve(s, GetSchedule, func(ctx context.Context, in *ScheduleReference) (Schedule, error) {
		e, err := s.Client.Inspect().Schedule(ctx, in.Name)
		return scheduleOf(&e), err
	})
	serveNone(s, PauseSchedule, func(ctx context.Context, in *ScheduleChange) error { return s.Client.Schedules().Pause(ctx, in.Name) })
	serveNone(s, ResumeSchedule, func(ctx context.Context, in *ScheduleChange) error { return s.Client.Schedules().Resume(ctx, in.Name) })
	route(s, TriggerSchedule.Declaration, func(ctx context.Context, in *ScheduleChange) (*sendOutput, error) {
		id, err := s.Client.Schedules().Trigger(ctx, in.Name)
		return &sendOutput{"/v1/workflows/" + id, http.StatusAccepted, SentWorkflow{id}}, err
	})
	serve(s, BackfillSchedule, func(ctx context.Context, in *ToSchedule[Backfill]) (Backfilled, error) {
		n, err := s.Client.Schedules().Backfill(ctx, in.Name, in.Body.From, in.Body.To)
		return Backfilled{n}, err
	})
	serveNone(s, DeleteSchedule, func(ctx context.Context, in *ScheduleReference) error {
		return s.Client.Schedules().Delete(ctx, in.Name)
	})
}

func (s *service) putSchedule(ctx context.Context, in *ToSchedule[NewSchedule]) error {
	sig, opts, err := s.signature(ctx, &in.Body.Send, "body.send")
	if err != nil {
		return err
	}
	jitter, err := durationOf("body.jitter", in.Body.Jitter)
	if err != nil {
		return err
	}
	return s.Client.Schedules().Put(ctx, tasks.Schedule{Name: in.Name, Spec: in.Body.Spec, CatchUp: in.Body.CatchUp, Jitter: jitter, Options: opts, Work: sig})
}
