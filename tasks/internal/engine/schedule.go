package engine

import (
	"context"
	"errors"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// ErrLate says that a scheduler leads no more.
var ErrLate = store.ErrLate

// Claim, Lease and Tick are what schedulers agree on through Redis.
type (
	Claim = store.Claim
	Lease = store.Lease
	Tick  = store.Tick
)

// ScheduleInfo is an entry of the schedule.
type ScheduleInfo struct {
	Name     string    `json:"name"`
	Spec     string    `json:"spec"`
	Next     time.Time `json:"next,omitzero"`
	Last     time.Time `json:"last,omitzero"`     // the last tick that was sent
	Workflow string    `json:"workflow,omitzero"` // what was sent then
	Sent     int64     `json:"sent"`
	Missed   int64     `json:"missed"`
	Leader   string    `json:"leader,omitzero"` // the scheduler that sends it; empty when none is up
	Error    string    `json:"error,omitzero"`  // why the last tick was not sent
}

// Lead claims entries for the scheduler me, and returns Redis's time with the leases.
func (e *Engine) Lead(ctx context.Context, me string, lease time.Duration, claims []Claim) ([]Lease, time.Time, error) {
	return e.store.Lead(ctx, me, lease, claims)
}

// Ticked records what became of a tick.
func (e *Engine) Ticked(ctx context.Context, name string, token int64, t Tick) (bool, error) {
	return e.store.Ticked(ctx, name, token, t)
}

// Resign gives up what the scheduler me leads.
func (e *Engine) Resign(ctx context.Context, me string, names []string) error {
	return e.store.Resign(ctx, me, names)
}

// TickSend is what became of a tick that was to be sent.
type TickSend int

const (
	TickSent    TickSend = iota // it was sent
	TickKnown                   // it had been sent before
	TickBlocked                 // something else that has its unique key is under way
)

// SendTick sends s under the id of o, which is the same for all who send this tick. It refuses with
// ErrLate once Redis's clock has reached until. Its durations count from the tick, which was behind ago.
func (e *Engine) SendTick(ctx context.Context, s *graph.Sig, o *graph.Opts, behind time.Duration, until time.Time) (string, TickSend, error) {
	id, err := e.send(ctx, s, o, behind, until)
	switch {
	case errors.Is(err, ErrDuplicate) && id == o.ID:
		return id, TickKnown, nil
	case errors.Is(err, ErrDuplicate):
		return id, TickBlocked, nil
	}
	return id, TickSent, err
}

// Schedule returns the entries that schedulers had in the last days.
func (e *Engine) Schedule(ctx context.Context) ([]ScheduleInfo, error) {
	list, now, err := e.store.Schedule(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]ScheduleInfo, len(list))
	for i, s := range list {
		out[i] = ScheduleInfo{Name: s.Name, Spec: s.Spec, Next: s.Next, Last: s.Last, Workflow: s.Workflow,
			Sent: s.Sent, Missed: s.Missed, Error: s.Error}
		if s.Until.After(now) {
			out[i].Leader = s.Leader
		}
	}
	return out, nil
}
