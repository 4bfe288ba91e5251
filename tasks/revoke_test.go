package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Revoke and Cancel need no worker: all tasks have ended when they return. A second call has no effect.
func TestWorkflowsAreStoppedWithoutWorker(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := newClient(t, rdb)
		ctx := limited(t)
		for _, c := range []struct {
			stop   func(*tasks.Workflow, context.Context) error
			code   string
			status tasktype.Status
		}{
			{(*tasks.Workflow).Revoke, tasktype.CodeRevoked, tasktype.Revoked},
			{(*tasks.Workflow).Cancel, tasktype.CodeCancelled, tasktype.Failed},
		} {
			run, err := tasks.Chord(tasks.Group(ID.S(1), ID.S(2, tasks.In(time.Hour)), ID.S(3, tasks.Queue("other"))), Sum).Send(ctx, client)
			testutil.Ok(t, err)
			wantReady(t, client, "default", 1)
			for range 2 {
				testutil.Ok(t, c.stop(&run.Workflow, ctx))
			}
			if c.code == tasktype.CodeRevoked {
				wantReady(t, client, "default", 0)
			}
			_, err = run.Wait(ctx)
			var failure *tasks.Failure
			if !errors.As(err, &failure) || failure.Code != c.code || errors.Is(err, tasks.ErrCancelled) != (c.code == tasktype.CodeCancelled) {
				t.Errorf("got %v, want a failure with the code %s", err, c.code)
			}
			p, err := run.Progress(ctx)
			if err != nil || !p.Ended || p.Status != c.status || p.Done != p.Total {
				t.Errorf("got %+v, %v, want %s", p, err, c.status)
			}
			if due, err := client.Inspect().Due(ctx, 10); err != nil || len(due) != 0 {
				t.Errorf("left on the agenda: %+v, %v", due, err)
			}
		}
	})
}

// wantReady checks the number of ready nodes of a queue.
func wantReady(t *testing.T, client *tasks.Client, queue string, want int) {
	t.Helper()
	ready, err := client.Inspect().Reserved(t.Context(), "", 10)
	ready = slices.DeleteFunc(ready, func(n tasktype.Task) bool { return n.Queue != queue })
	queues, qerr := client.Inspect().Queues(t.Context())
	if err != nil || qerr != nil || len(ready) != want || !slices.ContainsFunc(queues, func(q tasktype.Queue) bool { return q.Name == queue && q.Pending == int64(want) }) {
		t.Errorf("got ready nodes %v, %v, queues %+v, %v, want %d", ready, err, queues, qerr, want)
	}
}

// A worker whose subscription loses the message of a revocation notices it at its next heartbeat.
func TestRevocationWhoseMessageIsLost(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Group(Hold.S("a"), Hold.S("b")))
		testutil.Eventually(t, "both run", func() bool { return len(w.noted("at a"))+len(w.noted("at b")) == 2 })
		rdb := w.client.Redis()
		testutil.Ok(t, rdb.HSet(t.Context(), flowKey(t, rdb, run.ID()), "x", "1").Err())
		testutil.Eventually(t, "both are stopped", func() bool { return len(w.noted("left a"))+len(w.noted("left b")) == 2 })
		testutil.Ok(t, run.Revoke(t.Context()))
	})
}

