package api

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/addressfilter"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/jobs/pipeline"
	"muster/orchestrator/event"
	"muster/proxies"
)

const (
	aJob     = "0f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d11"
	otherJob = "1f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d12"
	noJob    = "2f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d13"
)

// fakeJobs knows one job, and returns err where it is set. It keeps what it was asked for.
type fakeJobs struct {
	mu       sync.Mutex // guards what follows
	job      jobs.Job
	err      error
	joined   bool
	request  jobs.Request
	filter   jobs.Filter
	items    jobs.ItemFilter
	edit     jobs.Edit
	version  int64
	failure  string
	decision jobs.Decision
	cleanup  bool
	deleted  bool
	days     int
}

func (f *fakeJobs) one(id string) (jobs.Job, error) {
	if id != f.job.ID {
		return jobs.Job{}, fmt.Errorf("%w: %s", jobs.ErrNotFound, id)
	}
	return f.job, f.err
}

func (f *fakeJobs) Create(_ context.Context, r jobs.Request) (jobs.Job, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.request = r
	j := f.job
	j.Prompt, j.Document = r.Prompt, r.Document
	return j, !f.joined, f.err
}

func (f *fakeJobs) Get(_ context.Context, id string) (jobs.Job, error) { return f.one(id) }

func (f *fakeJobs) Look(ctx context.Context, id string) (jobs.Job, jobs.Progress, error) {
	j, err := f.one(id)
	if err != nil {
		return j, jobs.Progress{}, err
	}
	p, err := f.Progress(ctx, id)
	return j, p, err
}

func (f *fakeJobs) Failures(_ context.Context, id string, _ jobs.ItemStatus, _, _ int) ([]jobs.Item, int, error) {
	_, err := f.one(id)
	return []jobs.Item{{Key: "a/b"}}, 0, err
}

func (f *fakeJobs) LastErrors(_ context.Context, id string, _ int) ([]jobs.ItemError, error) {
	_, err := f.one(id)
	return []jobs.ItemError{{Key: "a/b", Error: "unclear"}}, err
}

func (f *fakeJobs) Reviews(context.Context, int) (jobs.Reviews, error) {
	return jobs.Reviews{Items: []jobs.Item{{JobID: aJob, Key: "a/b"}}}, f.err
}

func (f *fakeJobs) InReview(context.Context) (items int64, jobs int, err error) { return 1, 1, f.err }

func (f *fakeJobs) List(_ context.Context, filter jobs.Filter) (jobs.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filter = filter
	return jobs.Page{Jobs: []jobs.Job{f.job}, Total: 1, Next: "1-2"}, f.err
}

func (f *fakeJobs) Edit(_ context.Context, id string, version int64, e jobs.Edit) (jobs.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.edit, f.version = e, version
	return f.one(id)
}

func (f *fakeJobs) Cancel(_ context.Context, id string, cleanup bool) (jobs.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanup = cleanup
	j, err := f.one(id)
	j.Status = jobs.Cancelled
	return j, err
}

func (f *fakeJobs) KeepsDocument(context.Context, jobs.Job) (bool, error) { return false, nil }

func (f *fakeJobs) Pause(_ context.Context, id string) (jobs.Job, error)  { return f.one(id) }
func (f *fakeJobs) Resume(_ context.Context, id string) (jobs.Job, error) { return f.one(id) }

func (f *fakeJobs) Retry(_ context.Context, id string, _ ...string) (int, error) {
	_, err := f.one(id)
	return 3, err
}

func (f *fakeJobs) Again(context.Context, string) (jobs.Job, error) {
	return jobs.Job{ID: otherJob, VersionOf: aJob}, nil
}

func (f *fakeJobs) CompleteStage(_ context.Context, id, _, failure string) (jobs.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = failure
	return f.one(id)
}

func (f *fakeJobs) Delete(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.one(id)
	f.deleted = err == nil
	return err
}

