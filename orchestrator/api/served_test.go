package api

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/jobs/pipeline"
	"muster/orchestrator/archive"
	"muster/orchestrator/event"
	"muster/tasks"
)

const noJob = "2f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d13"

// served returns a config with the services of jobs on an empty Redis. Their Run methods are not called.
func served(t testing.TB) Config {
	t.Helper()
	return servedOn(t, redistest.New(t))
}

// servedOn is served on a Redis. Documents come from public addresses and those allowed.
func servedOn(t testing.TB, rdb redis.UniversalClient, allow ...string) Config {
	t.Helper()
	cfg := setupOn(t, rdb)
	cfg.Write = true
	cfg.Pipelines, cfg.Documents, cfg.Events = pipelines(t), documents(t, allow...), event.New(cfg.Client.Redis())
	cfg.Webhooks = webhooks(t, cfg, "https://ops.example/")
	cfg.Archive = archive.New(archive.Config{Client: cfg.Client, Address: "sqlite:" + filepath.Join(t.TempDir(), "archive.db")})
	t.Cleanup(func() { testutil.Ok(t, cfg.Archive.Close()) })
	var err, err2 error
	cfg.Jobs, err = jobs.New(jobs.Config{
		Client: cfg.Client, Pipelines: cfg.Pipelines.Get, Documents: cfg.Documents, Emit: jobs.Emit{Lua: event.Lua, Keys: event.Keys}, Lease: time.Hour, Limits: jobs.Limits{MaxRetries: 3},
	})
	cfg.Agents, err2 = agent.New(agent.Config{Client: cfg.Client, Jobs: cfg.Jobs, Allow: []string{"https://one.example/"}, Max: 3, MaxOwned: 3})
	testutil.Ok(t, errors.Join(err, err2))
	return cfg
}

// sample is a job with the items s, which is in review, and a/b, and a later version of the job with the items s and
// new. An agent works on the first stage of both.
type sample struct {
	job, other, agent string
	workflow          string // that is running
	assignment        string // of the first stage of job
	version           int64  // of job
	fence             int64
}

// populate creates a sample, with an agent of an owner.
func populate(t *testing.T, cfg Config, owner string) sample {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		testutil.Ok(t, err)
	}
	one, _, err := cfg.Agents.Register(ctx, agent.Registration{Name: "one", Roles: []string{"creator", "validator"}, Capacity: 100, Owner: owner})
	must(err)
	lease := func(role string) agent.Assignment {
		t.Helper()
		must(cfg.Jobs.Sweep(ctx)) // starts jobs
		got, err := cfg.Agents.Lease(ctx, one.ID, []string{role}, 1, 0)
		must(err)
		if len(got) != 1 {
			t.Fatalf("got %d assignments of the role %s, want 1", len(got), role)
		}
		return got[0]
	}
	doc, err := cfg.Documents.Put(ctx, "a.html", strings.NewReader("<script>alert(1)</script>"))
	must(err)
	doc.Name = `a "b".html`
	j, _, err := cfg.Jobs.Create(ctx, jobs.Request{Prompt: "p", Document: &doc})
	must(err)
	run, err := tasks.New[string, string]("text.review").S("x").Send(ctx, cfg.Client)
	must(err)
	f := sample{job: j.ID, agent: one.ID, workflow: run.ID()}
	add := func(a agent.Assignment, key string) {
		t.Helper()
		_, err := cfg.Agents.AddItems(ctx, a.ID, one.ID, a.Fence, []jobs.NewItem{{Key: key, Text: "t"}})
		must(err)
	}
	a := lease("creator")
	f.assignment, f.fence = a.ID, a.Fence
	add(a, "a/b")
	v := lease("validator")
	must(cfg.Agents.Fail(ctx, v.ID, one.ID, v.Fence, "unclear", nil, true, nil))
	add(a, "s")
	j, _, err = cfg.Jobs.Create(ctx, jobs.Request{Prompt: "p", VersionOf: f.job})
	must(err)
	f.other = j.ID
	a = lease("creator")
	add(a, "s")
	add(a, "new")
	j, err = cfg.Jobs.Get(ctx, f.job)
	must(err)
	f.version = j.Version
	return f
}

// pipelines returns the default pipeline, which declares two keys of the context.
func pipelines(t testing.TB) *pipeline.Registry {
	t.Helper()
	dir := t.TempDir()
	const text = "context: [customer, a.b]\nstages:\n- {name: create, role: creator, takes: job, timeout: 1h}\n- {name: validate, role: validator, takes: item, max_retries: 0, review: true}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(dir, "default.yaml"), []byte(text), 0o600))
	r, err := pipeline.Load(dir)
	if err != nil || len(r.Broken()) > 0 {
		t.Fatalf("got %v, %v, want a pipeline", r.Broken(), err)
	}
	return r
}

// documents returns a store that fetches from public and the allowed addresses.
func documents(t testing.TB, allow ...string) *document.Store {
	t.Helper()
	filter := testutil.Must(addressfilter.New(allow...))(t)
	return document.New(document.Config{
		Dir: filepath.Join(t.TempDir(), "documents"), Limit: 1000, Filter: filter, Owner: func(context.Context) (string, error) { return "store-1", nil },
	})
}