// A slot is free again whose cancelled workflow Redis has lost, also for a task in a plan of a plan.
func TestLostCancelledWorkflowFreesItsSlot(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	var lost atomic.Value // key
	lost.Store("")
	rdb.AddHook(redistest.Calls(func(_ context.Context, next func() error, cmds ...redis.Cmder) error {
		err, args := next(), cmds[0].Args()
		if key := lost.Load().(string); key != "" && len(args) > 1 && store.ScriptName(fmt.Sprint(args[1])) == "turn" {
			lost.Store("")
			rdb.Del(context.Background(), key)
		}
		return err
	}))
	client, mux := newClient(t, rdb), tasks.NewMux()
	task, inner, outer := tasks.New[int, int]("lost.task"), tasks.New[int, int]("lost.inner"), tasks.New[int, int]("lost.outer")
	last := task.With(tasks.Queue("later"))
	tasks.Handle(mux, task, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.HandlePlan(mux, inner, func(_ context.Context, n int) (tasks.Signature[int], error) { return tasks.Chain(task.S(n), last), nil })
	tasks.HandlePlan(mux, outer, func(_ context.Context, n int) (tasks.Signature[int], error) { return inner.S(n), nil })
	runWorker(t, client, mux, tasks.WorkerConfig{})
	run := started(t, client, outer.S(1))
	testutil.Eventually(t, "the last task is ready", func() bool { return rdb.LLen(t.Context(), "muster:{0}:ring:later").Val() == 1 })
	key := flowKey(t, rdb, run.ID())
	testutil.Ok(t, rdb.HSet(t.Context(), key, store.FieldStopped, store.StoppedByCancel).Err())
	lost.Store(key)
	runWorker(t, client, mux, tasks.WorkerConfig{Queues: map[string]int{"later": 1}, Concurrency: 1, Grace: time.Second})
	wantValue(t, started(t, client, last.S(7)), 7)
	if _, err := run.Status(t.Context()); !errors.Is(err, tasks.ErrNotFound) {
		t.Errorf("got %v, want a lost workflow", err)
	}
}

// Revoking a workflow leaves the nodes of other workflows with the same fairness key ready, and none of the revoked workflow runs.
func TestRevokedWorkflowOfASharedKeyNeverRuns(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	w := newWorld(t, rdb)
	key := tasks.FairnessKey("customer")
	resume := pause(t, w)
	mixed := sent(t, w, tasks.Group(ID.S(1), ID.S(2, tasks.Priority(1))), key)
	var others []*tasks.Run[int]
	for i := range 5 {
		others = append(others, sent(t, w, ID.S(i), key))
	}
	ready := func() []any {
		return rdb.HMGet(t.Context(), shards(t, rdb)[0]+"queue:default", "ready:n", "ready:h").Val()
	}
	for _, id := range []string{others[2].ID(), mixed.ID()} {
		testutil.Ok(t, w.client.Workflow(id).Revoke(t.Context()))
		ended(t, w, id)
	}
	if got := ready(); !slices.Equal(got, []any{"5", "1"}) { // a take drops the members of the group
		t.Errorf("ready nodes: got %v, want 5 and 1", got)
	}
	resume()
	for i, run := range others {
		if got, err := run.Wait(limited(t)); i != 2 && (err != nil || got != i) {
			t.Errorf("got %v, %v, want %d", got, err, i)
		}
	}
	if ran := w.ran(others[2].ID()+".0") + w.ran(mixed.ID()+".0") + w.ran(mixed.ID()+".1"); ran != 0 {
		t.Errorf("revoked nodes ran %d times, want never", ran)
	}
	testutil.Eventually(t, "no node is ready", func() bool { return slices.Equal(ready(), []any{"0", "0"}) })
}

// A group that follows a task runs as a span. Members that were revoked before are left out of it.
func TestGroupAfterATaskWithoutItsRevokedMembers(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		group := tasks.After(ID.S(1, tasks.In(time.Second)), tasks.Each(ints(6), ID))
		run := sent(t, w, tasks.Chord(tasks.Settle(group), Outcomes))
		revoked := 0
		for _, n := range nodes(t, w, run.ID()) {
			if n.Task == ID.Name() && len(n.Needs) > 0 {
				if revoked++; revoked == 3 || revoked == 6 {
					testutil.Ok(t, run.RevokeNode(t.Context(), n.ID))
				}
			}
		}
		if _, err := run.Wait(limited(t)); err != nil || revoked != 6 {
			t.Fatalf("got %v after %d members, want 6", err, revoked)
		}
		counts := map[tasktype.Status]int{}
		for _, n := range nodes(t, w, run.ID()) {
			counts[n.Status]++
		}
		if counts[tasktype.Revoked] != 2 || counts[tasktype.Pending] != 0 {
			t.Errorf("got %v, want two revoked members, and the others run", counts)
		}
	})
}