func (f *fakeJobs) Items(_ context.Context, id string, filter jobs.ItemFilter) (jobs.ItemPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items = filter
	_, err := f.one(id)
	return jobs.ItemPage{Items: []jobs.Item{{Key: "a/b"}}, Next: "7"}, err
}

func (f *fakeJobs) Item(_ context.Context, id, key string) (jobs.Item, error) {
	if _, err := f.one(id); err != nil {
		return jobs.Item{}, err
	}
	if key != "a/b" {
		return jobs.Item{}, fmt.Errorf("%w: %s", jobs.ErrNoItem, key)
	}
	return jobs.Item{Key: key}, nil
}

func (f *fakeJobs) Decide(_ context.Context, id, key string, d jobs.Decision) (jobs.Item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !d.Accept && d.Reason == "" {
		return jobs.Item{}, &jobs.FieldError{Field: "reason", Why: "is needed"}
	}
	f.decision = d
	_, err := f.one(id)
	return jobs.Item{Key: key}, err
}

func (f *fakeJobs) DecideAll(_ context.Context, id string, keys []string, _ jobs.Decision) (int, error) {
	_, err := f.one(id)
	return len(keys), err
}

func (f *fakeJobs) Progress(_ context.Context, id string) (jobs.Progress, error) {
	_, err := f.one(id)
	eta := 60.0
	return jobs.Progress{JobID: id, ETASeconds: &eta}, err
}

func (f *fakeJobs) Stuck(context.Context) ([]jobs.Stuck, error) {
	return []jobs.Stuck{{JobID: aJob, Stage: "create", Reason: "no agent of role creator"}}, f.err
}

func (f *fakeJobs) Compare(_ context.Context, a, b string, yield func(jobs.Difference) error) error {
	if a != aJob || b != otherJob {
		return jobs.ErrNotFound
	}
	for _, d := range []jobs.Difference{{Key: "x", Change: "new"}, {Key: "y", Change: "same"}, {Key: "z", Change: "gone"}} {
		if err := yield(d); err != nil {
			return err
		}
	}
	return f.err
}

func (f *fakeJobs) Daily(_ context.Context, days int) ([]jobs.Day, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.days = days
	return []jobs.Day{{Date: "2026-11-23", Created: 2}}, f.err
}

func (f *fakeJobs) Totals(context.Context) (map[jobs.Status]int64, error) {
	return map[jobs.Status]int64{jobs.Processing: 2, jobs.Completed: 2500}, f.err
}

func (f *fakeJobs) Numbers(context.Context) (jobs.Numbers, error) {
	return jobs.Numbers{
		Items: map[jobs.ItemStatus]int64{jobs.ItemPending: 6, jobs.ItemIntegrated: 1_000_000}, Stuck: 1,
		Took: map[string]string{"job.completed 60": "2500", "item.integrated +Inf": "7", "item.integrated ms": "1500"},
	}, f.err
}

// documents returns a store whose documents come from public addresses and those allowed.
func documents(t *testing.T, limit int64, allow ...string) *document.Store {
	t.Helper()
	filter, err := addressfilter.New(allow...)
	if err != nil {
		t.Fatal(err)
	}
	return document.New(document.Config{
		Dir: filepath.Join(t.TempDir(), "documents"), Limit: limit, Filter: filter, Owner: func(context.Context) (string, error) { return "store-1", nil },
	})
}

// fakeReports writes a short report.
type fakeReports struct{ fail error } // after the first bytes

func (f fakeReports) Write(_ context.Context, w io.Writer, id, format string) error {
	if id != aJob {
		return jobs.ErrNotFound
	}
	if _, err := io.WriteString(w, "a report as "+format); err != nil {
		return err
	}
	return f.fail
}

// fakeEvents has three events, and waits for more until it is told to end.
type fakeEvents struct {
	reading chan string // gets what each call of Read is after
}

