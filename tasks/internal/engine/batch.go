package engine

import (
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// batches knows which batches this worker has, or may have: what Redis leases to it beyond these goes back.
type batches struct {
	life string // tells this worker from one of the same name before it

	mu    sync.Mutex // guards the fields below
	last  int64
	known map[string]bool
}

func newBatches() *batches { return &batches{life: rand.Text()[:6], known: map[string]bool{}} }

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

// strays returns those of ids that are not known.
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
	g    *graph.Graph
	id   graph.ID
	node string
	lost int
	rec  store.Record
}

func (it *item) held() store.Held { return store.Held{Flow: it.fl.ID, Node: it.node, Lost: it.lost} }

// result is what became of an item.
type result struct {
	*item
	kind   string // S, F or X with a record, R or P
	body   []byte
	forget bool // it may have an error or progress of its own
	began  time.Time
	took   time.Duration

	// Of R.
	attempts, lost int
	delay          time.Duration
	state, message string

	plan *store.Grow // of P
}

// lock is a mutex that can be held during a call to Redis. It is a channel, because testing/synctest sees who waits
// for one, and not who waits for a mutex.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// batch is what a slot has to run. Its slot runs one item after the other; a timer may give back what has not begun.
type batch struct {
	shard int
	lane  string
	skew  time.Duration // of Redis's clock against ours

	mu      lock // guards the fields below
	id      string
	taken   time.Time // by Redis
	todo    []*item
	run     *item
	done    []result
	bytes   int  // of done
	counted bool // its slot is counted among the takers
}

func (b *batch) isCounted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counted
}

// leads reports whether anything comes after what the batch has run.
func (b *batch) leads() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.done {
		r := &b.done[i]
		if r.kind != "S" || r.id.Scope != "" || r.id.Inst >= 0 || len(r.g.Succs(r.id.Index)) > 0 {
			return true
		}
	}
	return false
}

// next takes the next item to run, after what became of the one before.
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

func (b *batch) end(r result, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run = nil
	if ok {
		b.done = append(b.done, r)
		b.bytes += len(r.body)
	}
}

// lease returns the lease of items of the batch; "" for none.
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
