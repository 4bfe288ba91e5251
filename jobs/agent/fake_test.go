package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// fakeItem is work of fakeJobs.
type fakeItem struct {
	role, key, takes string
	state            string // pending, leased, done or failed
	agent            string
	fence            int64
	expires, after   time.Time
	attempts         int // that have failed and count
	last             string
	answer           jobs.Answer
	work             jobs.Work // of its last lease
}

// lateOfFake is how long a lease of fakeJobs lasts beyond the deadline.
const lateOfFake = 300 * time.Millisecond

// fakeJobs keeps work in memory: leases with fences that expire, as jobs.Service does.
type fakeJobs struct {
	lease, timeout time.Duration

	mu         sync.Mutex
	items      []*fakeItem
	fence      int64
	promptHash string           // of a prompt and a context above jobs.MaxInline
	looks      map[string]int   // by role
	usage      map[string]int64 // by agent and name, from AddUsage
	progressed int              // calls of Progressed
	added      []jobs.Item
	taken      map[string]int  // by agent
	strict     error           // that Complete returns
	cut        error           // that Complete returns once it is done
	gone       error           // that all calls for work return, because its job is gone
	tokens     map[string]bool // roles with a token in their wake-up list
	passed     chan struct{}   // closed by the next token

	waits atomic.Int64 // open calls of WaitForWork
}

func newFakeJobs() *fakeJobs {
	return &fakeJobs{lease: 30 * time.Second, timeout: time.Hour, looks: map[string]int{}, usage: map[string]int64{},
		taken: map[string]int{}, tokens: map[string]bool{}, passed: make(chan struct{})}
}

// put adds n items for a role and signals that.
func (f *fakeJobs) put(role string, n int) {
	f.mu.Lock()
	for range n {
		f.items = append(f.items, &fakeItem{role: role, key: fmt.Sprintf("item-%d", len(f.items)), takes: pipeline.TakesItem, state: "pending"})
	}
	f.mu.Unlock()
	f.signal()
}

// signal puts a token into the wake-up list of each role with work.
func (f *fakeJobs) signal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	roles := map[string]bool{}
	for _, it := range f.items {
		roles[it.role] = true
	}
	for role := range roles {
		f.pass(role)
	}
}

func (f *fakeJobs) WaitForWork(ctx context.Context, roles []string, d time.Duration) (string, error) {
	f.waits.Add(1)
	defer f.waits.Add(-1)
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		for _, role := range roles {
			if f.tokens[role] {
				delete(f.tokens, role)
				f.mu.Unlock()
				return role, nil
			}
		}
		passed := f.passed
		f.mu.Unlock()
		select {
		case <-passed:
		case <-timeout.C:
			return "", nil
		case <-ctx.Done():
			return "", nil
		}
	}
}

func (f *fakeJobs) PassOn(_ context.Context, role string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pass(role)
	return nil
}

// pass puts a token into the wake-up list of a role. The caller holds mu.
func (f *fakeJobs) pass(role string) {
	f.tokens[role] = true
	close(f.passed)
	f.passed = make(chan struct{})
}

func (f *fakeJobs) Input(context.Context, string) (string, json.RawMessage, error) {
	return "the whole prompt", json.RawMessage(`{"whole":true}`), nil
}

// Find returns the work of a lease.
func (f *fakeJobs) Find(_ context.Context, _, queueItem string, fence int64) (jobs.Work, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone != nil {
		return jobs.Work{}, f.gone
	}
	for _, it := range f.items {
		if it.key != queueItem || it.fence != fence {
			continue
		}
		w := it.work
		w.Expires, w.Done = it.expires, it.state == "done"
		if w.Done || it.state == "leased" {
			return w, nil
		}
	}
	return jobs.Work{}, jobs.ErrLeaseLost
}

func (f *fakeJobs) Take(_ context.Context, role, id string, n int) (work []jobs.Work, next time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks[role]++
	now := time.Now()
	for _, it := range f.items {
		if it.state == "leased" && now.After(it.expires) {
			it.state = "pending"
			it.attempts++
		}
		if len(work) == n || it.state != "pending" || it.role != role || now.Before(it.after) {
			continue
		}
		f.fence++
		f.taken[id]++
		// As in jobs, a deadline has no part of a millisecond: the service compares it with the clock of Redis in ms.
		it.state, it.agent, it.fence, it.expires = "leased", id, f.fence, now.Add(min(f.lease, f.timeout+lateOfFake))
		w := jobs.Work{JobID: "job-1", Stage: "check", Role: role, Takes: it.takes, Agent: id, Nonce: "n", Attempt: it.attempts + 1,
			Fence: it.fence, Begun: now, Expires: it.expires, Deadline: now.Add(f.timeout).Truncate(time.Millisecond), Key: it.key, QueueItem: it.key, Prompt: "do it", PromptSHA256: f.promptHash, ContextSHA256: f.promptHash,
			Context: []byte(`{"a":1}`), Document: &jobs.Document{Name: "d.txt", Hash: "abc", Size: 3}}
		if it.takes == pipeline.TakesItem {
			w.Item = &jobs.Item{Key: it.key, Text: "text of " + it.key}
		}
		it.work = w
		work = append(work, w)
	}
	return work, -1, nil
}