func (f *fakeEvents) Read(ctx context.Context, id, after string, _ int, block time.Duration) (event.Batch, error) {
	select {
	case f.reading <- after:
	default:
	}
	switch after {
	case "0-0":
		return event.Batch{Events: []event.Event{{ID: "1-0", Type: "job.created", Job: id}, {ID: "2-0", Type: "job.started", Job: id}}, Next: "2-0"}, nil
	case "0-1":
		return event.Batch{Events: []event.Event{{ID: "2-0", Type: "job.started", Job: id}}, Gap: true, Next: "2-0"}, nil
	}
	wait := time.NewTimer(block)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return event.Batch{}, ctx.Err()
	case <-wait.C:
	}
	return event.Batch{Next: "2-0"}, nil
}

func (f *fakeEvents) Last(_ context.Context, id string, _ int) ([]event.Event, error) {
	return []event.Event{{ID: "2-0", Type: "job.started", Job: id}}, nil
}

// fakeAgents knows one agent with one assignment, and returns err where it is set.
type fakeAgents struct {
	mu           sync.Mutex // guards what follows
	err          error
	registration agent.Registration
	answer       jobs.Answer
	failure      failed
	items        []jobs.Item
	draining     bool
	owner        string
	waiting      chan struct{} // gets a value when Lease waits for its context; nil: it returns at once
}

// failed is how an agent failed.
type failed struct {
	message   string
	after     *time.Duration
	permanent bool
	usage     map[string]int64
}

func theAgent() agent.Agent {
	return agent.Agent{ID: "agent-1", Name: "one", Roles: []string{"creator"}, Capacity: 1, State: "healthy", LastError: "an item failed", CurrentJob: aJob, Held: 1}
}

func theAssignment() agent.Assignment {
	return agent.Assignment{ID: "as-1", IdempotencyKey: aJob + "/stage/create", DocumentURL: "/v1/jobs/" + aJob + "/document", Work: jobs.Work{
		JobID: aJob, Stage: "create", Role: "creator", Takes: pipeline.TakesJob, Fence: 7, Attempt: 1, Prompt: "p", Document: &jobs.Document{Name: "d.pdf", Hash: "abc", Size: 3},
	}}
}

func (f *fakeAgents) one(id string) error {
	if id != "agent-1" {
		return agent.ErrNoAgent
	}
	return f.err
}

func (f *fakeAgents) Register(_ context.Context, r agent.Registration) (agent.Agent, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registration = r
	return theAgent(), "s3cret", f.err
}

func (f *fakeAgents) Owner(context.Context, string) (string, error) { return f.owner, nil }

func (f *fakeAgents) Holder(_ context.Context, assignment string) (string, error) {
	if assignment != "as-1" {
		return "", agent.ErrNoneSuch
	}
	return "agent-1", nil
}

func (f *fakeAgents) WorksOn(_ context.Context, owner, jobID string) (bool, error) {
	return owner == "key:agent" && jobID == aJob, nil
}

func (f *fakeAgents) Heartbeat(_ context.Context, id string) (agent.Agent, error) {
	return theAgent(), f.one(id)
}
func (f *fakeAgents) List(context.Context) ([]agent.Agent, error) {
	return []agent.Agent{theAgent()}, f.err
}
func (f *fakeAgents) Get(_ context.Context, id string) (agent.Agent, error) {
	return theAgent(), f.one(id)
}

func (f *fakeAgents) Activity(_ context.Context, hours int) ([]agent.Activity, error) {
	return []agent.Activity{{Agent: "agent-1", Name: "one", Assignments: int64(hours), Tokens: 5}}, f.err
}

func (f *fakeAgents) Drain(_ context.Context, id string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draining = on
	return f.one(id)
}
func (f *fakeAgents) Remove(_ context.Context, id string) error { return f.one(id) }

