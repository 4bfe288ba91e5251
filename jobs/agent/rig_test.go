package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/pipeline"
	"muster/tasks"
)

func TestMain(m *testing.M) { redistest.Main(m, func() error { return goleak.Find() }) }

// marked is a key of a context.
type marked struct{}

// setup is the configuration of a rig.
type setup struct {
	agent.Config
	lease, timeout time.Duration // of assignments
}

// pipelines returns a pipeline for each role, and for each "task:NAME": its second stage takes the items that put makes. The
// pipeline three has stages of all kinds.
func (cfg *setup) pipelines(worker string) (*pipeline.Pipeline, error) {
	if worker == "three" {
		return &pipeline.Pipeline{Name: worker, Stages: []pipeline.Stage{
			{Name: "create", Role: "creator", Takes: pipeline.TakesJob}, {Name: "validate", Role: "validator", Takes: pipeline.TakesItem, MaxRetries: new(4)},
			{Name: "publish", Task: "my.check", Takes: pipeline.TakesJob},
		}}, nil
	}
	check := pipeline.Stage{Name: "check", Role: worker, Takes: pipeline.TakesItem, Timeout: cfg.timeout, MaxRetries: new(100)}
	if task, ok := strings.CutPrefix(worker, "task:"); ok {
		check.Role, check.Task = "", task
	}
	return &pipeline.Pipeline{Name: worker, Stages: []pipeline.Stage{{Name: "put", Role: "put", Takes: pipeline.TakesJob}, check}}, nil
}

// rig is a service under test, with the jobs of its process.
type rig struct {
	*agent.Service
	t      *testing.T
	jobs   *jobs.Service
	client *tasks.Client
	rdb    redis.UniversalClient
	stop   func()
	items  *items
	input  jobs.Request // of the jobs of put
}

// items are the jobs of all items, by their number.
type items struct {
	mu   sync.Mutex // lets one put take its own work
	jobs []string
}

// newRig starts a process that runs jobs and agents. change may change its configuration.
func newRig(t *testing.T, rdb redis.UniversalClient, change func(*setup)) *rig {
	t.Helper()
	r := newRigOn(t, rdb, &items{}, change)
	testutil.Background(t, r.jobs.Run)
	return r
}

// newRigOn starts another process with the same items, which runs agents only.
func newRigOn(t *testing.T, rdb redis.UniversalClient, all *items, change func(*setup)) *rig {
	t.Helper()
	client, log := tasks.NewClient(rdb), slog.New(slog.NewTextHandler(io.Discard, nil))
	t.Cleanup(func() { _ = client.Close() })
	cfg := setup{Config: agent.Config{Client: client, Tick: 50 * time.Millisecond, HealthEvery: 50 * time.Millisecond, HealthMost: time.Second, Logger: log}}
	if change != nil {
		change(&cfg)
	}
	r := &rig{t: t, client: client, rdb: rdb, items: all, input: jobs.Request{Prompt: "do it", Context: []byte(`{"a":1}`), Document: &jobs.Document{Name: "d.txt", Hash: "abc", Size: 3}}}
	r.jobs = testutil.Must(jobs.New(jobs.Config{Client: client, Pipelines: cfg.pipelines, Lease: cfg.lease, Backoff: time.Millisecond, Logger: log,
		Limits: jobs.Limits{Dedupe: jobs.DedupeAllow}, Roles: func(ctx context.Context) (map[string]int, error) { return r.Roles(ctx) }}))(t)
	cfg.Jobs = r.jobs
	r.Service = testutil.Must(agent.New(cfg.Config))(t)
	r.stop = testutil.Background(t, r.Run)
	return r
}

// put adds a job with n items for a role.
func (r *rig) put(role string, n int) {
	r.items.mu.Lock()
	defer r.items.mu.Unlock()
	req := r.input
	req.Pipeline = role
	j, _, err := r.jobs.Create(context.Background(), req)
	if err != nil {
		r.t.Error(err)
		return
	}
	a := jobs.Answer{}
	for range n {
		key := fmt.Sprint("item-", len(r.items.jobs))
		a.Items, r.items.jobs = append(a.Items, jobs.NewItem{Key: key, Text: "text of " + key}), append(r.items.jobs, j.ID)
	}
	testutil.Eventually(r.t, "the first stage", func() bool {
		work, _, err := r.jobs.Take(context.Background(), "put", "put", 1)
		if err == nil && len(work) == 1 {
			err = r.jobs.Complete(context.Background(), work[0], a)
		}
		if err != nil {
			r.t.Error(err)
		}
		return err != nil || len(work) == 1
	})
}

// item returns item i.
func (r *rig) item(i int) jobs.Item {
	r.t.Helper()
	return testutil.Must(r.jobs.Item(r.t.Context(), r.items.jobs[i], fmt.Sprint("item-", i)))(r.t)
}

// all returns all jobs.
func (r *rig) all() []jobs.Job {
	r.t.Helper()
	return testutil.Must(r.jobs.List(r.t.Context(), jobs.Filter{Limit: 1000}))(r.t).Jobs
}

// counts returns the items of all jobs by state.
func (r *rig) counts() (sum jobs.Counts) {
	r.t.Helper()
	for _, j := range r.all() {
		sum.Pending += j.Items.Pending
		sum.Validating += j.Items.Validating
		sum.Integrated += j.Items.Integrated
		sum.Rejected += j.Items.Rejected
		sum.Failed += j.Items.Failed
	}
	return sum
}

// usage returns the usage of all jobs, and the number of completed assignments.
func (r *rig) usage() (sum map[string]int64, assignments int64) {
	r.t.Helper()
	sum = map[string]int64{}
	for _, j := range r.all() {
		for name, n := range j.Usage {
			sum[name] += n
		}
		for _, of := range j.AgentUsage {
			assignments += of["assignments"]
		}
	}
	return sum, assignments
}

// register registers an agent that pulls.
func (r *rig) register(name string, capacity int, roles ...string) string {
	r.t.Helper()
	a, _, err := r.Register(r.t.Context(), agent.Registration{Name: name, Roles: roles, Capacity: capacity})
	testutil.Ok(r.t, err)
	return a.ID
}

// lease polls for up to n assignments, until the test's time is over.
func (r *rig) lease(id string, n int) []agent.Assignment {
	r.t.Helper()
	got := testutil.Must(r.Lease(r.t.Context(), id, nil, n, 30*time.Second))(r.t)
	return got
}

// leaseOne polls for one assignment.
func (r *rig) leaseOne(id string) agent.Assignment {
	r.t.Helper()
	got := r.lease(id, 1)
	if len(got) != 1 {
		r.t.Fatalf("leased %d assignments, want 1", len(got))
	}
	return got[0]
}

// get reads an agent.
func (r *rig) get(id string) agent.Agent {
	r.t.Helper()
	a := testutil.Must(r.Get(r.t.Context(), id))(r.t)
	return a
}
