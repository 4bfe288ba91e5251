package tasks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/facttest"
	"muster/tasks/redistest"
)

// An operator can put asynq's hand on a task in every state that asynq has for it. A task that is deleted is
// handed over again; one that is archived has failed, and says so; one that runs ends as it would have.
func TestOperatorInEveryState(t *testing.T) {
	t.Parallel()
	type hand func(in *asynq.Inspector, id string) error
	remove := func(in *asynq.Inspector, id string) error { return in.DeleteTask("default", id) }
	archive := func(in *asynq.Inspector, id string) error { return in.ArchiveTask("default", id) }
	// How a task of ours comes to each state: as asynq's own scripts would have left it.
	states := map[string]func(t *testing.T, rdb redis.UniversalClient, id string){
		"pending": func(*testing.T, redis.UniversalClient, string) {},
		"scheduled": func(t *testing.T, rdb redis.UniversalClient, id string) {
			rdb.LRem(t.Context(), "asynq:{default}:pending", 0, id)
			rdb.ZAdd(t.Context(), "asynq:{default}:scheduled", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id})
			rdb.HSet(t.Context(), "asynq:{default}:t:"+id, "state", "scheduled")
		},
		"retry": func(t *testing.T, rdb redis.UniversalClient, id string) {
			rdb.LRem(t.Context(), "asynq:{default}:pending", 0, id)
			rdb.ZAdd(t.Context(), "asynq:{default}:retry", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id})
			rdb.HSet(t.Context(), "asynq:{default}:t:"+id, "state", "retry")
		},
		"active": func(t *testing.T, rdb redis.UniversalClient, id string) { // a worker took it, and died
			rdb.LRem(t.Context(), "asynq:{default}:pending", 0, id)
			rdb.LPush(t.Context(), "asynq:{default}:active", id)
			rdb.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Score: 1, Member: id})
			rdb.HSet(t.Context(), "asynq:{default}:t:"+id, "state", "active")
		},
	}
	hands := map[string]hand{"delete": remove, "archive": archive, "nothing": func(*asynq.Inspector, string) error { return nil }}
	for state, bring := range states {
		for what, lay := range hands {
			if state == "scheduled" && what == "nothing" {
				continue // only an operator's tool could have brought it there
			}
			t.Run(what+" "+state, func(t *testing.T) {
				t.Parallel()
				rdb := redistest.New(t)
				w := newWorld(t, rdb)
				in := asynq.NewInspectorFromRedisClient(rdb)
				resume := pause(t, w)
				run := sent(t, w, tasks.Chain(ID.S(1), Inc))
				id := run.ID() + ".0.0"
				bring(t, rdb, id)
				if info, err := in.GetTaskInfo("default", id); err != nil || info.State.String() != state {
					t.Fatalf("asynq has it as %+v, %v", info, err)
				}
				err := lay(in, id)
				if refused := state == "active" && what != "nothing"; (err != nil) != refused {
					t.Fatalf("asynq said %v", err)
				}
				resume()
				facttest.Eventually(t, "the workflow ends", func() bool {
					agendaNow(t, rdb)
					p, err := run.Progress(t.Context())
					return err == nil && p.Ended
				})
				got, err := run.Wait(limited(t))
				if what == "archive" && err == nil && state != "active" {
					t.Errorf("archived, and yet %d", got)
				} else if what == "archive" && state != "active" {
					if f := wantFailure(t, err, "archived"); f.Code != tasks.CodeArchived {
						t.Errorf("got %+v", f)
					}
				} else if err != nil || got != 2 || w.ran(run.ID()+".0") != 1 {
					t.Errorf("got %v, %v, ran %d times", got, err, w.ran(run.ID()+".0"))
				}
				ended(t, w, run.ID())
			})
		}
	}
}

