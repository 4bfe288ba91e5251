package agent

import (
	"context"
	"slices"
	"time"

	"muster/tasks/limit"
)

// load is how busy an agent is. Its takers share it.
type load struct {
	agent    string
	capacity int
	held     int       // as far as this process knows; reserve corrects it
	idle     time.Time // since when
	blocked  time.Time // until when it gets nothing
	local    bool      // a Go task: this process alone counts what it holds
	takers   int
}

// slots is room that takers may share.
type slots struct{ free int }

// taker waits for work: a poll, an agent to push to, or a Go task. The mutex of
// the dispatcher guards it.
type taker struct {
	load  *load
	roles []string
	slots *slots
	since time.Time

	// permit asks whether a request may be made; nil for always.
	permit func(ctx context.Context) (p limit.Permit, ok bool, wait time.Duration, err error)
	starts bool // this process begins what it gets; a poll collects it in got
	mode   string

	got    []Assignment
	done   chan struct{} // of a poll: closed when it has work and the round is over
	looked chan struct{} // of a poll: closed when there was a round with it
	seen   bool          // looked is closed
}

// room is how many assignments it takes now.
func (t *taker) room(now time.Time) int {
	if now.Before(t.load.blocked) {
		return 0
	}
	return max(0, min(t.slots.free, t.load.capacity-t.load.held))
}

// before reports whether t gets work before u: it is less loaded or, if that is
// equal, idle for longer or waiting for longer.
func (t *taker) before(u *taker) bool {
	// held/capacity without a division.
	if a, b := t.load.held*u.load.capacity, u.load.held*t.load.capacity; a != b {
		return a < b
	}
	if c := t.load.idle.Compare(u.load.idle); c != 0 {
		return c < 0
	}
	return t.since.Before(u.since)
}

// portion is how many assignments it gets at once: what brings it to the load of
// the next one, and some more if it has a large capacity.
func (t *taker) portion(next *taker, now time.Time) int {
	room := min(t.room(now), maxLease)
	if next == nil {
		return room
	}
	level := t.load.capacity*next.load.held/next.load.capacity - t.load.held
	return min(room, max(1, level, (t.load.capacity-t.load.held)/16))
}

// best returns the taker of a role that gets work next, and the one after it;
// nil for none.
func best(takers map[*taker]struct{}, role string, now time.Time) (first, second *taker) {
	for t := range takers {
		if t.room(now) == 0 || !slices.Contains(t.roles, role) {
			continue
		}
		switch {
		case first == nil || t.before(first):
			if first != nil && first.load != t.load {
				second = first
			}
			first = t
		case t.load != first.load && (second == nil || t.before(second)):
			second = t
		}
	}
	return first, second
}
