// Package health checks the parts of a system.
//
// A [Registry] holds named checks, each with a time limit. [Registry.Run] asks
// all of them at once and never takes longer than the longest limit, whatever
// a check does; [Registry.Last] returns the last results.
package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Status is the state of a part.
type Status string

// The states, from good to bad.
const (
	OK       Status = "ok"
	Degraded Status = "degraded" // it works, but needs attention
	Failed   Status = "failed"
)

// worse returns the worse of two.
func worse(a, b Status) Status {
	rank := map[Status]int{OK: 0, Degraded: 1, Failed: 2}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// Check checks one part. It returns a short text for people, and an error when
// something is wrong; see Degrade for a part that still works.
type Check struct {
	Name    string
	Timeout time.Duration // Defaults to 5 s
	Ask     func(context.Context) (string, error)
}

// Result is the answer to a check.
type Result struct {
	Name   string    `json:"name"`
	Status Status    `json:"status"`
	Detail string    `json:"detail,omitempty"`
	Error  string    `json:"error,omitempty"`
	Millis int64     `json:"ms"` // how long the answer took
	At     time.Time `json:"at"`
}

// Report is the answers to all checks, in the order in which they were added.
type Report struct {
	Status Status    `json:"status"` // the worst of them
	At     time.Time `json:"at"`
	Checks []Result  `json:"checks"`
}

// degraded marks an error of a part that still works.
type degraded struct{ error }

func (d degraded) Unwrap() error { return d.error }

// Degrade marks err as a problem of a part that still works.
func Degrade(err error) error {
	if err == nil {
		return nil
	}
	return degraded{err}
}

// Registry holds checks. The zero value is empty and ready. Its methods may be
// called concurrently.
type Registry struct {
	mu     sync.Mutex // guards the fields below
	checks []*entry
}

type entry struct {
	Check
	mu   sync.Mutex // guards open
	open *question  // the running check; nil if none
}

// question is a running check, which concurrent runs share.
type question struct {
	asked    time.Time
	answered chan struct{} // closed when answer is set
	answer   Result
}

// Add adds a check. The name must be new.
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

// Run asks all checks at the same time.
func (r *Registry) Run(ctx context.Context) Report {
	entries := r.entries()
	results := make([]Result, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() { results[i] = e.run(ctx) })
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

// run starts the check, or joins a run that waits for it, and waits no longer
// than the limit. A check that ignores its context is not started again before
// it has returned.
func (e *entry) run(ctx context.Context) Result {
	start := time.Now()
	q := e.question(ctx)
	left := time.NewTimer(e.Timeout - time.Since(q.asked))
	defer left.Stop()
	select {
	case <-q.answered:
		return e.record(q.answer, start)
	case <-left.C:
	case <-ctx.Done():
		return e.record(Result{Status: Failed, Error: "canceled by the caller"}, start)
	}
	// It may have answered at the last moment.
	select {
	case <-q.answered:
		return e.record(q.answer, start)
	default:
	}
	late := time.Since(q.asked).Round(time.Millisecond)
	return e.record(Result{Status: Failed, Error: fmt.Sprintf("no answer within %v; asked %v ago", e.Timeout, late)}, start)
}

// question returns the running check, or starts one. It outlives the run that
// started it: others may wait for the answer.
func (e *entry) question(ctx context.Context) *question {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open != nil {
		return e.open
	}
	q := &question{asked: time.Now(), answered: make(chan struct{})}
	e.open = q
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Timeout)
		defer cancel()
		q.answer = e.ask(ctx)
		e.mu.Lock()
		e.open = nil
		e.mu.Unlock()
		close(q.answered)
	}()
	return q
}

// ask turns answer, error and panic into a result.
func (e *entry) ask(ctx context.Context) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			result = Result{Status: Failed, Error: fmt.Sprintf("panic: %v", p)}
		}
	}()
	detail, err := e.Ask(ctx)
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
