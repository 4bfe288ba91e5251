package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/tasks"
)

// world is a jobs.Service that runs.
type world struct {
	*jobs.Service
	t      *testing.T
	ctx    context.Context
	client *tasks.Client
	docs   *documents
	roles  map[string]int
}

// pipelines of the tests.
var pipelines = map[string]*pipeline.Pipeline{
	"default": {Name: "default", Labels: []string{"gobd", "gdpr"}, Context: []string{"customer", "year"}, Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob, MaxRetries: new(1)},
		{Name: "validate", Role: "validator", Takes: pipeline.TakesItem, MaxRetries: new(1)},
	}},
	"review": {Name: "review", Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob},
		{Name: "validate", Role: "validator", Takes: pipeline.TakesItem, MaxRetries: new(0), Review: true},
	}},
	"long": {Name: "long", Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob},
		{Name: "enrich", Role: "enricher", Takes: pipeline.TakesItem},
		{Name: "validate", Role: "validator", Takes: pipeline.TakesItem, States: map[string]string{"good": "integrated", "poor": "rejected"}},
		{Name: "publish", Role: "publisher", Takes: pipeline.TakesJob},
	}},
	"open": {Name: "open", Context: []string{pipeline.AnyContext}, Stages: []pipeline.Stage{{Name: "create", Role: "creator", Takes: pipeline.TakesJob}}},
	"setting": {Name: "setting", Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob},
	}},
	"once": {Name: "once", Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob, MaxRetries: new(0)},
	}},
	"task": {Name: "task", Stages: []pipeline.Stage{
		{Name: "create", Task: "my.create", Takes: pipeline.TakesJob},
	}},
}

func named(name string) (*pipeline.Pipeline, error) {
	if p := pipelines[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no pipeline %q", name)
}

// emit adds the events of a job to its stream.
var emit = jobs.Emit{
	Lua: `local function record(all, of_job, webhooks, type, job, at, data)
  redis.call("XADD", of_job, "*", "type", type, "data", data)
end
`,
	Keys: func(id string) []string { return []string{eventsKey(""), eventsKey(id), eventsKey("")} },
}

func eventsKey(id string) string { return "muster:{jobs}:events:" + id }

// both runs a test on Redis, a cluster of it and miniredis.
func both(t *testing.T, change func(*jobs.Config), test func(*testing.T, *world)) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) { test(t, newWorld(t, rdb, change)) })
}

func newWorld(t *testing.T, rdb redis.UniversalClient, change func(*jobs.Config)) *world {
	t.Helper()
	client := tasks.NewClient(rdb)
	w := &world{t: t, client: client, docs: &documents{files: map[string][]byte{}}}
	cfg := jobs.Config{
		Client: client, Pipelines: named, Emit: emit, Documents: w.docs, Limits: jobs.Limits{MaxRetries: 5, Dedupe: jobs.DedupeAllow, CheckEvery: time.Hour}, Backoff: time.Millisecond,
		Roles: func(context.Context) (map[string]int, error) { return w.roles, nil },
	}
	if change != nil {
		change(&cfg)
	}
	s := testutil.Must(jobs.New(cfg))(t)
	w.Service = s
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.ctx = ctx
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = client.Close()
	})
	return w
}

// create creates a job.
func (w *world) create(req jobs.Request) jobs.Job {
	w.t.Helper()
	if req.Prompt == "" {
		req.Prompt = "Extract the requirements"
	}
	j, created, err := w.Create(w.ctx, req)
	if err != nil || !created {
		w.t.Fatalf("create %+v: created %v, error %v", req, created, err)
	}
	return j
}

// take takes one piece of work, as soon as there is one.
func (w *world) take(role, agent string) jobs.Work {
	w.t.Helper()
	var got []jobs.Work
	testutil.Eventually(w.t, "work for "+role, func() bool {
		var err error
		if got, _, err = w.Take(w.ctx, role, agent, 1); err != nil {
			w.t.Fatal(err)
		}
		return len(got) == 1
	})
	// Work can be stored and read back.
	raw := testutil.Must(json.Marshal(got[0]))(w.t)
	var back jobs.Work
	testutil.Ok(w.t, json.Unmarshal(raw, &back))
	return back
}

// add adds items with these keys under work.
func (w *world) add(work jobs.Work, keys ...string) {
	w.t.Helper()
	if _, err := w.Add(w.ctx, work, items(keys...)); err != nil {
		w.t.Fatalf("add %v: %v", keys, err)
	}
}

func items(keys ...string) []jobs.NewItem {
	list := make([]jobs.NewItem, len(keys))
	for i, key := range keys {
		list[i] = jobs.NewItem{Key: key, Text: "text of " + key}
	}
	return list
}

func (w *world) complete(work jobs.Work, a jobs.Answer) {
	w.t.Helper()
	if err := w.Complete(w.ctx, work, a); err != nil {
		w.t.Fatalf("complete %s %s: %v", work.Stage, work.Key, err)
	}
}

// emit runs the first stage of a job, which emits items.
func (w *world) emit(keys ...string) {
	w.t.Helper()
	work := w.take("creator", "c1")
	w.complete(work, jobs.Answer{Items: items(keys...)})
}

// until waits until a job is in a state.
func (w *world) until(id string, want jobs.Status) jobs.Job {
	w.t.Helper()
	var j jobs.Job
	testutil.Eventually(w.t, fmt.Sprintf("job %s is %s", id, want), func() bool {
		now, err := w.Get(w.ctx, id)
		if err != nil {
			w.t.Fatalf("wait until job %s is %s: %v; it was %+v", id, want, err, j)
		}
		j = now
		return j.Status == want
	})
	return j
}

// types returns the types of the events of a job.
func (w *world) types(id string) []string {
	w.t.Helper()
	entries := testutil.Must(w.client.Redis().XRange(w.ctx, eventsKey(id), "-", "+").Result())(w.t)
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprint(e.Values["type"]))
	}
	return list
}

// documents keep documents in memory.
type documents struct {
	mu    sync.Mutex // guards files
	files map[string][]byte
}

func (d *documents) Open(hash string) (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return io.NopCloser(bytes.NewReader(d.files[hash])), nil
}

func (d *documents) Remove(hash string, unused func() (bool, error)) error {
	if ok, err := unused(); err != nil || !ok {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, hash)
	return nil
}

func (d *documents) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.files))
}

func sameList(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
