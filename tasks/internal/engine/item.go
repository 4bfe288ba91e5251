package engine

import (
	"context"
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

// item is a node that a worker has taken.
type item struct {
	fl   *flow
	g    *graph.Graph // that the node is in
	id   graph.ID
	node string // id as text
	lost int    // workers that died with it
	rec  store.Record

	cancelled error // why its workflow is; nil if it is not

	lease  store.NodeLease
	single *single // of a workflow of one node that was taken without a lease
	clock  clockReading
	values map[string][]byte // results that were stored when it was taken, by workflow and node
	batch  *batch            // that it was taken with; nil if it may have to wait for one
}

// single is the entry of a workflow of one node.
type single struct {
	entry    *store.RingEntry
	consumed func() // notes that the worker does not have the entry any more

	mu     lock // guards the fields below
	leased bool // the worker has a lease instead
	ended  bool // the result is stored
}

// result is the result to store for an item.
type result struct {
	*item
	kind   string // S, F or X: terminal; R: run again; P: its plan replaces it; W: it waits for an external result; empty: nothing but the end of its lease
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

	plan   *store.Grow // of kind P
	leased *leased     // of kind W; nil unless a program leases the node

	place *store.Place // of a node that waits for a limit
	list  string       // of a node that waits for its batch of this list and size
	size  int
}

// lock is a mutex that can be held during a call to Redis. It is a channel, because testing/synctest takes a goroutine
// that waits for a channel as blocked, and one that waits for a mutex not.
type lock chan struct{}

func newLock() lock  { return make(lock, 1) }
func (l lock) Lock() { l <- struct{}{} }

func (l lock) Unlock() { <-l }

// leases holds what this worker has taken, or may have taken. The rest of what Redis has for it is returned.
type leases struct {
	*local
	life string // distinguishes this worker from one of the same name before it

	mu      sync.Mutex // guards the fields below
	last    int64
	calls   map[string]bool            // by ID, which may take nodes
	known   map[string]store.NodeLease // by their keys
	entries map[store.RingEntry]int
	unknown []store.RingEntry // that the last look has found and did not know
	singles map[*item]bool    // that run without a lease
}

func newLeases(l *local) *leases {
	return &leases{local: l, life: rand.Text()[:6], calls: map[string]bool{}, known: map[string]store.NodeLease{}, entries: map[store.RingEntry]int{}, singles: map[*item]bool{}}
}

// begin returns the ID of a new call.
func (ls *leases) begin() string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.last++
	id := strconv.FormatInt(ls.last, 36) + "." + ls.life
	ls.calls[id] = true
	return id
}

// end ends a call, which has taken leases and ended others.
func (ls *leases) end(id string, taken []store.NodeLease, ended ...store.NodeLease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.calls, id)
	for _, l := range taken {
		ls.known[l.Key()] = l
	}
	for _, l := range ended {
		if key := l.Key(); ls.known[key].Call == l.Call {
			delete(ls.known, key)
		}
	}
}

// strays returns the leases that are not known.
func (ls *leases) strays(found []store.NodeLease) []store.NodeLease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.DeleteFunc(found, func(l store.NodeLease) bool { return ls.calls[l.Call] || ls.known[l.Key()].Call == l.Call })
}

// hold notes that this worker has an entry of a ring, until release is called.
func (ls *leases) hold(e *store.RingEntry) (release func()) {
	key := *e
	key.Row = nil
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.entries[key]++
	return sync.OnceFunc(func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if ls.entries[key]--; ls.entries[key] == 0 {
			delete(ls.entries, key)
		}
	})
}

// strayEntries returns the entries that two looks have found and that are not known: the reply with an entry can be on its way.
func (ls *leases) strayEntries(found []store.RingEntry) []store.RingEntry {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	have := maps.Clone(ls.entries)
	before := ls.unknown
	ls.unknown = nil
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
			ls.unknown = append(ls.unknown, e)
		}
	}
	return out
}

// run notes that a workflow of one node runs without a lease, until the returned function is called.
func (ls *leases) run(it *item) (end func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.singles[it] = true
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		delete(ls.singles, it)
	}
}

// lendSlow leases workflows of one node that run since before a time: their leases have the time at which they began.
func (ls *leases) lendSlow(before time.Time) {
	ls.mu.Lock()
	var slow []*item
	for it := range ls.singles {
		if it.clock.at.Before(before) {
			slow = append(slow, it)
			delete(ls.singles, it)
		}
	}
	ls.mu.Unlock()
	for _, it := range slow {
		if ls.cfg.Manual {
			ls.lend(it)
		} else {
			go ls.lend(it) // Redis may not respond, or only other servers of a Cluster
		}
	}
}

// lend returns the lease of an item. A workflow of one node that was taken without a lease gets one.
func (ls *leases) lend(it *item) *store.NodeLease {
	if it.single == nil {
		return &it.lease
	}
	it.single.mu.Lock()
	defer it.single.mu.Unlock()
	if it.single.leased || it.single.ended {
		return &it.lease
	}
	defer it.single.consumed()
	it.single.leased = true
	it.lease.Call = ls.begin()
	_ = ls.insist(func() error { return ls.store.Leases.Adopt(within(context.Background()), it.single.entry, &it.lease) })
	ls.end(it.lease.Call, []store.NodeLease{it.lease})
	return &it.lease
}
