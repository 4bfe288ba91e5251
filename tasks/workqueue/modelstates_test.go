package workqueue_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"muster/tasks/workqueue"
)

func (m *modelTest) enqueueUnder(rt *rapid.T) {
	l, it := m.anyLease(rt)
	items, added := m.drawItems(rt)
	got, err := m.q.EnqueueUnder(m.ctx, l, items...)
	if it == nil {
		wantErr(rt, "enqueue under a lost lease", err, workqueue.ErrLeaseLost)
		return
	}
	check(rt, err)
	m.add(rt, got, added)
}

func (m *modelTest) amend(rt *rapid.T) {
	ended := rapid.SampledFrom([]workqueue.State{workqueue.StateDone, workqueue.StateSkipped, workqueue.StateError})
	id := fmt.Sprint("i", rapid.IntRange(0, 30).Draw(rt, "id"))
	from := ended.Draw(rt, "from")
	o := workqueue.Outcome{State: ended.Draw(rt, "to"), Note: fmt.Sprint("amended ", rapid.IntRange(0, 1).Draw(rt, "note"))}
	err := m.q.Amend(m.ctx, id, from, o)
	it := m.items[id]
	switch {
	case it != nil && it.state == o.State && it.amended == o.Note:
		check(rt, err) // repeated
	case it == nil || it.state != from:
		wantErr(rt, "amend in another state", err, workqueue.ErrNotInState)
	case m.sealed:
		wantErr(rt, "amend in a sealed queue", err, workqueue.ErrSealed)
	default:
		check(rt, err)
		it.state, it.amended = o.State, o.Note
	}
}

func (m *modelTest) pass(rt *rapid.T) {
	l, it := m.anyLease(rt)
	next := modelItem{id: l.ID}
	to := next.draw(rt)
	later := rapid.Bool().Draw(rt, "later")
	if later {
		to.NotBefore = time.Now().Add(time.Hour)
	}
	err := m.q.Pass(m.ctx, l, to)
	if it == nil {
		if m.items[l.ID].passed == l.Token {
			check(rt, err) // repeated
		} else {
			wantErr(rt, "a lost lease passes", err, workqueue.ErrLeaseLost)
		}
		return
	}
	check(rt, err)
	it.attempts, it.priority, it.key = 0, next.priority, next.key
	it.lease, it.passed = workqueue.Leased{}, l.Token
	m.fail(it, false, later)
}

func (m *modelTest) seal(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "seldom") != 0 {
		rt.Skip("a sealed queue does little")
	}
	check(rt, m.q.Seal(m.ctx))
	m.sealed = true
	for _, it := range m.items {
		if it.state == workqueue.StateInProgress {
			it.state, it.lease = workqueue.StateQueued, workqueue.Leased{}
		}
	}
}

func (m *modelTest) unseal(rt *rapid.T) {
	check(rt, m.q.Unseal(m.ctx))
	m.sealed = false
}
