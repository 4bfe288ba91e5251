package tasks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/facttest"
)

// ofRelease sends a chain from a process that w knows nothing of, as a release with another version of the
// stored form of workflows does. The queue is paused. It returns what makes the workflow one of this release.
func ofRelease(t *testing.T, w *world, version int) (run *tasks.AsyncResult[int], key string, upgrade func()) {
	t.Helper()
	rdb := w.client.Redis()
	sender := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = sender.Close() })
	run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), sender)
	if err != nil {
		t.Fatal(err)
	}
	key = flowKey(t, rdb, run.ID())
	graph := rdb.HGet(t.Context(), key, "g").Val()
	rdb.HSet(t.Context(), key, "g", strings.Replace(graph, "{", fmt.Sprintf(`{"v":%d,`, version), 1))
	return run, key, func() { rdb.HSet(t.Context(), key, "g", graph) }
}

// lost reads from the record of a node how often it was put back for others, and its epoch.
func putBack(t *testing.T, rdb redis.UniversalClient, key, node string) (epoch, lost int) {
	t.Helper()
	parts := strings.Split(rdb.HGet(t.Context(), key, node).Val(), "|")
	if len(parts) < 4 {
		return 0, 0
	}
	_, _ = fmt.Sscan(parts[1], &epoch)
	_, _ = fmt.Sscan(parts[3], &lost)
	return epoch, lost
}

// While releases change, workers of the older one meet workflows of the newer one. They leave them to the
// newer workers that are live, however often they come across them, and say so.
func TestNewerWorkflowIsLeftToNewerWorkers(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		resume := pause(t, w)
		alive(t, rdb, map[string]any{"name": "newer", "queues": map[string]int{"default": 1}, "version": 99})
		run, key, upgrade := ofRelease(t, w, 99)
		rdb.HSet(t.Context(), key, "0", "Q|0|0|9|0|") // the next that counts would be the last
		resume()
		facttest.Eventually(t, "it is put back again and again", func() bool {
			epoch, _ := putBack(t, rdb, key, "0")
			return epoch >= 3
		})
		if _, lost := putBack(t, rdb, key, "0"); lost != 9 || rdb.HExists(t.Context(), key, "!").Val() {
			t.Fatalf("it counts: %d, or was given up", lost)
		}
		if why := rdb.HGet(t.Context(), key, "e0").Val(); !strings.Contains(why, "version 99") {
			t.Errorf("it says %q", why)
		}
		if got, err := send(t, w, ID.S(2)); err != nil || got != 2 {
			t.Errorf("another workflow: got %v, %v", got, err)
		}
		upgrade() // the worker is a newer one now
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
		ended(t, w, run.ID())
	}, func(c *tasks.WorkerConfig) { c.Concurrency = 1 })
}

// A task that a newer release handed over, of a workflow that cannot be read: the worker neither hangs nor
// puts it away.
func TestNewerDeliveryOfNewerWorkflow(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		in := asynq.NewInspectorFromRedisClient(rdb)
		resume := pause(t, w)
		alive(t, rdb, map[string]any{"name": "newer", "queues": map[string]int{"default": 1}, "version": 99})
		run, key, upgrade := ofRelease(t, w, 99)
		if err := in.DeleteTask("default", run.ID()+".0.0"); err != nil {
			t.Fatal(err)
		}
		cl := asynq.NewClientFromRedisClient(rdb)
		task := asynq.NewTaskWithHeaders("t.id", nil, map[string]string{"muster": "99"})
		for _, id := range []string{run.ID() + ".0.0", "ids-of-another-kind"} {
			if _, err := cl.Enqueue(task, asynq.TaskID(id)); err != nil {
				t.Fatal(err)
			}
		}
		resume()
		facttest.Eventually(t, "it is put back", func() bool { epoch, _ := putBack(t, rdb, key, "0"); return epoch > 0 })
		if got, err := send(t, w, ID.S(2)); err != nil || got != 2 {
			t.Fatalf("another workflow: got %v, %v", got, err)
		}
		facttest.Eventually(t, "the task with another kind of id waits for a newer worker", func() bool {
			info, err := in.GetTaskInfo("default", "ids-of-another-kind")
			return err == nil && info.State == asynq.TaskStateRetry && strings.Contains(info.LastErr, "newer release")
		})
		upgrade()
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
	}, func(c *tasks.WorkerConfig) { c.Concurrency = 1 })
}

