package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/orchestrator/agent"
	"muster/orchestrator/job"
	"muster/tasks/redistest"
)

// damagedAgent is the agent whose keys are damaged.
const damagedAgent = "damaged"

// Damaged values concern one agent, or are counts: other agents keep working.
func TestAgentsSurviveDamagedKeys(t *testing.T) {
	t.Parallel()
	const p = "muster:{agents}:"
	fixed := func(name string) func(string, agent.Assignment) string {
		return func(string, agent.Assignment) string { return p + name }
	}
	of := func(name string) func(string, agent.Assignment) string {
		return func(id string, _ agent.Assignment) string { return p + name + ":" + id }
	}
	for kind, key := range map[string]func(id string, a agent.Assignment) string{
		"agents": fixed("agents"), "names": fixed("names"), "seen": fixed("seen"), "owners": fixed("owners"), "static": fixed("static"),
		"drained": fixed("drained"), "resting": fixed("resting"), "checks": fixed("checks"), "health": fixed("health"), "version": fixed("version"),
		"due": fixed("due"), "stale": fixed("stale"), "took": fixed("took"), "held": of("held"), "numbers": of("numbers"), "usage": of("usage"),
		"spans": fixed("spans:job-1"), "used": fixed("used:job-1"),
		"hour":       func(string, agent.Assignment) string { return "~" + p + "hour:*" },
		"broke":      func(_ string, a agent.Assignment) string { return p + "broke:" + a.IdempotencyKey },
		"assignment": func(_ string, a agent.Assignment) string { return p + "assignment:" + a.ID },
	} {
		for _, d := range redistest.Damages {
			if d.Name == "of another type" {
				continue // every command on the key fails
			}
			t.Run(kind+"/"+d.Name, func(t *testing.T) {
				t.Parallel()
				damageAgents(t, key, d)
			})
		}
	}
}

// answers lets an agent register, get an item and answer it.
func (r *rig) answers(name string) {
	r.t.Helper()
	ctx := r.t.Context()
	a, _, err := r.Register(ctx, agent.Registration{Name: name, Roles: []string{name}, Capacity: 1})
	if err != nil {
		r.t.Errorf("register %s: %v", name, err)
		return
	}
	r.jobs.put(name, 1)
	got, err := r.Lease(ctx, a.ID, nil, 1, 30*time.Second)
	if err != nil || len(got) != 1 {
		r.t.Errorf("%s: got %d assignments, %v, want 1", name, len(got), err)
		return
	}
	if err := r.Complete(ctx, got[0].ID, a.ID, got[0].Fence, job.Answer{Usage: map[string]int64{"tokens": 1}}); err != nil {
		r.t.Errorf("complete the work of %s: %v", name, err)
	}
	if _, err := r.List(ctx); err != nil {
		r.t.Errorf("list: %v", err)
	}
}

func damageAgents(t *testing.T, key func(string, agent.Assignment) string, d redistest.Damage) {
	r := newRig(t, redistest.New(t), nil)
	ctx := t.Context()
	id := r.register(damagedAgent, 3, damagedAgent)
	r.jobs.put(damagedAgent, 2)
	done := r.leaseOne(id)
	if err := r.Complete(ctx, done.ID, id, done.Fence, job.Answer{Usage: map[string]int64{"tokens": 1}}); err != nil {
		t.Fatal(err)
	}
	open := r.leaseOne(id)
	k := key(id, open)
	if k[0] == '~' {
		testutil.Eventually(t, k+" exists", func() bool { return len(r.rdb.Keys(ctx, k[1:]).Val()) > 0 })
		k = r.rdb.Keys(ctx, k[1:]).Val()[0]
	}
	if r.rdb.Exists(ctx, k).Val() == 0 { // what is there at times
		switch name, _, _ := strings.Cut(strings.TrimPrefix(k, "muster:{agents}:"), ":"); name {
		case "static", "resting", "checks", "stale":
			r.rdb.ZAdd(ctx, k, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "somebody"})
		case "owners", "health", "spans":
			r.rdb.HSet(ctx, k, "somebody", "1 1 x")
		case "drained":
			r.rdb.SAdd(ctx, k, "somebody")
		case "broke":
			r.rdb.Set(ctx, k, 1, time.Hour)
		default:
			t.Fatalf("%s is not there", k)
		}
	}
	d.Do(t, r.rdb, k)
	_, _ = r.Heartbeat(ctx, id)
	_ = r.Complete(ctx, open.ID, id, open.Fence, job.Answer{})
	r.answers("another")
}

// An assignment whose work cannot be read takes no room of its agent, and another agent gets the work.
func TestDamagedAssignmentTakesNoRoom(t *testing.T) {
	t.Parallel()
	jobs := newFakeJobs()
	jobs.lease = 2 * time.Second
	r := newRigOn(t, redistest.New(t), jobs, nil)
	id := r.register("one", 1, "validator")
	jobs.put("validator", 1)
	a := r.leaseOne(id)
	if err := r.rdb.HSet(t.Context(), "muster:{agents}:assignment:"+a.ID, "work", "{").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Complete(t.Context(), a.ID, id, a.Fence, job.Answer{}); err == nil || !strings.Contains(err.Error(), a.ID) {
		t.Errorf("complete: got %v, want an error that names the assignment", err)
	}
	testutil.Eventually(t, "the agent has room", func() bool { return r.get(id).Held == 0 })
	if again := r.leaseOne(r.register("two", 1, "validator")); again.Key != a.Key {
		t.Errorf("got %s, want %s", again.Key, a.Key)
	}
}