func (f *fakeAgents) Lease(ctx context.Context, id string, _ []string, _ int, _ time.Duration) ([]agent.Assignment, error) {
	if f.waiting != nil {
		f.waiting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []agent.Assignment{theAssignment()}, f.one(id)
}

func (f *fakeAgents) held(assignment, holder string, fence int64) error {
	switch {
	case assignment != "as-1" || fence != 7:
		return jobs.ErrLeaseLost
	case holder != "agent-1":
		return agent.ErrNotYours
	}
	return f.err
}

func (f *fakeAgents) Beat(_ context.Context, assignment, agent string, fence int64, _ map[string]int64) (agent.Assignment, error) {
	return theAssignment(), f.held(assignment, agent, fence)
}

func (f *fakeAgents) AddItems(_ context.Context, assignment, agent string, fence int64, items []jobs.Item) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items = items
	return len(items), f.held(assignment, agent, fence)
}

func (f *fakeAgents) Complete(_ context.Context, assignment, agent string, fence int64, a jobs.Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = a
	return f.held(assignment, agent, fence)
}

func (f *fakeAgents) Fail(_ context.Context, assignment, agent string, fence int64, message string, after *time.Duration, permanent bool, usage map[string]int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = failed{message, after, permanent, usage}
	return f.held(assignment, agent, fence)
}

func (f *fakeAgents) Release(_ context.Context, assignment, agent string, fence int64) error {
	return f.held(assignment, agent, fence)
}

// pipelines returns the default pipeline, which declares two keys of the context.
func pipelines(t *testing.T) *pipeline.Registry {
	t.Helper()
	dir := t.TempDir()
	const text = "context: [customer, a.b]\nstages:\n- {name: create, role: creator, takes: job, timeout: 1h}\n- {name: validate, role: validator, takes: item}\n"
	if err := os.WriteFile(filepath.Join(dir, "default.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := pipeline.Load(dir)
	if err != nil || len(r.Broken()) > 0 {
		t.Fatalf("got %v, %v, want a pipeline", r.Broken(), err)
	}
	return r
}

// fakes are all services of an interface.
type fakes struct {
	jobs   *fakeJobs
	events *fakeEvents
	agents *fakeAgents
}

// faked returns a config whose services are fakes.
func faked(t *testing.T) (Config, *fakes) {
	t.Helper()
	cfg := setup(t)
	cfg.Documents = documents(t, 1000)
	doc, err := cfg.Documents.Put(t.Context(), "a.html", strings.NewReader("<script>alert(1)</script>"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fakes{
		jobs: &fakeJobs{job: jobs.Job{
			ID: aJob, Kind: jobs.KindPipeline, Name: "default", Status: jobs.Processing, Version: 3, Generation: 1,
			Document: &jobs.Document{Name: "../a \"b\".html", Hash: doc.Hash, Size: doc.Size, Type: doc.Type},
			Stages:   []jobs.Stage{{Name: "create", Role: "creator", Status: jobs.StageCompleted}, {Name: "validate", Role: "validator", Status: jobs.StageProcessing}},
			Items:    jobs.Counts{Total: 10, Integrated: 4, Pending: 6}, Usage: map[string]int64{"tokens": 1500, "requests": 2},
		}},
		events: &fakeEvents{reading: make(chan string, 100)}, agents: &fakeAgents{},
	}
	cfg.Write = true
	cfg.Jobs, cfg.Events, cfg.Agents, cfg.Pipelines, cfg.Reports, cfg.Webhooks = f.jobs, f.events, f.agents, pipelines(t), fakeReports{}, webhooks(t, cfg, "https://ops.example/")
	return cfg, f
}

// fakePool is an empty pool, for which nothing is sent.
type fakePool struct{ *proxies.Pool }

func (fakePool) SourceNames() []string                                       { return nil }
func (fakePool) StartRefresh(context.Context) (string, error)                { return aJob, nil }
func (fakePool) StartRecheck(context.Context) (string, error)                { return aJob, nil }
func (fakePool) RecheckProxy(context.Context, proxies.Known) (string, error) { return aJob, nil }
