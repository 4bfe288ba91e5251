package tasks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// A stored workflow that cannot be decoded ends with an error that names its key, and harms neither its worker nor other
// workflows.
func TestDamagedWorkflowEndsWithAnError(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		testutil.Ok(t, w.client.PauseQueue(t.Context(), "default"))
		sender := tasks.NewClient(rdb) // another process: the worker has never seen the workflows
		t.Cleanup(func() { _ = sender.Close() })
		damages := map[string]func(string) string{
			"empty":             func(string) string { return "" },
			"another version":   func(g string) string { return strings.Replace(g, "{", `{"v":99,`, 1) },
			"no object":         func(string) string { return "[1]" },
			"null":              func(string) string { return "null" },
			"no nodes":          func(string) string { return "{}" },
			"cut":               func(g string) string { return g[:len(g)/2] },
			"no tasks":          func(g string) string { return strings.Replace(g, `"s":[`, `"s":[],"z":[`, 1) },
			"no such input":     func(g string) string { return strings.Replace(g, `"i":1`, `"i":7`, 1) },
			"negative input":    func(g string) string { return strings.Replace(g, `"i":1`, `"i":-1`, 1) },
			"input from itself": func(g string) string { return strings.Replace(g, `"i":1`, `"i":2`, 1) },
			"no such kind":      func(g string) string { return strings.Replace(g, `"i":1`, `"i":1,"k":99`, 1) },
			"no such root":      func(g string) string { return strings.Replace(g, `"o":1`, `"o":5`, 1) },
			"too many nodes":    func(g string) string { return strings.Replace(g, `"i":1`, `"i":1,"x":2000000000`, 1) },
			"too many arguments": func(g string) string {
				return strings.Replace(g, `"i":1`, `"i":1,"k":1,"a":[0,2000000000]`, 1)
			},
		}
		runs := map[string]*tasks.Run[int]{}
		for name, damage := range damages {
			run := started(t, sender, tasks.Chain(ID.S(1), Inc))
			key := flowKey(t, rdb, run.ID())
			graph := rdb.HGet(t.Context(), key, "g").Val()
			damaged := damage(graph)
			if damaged == graph {
				t.Fatalf("%s: the damage changes nothing of %s", name, graph)
			}
			rdb.HSet(t.Context(), key, "g", damaged)
			runs[name] = run
		}
		testutil.Ok(t, w.client.ResumeQueue(t.Context(), "default"))
		for name, run := range runs {
			key := flowKey(t, rdb, run.ID())
			testutil.Eventually(t, name+": the workflow is ended", func() bool { return rdb.HExists(t.Context(), key, "!").Val() })
			for _, c := range []*tasks.Client{w.client, sender} {
				_, err := tasks.Attach[int](c, run.ID()).Wait(limited(t))
				text := key
				if name == "another version" {
					text = "version 99"
				}
				if f := wantFailure(t, err, text); f.Code != tasktype.CodeDamaged {
					t.Errorf("%s: got %+v, want code %s", name, f, tasktype.CodeDamaged)
				}
			}
		}
		list, _, err := w.client.Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{Limit: 100})
		if err != nil || len(list) != len(runs) {
			t.Errorf("listed %d workflows, %v, want %d", len(list), err, len(runs))
		}
		for i := range list {
			if list[i].State != tasktype.WorkflowFailed || list[i].Name != "t.id → t.inc" {
				t.Errorf("listed %+v, want it as failed", list[i])
			}
		}
		wantValue(t, sent(t, w, ID.S(2)), 2)
	})
}

// Invalid tasks in a queue occupy no slot, and do not delay valid ones.
func TestGarbageInAQueueDelaysNothing(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		resume := pause(t, w)
		run := sent(t, w, tasks.Chord(tasks.Each(ints(3), ID), Sum))
		put := func(id, message string) {
			rdb.HSet(t.Context(), "asynq:{default}:t:"+id, "msg", message, "state", "pending")
			rdb.RPush(t.Context(), "asynq:{default}:pending", id)
		}
		for i := range 20 {
			put(fmt.Sprint("garbage", i), "\xff\xffno message")
		}
		put("empty", "")
		rdb.RPush(t.Context(), "asynq:{default}:pending", "ghost")
		rdb.HSet(t.Context(), "asynq:{default}:t:ghost", "state", "pending")
		resume()
		testutil.Eventually(t, "nothing waits in the queue", func() bool { return rdb.LLen(t.Context(), "asynq:{default}:pending").Val() == 0 })
		wantValue(t, run, 3)
		held := sent(t, w, tasks.Group(Hold.S("one"), Hold.S("two")))
		testutil.Eventually(t, "all slots can be used", func() bool { return len(w.noted("at one")) == 1 && len(w.noted("at two")) == 1 })
		w.open("one")
		w.open("two")
		if _, err := held.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
	}, func(c *tasks.WorkerConfig) { c.Concurrency, c.Asynq = 2, asynq.NotFoundHandler() })
}

// A worker that cannot take the step after a node, because the plan around it is damaged, fails the workflow and
// takes other tasks.
func TestDamagedPlanAroundANodeKeepsNoSlot(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		outer, inner, leaf := tasks.New[int, int]("plan.outer"), tasks.New[int, int]("plan.inner"), tasks.New[int, int]("plan.leaf")
		plans, leaves := tasks.NewMux(), tasks.NewMux()
		tasks.HandlePlan(plans, outer, func(_ context.Context, n int) (tasks.Signature[int], error) { return inner.S(n), nil })
		tasks.HandlePlan(plans, inner, func(_ context.Context, n int) (tasks.Signature[int], error) {
			return leaf.S(n, tasks.Queue("late")), nil
		})
		tasks.Handle(leaves, leaf, func(_ context.Context, n int) (int, error) { return n, nil })
		start := func(m *tasks.Mux, queue string) (*tasks.Client, *tasks.Worker) {
			c := tasks.NewClient(rdb) // each knows only the plans that it has read
			t.Cleanup(func() { _ = c.Close() })
			worker, err := tasks.StartWorker(t.Context(), c, m, tasks.WorkerConfig{Queues: map[string]int{queue: 1}, Concurrency: 1})
			testutil.Ok(t, err)
			t.Cleanup(func() { _ = worker.Stop() })
			return c, worker
		}
		c, planner := start(plans, "default")
		run, err := outer.S(1).Send(t.Context(), c)
		testutil.Ok(t, err)
		key := flowKey(t, rdb, run.ID())
		testutil.Eventually(t, "both plans are stored", func() bool {
			return rdb.HExists(t.Context(), key, "g0").Val() && rdb.HExists(t.Context(), key, "g0:0").Val()
		})
		testutil.Ok(t, planner.Stop())
		rdb.HSet(t.Context(), key, "g0", "damaged")
		c, worker := start(leaves, "late")
		_, err = tasks.Attach[int](c, run.ID()).Wait(limited(t))
		if f := wantFailure(t, err, key); f.Code != tasktype.CodeDamaged {
			t.Errorf("got code %q, want %q", f.Code, tasktype.CodeDamaged)
		}
		testutil.Eventually(t, "no slot is in use", func() bool { busy, _ := worker.Slots(); return busy == 0 })
	})
}
