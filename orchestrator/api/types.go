package api

import (
	"context"
	"io"
	"time"

	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/event"
	"muster/orchestrator/ui"
	"muster/proxies"
)

// Jobs keeps jobs. Its methods return the errors of package jobs.
type Jobs interface {
	Create(ctx context.Context, req jobs.Request) (j jobs.Job, created bool, err error)
	Get(ctx context.Context, id string) (jobs.Job, error)
	Look(ctx context.Context, id string) (jobs.Job, jobs.Progress, error)
	List(ctx context.Context, f jobs.Filter) (jobs.Page, error)
	Edit(ctx context.Context, id string, version int64, e jobs.Edit) (jobs.Job, error)
	Cancel(ctx context.Context, id string, cleanup bool) (jobs.Job, error)
	KeepsDocument(ctx context.Context, j jobs.Job) (bool, error)
	Retry(ctx context.Context, id string, keys ...string) (n int, err error)
	Pause(ctx context.Context, id string) (jobs.Job, error)
	Resume(ctx context.Context, id string) (jobs.Job, error)
	Again(ctx context.Context, id string) (jobs.Job, error)
	CompleteStage(ctx context.Context, id, stage, failure string) (jobs.Job, error)
	Delete(ctx context.Context, id string) error
	Items(ctx context.Context, id string, f jobs.ItemFilter) (jobs.ItemPage, error)
	Item(ctx context.Context, id, key string) (jobs.Item, error)
	Failures(ctx context.Context, id string, status jobs.ItemStatus, offset, n int) (items []jobs.Item, next int, err error)
	LastErrors(ctx context.Context, id string, n int) ([]jobs.ItemError, error)
	Reviews(ctx context.Context, n int) (jobs.Reviews, error)
	InReview(ctx context.Context) (items int64, jobs int, err error)
	Decide(ctx context.Context, id, key string, d jobs.Decision) (jobs.Item, error)
	DecideAll(ctx context.Context, id string, keys []string, d jobs.Decision) (n int, err error)
	Progress(ctx context.Context, id string) (jobs.Progress, error)
	Stuck(ctx context.Context) ([]jobs.Stuck, error)
	Compare(ctx context.Context, a, b string, yield func(jobs.Difference) error) error
	Daily(ctx context.Context, days int) ([]jobs.Day, error)
	Totals(ctx context.Context) (map[jobs.Status]int64, error)
	// Numbers returns the counters of all jobs, without a look at them.
	Numbers(ctx context.Context) (jobs.Numbers, error)
}

// Events is what happened to jobs, in order; see event.Stream.
type Events interface {
	Read(ctx context.Context, jobID, after string, limit int, block time.Duration) (event.Batch, error)
	// Last returns the newest events, the newest first.
	Last(ctx context.Context, jobID string, n int) ([]event.Event, error)
}

// Reports writes what became of jobs.
type Reports interface {
	// Write writes the report of a job as "text", "json" or "csv". It returns
	// job.ErrNotFound before it has written anything.
	Write(ctx context.Context, w io.Writer, id, format string) error
}

// Agents are the agents that work on jobs, and their assignments. Errors are
// job.ErrLeaseLost, *job.FieldError, and those of package agent.
type Agents interface {
	Register(ctx context.Context, r agent.Registration) (a agent.Agent, secret string, err error)
	// Owner returns who alone may act for an agent, or "".
	Owner(ctx context.Context, id string) (string, error)
	// Holder returns the agent of an assignment, or agent.ErrNoneSuch.
	Holder(ctx context.Context, assignment string) (agent string, err error)
	// WorksOn reports whether agents for which an owner may act hold an assignment of a job.
	WorksOn(ctx context.Context, owner, jobID string) (bool, error)
	Heartbeat(ctx context.Context, id string) (agent.Agent, error)
	List(ctx context.Context) ([]agent.Agent, error)
	Get(ctx context.Context, id string) (agent.Agent, error)
	// Activity returns what agents did in each of the last hours.
	Activity(ctx context.Context, hours int) ([]agent.Activity, error)
	Drain(ctx context.Context, id string, on bool) error
	Remove(ctx context.Context, id string) error
	// Lease returns up to limit assignments, and waits for the first one. When ctx
	// is done it returns the error of ctx, and no assignment is lost.
	Lease(ctx context.Context, id string, roles []string, limit int, wait time.Duration) ([]agent.Assignment, error)
	Beat(ctx context.Context, assignment, agent string, fence int64, usage map[string]int64) (agent.Assignment, error)
	AddItems(ctx context.Context, assignment, agent string, fence int64, items []jobs.Item) (added int, err error)
	Complete(ctx context.Context, assignment, agent string, fence int64, a jobs.Answer) error
	Fail(ctx context.Context, assignment, agent string, fence int64, message string, retryAfter *time.Duration, permanent bool, usage map[string]int64) error
	Release(ctx context.Context, assignment, agent string, fence int64) error
}

// Proxies is the pool of proxies.
type Proxies interface {
	ui.Proxies
	ListAt(ctx context.Context, site string, f proxies.Filter) ([]proxies.Member, error)
	Remove(ctx context.Context, ids ...string) (removed int, err error)
}