// asynq's recoverer archives a task whose lease has ended on its last attempt, and tells nobody: a task that
// had not begun fails and says so, one that runs ends as it would have.
func TestRecovererArchives(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	in := asynq.NewInspectorFromRedisClient(rdb)
	w := newWorld(t, rdb)
	running := sent(t, w, tasks.Chain(Hold.S("running"), Inc))
	facttest.Eventually(t, "it runs", func() bool { return len(w.noted("at running")) == 1 })
	resume := pause(t, w)
	waiting := sent(t, w, tasks.Chain(ID.S(1), Inc))
	// Both messages allow no other attempt, which ours never do; a dead worker had the second in its hands.
	cl := asynq.NewClientFromRedisClient(rdb)
	for _, id := range []string{running.ID() + ".0.0", waiting.ID() + ".0.0"} {
		key := "asynq:{default}:t:" + id
		if _, err := cl.Enqueue(asynq.NewTaskWithHeaders("t.id", nil, map[string]string{"muster": "1"}), asynq.TaskID("model"), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
		model := rdb.HGet(t.Context(), "asynq:{default}:t:model", "msg").Val()
		if err := in.DeleteTask("default", "model"); err != nil {
			t.Fatal(err)
		}
		rdb.HSet(t.Context(), key, "msg", withID(model, "model", id), "state", "active")
		rdb.LRem(t.Context(), "asynq:{default}:pending", 0, id)
		rdb.LRem(t.Context(), "asynq:{default}:active", 0, id)
		rdb.LPush(t.Context(), "asynq:{default}:active", id)
		rdb.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Score: 1, Member: id})
	}
	newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "second" }) // its recoverer looks once at the start
	facttest.Eventually(t, "asynq has archived them", func() bool {
		q, err := in.GetQueueInfo("default")
		return err == nil && q.Archived == 2
	})
	resume()
	var err error
	facttest.Eventually(t, "the one that waits ends", func() bool {
		agendaNow(t, rdb)
		p, perr := waiting.Progress(t.Context())
		return perr == nil && p.Ended
	})
	_, err = waiting.Wait(limited(t))
	if f := wantFailure(t, err, "lease expired"); f.Code != tasks.CodeArchived {
		t.Errorf("got %+v", f)
	}
	ended(t, w, waiting.ID())
	w.open("running")
	if got, err := running.Wait(limited(t)); err != nil || got != 2 || w.ran(running.ID()+".0") != 1 {
		t.Errorf("the one that runs: got %v, %v, ran %d times", got, err, w.ran(running.ID()+".0"))
	}
	ended(t, w, running.ID())
}

// withID puts an id in the place of another in an encoded message: field 3, a string.
func withID(message, old, id string) string {
	return strings.Replace(message, fmt.Sprintf("\x1a%c%s", len(old), old), fmt.Sprintf("\x1a%c%s", len(id), id), 1)
}

// An operator deletes a whole queue, with all that is in it: what was in it is handed over again, and the
// queue is there for operators as before.
func TestOperatorDeletesQueue(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		in := asynq.NewInspectorFromRedisClient(rdb)
		resume := pause(t, w)
		run := sent(t, w, tasks.Chord(tasks.Each(ints(10), ID), Sum))
		if err := in.DeleteQueue("default", true); err != nil {
			t.Fatal(err)
		}
		resume()
		agendaNow(t, rdb)
		if got, err := run.Wait(limited(t)); err != nil || got != 45 {
			t.Fatalf("got %v, %v\n%s", got, err, tree(t, w, run.ID()))
		}
		ended(t, w, run.ID())
		facttest.Eventually(t, "operators see the queue", func() bool {
			_, err := in.GetQueueInfo("default")
			return err == nil
		})
		if _, err := in.GetTaskInfo("default", "none"); !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Errorf("looked for a task: %v", err)
		}
	})
}

// An operator's hands on a task in its queue are found out: deleted, it is handed over again.
func TestOperatorDeletes(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		in := asynq.NewInspectorFromRedisClient(rdb)
		// One that runs cannot be deleted; cancelled in asynq's way, it runs on, once.
		run := sent(t, w, Hold.S("active"))
		facttest.Eventually(t, "it runs", func() bool { return len(w.noted("at active")) == 1 })
		id := run.ID() + ".0.0"
		if err := in.DeleteTask("default", id); err == nil {
			t.Error("an active task was deleted")
		}
		facttest.Eventually(t, "asynq has put it back", func() bool {
			if err := in.CancelProcessing(id); err != nil { // again: asynq may not listen yet
				t.Fatal(err)
			}
			info, err := in.GetTaskInfo("default", id)
			return err == nil && info.State == asynq.TaskStateRetry
		})
		if err := in.RunTask("default", id); err != nil { // and delivers it once more
			t.Fatal(err)
		}
		_ = rdb.Publish(t.Context(), "muster:bus", "q default")
		facttest.Eventually(t, "the delivery is dropped", func() bool {
			q, err := in.GetQueueInfo("default")
			return err == nil && q.Pending == 0 && q.Active == 0
		})
		w.open("active")
		if got, err := run.Wait(limited(t)); err != nil || got != 1 || len(w.noted("at active")) != 1 {
			t.Fatalf("got %v, %v, ran %d times", got, err, len(w.noted("at active")))
		}
		// One that waits for a retry is in no queue of asynq: there is nothing to delete.
		retry := sent(t, w, Fail.S(1, tasks.MaxRetry(1), tasks.ConstantBackoff(time.Hour)))
		facttest.Eventually(t, "it waits", func() bool { s, err := retry.Status(t.Context()); return err == nil && s == tasks.Retry })
		if err := retry.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(t, w, retry.ID())
	})
}
