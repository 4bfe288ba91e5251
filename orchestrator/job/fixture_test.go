package job_test

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

	"muster/internal/testutil"
	"muster/orchestrator/job"
	"muster/orchestrator/pipeline"
	"muster/tasks"
	"muster/tasks/redistest"
)

// world is a job.Service with a worker that runs the workflows of its jobs.
type world struct {
	*job.Service
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

// both runs a test on Redis, a cluster of it and miniredis.
func both(t *testing.T, change func(*job.Config), test func(*testing.T, *world)) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) { test(t, newWorld(t, rdb, change)) })
}

func newWorld(t *testing.T, rdb redis.UniversalClient, change func(*job.Config)) *world {
	t.Helper()
	client := tasks.NewClient(rdb)
	w := &world{t: t, client: client, docs: &documents{files: map[string][]byte{}}}
	cfg := job.Config{
		Client: client, Pipelines: named, Documents: w.docs, Limits: job.Limits{MaxRetries: 5, Dedupe: job.DedupeAllow, CheckEvery: time.Hour}, Backoff: time.Millisecond,
		Roles: func(context.Context) (map[string]int, error) { return w.roles, nil },
	}
	if change != nil {
		change(&cfg)
	}
	s, err := job.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Service = s
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.ctx = ctx
	mux := tasks.NewMux()
	s.Register(mux)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Queues: map[string]int{job.Queue: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		_ = worker.Stop()
		cancel()
		running.Wait()
		_ = client.Close()
	})
	return w
}

// create creates a job.
func (w *world) create(req job.Request) job.Job {
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
func (w *world) take(role, agent string) job.Work {
	w.t.Helper()
	var got []job.Work
	testutil.Eventually(w.t, "work for "+role, func() bool {
		var err error
		if got, _, err = w.Take(w.ctx, role, agent, 1); err != nil {
			w.t.Fatal(err)
		}
		return len(got) == 1
	})
	// Work can be stored and read back.
	raw, err := json.Marshal(got[0])
	if err != nil {
		w.t.Fatal(err)
	}
	var back job.Work
	if err := json.Unmarshal(raw, &back); err != nil {
		w.t.Fatal(err)
	}
	return back
}

// add adds items with these keys under work.
func (w *world) add(work job.Work, keys ...string) {
	w.t.Helper()
	if _, err := w.Add(w.ctx, work, items(keys...)); err != nil {
		w.t.Fatalf("add %v: %v", keys, err)
	}
}

func items(keys ...string) []job.Item {
	list := make([]job.Item, len(keys))
	for i, key := range keys {
		list[i] = job.Item{Key: key, Text: "text of " + key}
	}
	return list
}

func (w *world) complete(work job.Work, a job.Answer) {
	w.t.Helper()
	if err := w.Complete(w.ctx, work, a); err != nil {
		w.t.Fatalf("complete %s %s: %v", work.Stage, work.Key, err)
	}
}

// emit runs the first stage of a job, which emits items.
func (w *world) emit(keys ...string) {
	w.t.Helper()
	work := w.take("creator", "c1")
	w.complete(work, job.Answer{Items: items(keys...)})
}

// until waits until a job is in a state.
func (w *world) until(id string, want job.Status) job.Job {
	w.t.Helper()
	var j job.Job
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
	entries, err := w.client.Redis().XRange(w.ctx, "muster:{jobs}:events:"+id, "-", "+").Result()
	if err != nil {
		w.t.Fatal(err)
	}
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
