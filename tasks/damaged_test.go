package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// A stored workflow that is damaged ends with an error and harms neither its worker nor other workflows.
func TestDamagedWorkflowEndsWithAnError(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		if err := w.client.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		sender := tasks.NewClient(rdb) // another process: the worker has never seen the workflows
		t.Cleanup(func() { _ = sender.Close() })
		damages := map[string]func(string) string{
			"empty":             func(string) string { return "" },
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
		runs := map[string]*tasks.AsyncResult[int]{}
		for name, damage := range damages {
			run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), sender)
			if err != nil {
				t.Fatal(err)
			}
			key := flowKey(t, rdb, run.ID())
			graph := rdb.HGet(t.Context(), key, "g").Val()
			damaged := damage(graph)
			if damaged == graph {
				t.Fatalf("%s: the damage changes nothing of %s", name, graph)
			}
			rdb.HSet(t.Context(), key, "g", damaged)
			runs[name] = run
		}
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		for name, run := range runs {
			key := flowKey(t, rdb, run.ID())
			testutil.Eventually(t, name+": the workflow is ended", func() bool { return rdb.HExists(t.Context(), key, "!").Val() })
			for _, c := range []*tasks.Client{w.client, sender} {
				_, err := tasks.Attach[int](c, run.ID()).Wait(limited(t))
				if f := wantFailure(t, err, "damaged"); f.Code != tasktype.CodeDamaged {
					t.Errorf("%s: got %+v, want code %s", name, f, tasktype.CodeDamaged)
				}
			}
		}
		if got, err := send(t, w, ID.S(2)); err != nil || got != 2 {
			t.Errorf("another workflow: got %v, %v, want 2", got, err)
		}
	})
}

// damage is one way to damage what Redis has of the default queue's only workflow, or of its shard.
type damage struct {
	name string
	do   func(pipe redis.Pipeliner, shard, id string)
	end  string // what becomes of the workflow: "value", "error", "either", or "lost" if nothing knows of its nodes any more
}

// wrongType puts a value of another type in the place of a key.
func wrongType(key func(shard, id string) string) func(redis.Pipeliner, string, string) {
	return func(pipe redis.Pipeliner, shard, id string) {
		ctx := context.Background()
		pipe.Del(ctx, key(shard, id))
		pipe.SetNX(ctx, key(shard, id), "damaged", 0)
	}
}

func suffix(name string) func(shard, id string) string {
	return func(shard, _ string) string { return shard + name }
}

