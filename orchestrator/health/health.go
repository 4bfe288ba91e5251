// Package health checks the parts of a system. [Run] runs checks concurrently and takes at most the longest timeout, even
// if a check ignores its context.
package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/jobs/agent"
	"muster/tasks"
	"muster/tasks/tasktype"
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

// Redis checks that Redis responds within limit.
func Redis(ping func(context.Context) error, limit time.Duration) Check {
	return Check{Name: "redis", Timeout: limit, Run: func(ctx context.Context) (string, error) {
		return "responds", ping(ctx)
	}}
}

// Orchestrator checks that a process runs jobs, agents and schedules.
func Orchestrator(running func(context.Context) (bool, error)) Check {
	return Check{Name: "orchestrator", Needs: []string{"redis"}, Run: func(ctx context.Context) (string, error) {
		ok, err := running(ctx)
		if err == nil && !ok {
			err = errors.New("not running; start it with `muster start`")
		}
		return "running", err
	}}
}

// Workers checks that at least one worker is alive.
func Workers(list func(context.Context) ([]tasktype.Worker, error), limit time.Duration) Check {
	return Check{Name: "workers", Needs: []string{"redis"}, Timeout: limit, Run: func(ctx context.Context) (string, error) {
		workers, err := list(ctx)
		if err != nil {
			return "", err
		}
		if len(workers) == 0 {
			return "", errors.New("no workers are running; start one with `muster worker`, or all with `muster start`")
		}
		var slots, active int
		for _, w := range workers {
			slots += w.Concurrency
			active += w.Active
		}
		return fmt.Sprintf("%d alive, %d of %d slots busy", len(workers), active, slots), nil
	}}
}

// Proxies checks that the pool has at least enough usable proxies.
func Proxies(count func(context.Context) (int, error), enough func() int) Check {
	return Check{Name: "proxies", Needs: []string{"redis"}, Run: func(ctx context.Context) (string, error) {
		n, err := count(ctx)
		if err != nil {
			return "", err
		}
		detail := fmt.Sprintf("%d usable", n)
		if least := enough(); n < least {
			return detail, Degrade(fmt.Errorf("%d usable proxies are fewer than %d; `muster proxies list --sources` shows the yield of each source, `muster proxies refresh` reads them again", n, least))
		}
		return detail, nil
	}}
}

// shownAgents is the maximum number of agents named in a result.
const shownAgents = 5

// Agents checks the last known states of the agents. The result is degraded while some are unavailable, because others take
// over their work.
func Agents(list func(context.Context) ([]agent.Agent, error)) Check {
	return Check{Name: "agents", Needs: []string{"redis", "orchestrator"}, Run: func(ctx context.Context) (string, error) {
		agents, err := list(ctx)
		if err != nil {
			return "", err
		}
		if len(agents) == 0 {
			return "none", nil
		}
		counts, gone := map[string]int{}, []string{}
		for _, a := range agents {
			counts[a.State]++
			if a.State == agent.StateUnavailable {
				gone = append(gone, strings.TrimSuffix(a.Name+": "+a.Health, ": "))
			}
		}
		var parts []string
		for _, state := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
		detail := strings.Join(parts, ", ")
		if len(gone) == 0 {
			return detail, nil
		}
		more := ""
		if n := len(gone) - shownAgents; n > 0 {
			gone, more = gone[:shownAgents], fmt.Sprintf(" and %d more", n)
		}
		return detail, Degrade(fmt.Errorf("unavailable: %s%s; see `muster agents list`", strings.Join(gone, "; "), more))
	}}
}

// Scrapes checks for scrapes without progress. The result is degraded if there are any.
func Scrapes[Job any](stalled func(context.Context) ([]Job, error)) Check {
	return Check{Name: "scrapes", Needs: []string{"redis", "orchestrator", "workers"}, Run: func(ctx context.Context) (string, error) {
		list, err := stalled(ctx)
		if err != nil || len(list) == 0 {
			return "all make progress", err
		}
		text := ""
		for _, job := range list {
			text += fmt.Sprint(job, "; ")
		}
		return "", Degrade(errors.New(text + "see `muster scrapes get JOB`"))
	}}
}

// Archive checks that ended workflows can be archived. The result is degraded if not, because they wait.
func Archive(state func(context.Context) (string, error)) Check {
	return Check{Name: "archive", Needs: []string{"redis", "orchestrator"}, Run: func(ctx context.Context) (string, error) {
		text, err := state(ctx)
		return text, Degrade(err)
	}}
}

// The percentages of maxmemory at which Memory reports a problem.
const (
	memoryDegraded = 70
	memoryFailed   = 85
)

// Memory checks the memory usage of Redis: degraded from 70% and failed from 85% of maxmemory. At 100% Redis rejects all writes.
func Memory(info func(context.Context) (string, error)) Check {
	return Check{Name: "memory", Needs: []string{"redis"}, Timeout: 2 * time.Second, Run: func(ctx context.Context) (string, error) {
		text, err := info(ctx)
		if err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "unknown command")) { // a managed server
			return "unknown, because INFO is forbidden", nil
		}
		if err != nil {
			return "", err
		}
		used, limit := infoNumber(text, "used_memory"), infoNumber(text, "maxmemory")
		if strings.Contains(text, "aof_last_write_status:err") { // of an embedded Redis; others reject writes
			return "", Degrade(errors.New("the embedded Redis cannot write its data, and its log tells why; the write is repeated"))
		}
		if limit <= 0 {
			return fmt.Sprintf("%d MB used, no limit set", used>>20), nil
		}
		share := 100 * float64(used) / float64(limit)
		detail := fmt.Sprintf("%.0f%% of %d MB used", share, limit>>20)
		full := fmt.Errorf("Redis uses %.0f%% of its maxmemory; raise that limit, or remove finished work", share)
		switch {
		case share >= memoryFailed:
			return detail, full
		case share >= memoryDegraded:
			return detail, Degrade(full)
		}
		return detail, nil
	}}
}

// MemoryInfo returns a function that reads the memory section of INFO, for Memory.
func MemoryInfo(c *tasks.Client) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return c.Redis().Info(ctx, "memory").Result() }
}

func infoNumber(text, name string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}