// leased returns the item of work, or job.ErrLeaseLost. The caller holds mu.
func (f *fakeJobs) leased(w jobs.Work) (*fakeItem, error) {
	if f.gone != nil {
		return nil, f.gone
	}
	for _, it := range f.items {
		if it.key == w.Key && it.fence == w.Fence && it.state == "leased" && time.Now().Before(it.expires) {
			return it, nil
		}
	}
	return nil, jobs.ErrLeaseLost
}

func (f *fakeJobs) Beat(_ context.Context, w jobs.Work) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it, err := f.leased(w)
	if err != nil || time.Now().After(w.Deadline) {
		return time.Time{}, errors.Join(err, jobs.ErrLeaseLost)
	}
	it.expires = time.Now().Add(min(f.lease, time.Until(w.Deadline)+lateOfFake))
	return it.expires, nil
}

func (f *fakeJobs) Add(_ context.Context, w jobs.Work, items []jobs.Item) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.leased(w); err != nil {
		return 0, err
	}
	n := 0
	for _, item := range items {
		if !slices.ContainsFunc(f.added, func(old jobs.Item) bool { return old.Key == item.Key }) {
			f.added = append(f.added, item)
			n++
		}
	}
	return n, nil
}

func (f *fakeJobs) Complete(_ context.Context, w jobs.Work, a jobs.Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.strict != nil {
		return f.strict
	}
	for _, it := range f.items {
		if it.key == w.Key && it.fence == w.Fence && it.state == "done" {
			return nil
		}
	}
	it, err := f.leased(w)
	if err == nil {
		it.state, it.answer = "done", a
		err = f.cut
	}
	return err
}

func (f *fakeJobs) Fail(_ context.Context, w jobs.Work, cause error, after time.Duration, counts bool) error {
	f.mu.Lock()
	it, err := f.leased(w)
	if err == nil {
		it.state, it.last, it.after = "pending", cause.Error(), time.Now().Add(max(after, 0))
		var final interface{ Permanent() bool }
		if p, ok := cause.(interface{ Permanent() bool }); ok {
			final = p
		}
		if final != nil && final.Permanent() {
			it.state = "failed"
		}
		if counts {
			it.attempts++
		}
	}
	f.mu.Unlock()
	f.signal()
	return err
}

func (f *fakeJobs) Release(_ context.Context, w jobs.Work) error {
	f.mu.Lock()
	it, err := f.leased(w)
	if err == nil {
		it.state = "pending"
	}
	f.mu.Unlock()
	f.signal()
	return err
}

func (f *fakeJobs) Headers(context.Context, string) (map[string]string, error) { return nil, nil }

func (f *fakeJobs) Progressed(context.Context, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.progressed++
}

func (f *fakeJobs) AddUsage(_ context.Context, _, id string, usage map[string]int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range usage {
		f.usage[id+" "+name] += n
	}
	return nil
}

// item returns a copy of item i.
func (f *fakeJobs) item(i int) fakeItem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.items[i]
}

// states counts the items by state.
func (f *fakeJobs) states() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for _, it := range f.items {
		out[it.state]++
	}
	return out
}

// totals returns the usage of all agents according to AddUsage, and the number of completed assignments.
func (f *fakeJobs) totals() (map[string]int64, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int64{}
	for field, n := range f.usage {
		_, name, _ := strings.Cut(field, " ")
		out[name] += n
	}
	items := int(out["assignments"])
	delete(out, "assignments")
	return out, items
}

func (f *fakeJobs) looksFor(role string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks[role]
}

// rig is a service under test.
type rig struct {
	*agent.Service
	t    *testing.T
	jobs *fakeJobs
	rdb  redis.UniversalClient
	cfg  agent.Config
	stop func()
}

// newRig starts a service on work in memory. change may change its configuration.
func newRig(t *testing.T, rdb redis.UniversalClient, change func(*agent.Config)) *rig {
	t.Helper()
	return newRigOn(t, rdb, newFakeJobs(), change)
}

func newRigOn(t *testing.T, rdb redis.UniversalClient, fake *fakeJobs, change func(*agent.Config)) *rig {
	t.Helper()
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	cfg := agent.Config{Client: client, Jobs: fake, Tick: 50 * time.Millisecond, HealthEvery: 50 * time.Millisecond,
		HealthMost: time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if change != nil {
		change(&cfg)
	}
	s := testutil.Must(agent.New(cfg))(t)
	return &rig{Service: s, t: t, jobs: fake, rdb: rdb, cfg: cfg, stop: testutil.Background(t, s.Run)}
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