// damagesOf returns damages for each kind of key, for a workflow whose fairness key is its id and whose first node is
// 0.
func damagesOf(worker string) []damage {
	ctx := context.Background()
	field := func(name, value string) func(redis.Pipeliner, string, string) {
		return func(pipe redis.Pipeliner, shard, id string) { pipe.HSet(ctx, shard+"w:"+id, name, value) }
	}
	ready := func(_, id string) string { return "ready:n:default:" + id }
	known := func(do func(redis.Pipeliner, string, string)) func(redis.Pipeliner, string, string) { // to the ring
		return func(pipe redis.Pipeliner, shard, id string) {
			do(pipe, shard, id)
			pipe.RPush(ctx, shard+"ring:n:default", id)
		}
	}
	garbage := []string{"", "garbage", "/", "a/b", "/0", "0-9", "x/9-0", "x/0-99999999", "x/0-1@", "x/0@99999999999999999999", "\xff/\xfe", "x/0/0/0"}
	out := []damage{
		{"workflow of another type", wrongType(func(shard, id string) string { return shard + "w:" + id }), "error"},
		{"workflow without its graph", func(pipe redis.Pipeliner, shard, id string) { pipe.HDel(ctx, shard+"w:"+id, "g") }, "either"},
		{"workflow without its counts", func(pipe redis.Pipeliner, shard, id string) {
			pipe.HDel(ctx, shard+"w:"+id, "n", "z", "vn", "vz")
		}, "lost"},
		{"workflow without its input", func(pipe redis.Pipeliner, shard, id string) { pipe.HDel(ctx, shard+"w:"+id, "0") }, "either"},
		{"record that is garbage", field("0", "garbage"), "either"},
		{"record that is empty", field("0", ""), "either"},
		{"record that is cut", field("0", "Q|1"), "either"},
		{"record with letters for numbers", field("0", "Q|a|b|c|d|1"), "either"},
		{"record of a plan that is none", field("0", "P|garbage"), "lost"},
		{"record of a skip without a cause", field("1", "k"), "either"},
		{"count that is no number", field("n", "many"), "either"},
		{"joins that are no numbers", field("j1", "many"), "either"},
		{"members that are no number", field("m1", "many"), "either"},
		{"fairness key of others", field("f", "others"), "either"},
		{"ring of another type", wrongType(suffix("ring:n:default")), "lost"},
		{"ring without the key", func(pipe redis.Pipeliner, shard, _ string) { pipe.Del(ctx, shard+"ring:n:default") }, "lost"},
		{"ring with garbage", func(pipe redis.Pipeliner, shard, _ string) {
			for _, g := range garbage {
				pipe.LPush(ctx, shard+"ring:n:default", g)
			}
		}, "value"},
		{"ready list of another type", known(wrongType(func(shard, id string) string { return shard + ready(shard, id) })), "lost"},
		{"ready list with garbage", known(func(pipe redis.Pipeliner, shard, id string) {
			for _, g := range garbage {
				pipe.LPush(ctx, shard+ready(shard, id), g, id+g)
			}
		}), "either"},
		{"ready list with elements that are not nodes", known(func(pipe redis.Pipeliner, shard, id string) {
			pipe.RPush(ctx, shard+ready(shard, id), id+"/9-0", id+"/77", id+"/0.5", id+"/3:4", id+"/0-99", id+"/-", id+"/!revoke")
		}), "either"},
		{"agenda of another type", wrongType(suffix("agenda")), "lost"},
		{"agenda with garbage", func(pipe redis.Pipeliner, shard, id string) {
			for _, g := range garbage {
				pipe.ZAdd(ctx, shard+"agenda", redis.Z{Score: 1, Member: g}, redis.Z{Score: 1, Member: id + "/" + g})
			}
		}, "either"},
		{"wake hash of another type", wrongType(suffix("wake:default")), "either"},
		{"wake hash with letters for numbers", func(pipe redis.Pipeliner, shard, _ string) {
			pipe.HSet(ctx, shard+"wake:default", "p", "x", "g", "x", "n", "x", "t", "x", "dn", "x", "dh", "x", "s", "x")
		}, "either"},
		{"wake hash with absurd numbers", func(pipe redis.Pipeliner, shard, _ string) {
			pipe.HSet(ctx, shard+"wake:default", "p", "1", "g", "-5", "n", "9999999", "t", "9999999999999999", "dn", "-10", "dh", "-10", "s", "99")
		}, "either"},
		{"holders of another type", wrongType(suffix("holders")), "either"},
		{"holders with garbage", func(pipe redis.Pipeliner, shard, _ string) {
			pipe.SAdd(ctx, shard+"holders", "", "no such worker", "\xff")
		}, "value"},
		{"leases of another type", wrongType(suffix("lease:" + worker)), "lost"},
		{"leases with garbage", func(pipe redis.Pipeliner, shard, id string) {
			for i, g := range append(garbage, "1 n:default "+id+"/9-0", "x! n:default x/0", "1! - "+id+"/0", "1 n: ,,,", "1 n:default x/0-5@7") {
				pipe.HSet(ctx, shard+"lease:"+worker, fmt.Sprint("garbage", i), g)
			}
		}, "either"},
	}
	return append(out, listDamages(garbage)...)
}

// listDamages returns damages for the lists and counts of a shard that say what there is and was.
func listDamages(garbage []string) []damage {
	ctx := context.Background()
	return []damage{
		{"list of live workflows of another type", wrongType(suffix("live")), "either"},
		{"list of live workflows with garbage", func(pipe redis.Pipeliner, shard, _ string) {
			for _, g := range garbage {
				pipe.ZAdd(ctx, shard+"live", redis.Z{Score: 1, Member: g})
			}
		}, "value"},
		{"lists of ended workflows of another type", func(pipe redis.Pipeliner, shard, id string) {
			for _, state := range []string{"S", "F", "X"} {
				wrongType(suffix("done:"+state))(pipe, shard, id)
			}
		}, "either"},
		{"counts of another type", func(pipe redis.Pipeliner, shard, id string) {
			hour := time.Now().Unix() / 3600
			for _, name := range []string{"cm", "cd"} {
				for h := hour - 1; h <= hour+1; h++ {
					wrongType(suffix(fmt.Sprintf("%s:%d", name, h)))(pipe, shard, id)
				}
			}
			wrongType(suffix(fmt.Sprintf("ch:%d", hour/24)))(pipe, shard, id)
		}, "either"},
		{"hour that is no number", func(pipe redis.Pipeliner, shard, _ string) { pipe.Set(ctx, shard+"hour", "noon", 0) }, "value"},
	}
}

