package workqueue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// modelItem is an item of the model.
type modelItem struct {
	id                        string
	priority, attempts, order int
	key                       string // its resource key, "" for none
	state                     workqueue.State
	delayed                   bool
	lease                     workqueue.Leased // the zero one after Requeue, Seal and Pass
	passed                    int64            // token of the lease that passed it
	amended                   string           // its note, if it has ended by Amend
}

// model is a simple, slow queue.
type model struct {
	items       map[string]*modelItem
	order       int
	maxAttempts int
	outputs     int
	sealed      bool
}

// ready lists the items that can be leased, in order.
func (m *model) ready() []*modelItem {
	var out []*modelItem
	for _, it := range m.items {
		if it.state == workqueue.StateQueued && !it.delayed && !m.sealed {
			out = append(out, it)
		}
	}
	slices.SortFunc(out, func(a, b *modelItem) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.order, b.order))
	})
	return out
}

func (m *model) fail(it *modelItem, counted, later bool) {
	if counted {
		it.attempts++
	}
	if counted && it.attempts >= m.maxAttempts {
		it.state, it.amended = workqueue.StateError, ""
		return
	}
	it.state, it.delayed = workqueue.StateQueued, later
	if !later {
		m.order++
		it.order = m.order
	}
}

func (m *model) stats() string {
	n := map[workqueue.State]int{}
	delayed := 0
	for _, it := range m.items {
		n[it.state]++
		if it.delayed {
			delayed++
		}
	}
	return fmt.Sprint(n[workqueue.StateQueued], n[workqueue.StateInProgress], n[workqueue.StateDone],
		n[workqueue.StateSkipped], n[workqueue.StateError], delayed, m.outputs)
}

// lanes counts the items by resource key.
func (m *model) lanes() map[string]workqueue.Counts {
	lanes := map[string]workqueue.Counts{}
	for _, it := range m.items {
		c := lanes[it.key]
		switch it.state {
		case workqueue.StateQueued:
			c.Queued++
		case workqueue.StateInProgress:
			c.InProgress++
		case workqueue.StateDone:
			c.Done++
		case workqueue.StateSkipped:
			c.Skipped++
		case workqueue.StateError:
			c.Error++
		}
		lanes[it.key] = c
	}
	return lanes
}

// modelTest is a queue and the model of it.
type modelTest struct {
	*model
	ctx    context.Context
	q      *workqueue.Queue
	byLane bool
	leases []workqueue.Leased // including lost ones, whose use must change nothing
}

// Random operations of eight workers have the same effects on a queue and on the model.
func TestQueueAgainstModel(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		run := 0
		rapid.Check(t, func(rt *rapid.T) {
			run++
			m := &modelTest{
				model: &model{items: map[string]*modelItem{}, maxAttempts: 2}, ctx: t.Context(),
				q: workqueue.New(rdb, fmt.Sprint("model:", run), workqueue.Config{MaxAttempts: 2, CountLanes: run%2 == 0}),
			}
			m.byLane = run%2 == 0
			rt.Repeat(map[string]func(*rapid.T){
				"enqueue": m.enqueue, "lease": m.lease, "leaseWithin": m.leaseWithin,
				"settle": m.settle, "retry": m.retry, "return": m.giveUp, "heartbeat": m.heartbeat,
				"expireWorker": m.expireWorker, "requeue": m.requeue, "enqueueUnder": m.enqueueUnder,
				"amend": m.amend, "pass": m.pass, "seal": m.seal, "unseal": m.unseal, "": m.compare,
			})
			if _, err := m.q.Verify(m.ctx); err != nil {
				rt.Fatal(err)
			}
			if err := m.q.Delete(m.ctx); err != nil {
				rt.Fatal(err)
			}
		})
	})
}

func drawWorker(rt *rapid.T) string { return fmt.Sprint("w", rapid.IntRange(0, 7).Draw(rt, "worker")) }

func check(rt *rapid.T, err error) {
	if err != nil {
		rt.Fatal(err)
	}
}

