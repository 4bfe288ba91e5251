package engine

import (
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// batches holds the ids of the batches that this worker has or may have. Others that are leased to it are returned.
type batches struct {
	life string // distinguishes this worker from one of the same name before it

	mu      sync.Mutex // guards the fields below
	last    int64
	known   map[string]bool
	entries map[store.RingEntry]int // of rings, that this worker has
	unknown []store.RingEntry       // that the last look has found and did not know
	singles []*batch                // workflows of one node that run without a batch
}

func newBatches() *batches {
	return &batches{life: rand.Text()[:6], known: map[string]bool{}, entries: map[store.RingEntry]int{}}
}

// hold notes that this worker has an entry of a ring, until release is called.
func (b *batches) hold(e store.RingEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[e]++
}

// begin notes that a workflow of one node runs without a batch, until end is called.
func (b *batches) begin(single *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.singles = append(b.singles, single)
}

func (b *batches) end(single *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.singles, single); i >= 0 {
		b.singles = slices.Delete(b.singles, i, i+1)
	}
}

// lease gives workflows of one node batches that run since before a time: their leases have the time at which they began.
func (b *batches) lease(before time.Time) {
	b.mu.Lock()
	slow := slices.DeleteFunc(slices.Clone(b.singles), func(s *batch) bool { return !s.clock.at.Before(before) })
	b.singles = slices.DeleteFunc(b.singles, func(s *batch) bool { return s.clock.at.Before(before) })
	b.mu.Unlock()
	for _, s := range slow {
		s.name()
	}
}

func (b *batches) release(e store.RingEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries[e]--; b.entries[e] == 0 {
		delete(b.entries, e)
	}
}

// strayEntries returns the entries that two looks have found and that are not known: the reply with an entry can be on its way.
func (b *batches) strayEntries(found []store.RingEntry) []store.RingEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	have := maps.Clone(b.entries)
	before := b.unknown
	b.unknown = nil
	var out []store.RingEntry
	for _, e := range found {
		if have[e] > 0 {
			have[e]--
			continue
		}
		if i := slices.Index(before, e); i >= 0 {
			before = slices.Delete(before, i, i+1)
			out = append(out, e)
		} else {
			b.unknown = append(b.unknown, e)
		}
	}
	return out
}

// add returns the id of a new batch.
func (b *batches) add() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	id := strconv.FormatInt(b.last, 36) + "." + b.life
	b.known[id] = true
	return id
}

func (b *batches) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, id)
}

// strays returns the IDs that are not known.
func (b *batches) strays(ids []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, id := range ids {
		if !b.known[id] {
			out = append(out, id)
		}
	}
	return out
}

// item is a node of a batch.
type item struct {
	fl   *flow
	g    *graph.Graph // that the node is in
	id   graph.ID
	node string // id as text
	lost int    // workers that died with it
	rec  store.Record

	cancelled error // why its workflow is; nil if it is not
}

func (it *item) held() store.Held { return store.Held{Flow: it.fl.Ref, Node: it.node, Lost: it.lost} }

// result is the result to store for an item.
type result struct {
	*item
	kind   string // S, F or X: terminal; R: run again; P: its plan replaces it; W: it waits for an external result
	body   []byte // of S, F and X
	forget bool   // delete its last error and its own progress
	logged bool   // its handler has written log lines
	began  time.Time
	took   time.Duration

	// Of kind R; W has attempts, and as its delay the time until its deadline.
	attempts, lost int
	delay          time.Duration
	state, message string
	code           string // of the failure that another attempt follows
	outcome        tasktype.Outcome

	plan *store.Grow // of kind P

	// Of a node that waits for a limit.
	place *store.Place
	asked time.Time // when it asked for it, by Redis
}

// lock is a mutex that can be held during a call to Redis. It is a channel, because testing/synctest takes a goroutine
// that waits for a channel as blocked, and one that waits for a mutex not.
type lock chan struct{}

func newLock() lock  { return make(lock, 1) }
func (l lock) Lock() { l <- struct{}{} }

func (l lock) Unlock() { <-l }

// batch is the nodes that a slot has taken. The slot runs one after the other; a timer may return those not started.
type batch struct {
	shard int
	lane  string
	clock clockReading

	lend func() string // makes the entry of a workflow of one node a batch, and returns its ID; nil for a batch

	mu    lock      // guards the fields below
	id    string    // empty for an entry of a ring
	taken time.Time // by Redis
	todo  []*item
	run   *item
	done  []result
	bytes int // of done
}

// leads reports whether any node that the batch has run may make others ready.
func (b *batch) leads() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.done {
		r := &b.done[i]
		if r.kind != store.ChangeSucceed || r.id.Scope != "" || r.id.Inst >= 0 || len(r.g.Succs(r.id.Index)) > 0 {
			return true
		}
	}
	return false
}

// next returns the next item to run, or nil. The one before must have ended.
func (b *batch) next() *item {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.todo) == 0 {
		return nil
	}
	b.run = b.todo[0]
	b.todo = b.todo[1:]
	return b.run
}

// end ends the item that runs, with its result if ok.
func (b *batch) end(r result, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run = nil
	if ok {
		b.done = append(b.done, r)
		b.bytes += len(r.body)
	}
}

// lease returns the text of a lease of items of the batch; "" if there are none.
func (b *batch) lease(items []*item) string {
	if len(items) == 0 {
		return ""
	}
	held := make([]store.Held, len(items))
	for i, it := range items {
		held[i] = it.held()
	}
	return store.LeaseText(b.taken, b.lane, held)
}

// large reports whether there are more results than should wait for the end of the batch.
func (b *batch) large() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes > doneMost && len(b.todo) > 0
}

// withID calls f with the ID of the batch until f returns true or the ID did not change during the call. It returns
// the result of f: false means that the worker has lost the batch.
func (b *batch) withID(f func(id string) (ok bool, err error)) (bool, error) {
	for id := b.name(); ; {
		ok, err := f(id)
		if ok || err != nil {
			return ok, err
		}
		now := b.name()
		if now == id {
			return false, nil
		}
		id = now
	}
}

// name returns the id of the batch. A workflow of one node that was run without one gets a batch.
func (b *batch) name() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.id == "" && b.lend != nil {
		b.id = b.lend()
	}
	return b.id
}