// What damages the state of one workflow, or a list of its shard, ends at most that one: the worker and all that comes
// later continue, whether the node was ready or running.
func TestDamagedStateEndsOneWorkflowAtMost(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		for _, d := range damagesOf("worker") {
			name := d.name + ", ready"
			if running {
				name = d.name + ", running"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rdb := redistest.New(t)
				w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "worker" })
				resume := func() {}
				if !running {
					resume = pause(t, w)
				}
				sender := tasks.NewClient(rdb) // another process: the worker has not seen the workflow
				t.Cleanup(func() { _ = sender.Close() })
				run, err := tasks.Chain(Hold.S("it"), Inc).Send(t.Context(), sender)
				if err != nil {
					t.Fatal(err)
				}
				if running {
					testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at it")) == 1 })
				}
				pipe := rdb.TxPipeline()
				d.do(pipe, shards(t, rdb)[0], strings.TrimPrefix(flowKey(t, rdb, run.ID()), shards(t, rdb)[0]+"w:"))
				if _, err := pipe.Exec(t.Context()); err != nil {
					t.Fatal(err)
				}
				resume()
				w.open("it")
				var late, other *tasks.AsyncResult[int]
				testutil.Eventually(t, "others can be sent", func() bool { // data that no worker can read is deleted soon
					var err error
					if late, err = tasks.Chain(ID.S(1, tasks.In(time.Millisecond)), Inc).Send(t.Context(), w.client); err != nil {
						return false
					}
					other, err = tasks.Chord(tasks.Each(ints(20), ID), Sum).Send(t.Context(), w.client)
					return err == nil
				})
				if got, err := other.Wait(limited(t)); err != nil || got != 190 {
					t.Fatalf("another workflow: got %v, %v, want 190", got, err)
				}
				wantEnd(t, w, run, d.end)
				if got, err := late.Wait(limited(t)); err != nil || got != 2 {
					t.Errorf("one with a timer: got %v, %v, want 2", got, err)
				}
				testutil.Eventually(t, "the worker beats", func() bool {
					ws, err := w.client.Workers(t.Context())
					return err == nil && len(ws) == 1 && ws[0].Name == "worker"
				})
			})
		}
	}
}

// wantEnd checks how a damaged workflow ends.
func wantEnd(t *testing.T, w *world, run *tasks.AsyncResult[int], end string) {
	t.Helper()
	if end == "lost" {
		return
	}
	_, err := tasks.Attach[int](w.client, run.ID()).Wait(limited(t))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		t.Errorf("got no end of the workflow, want one:\n%s", tree(t, w, run.ID()))
	case end == "value" && err != nil:
		t.Errorf("got %v, want a value", err)
	case end == "error" && err == nil:
		t.Error("got a value, want an error")
	}
}

// What is no task costs a queue no slot, and holds up nothing of ours.
func TestGarbageInAQueueHoldsUpNothing(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		resume := pause(t, w)
		run := sent(t, w, tasks.Chord(tasks.Each(ints(3), ID), Sum))
		wake := wakeTasks(t, rdb)[0]
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
		// The wake-task itself is broken, too, and one says nothing that can be read.
		rdb.HSet(t.Context(), "asynq:{default}:t:"+wake, "msg", "\xff")
		if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("muster:work", []byte("\xff"))); err != nil {
			t.Fatal(err)
		}
		resume()
		testutil.Eventually(t, "nothing waits in the queue", func() bool { return rdb.LLen(t.Context(), "asynq:{default}:pending").Val() == 0 })
		if got, err := run.Wait(limited(t)); err != nil || got != 3 {
			t.Fatalf("got %v, %v, want 3\n%s", got, err, tree(t, w, run.ID()))
		}
		held := sent(t, w, tasks.Group(Hold.S("one"), Hold.S("two")))
		testutil.Eventually(t, "all slots can be used", func() bool { return len(w.noted("at one")) == 1 && len(w.noted("at two")) == 1 })
		w.open("one")
		w.open("two")
		if _, err := held.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
	}, func(c *tasks.WorkerConfig) { c.Concurrency = 2 })
}

// A worker that cannot take the step behind a node, because the plan around it is damaged, ends the workflow and takes
// other tasks.
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
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = worker.Stop() })
			return c, worker
		}
		c, planner := start(plans, "default")
		run, err := outer.S(1).Send(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		key := flowKey(t, rdb, run.ID())
		testutil.Eventually(t, "both plans are stored", func() bool {
			return rdb.HExists(t.Context(), key, "g0").Val() && rdb.HExists(t.Context(), key, "g0:0").Val()
		})
		if err := planner.Stop(); err != nil {
			t.Fatal(err)
		}
		rdb.HSet(t.Context(), key, "g0", "damaged")
		c, worker := start(leaves, "late")
		_, err = tasks.Attach[int](c, run.ID()).Wait(limited(t))
		if f := wantFailure(t, err, "damaged"); f.Code != tasktype.CodeDamaged {
			t.Errorf("got code %q, want %q", f.Code, tasktype.CodeDamaged)
		}
		testutil.Eventually(t, "no slot is in use", func() bool { busy, _ := worker.Slots(); return busy == 0 })
	})
}
