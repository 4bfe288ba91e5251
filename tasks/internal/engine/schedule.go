package engine

import (
	"context"
	"errors"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// ErrLate says that a scheduler leads no more.
var ErrLate = store.ErrLate

// Claim, Lease and Tick are what schedulers agree on through Redis.
type (
	Claim = store.Claim
	Lease = store.Lease
	Tick  = store.Tick
)

// Lead claims entries for the scheduler me, and returns Redis's time with the leases.
func (e *Engine) Lead(ctx context.Context, me string, lease time.Duration, claims []Claim) ([]Lease, time.Time, error) {
	return e.store.Schedule.Lead(ctx, me, lease, claims)
}

// Ticked records what became of a tick.
func (e *Engine) Ticked(ctx context.Context, name string, token int64, t Tick) (bool, error) {
	return e.store.Schedule.Ticked(ctx, name, token, t)
}

// Resign gives up what the scheduler me leads.
func (e *Engine) Resign(ctx context.Context, me string, names []string) error {
	return e.store.Schedule.Resign(ctx, me, names)
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
func (e *Engine) Schedule(ctx context.Context) ([]tasktype.ScheduleEntry, error) {
	return e.store.Schedule.Entries(ctx)
}
