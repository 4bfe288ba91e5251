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

	"muster/internal/redistest"
	"muster/tasks/workqueue"
)

// modelItem is an item of the model.
type modelItem struct {
	id, payload                    string
	priority, attempts, max, order int
	key                            string // its resource key, "" for none
	state                          workqueue.State
	delayed                        bool
	note, result                   string
	lease                          workqueue.Leased // the zero one after Requeue, Seal and Pass
	passed                         int64            // token of the lease that passed it
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

// enter queues an item after the others, or delays it.
func (m *model) enter(it *modelItem, later bool) {
	it.state, it.delayed = workqueue.StateQueued, later
	if !later {
		m.order++
		it.order = m.order
	}
}

func (m *model) fail(it *modelItem, note string, counted, later bool) {
	it.note = note
	if counted {
		it.attempts++
	}
	if counted && it.attempts >= cmp.Or(it.max, m.maxAttempts) {
		it.state = workqueue.StateError
		return
	}
	m.enter(it, later)
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
		n[workqueue.StateSkipped], n[workqueue.StateError], delayed, m.outputs, m.sealed)
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

// nextFault makes the next call of a client fail.
type nextFault struct{ kind redistest.Kind }

func (f *nextFault) call(_ context.Context, do func() error, _ ...redis.Cmder) error {
	kind := f.kind
	f.kind = ""
	switch kind {
	case redistest.Refused:
		return redistest.ErrFault
	case redistest.ReplyLost:
		_ = do()
		return redistest.ErrFault
	case redistest.Repeated:
		_ = do()
	}
	return do()
}

// modelTest is a queue and the model of it.
type modelTest struct {
	*model
	ctx    context.Context
	q      *workqueue.Queue
	fault  *nextFault
	byLane bool
	leases []workqueue.Leased // including lost ones, whose use must change nothing
}

// Random operations of eight workers, some of which are refused, lose their reply or are repeated, have the same effects on a
// queue and on the model.
func TestQueueAgainstModel(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		run, fault := 0, &nextFault{}
		rdb.AddHook(redistest.Calls(fault.call))
		rapid.Check(t, func(rt *rapid.T) {
			run++
			m := &modelTest{
				model: &model{items: map[string]*modelItem{}, maxAttempts: 2}, ctx: t.Context(), fault: fault, byLane: run%2 == 0,
				q: workqueue.New(rdb, fmt.Sprint("model:", run), workqueue.Config{MaxAttempts: 2, CountLanes: run%2 == 0, Logger: quiet}),
			}
			rt.Repeat(map[string]func(*rapid.T){
				"enqueue": m.enqueue, "lease": m.lease, "leaseWithin": m.leaseWithin,
				"settle": m.settle, "retry": m.retry, "return": m.giveUp, "heartbeat": m.heartbeat,
				"expireWorker": m.expireWorker, "requeue": m.requeue, "enqueueUnder": m.enqueueUnder,
				"amend": m.amend, "pass": m.pass, "seal": m.seal, "unseal": m.unseal, "forget": m.forget, "": m.compare,
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

// try repeats an operation, whose first call may fail, until its result is known. It reports whether the operation may have
// run twice.
func (m *modelTest) try(rt *rapid.T, op func() error) (twice bool, err error) {
	m.fault.kind = rapid.SampledFrom([]redistest.Kind{"", "", "", redistest.Refused, redistest.ReplyLost, redistest.Repeated}).Draw(rt, "fault")
	twice = m.fault.kind == redistest.ReplyLost || m.fault.kind == redistest.Repeated
	for err = op(); errors.Is(err, redistest.ErrFault); err = op() {
	}
	m.fault.kind = ""
	return twice, err
}

func drawWorker(rt *rapid.T) string { return fmt.Sprint("w", rapid.IntRange(0, 7).Draw(rt, "worker")) }

func drawID(rt *rapid.T) string { return fmt.Sprint("i", rapid.IntRange(0, 30).Draw(rt, "id")) }

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
	if it == nil || it.state != workqueue.StateInProgress || it.lease.Token != l.Token {
		return l, nil
	}
	return l, it
}

// held lists the items that a worker leases.
func (m *modelTest) held(worker string) (items []*modelItem, leases []workqueue.Leased) {
	for _, it := range m.items {
		if it.state == workqueue.StateInProgress && it.lease.Worker == worker {
			items, leases = append(items, it), append(leases, it.lease)
		}
	}
	return items, leases
}

// leased leases items for a worker and compares them with those that the model leases. Leases whose reply was lost are
// returned first.
func (m *modelTest) leased(rt *rapid.T, worker string, want []*modelItem, lease func() ([]workqueue.Leased, error)) {
	var got []workqueue.Leased
	twice, err := m.try(rt, func() (err error) {
		got, err = lease()
		return err
	})
	if twice {
		_, held := m.held(worker)
		if _, err := m.q.ReturnStrays(m.ctx, worker, held...); err != nil {
			rt.Fatal(err)
		}
		got, err = lease()
	}
	check(rt, err)
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
		it := &modelItem{id: drawID(rt), state: workqueue.StateQueued}
		items = append(items, it.draw(rt))
		if m.items[it.id] == nil && !seen[it.id] {
			seen[it.id] = true
			added = append(added, it)
		}
	}
	return items, added
}

// draw gives an item random fields, and returns the item of a queue that it is.
func (it *modelItem) draw(rt *rapid.T) workqueue.Item {
	it.priority = rapid.IntRange(-1, 1).Draw(rt, "priority")
	it.key = rapid.SampledFrom([]string{"", "h1", "h2", "h3"}).Draw(rt, "key")
	it.payload = rapid.SampledFrom([]string{"", "p", "q"}).Draw(rt, "payload")
	it.max = rapid.SampledFrom([]int{0, 0, 1}).Draw(rt, "attempts")
	item := workqueue.Item{ID: it.id, Priority: it.priority, Payload: []byte(it.payload), MaxAttempts: it.max}
	if it.key != "" {
		item.ResourceKeys = []string{it.key}
	}
	return item
}

// add adds items that the queue has added.
func (m *modelTest) add(rt *rapid.T, got int, twice bool, added []*modelItem) {
	if got != len(added) && (got != 0 || !twice) {
		rt.Fatalf("%d new, want %d", got, len(added))
	}
	for _, it := range added {
		m.enter(it, false)
		m.items[it.id] = it
	}
}

func (m *modelTest) enqueue(rt *rapid.T) {
	items, added := m.drawItems(rt)
	got := 0
	twice, err := m.try(rt, func() (err error) {
		got, err = m.q.Enqueue(m.ctx, items...)
		return err
	})
	if m.sealed {
		wantErr(rt, "enqueue", err, workqueue.ErrSealed)
		return
	}
	check(rt, err)
	m.add(rt, got, twice, added)
}

func (m *modelTest) enqueueUnder(rt *rapid.T) {
	l, it := m.anyLease(rt)
	items, added := m.drawItems(rt)
	got := 0
	twice, err := m.try(rt, func() (err error) {
		got, err = m.q.EnqueueUnder(m.ctx, l, items...)
		return err
	})
	if it == nil {
		wantErr(rt, "enqueue under a lost lease", err, workqueue.ErrLeaseLost)
		return
	}
	check(rt, err)
	m.add(rt, got, twice, added)
}

func (m *modelTest) lease(rt *rapid.T) {
	n, worker, want := rapid.IntRange(-1, 4).Draw(rt, "n"), drawWorker(rt), m.ready()
	m.leased(rt, worker, want[:max(0, min(n, len(want)))], func() ([]workqueue.Leased, error) { return m.q.Lease(m.ctx, worker, n) })
}

func (m *modelTest) leaseWithin(rt *rapid.T) {
	n, worker := rapid.IntRange(1, 6).Draw(rt, "n"), drawWorker(rt)
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
	m.leased(rt, worker, want, func() ([]workqueue.Leased, error) {
		got, err := m.q.LeaseWithin(m.ctx, worker, n, b)
		if err == nil && got.Paused != m.sealed {
			rt.Fatalf("got %+v, want paused %v", got, m.sealed)
		}
		return got.Items, err
	})
}

func (m *modelTest) settle(rt *rapid.T) {
	l, it := m.anyLease(rt)
	outs, result := rapid.IntRange(0, 2).Draw(rt, "outputs"), rapid.SampledFrom([]string{"", "r"}).Draw(rt, "result")
	o := rapid.SampledFrom([]workqueue.Outcome{
		workqueue.Done(), workqueue.Skipped("s"), workqueue.Failed(errors.New("e")),
	}).Draw(rt, "outcome").With(nil, make([][]byte, outs)...)
	if result != "" {
		o.Result = []byte(result)
	}
	was := m.items[l.ID]
	again := was == nil || was.lease.Token == l.Token && was.state == o.State
	_, err := m.try(rt, func() error { return m.q.Settle(m.ctx, l, o) })
	if it == nil && !again {
		wantErr(rt, "a lost lease settles", err, workqueue.ErrLeaseLost)
		return
	}
	check(rt, err)
	if it != nil {
		it.state, it.note, it.result = o.State, o.Note, result
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
	var state workqueue.State
	_, err := m.try(rt, func() (err error) {
		state, err = m.q.Retry(m.ctx, l, errors.New("e"), after, counted)
		return err
	})
	if it == nil {
		return // rejected, or repeated: the statistics show it
	}
	check(rt, err)
	if m.fail(it, "e", counted, later); state != it.state {
		rt.Fatalf("state is %s, want %s", state, it.state)
	}
}

// giveUp returns a lease.
func (m *modelTest) giveUp(rt *rapid.T) {
	l, it := m.anyLease(rt)
	_, err := m.try(rt, func() error { return m.q.Return(m.ctx, l) })
	check(rt, err)
	if it != nil {
		it.state = workqueue.StateQueued
	}
}

func (m *modelTest) heartbeat(rt *rapid.T) {
	l, it := m.anyLease(rt)
	var lost []workqueue.Leased
	_, err := m.try(rt, func() (err error) {
		lost, err = m.q.Heartbeat(m.ctx, l)
		return err
	})
	check(rt, err)
	if (it == nil) != (len(lost) == 1) {
		rt.Fatalf("lost %v, want %v", lost, it == nil)
	}
}

func (m *modelTest) expireWorker(rt *rapid.T) {
	w := drawWorker(rt)
	held, _ := m.held(w)
	n := 0
	twice, err := m.try(rt, func() (err error) {
		n, err = m.q.ExpireWorker(m.ctx, w)
		return err
	})
	check(rt, err)
	if n != len(held) && (n != 0 || !twice) {
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
	for _, it := range held {
		m.fail(it, "lease expired: its worker died", true, false)
	}
}

func (m *modelTest) requeue(rt *rapid.T) {
	id := drawID(rt)
	var got []string
	twice, err := m.try(rt, func() (err error) {
		got, err = m.q.Requeue(m.ctx, workqueue.RequeueOptions{IDs: []string{id}, States: []workqueue.State{
			workqueue.StateDone, workqueue.StateSkipped, workqueue.StateError,
		}})
		return err
	})
	check(rt, err)
	it := m.items[id]
	ended := it != nil && it.state.Terminal()
	if ended != (len(got) == 1) && (len(got) == 1 || !twice) {
		rt.Fatalf("requeued %v, want it if %+v is terminal", got, it)
	}
	if ended {
		it.attempts, it.lease, it.result = 0, workqueue.Leased{}, ""
		m.enter(it, false)
	}
}

func (m *modelTest) amend(rt *rapid.T) {
	ended := rapid.SampledFrom([]workqueue.State{workqueue.StateDone, workqueue.StateSkipped, workqueue.StateError})
	id, from := drawID(rt), ended.Draw(rt, "from")
	o := workqueue.Outcome{State: ended.Draw(rt, "to"), Note: fmt.Sprint("amended ", rapid.IntRange(0, 1).Draw(rt, "note"))}
	result := rapid.SampledFrom([]string{"", "amended"}).Draw(rt, "result")
	if result != "" {
		o.Result = []byte(result)
	}
	_, err := m.try(rt, func() error { return m.q.Amend(m.ctx, id, from, o) })
	it := m.items[id]
	switch {
	case it != nil && it.state == o.State && it.note == o.Note && it.result == result:
		check(rt, err) // repeated
	case it == nil || it.state != from:
		wantErr(rt, "amend in another state", err, workqueue.ErrNotInState)
	case m.sealed:
		wantErr(rt, "amend in a sealed queue", err, workqueue.ErrSealed)
	default:
		check(rt, err)
		it.state, it.note, it.result = o.State, o.Note, result
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
	_, err := m.try(rt, func() error { return m.q.Pass(m.ctx, l, to) })
	if it == nil {
		if was := m.items[l.ID]; was == nil || was.passed == l.Token {
			check(rt, err) // forgotten, or repeated
		} else {
			wantErr(rt, "a lost lease passes", err, workqueue.ErrLeaseLost)
		}
		return
	}
	check(rt, err)
	next.passed = l.Token
	*it = next
	m.enter(it, later)
}

func (m *modelTest) seal(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "seldom") != 0 {
		rt.Skip("a sealed queue does little")
	}
	_, err := m.try(rt, func() error { return m.q.Seal(m.ctx) })
	check(rt, err)
	m.sealed = true
	for _, it := range m.items {
		if it.state == workqueue.StateInProgress {
			it.state, it.lease = workqueue.StateQueued, workqueue.Leased{}
		}
	}
}

func (m *modelTest) unseal(rt *rapid.T) {
	_, err := m.try(rt, func() error { return m.q.Unseal(m.ctx) })
	check(rt, err)
	m.sealed = false
}

func (m *modelTest) forget(rt *rapid.T) {
	id := drawID(rt)
	var gone []string
	_, err := m.try(rt, func() (err error) {
		gone, err = m.q.Forget(m.ctx, id)
		return err
	})
	check(rt, err)
	it := m.items[id]
	if want := it == nil || it.state.Terminal(); want != (len(gone) == 1) {
		rt.Fatalf("%s: gone %v, want %v", id, gone, want)
	}
	if len(gone) == 1 {
		delete(m.items, id)
	}
}

// compare compares the statistics and the items of the queue with the model's.
func (m *modelTest) compare(rt *rapid.T) {
	s, err := m.q.Stats(m.ctx)
	check(rt, err)
	got := fmt.Sprint(s.Queued, s.InProgress, s.Done, s.Skipped, s.Error, s.Delayed, s.Outputs, s.Sealed)
	if want := m.stats(); got != want {
		rt.Fatalf("stats are %s, want %s", got, want)
	}
	all := slices.Sorted(maps.Keys(m.items))
	infos, err := m.q.Get(m.ctx, all...)
	check(rt, err)
	if len(infos) != len(all) {
		rt.Fatalf("got %d items, want %q", len(infos), all)
	}
	for i, info := range infos {
		it := m.items[all[i]]
		worker, running := "", it.state == workqueue.StateInProgress
		if running {
			worker = it.lease.Worker
		}
		got := fmt.Sprint(info.ID, info.State, info.Attempts, info.MaxAttempts, info.Priority, info.ResourceKeys, info.Passed, info.Worker,
			!info.Available.IsZero(), !info.Expires.IsZero(), info.Result != nil, string(info.Payload), "|", info.Note, "|", string(info.Result))
		keys := []string{it.key}
		if it.key == "" {
			keys = nil
		}
		want := fmt.Sprint(it.id, it.state, it.attempts, it.max, it.priority, keys, it.passed, worker,
			it.delayed, running, it.result != "", it.payload, "|", it.note, "|", it.result)
		if got != want {
			rt.Fatalf("got %s, want %s", got, want)
		}
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
