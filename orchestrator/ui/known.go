package ui

import (
	"context"
	"sync"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/tasks/tasktype"
)

// known is what the pages have read and need not read again at once: what has ended does not change, and what costs Redis
// many commands is read once for all pages. It may be used by many goroutines.
type known struct {
	failures ended[string] // why workflows failed
	checks   recent[health.Report]
	stuck    recent[[]jobs.Stuck]
	queues   recent[[]tasktype.Queue]
	review   recent[reviewCount]
	sites    recent[[]sites.State]
	pool     recent[proxies.Stats]
}

// mostEnded bounds an ended.
const mostEnded = 500

// ended are values that do not change, by id.
type ended[T any] struct {
	mu  sync.Mutex // guards all
	all map[string]T
}

// get returns the value of an id: from memory, or what read returns, which is kept if it says so.
func (e *ended[T]) get(id string, read func() (v T, keep bool, err error)) (T, error) {
	e.mu.Lock()
	v, ok := e.all[id]
	e.mu.Unlock()
	if ok {
		return v, nil
	}
	v, keep, err := read()
	if err != nil || !keep {
		return v, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil || len(e.all) >= mostEnded {
		e.all = map[string]T{}
	}
	e.all[id] = v
	return v, nil
}

// recent is a value that may be some seconds old: the older, the more commands of Redis it takes to read it.
type recent[T any] struct {
	mu    sync.Mutex // guards the fields below, and is held while one reads
	until time.Time
	v     T
}

// mostReread is how many commands of Redis are spent on each recent value, in a second.
const mostReread = 16

// get returns what read returned a short time ago, or returns now. Cost is how many commands that took.
func (r *recent[T]) get(ctx context.Context, read func(context.Context) (v T, cost int, err error)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.v, nil
	}
	// A reader that leaves must not make what all see wrong.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), webui.AskTime)
	defer cancel()
	v, cost, err := read(reading)
	if err == nil {
		r.v, r.until = v, time.Now().Add(time.Duration(cost)*time.Second/mostReread)
	}
	return v, err
}
