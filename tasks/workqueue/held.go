package workqueue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// job is an item that the pool holds.
type job struct {
	Leased
	cancel   context.CancelCauseFunc // of its handler; nil before it runs
	deadline time.Time               // of its handler; zero before it runs
}

// held is the set of items that a pool holds during one Run, and of the resources that are exhausted. It is safe for
// concurrent use.
type held struct {
	cfg   PoolConfig
	freed chan struct{} // a receive means that there may be room, or a resource

	mu      sync.Mutex // guards the fields below
	jobs    map[int64]*job
	using   map[string]int       // by resource key: items leased here
	waiting map[string]time.Time // by resource key: a handler returned NotNow or HoldBack; until
	unsaved map[int64]time.Time  // by token: the outcome could not be stored, so the lease will expire; until
}

func newHeld(cfg PoolConfig) *held {
	return &held{
		cfg: cfg, freed: make(chan struct{}, 1), jobs: make(map[int64]*job),
		using: make(map[string]int), waiting: make(map[string]time.Time), unsaved: make(map[int64]time.Time),
	}
}

// add starts the holding of a job.
func (h *held) add(j *job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs[j.Token] = j
	for _, key := range j.ResourceKeys {
		h.using[key]++
	}
}

// noteStart notes that the handler of a job runs.
func (h *held) noteStart(j *job, cancel context.CancelCauseFunc, deadline time.Time) {
	h.free() // there is room in the buffer
	h.mu.Lock()
	defer h.mu.Unlock()
	j.cancel, j.deadline = cancel, deadline
}

// remove ends the holding of a job.
func (h *held) remove(j *job) {
	h.mu.Lock()
	delete(h.jobs, j.Token)
	for _, key := range j.ResourceKeys {
		if h.using[key]--; h.using[key] == 0 {
			delete(h.using, key)
		}
	}
	h.mu.Unlock()
	h.free()
}

// free wakes the dispatcher.
func (h *held) free() {
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// cancel cancels the handlers of leases that are lost.
func (h *held) cancel(lost []Leased) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range lost {
		if j := h.jobs[l.Token]; j != nil && j.cancel != nil {
			j.cancel(ErrLeaseLost)
		}
	}
}

func (h *held) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)
}

// letExpire notes that the outcome of a job could not be stored: its lease is not returned with the strays but expires within
// ttl, which counts an attempt.
func (h *held) letExpire(j *job, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsaved[j.Token] = time.Now().Add(ttl)
}

// known returns the leases that are no strays: those of all jobs, and those that will expire.
func (h *held) known() []Leased {
	leases := h.leases()
	h.mu.Lock()
	defer h.mu.Unlock()
	for token, until := range h.unsaved {
		if time.Now().After(until) {
			delete(h.unsaved, token)
			continue
		}
		leases = append(leases, Leased{Token: token})
	}
	return leases
}

// leases returns the leases of all jobs.
func (h *held) leases() []Leased {
	h.mu.Lock()
	defer h.mu.Unlock()
	leases := make([]Leased, 0, len(h.jobs))
	for _, j := range h.jobs {
		leases = append(leases, j.Leased)
	}
	return leases
}

// inTime returns the leases of the jobs whose handlers are not past their
// deadline.
func (h *held) inTime() []Leased {
	h.mu.Lock()
	defer h.mu.Unlock()
	var leases []Leased
	now := time.Now()
	for _, j := range h.jobs {
		if j.deadline.IsZero() || now.Before(j.deadline) {
			leases = append(leases, j.Leased)
		}
	}
	return leases
}

// ids returns the IDs of the items that are held, sorted.
func (h *held) ids() []string {
	var ids []string
	for _, l := range h.leases() {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return ids
}

// maxWaiting limits the resources that are skipped at the request of a handler: each lease command lists them.
const maxWaiting = 1000

// holdBack makes the dispatcher pass over a resource for a time. It returns
// false if there are too many of these.
func (h *held) holdBack(key string, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := time.Now().Add(d)
	old, known := h.waiting[key]
	if !known && len(h.waiting) >= maxWaiting {
		return false
	}
	if until.After(old) {
		h.waiting[key] = until
	}
	return true
}

// budget returns how many more items of each resource this process can run, and
// when a resource that is passed over may be used again; in an hour at the
// latest.
func (h *held) budget() (Budget, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := Budget{Default: min(4, h.cfg.Workers), Left: make(map[string]int)}
	if most := h.cfg.MaxPerKey(""); most > 0 {
		b.Default = min(b.Default, most)
	}
	for key, n := range h.using {
		b.Left[key] = -1
		if most := h.cfg.MaxPerKey(key); most > 0 {
			b.Left[key] = max(0, most-n)
		}
	}
	now := time.Now()
	change := now.Add(time.Hour)
	for key, until := range h.waiting {
		if !now.Before(until) {
			delete(h.waiting, key)
			continue
		}
		b.Left[key] = 0
		if until.Before(change) {
			change = until
		}
	}
	return b, change
}