// A node that no live worker would take says so, in place of looking like one that is about to start.
func TestNodeThatNobodyTakesSaysWhy(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		unheard := tasks.New[int, int]("t.unheard")
		why := func(s tasks.Signature[int]) (out []string) {
			run := sent(t, w, s)
			for _, n := range nodes(t, w, run.ID()) {
				out = append(out, n.Waits)
			}
			var b strings.Builder
			if err := tasks.WriteTree(&b, nodes(t, w, run.ID()), tasks.TreeOptions{}); err != nil || !strings.Contains(b.String(), out[0]) {
				t.Errorf("drawn as\n%s%v", b.String(), err)
			}
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			return out
		}
		want := func(got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		want(why(tasks.Chain(ID.S(1, tasks.Queue("nobody")), Inc)), "no live worker takes from queue nobody", "")
		want(why(ID.S(1, tasks.In(time.Hour))), "") // time will bring it
		resume := pause(t, w)
		want(why(ID.S(1)), "queue default is paused")
		want(why(tasks.Chain(unheard.S(1), Inc)), "no live worker of queue default has a handler for t.unheard", "")
		w.worker.Kill()
		facttest.Eventually(t, "the worker is gone", func() bool {
			ws, err := w.client.Workers(t.Context())
			return err == nil && len(ws) == 0
		})
		want(why(ID.S(1)), "no worker is live")
		resume()
	})
}

// A task whose handler only some of the live workers of its queue have gets to one of them, however often
// others take it.
func TestNameThatFewWorkersHandle(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		rare := tasks.New[int, int]("t.rare")
		alive(t, rdb, map[string]any{"name": "expert", "queues": map[string]int{"default": 1}, "tasks": []string{"t.rare"}})
		run := sent(t, w, tasks.Chain(rare.S(1), Inc))
		key := flowKey(t, rdb, run.ID())
		facttest.Eventually(t, "others put it back more often than they would one that nobody knows", func() bool {
			if p, err := run.Progress(t.Context()); err != nil || p.Ended {
				t.Fatalf("ended: %+v, %v", p, err)
			}
			epoch, _ := putBack(t, rdb, key, "0")
			return epoch > 7
		})
		if n := nodes(t, w, run.ID())[0]; !strings.Contains(n.Message, "no handler") {
			t.Errorf("it says nothing of it: %+v", n)
		}
		m := tasks.NewMux()
		tasks.Handle(m, rare, func(_ context.Context, n int) (int, error) { return n, nil })
		expert, err := tasks.NewWorker(w.client, m, tasks.WorkerConfig{Name: "expert", Concurrency: 1, Grace: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		during(t, expert.Run)
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

// A workflow of a release that no worker knows ends, and says why.
func TestWorkflowOfAnotherRelease(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		if _, err := send(t, w, ID.S(1)); err != nil {
			t.Fatal(err)
		}
		if err := w.client.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		sender := tasks.NewClient(rdb) // another process: the worker has never seen the workflow
		t.Cleanup(func() { _ = sender.Close() })
		run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), sender)
		if err != nil {
			t.Fatal(err)
		}
		key := flowKey(t, rdb, run.ID())
		graph := rdb.HGet(t.Context(), key, "g").Val()
		// Nine workers have put it back before. This one does so twice: from the queue, and from the agenda.
		rdb.HSet(t.Context(), key, "g", strings.Replace(graph, "{", `{"v":99,`, 1), "0", "Q|0|0|9|0|")
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		facttest.Eventually(t, "it is given up", func() bool {
			agendaNow(t, rdb)
			if !strings.HasPrefix(rdb.HGet(t.Context(), key, "0").Val(), "Q|0") { // its time comes sooner
				due := rdb.HGet(t.Context(), key, "0").Val()
				if parts := strings.Split(due, "|"); parts[0] == "D" {
					parts[4] = "1"
					rdb.HSet(t.Context(), key, "0", strings.Join(parts, "|"))
				}
			}
			return rdb.HExists(t.Context(), key, "!").Val()
		})
		for _, c := range []*tasks.Client{w.client, sender} {
			_, err := tasks.Attach[int](c, run.ID()).Wait(limited(t))
			if f := wantFailure(t, err, "version 99"); f.Code != tasks.CodeVersion {
				t.Errorf("got %+v", f)
			}
		}
		if p, err := run.Progress(t.Context()); err != nil || !p.Ended || p.Status != tasks.Failed {
			t.Errorf("got %+v, %v", p, err)
		}
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("time to live %v", ttl)
		}
		if got, err := send(t, w, ID.S(2)); err != nil || got != 2 {
			t.Errorf("another workflow: got %v, %v", got, err)
		}
	})
}

// A task that another release handed over is handed over again as this one does.
func TestDeliveryOfAnotherRelease(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		if _, err := send(t, w, ID.S(1)); err != nil {
			t.Fatal(err)
		}
		if err := w.client.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		run := sent(t, w, tasks.Chain(ID.S(1), Inc))
		if err := asynq.NewInspectorFromRedisClient(rdb).DeleteTask("default", run.ID()+".0.0"); err != nil {
			t.Fatal(err)
		}
		task := asynq.NewTaskWithHeaders("t.id", nil, map[string]string{"muster": "99"})
		if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task, asynq.TaskID(run.ID()+".0.0")); err != nil {
			t.Fatal(err)
		}
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}
