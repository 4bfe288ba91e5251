// Package health checks the parts of a system. [Run] runs checks concurrently and takes at most the longest timeout, even
// if a check ignores its context.
package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Status is the health of a part.
type Status string

// The statuses, from best to worst.
const (
	OK       Status = "ok"
	Degraded Status = "degraded" // it works, but needs attention
	Unknown  Status = "unknown"  // a part that it depends on has failed
	Failed   Status = "failed"
)

var statuses = []Status{OK, Degraded, Unknown, Failed}

// Check checks one part. Run returns a short description, and an error if there is a problem; see Degrade for problems of a
// part that still works.
type Check struct {
	Name    string
	Needs   []string      // names of parts without which the result is not meaningful
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

// Report contains the results of all checks in their order.
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

// Run runs checks concurrently. The result of a check is Unknown if a part that it needs has failed.
func Run(ctx context.Context, checks []Check) Report {
	out := Report{Status: OK, Checks: make([]Result, len(checks))}
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() { out.Checks[i] = c.check(ctx) })
	}
	all.Wait()
	failed := map[string]bool{}
	for _, r := range out.Checks {
		failed[r.Name] = r.Status == Failed
	}
	out.At = time.Now()
	for i := range out.Checks {
		r := &out.Checks[i]
		if n := slices.IndexFunc(checks[i].Needs, func(name string) bool { return failed[name] }); n >= 0 {
			r.Status, r.Detail, r.Error = Unknown, "", "see the check "+checks[i].Needs[n]
		}
		if slices.Index(statuses, r.Status) > slices.Index(statuses, out.Status) {
			out.Status = r.Status
		}
	}
	return out
}

// check runs the check and waits for at most its timeout.
func (c Check) check(ctx context.Context) Result {
	timeout, start := c.Timeout, time.Now()
	if timeout <= 0 {
		timeout = 5 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no response within %v", timeout))
	defer cancel()
	done := make(chan Result, 1)
	go func() { done <- c.call(ctx) }()
	var r Result
	select {
	case r = <-done:
	case <-ctx.Done():
		r = Result{Status: Failed, Error: context.Cause(ctx).Error()}
	}
	r.Name, r.At, r.Millis = c.Name, time.Now(), time.Since(start).Milliseconds()
	return r
}

// call calls the check and converts its values or panic to a result.
func (c Check) call(ctx context.Context) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			result = Result{Status: Failed, Error: fmt.Sprintf("panic: %v", p)}
		}
	}()
	detail, err := c.Run(ctx)
	result = Result{Status: OK, Detail: detail}
	if err != nil {
		result.Status, result.Error = Failed, err.Error()
		if errors.As(err, new(degraded)) {
			result.Status = Degraded
		}
	}
	return result
}