func wantErr(rt *rapid.T, what string, err, want error) {
	if !errors.Is(err, want) {
		rt.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

// anyLease returns a lease and its item; nil if the lease is lost.
func (m *modelTest) anyLease(rt *rapid.T) (workqueue.Leased, *modelItem) {
	if len(m.leases) == 0 {
		rt.Skip("nothing leased yet")
	}
	l := rapid.SampledFrom(m.leases).Draw(rt, "lease")
	it := m.items[l.ID]
	if it.state != workqueue.StateInProgress || it.lease.Token != l.Token {
		return l, nil
	}
	return l, it
}

// leased compares leases with the items that the model leases.
func (m *modelTest) leased(rt *rapid.T, got []workqueue.Leased, want []*modelItem) {
	if len(got) != len(want) {
		rt.Fatalf("leased %s, want %d items", ids(got), len(want))
	}
	for i, l := range got {
		if l.ID != want[i].id || l.Attempts != want[i].attempts {
			rt.Fatalf("leased %s with %d attempts, want %+v", l.ID, l.Attempts, want[i])
		}
		want[i].state, want[i].lease = workqueue.StateInProgress, l
		m.leases = append(m.leases, l)
	}
}

// drawItems returns some items, and those among them that the model does not have.
func (m *modelTest) drawItems(rt *rapid.T) (items []workqueue.Item, added []*modelItem) {
	seen := map[string]bool{}
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		it := &modelItem{id: fmt.Sprint("i", rapid.IntRange(0, 30).Draw(rt, "id")), state: workqueue.StateQueued}
		items = append(items, it.draw(rt))
		if m.items[it.id] == nil && !seen[it.id] {
			seen[it.id] = true
			added = append(added, it)
		}
	}
	return items, added
}

// draw gives an item a priority and a key, and returns the item of a queue that it is.
func (it *modelItem) draw(rt *rapid.T) workqueue.Item {
	it.priority = rapid.IntRange(-1, 1).Draw(rt, "priority")
	it.key = rapid.SampledFrom([]string{"", "h1", "h2", "h3"}).Draw(rt, "key")
	item := workqueue.Item{ID: it.id, Priority: it.priority}
	if it.key != "" {
		item.ResourceKeys = []string{it.key}
	}
	return item
}

// add adds items that the queue has added.
func (m *modelTest) add(rt *rapid.T, got int, added []*modelItem) {
	if got != len(added) {
		rt.Fatalf("%d new, want %d", got, len(added))
	}
	for _, it := range added {
		m.order++
		it.order = m.order
		m.items[it.id] = it
	}
}

func (m *modelTest) enqueue(rt *rapid.T) {
	items, added := m.drawItems(rt)
	got, err := m.q.Enqueue(m.ctx, items...)
	if m.sealed {
		wantErr(rt, "enqueue", err, workqueue.ErrSealed)
		return
	}
	check(rt, err)
	m.add(rt, got, added)
}

func (m *modelTest) lease(rt *rapid.T) {
	n := rapid.IntRange(0, 4).Draw(rt, "n")
	want := m.ready()
	got, err := m.q.Lease(m.ctx, drawWorker(rt), n)
	check(rt, err)
	m.leased(rt, got, want[:min(n, len(want))])
}

func (m *modelTest) leaseWithin(rt *rapid.T) {
	n := rapid.IntRange(1, 6).Draw(rt, "n")
	b := workqueue.Budget{Default: rapid.IntRange(-1, 2).Draw(rt, "default"), Left: map[string]int{
		"h1": rapid.IntRange(-1, 2).Draw(rt, "h1"), "h2": rapid.IntRange(-1, 2).Draw(rt, "h2"),
	}}
	left := map[string]int{"h1": b.Left["h1"], "h2": b.Left["h2"], "h3": b.Default}
	var want []*modelItem
	for _, it := range m.ready() {
		if len(want) == n {
			break
		}
		if it.key != "" && left[it.key] == 0 {
			continue
		}
		left[it.key]--
		want = append(want, it)
	}
	got, err := m.q.LeaseWithin(m.ctx, drawWorker(rt), n, b)
	check(rt, err)
	m.leased(rt, got.Items, want)
}

func (m *modelTest) settle(rt *rapid.T) {
	l, it := m.anyLease(rt)
	outs := rapid.IntRange(0, 2).Draw(rt, "outputs")
	o := rapid.SampledFrom([]workqueue.Outcome{
		workqueue.Done(), workqueue.Skipped("s"), workqueue.Failed(errors.New("e")),
	}).Draw(rt, "outcome").With(nil, make([][]byte, outs)...)
	again := m.items[l.ID].lease.Token == l.Token && m.items[l.ID].state == o.State
	err := m.q.Settle(m.ctx, l, o)
	if it == nil && !again {
		wantErr(rt, "a lost lease settles", err, workqueue.ErrLeaseLost)
		return
	}
	check(rt, err)
	if it != nil {
		it.state, it.amended = o.State, ""
		m.outputs += outs
	}
}

func (m *modelTest) retry(rt *rapid.T) {
	l, it := m.anyLease(rt)
	counted, later := rapid.Bool().Draw(rt, "counted"), rapid.Bool().Draw(rt, "later")
	var after time.Duration
	if later {
		after = time.Hour
	}
	state, err := m.q.Retry(m.ctx, l, errors.New("e"), after, counted)
	if it == nil {
		return // rejected, or repeated: the statistics show it
	}
	check(rt, err)
	if m.fail(it, counted, later); state != it.state {
		rt.Fatalf("state is %s, want %s", state, it.state)
	}
}

// giveUp returns a lease.
func (m *modelTest) giveUp(rt *rapid.T) {
	l, it := m.anyLease(rt)
	check(rt, m.q.Return(m.ctx, l))
	if it != nil {
		it.state = workqueue.StateQueued
	}
}

func (m *modelTest) heartbeat(rt *rapid.T) {
	l, it := m.anyLease(rt)
	lost, err := m.q.Heartbeat(m.ctx, l)
	check(rt, err)
	if (it == nil) != (len(lost) == 1) {
		rt.Fatalf("lost %v, want %v", lost, it == nil)
	}
}

func (m *modelTest) expireWorker(rt *rapid.T) {
	w := drawWorker(rt)
	var held []*modelItem
	for _, it := range m.items {
		if it.state == workqueue.StateInProgress && it.lease.Worker == w {
			held = append(held, it)
		}
	}
	n, err := m.q.ExpireWorker(m.ctx, w)
	check(rt, err)
	if n != len(held) {
		rt.Fatalf("expired %d leases, want %d", n, len(held))
	}
	// Leases that end in the same millisecond may expire in any order:
	// use the order that the queue has.
	got, err := m.q.Lease(m.ctx, "probe", 1000)
	check(rt, err)
	check(rt, m.q.Return(m.ctx, got...))
	place := map[string]int{}
	for i, l := range got {
		place[l.ID] = i
		m.leases = append(m.leases, l)
		m.items[l.ID].lease = l
	}
	slices.SortFunc(held, func(a, b *modelItem) int { return cmp.Compare(place[a.id], place[b.id]) })
	infos, err := m.q.Get(m.ctx, names(held)...)
	check(rt, err)
	for i, it := range held {
		m.fail(it, true, false)
		if infos[i].State != it.state || infos[i].Attempts != it.attempts {
			rt.Fatalf("%s is %+v, want %+v", it.id, infos[i], it)
		}
	}
}

func (m *modelTest) requeue(rt *rapid.T) {
	id := fmt.Sprint("i", rapid.IntRange(0, 30).Draw(rt, "id"))
	got, err := m.q.Requeue(m.ctx, workqueue.RequeueOptions{IDs: []string{id}, States: []workqueue.State{
		workqueue.StateDone, workqueue.StateSkipped, workqueue.StateError,
	}})
	check(rt, err)
	it := m.items[id]
	if (it != nil && it.state.Terminal()) != (len(got) == 1) {
		rt.Fatalf("requeued %v, want it if %+v is terminal", got, it)
	}
	if len(got) == 1 {
		m.order++
		it.state, it.attempts, it.order, it.lease = workqueue.StateQueued, 0, m.order, workqueue.Leased{}
	}
}

// compare compares the statistics of the queue with the model's.
func (m *modelTest) compare(rt *rapid.T) {
	s, err := m.q.Stats(m.ctx)
	check(rt, err)
	got := fmt.Sprint(s.Queued, s.InProgress, s.Done, s.Skipped, s.Error, s.Delayed, s.Outputs)
	if want := m.stats(); got != want {
		rt.Fatalf("stats are %s, want %s", got, want)
	}
	if !m.byLane {
		return
	}
	lanes, err := m.q.LaneStats(m.ctx)
	check(rt, err)
	if want := m.lanes(); !maps.Equal(lanes, want) {
		rt.Fatalf("lanes are %+v, want %+v", lanes, want)
	}
}

func names(items []*modelItem) []string {
	var out []string
	for _, it := range items {
		out = append(out, it.id)
	}
	return out
}
