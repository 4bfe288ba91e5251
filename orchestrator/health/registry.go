// Package health checks the parts of a system.
//
// A [Registry] holds named checks, each with a timeout. [Registry.Run] runs all checks concurrently and takes at most the
// longest timeout, even if a check ignores its context.
package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Status is the health of a part.
type Status string

// The statuses, from best to worst.
const (
	OK       Status = "ok"
	Degraded Status = "degraded" // it works, but needs attention
	Failed   Status = "failed"
)

// worse returns the worse of two statuses.
func worse(a, b Status) Status {
	rank := map[Status]int{OK: 0, Degraded: 1, Failed: 2}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// Check checks one part. Run returns a short description, and an error if there is a problem; see Degrade for problems of a
// part that still works.
type Check struct {
	Name    string
	Timeout time.Duration // default 5 s
	Run     func(context.Context) (string, error)
}

// Result is the result of a check.
type Result struct {
	Name   string    `json:"name"`
	Status Status    `json:"status"`
	Detail string    `json:"detail,omitempty"`
	Error  string    `json:"error,omitempty"`
	Millis int64     `json:"ms"` // duration of the check
	At     time.Time `json:"at"`
}

// Report contains the results of all checks in registration order.
type Report struct {
	Status Status    `json:"status"` // worst status of the results
	At     time.Time `json:"at"`
	Checks []Result  `json:"checks"`
}

// degraded marks an error as a problem of a part that still works.
type degraded struct{ error }

func (d degraded) Unwrap() error { return d.error }

// Degrade marks err as a problem of a part that still works.
func Degrade(err error) error {
	if err == nil {
		return nil
	}
	return degraded{err}
}

// Registry holds checks. The zero value is empty and ready to use. Its methods may be called concurrently.
type Registry struct {
	mu     sync.Mutex // guards the fields below
	checks []*entry
}

type entry struct {
	Check
	mu  sync.Mutex // guards run
	run *execution // the running check, or nil
}

// execution is a running check, shared by concurrent calls of Registry.Run.
type execution struct {
	start  time.Time
	done   chan struct{} // closed when result is set
	result Result
}

// Add adds a check with a unique name.
func (r *Registry) Add(c Check) {
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Second
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.checks {
		if e.Name == c.Name {
			panic("health: two checks named " + c.Name)
		}
	}
	r.checks = append(r.checks, &entry{Check: c})
}

func (r *Registry) entries() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*entry(nil), r.checks...)
}

// Run runs all checks concurrently.
func (r *Registry) Run(ctx context.Context) Report {
	entries := r.entries()
	results := make([]Result, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() { results[i] = e.check(ctx) })
	}
	all.Wait()
	return report(results)
}

func report(results []Result) Report {
	out := Report{Status: OK, At: time.Now(), Checks: results}
	for _, r := range results {
		out.Status = worse(out.Status, r.Status)
	}
	return out
}

// check starts the check or joins a running one, and waits for at most its timeout. A check that ignores its context is not
// started again before it returns.
func (e *entry) check(ctx context.Context) Result {
	start := time.Now()
	x := e.execution(ctx)
	left := time.NewTimer(e.Timeout - time.Since(x.start))
	defer left.Stop()
	select {
	case <-x.done:
		return e.record(x.result, start)
	case <-left.C:
	case <-ctx.Done():
		return e.record(Result{Status: Failed, Error: "canceled by the caller"}, start)
	}
	// It may have finished at the same moment.
	select {
	case <-x.done:
		return e.record(x.result, start)
	default:
	}
	age := time.Since(x.start).Round(time.Millisecond)
	return e.record(Result{Status: Failed, Error: fmt.Sprintf("no response within %v; started %v ago", e.Timeout, age)}, start)
}

// execution returns the running check or starts one. The check outlives ctx, because other callers may wait for the result.
func (e *entry) execution(ctx context.Context) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run != nil {
		return e.run
	}
	x := &execution{start: time.Now(), done: make(chan struct{})}
	e.run = x
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Timeout)
		defer cancel()
		x.result = e.call(ctx)
		e.mu.Lock()
		e.run = nil
		e.mu.Unlock()
		close(x.done)
	}()
	return x
}

// call calls the check and converts its values or panic to a result.
func (e *entry) call(ctx context.Context) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			result = Result{Status: Failed, Error: fmt.Sprintf("panic: %v", p)}
		}
	}()
	detail, err := e.Run(ctx)
	result = Result{Status: OK, Detail: detail}
	if err != nil {
		result.Status, result.Error = Failed, err.Error()
		if errors.As(err, new(degraded)) {
			result.Status = Degraded
		}
	}
	return result
}

func (e *entry) record(r Result, start time.Time) Result {
	r.Name, r.At, r.Millis = e.Name, time.Now(), time.Since(start).Milliseconds()
	return r
}
