package tasks_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// moved has a wake-task be in a state of asynq, as its own scripts leave it.
func moved(t *testing.T, rdb redis.UniversalClient, id, state string) {
	t.Helper()
	queue, hour := "asynq:{default}:", float64(time.Now().Add(time.Hour).Unix())
	rdb.LRem(t.Context(), queue+"pending", 0, id)
	switch state {
	case "active": // a worker took it, and died
		rdb.LPush(t.Context(), queue+"active", id)
		rdb.ZAdd(t.Context(), queue+"lease", redis.Z{Score: 1, Member: id})
	default:
		rdb.ZAdd(t.Context(), queue+state, redis.Z{Score: hour, Member: id})
	}
	if err := rdb.HSet(t.Context(), queue+"t:"+id, "state", state).Err(); err != nil {
		t.Fatal(err)
	}
}

// Whatever an operator does to a wake-task, in every state that asynq has for it: the workflow ends as it would have.
func TestWakeTaskInEveryStateOfAsynqDoesNoHarm(t *testing.T) {
	t.Parallel()
	hands := map[string]func(t *testing.T, rdb redis.UniversalClient, in *asynq.Inspector, id string) error{
		"delete": func(_ *testing.T, _ redis.UniversalClient, in *asynq.Inspector, id string) error {
			return in.DeleteTask("default", id)
		},
		"archive": func(_ *testing.T, _ redis.UniversalClient, in *asynq.Inspector, id string) error {
			return in.ArchiveTask("default", id)
		},
		"run": func(_ *testing.T, _ redis.UniversalClient, in *asynq.Inspector, id string) error {
			return in.RunTask("default", id)
		},
		"damage": func(t *testing.T, rdb redis.UniversalClient, _ *asynq.Inspector, id string) error {
			return rdb.HSet(t.Context(), "asynq:{default}:t:"+id, "msg", "\xff\xff").Err()
		},
		"lose": func(t *testing.T, rdb redis.UniversalClient, _ *asynq.Inspector, id string) error {
			return rdb.Del(t.Context(), "asynq:{default}:t:"+id).Err()
		},
		"nothing": func(*testing.T, redis.UniversalClient, *asynq.Inspector, string) error { return nil },
	}
	refused := map[string]bool{"delete active": true, "archive active": true, "run active": true, "run pending": true, "archive archived": true}
	for _, state := range []string{"pending", "scheduled", "retry", "archived", "active"} {
		for what, lay := range hands {
			t.Run(what+" "+state, func(t *testing.T) {
				t.Parallel()
				rdb := redistest.New(t)
				w := newWorld(t, rdb)
				in := asynq.NewInspectorFromRedisClient(rdb)
				resume := pause(t, w)
				run := sent(t, w, tasks.Chain(ID.S(1), Inc))
				id := wakeTasks(t, rdb)[0]
				if state != "pending" {
					moved(t, rdb, id, state)
				}
				if info, err := in.GetTaskInfo("default", id); err != nil || info.State.String() != state {
					t.Fatalf("asynq has it as %+v, %v, want %s", info, err, state)
				}
				if err := lay(t, rdb, in, id); (err != nil) != refused[what+" "+state] {
					t.Fatalf("asynq said %v", err)
				}
				resume()
				if got, err := run.Wait(limited(t)); err != nil || got != 2 {
					t.Fatalf("got %v, %v, want 2", got, err)
				}
				ended(t, w, run.ID())
				if got := w.ran(run.ID() + ".0"); got != 1 {
					t.Errorf("the first task ran %d times, want 1", got)
				}
			})
		}
	}
}

// An operator deletes a whole queue with its tasks: ready nodes run, and the queue exists for operators as before.
func TestDeletedQueueComesBack(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		in := asynq.NewInspectorFromRedisClient(w.client.Redis())
		resume := pause(t, w)
		run := sent(t, w, tasks.Chord(tasks.Each(ints(10), ID), Sum))
		if err := in.DeleteQueue("default", true); err != nil {
			t.Fatal(err)
		}
		resume()
		if got, err := run.Wait(limited(t)); err != nil || got != 45 {
			t.Fatalf("got %v, %v, want 45\n%s", got, err, tree(t, w, run.ID()))
		}
		ended(t, w, run.ID())
		testutil.Eventually(t, "operators see the queue", func() bool { // a worker adds it
			_, err := in.GetQueueInfo("default")
			return err == nil
		})
		if _, err := in.GetTaskInfo("default", "none"); !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Errorf("looked for a task: got %v, want %v", err, asynq.ErrTaskNotFound)
		}
	})
}

// An operator pauses a queue in asynq's way: nothing begins until it is resumed.
func TestNothingBeginsInAPausedQueue(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		in := asynq.NewInspectorFromRedisClient(w.client.Redis())
		if got, err := send(t, w, ID.S(1)); err != nil || got != 1 { // asynq knows the queue
			t.Fatalf("got %v, %v, want 1", got, err)
		}
		if err := in.PauseQueue("default"); err != nil {
			t.Fatal(err)
		}
		rest(t, w, "default")
		run := sent(t, w, tasks.Chain(ID.S(1), Inc))
		elsewhere := sent(t, w, ID.S(3, tasks.Queue("other")))
		if got, err := elsewhere.Wait(limited(t)); err != nil || got != 3 {
			t.Fatalf("in another queue: got %v, %v, want 3", got, err)
		}
		if got := w.ran(run.ID() + ".0"); got != 0 {
			t.Errorf("a node of the paused queue ran %d times, want 0", got)
		}
		if err := in.UnpauseQueue("default"); err != nil {
			t.Fatal(err)
		}
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
	}, func(c *tasks.WorkerConfig) { c.Queues = map[string]int{"default": 1, "other": 1} })
}

// A wake-task whose node runs cannot be deleted. Cancelled in asynq's way, and delivered once more, it changes nothing
// for the node, which runs on, once.
func TestCancelledWakeTaskChangesNothing(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		in := asynq.NewInspectorFromRedisClient(rdb)
		resume := pause(t, w)
		run := sent(t, w, Hold.S("active"))
		wakeTasks(t, rdb)
		resume()
		testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at active")) == 1 })
		active, err := in.ListActiveTasks("default")
		if err != nil || len(active) != 1 {
			t.Fatalf("active in asynq: got %+v, %v, want a wake-task", active, err)
		}
		id := active[0].ID
		if err := in.DeleteTask("default", id); err == nil {
			t.Error("an active wake-task was deleted")
		}
		testutil.Eventually(t, "asynq has put it back", func() bool {
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
		testutil.Eventually(t, "the delivery is over", func() bool {
			q, err := in.GetQueueInfo("default")
			return err == nil && q.Pending+q.Active+q.Retry == 0
		})
		w.open("active")
		if got, err := run.Wait(limited(t)); err != nil || got != 1 || len(w.noted("at active")) != 1 {
			t.Fatalf("got %v, %v, ran %d times, want 1, once", got, err, len(w.noted("at active")))
		}
	})
}

// A node that waits for a retry is in no queue of asynq: there is nothing to delete.
func TestRetryIsInNoQueueOfAsynq(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		in := asynq.NewInspectorFromRedisClient(w.client.Redis())
		run := sent(t, w, Fail.S(1, tasks.MaxRetry(1), tasks.ConstantBackoff(time.Hour)))
		testutil.Eventually(t, "it waits, and asynq has nothing", func() bool {
			s, err := run.Status(t.Context())
			q, err2 := in.GetQueueInfo("default")
			return err == nil && err2 == nil && s == tasktype.Retry && q.Size == 0
		})
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
	})
}

// inWorldsOfAsynq runs a test in a separate world on each kind of Redis, with a view of asynq's queues.
func inWorldsOfAsynq(t *testing.T, run func(t *testing.T, w *world, in *asynq.Inspector)) {
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		run(t, newWorld(t, rdb), asynq.NewInspectorFromRedisClient(rdb))
	})
}

func TestWorkersFindReadyNodesWithoutTheirWakeTask(t *testing.T) {
	t.Parallel()
	inWorldsOfAsynq(t, func(t *testing.T, w *world, in *asynq.Inspector) {
		for name, damage := range map[string]func(id string) error{
			"it is deleted":  func(id string) error { return in.DeleteTask("default", id) },
			"it is archived": func(id string) error { return in.ArchiveTask("default", id) },
			"all of asynq's queue is lost": func(id string) error {
				return w.client.Redis().Del(t.Context(), "asynq:{default}:t:"+id, "asynq:{default}:pending", "asynq:{default}:active",
					"asynq:{default}:lease").Err()
			},
		} {
			t.Run(name, func(t *testing.T) {
				resume := pause(t, w)
				run := sent(t, w, tasks.Chord(tasks.Each(ints(30), ID), Sum))
				for _, id := range wakeTasks(t, w.client.Redis()) {
					if err := damage(id); err != nil {
						t.Fatal(err)
					}
				}
				resume()
				if got, err := run.Wait(limited(t)); err != nil || got != 435 {
					t.Fatalf("got %v, %v, want 435", got, err)
				}
				ended(t, w, run.ID())
				for _, n := range nodes(t, w, run.ID()) {
					if times := w.ran(run.ID() + "." + n.ID); n.Queue != "" && times != 1 {
						t.Errorf("%s ran %d times, want once", n.ID, times)
					}
				}
			})
		}
	})
}

func TestNeedlessWakeTasksRunNothing(t *testing.T) {
	t.Parallel()
	inWorldsOfAsynq(t, func(t *testing.T, w *world, in *asynq.Inspector) {
		run := sent(t, w, tasks.Chord(tasks.Group(Echo.S(Mark{"w6", 1}), Echo.S(Mark{"w6", 2})), Sum))
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		cl := asynq.NewClientFromRedisClient(w.client.Redis())
		for i, payload := range []string{"0 0", "0 1", "0 99999", "3 0", "999 0"} {
			if _, err := cl.Enqueue(asynq.NewTask("muster:work", []byte(payload)), asynq.TaskID(fmt.Sprint("forged", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.client.Redis().Publish(t.Context(), "muster:bus", "q default").Err(); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "they are taken", func() bool {
			q, err := in.GetQueueInfo("default")
			return err == nil && q.Pending == 0 && q.Active == 0
		})
		if got, err := run.Wait(limited(t)); err != nil || got != 3 || len(w.noted("w6")) != 2 {
			t.Fatalf("got %v, %v, ran %v, want 3, and each once", got, err, w.noted("w6"))
		}
	})
}

// The end of a task can be stored without asynq being notified, despite retries: asynq then delivers the task once
// more, and the repetition has no effect.
func TestTaskThatAsynqDeliversTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	w := newWorld(t, rdb)
	f := redistest.NewFault(redistest.Refused, redistest.EveryCall)
	f.Match = func(cmd redis.Cmder) bool { return kindOf(cmd) == "finish" }
	rdb.AddHook(f)
	f.Arm()
	resume := pause(t, w)
	run := sent(t, w, tasks.Chord(tasks.Each(ints(5), Note), Total))
	wakeTasks(t, rdb)
	resume()
	if got, err := run.Wait(limited(t)); err != nil || got != 10 {
		t.Fatalf("got %v, %v", got, err)
	}
	ended(t, w, run.ID())
	testutil.Eventually(t, "the notification of asynq failed", func() bool { return f.Calls() > 0 })
	active := rdb.LRange(t.Context(), "asynq:{default}:active", 0, -1).Val()
	if len(active) == 0 {
		t.Fatal("asynq has no task that it takes for active")
	}
	// It is given up, and a minute later the leases have ended for long enough.
	w.worker.Kill()
	testutil.Eventually(t, "the worker is gone", func() bool {
		ws, err := w.client.Workers(t.Context())
		return err == nil && len(ws) == 0
	})
	for _, id := range active {
		rdb.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Score: 1, Member: id})
	}
	f.Disarm()
	second := newWorld(t, rdb)
	testutil.Eventually(t, "asynq has delivered them again and heard that they are done", func() bool {
		in := asynq.NewInspectorFromRedisClient(rdb)
		q, err := in.GetQueueInfo("default")
		return err == nil && q.Pending+q.Active+q.Retry+q.Archived == 0
	})
	for _, n := range nodes(t, w, run.ID()) {
		key := run.ID() + "." + n.ID
		if times := w.ran(key) + second.ran(key); times != 1 && n.Queue != "" {
			t.Errorf("%s %s ran %d times", n.Task, n.ID, times)
		}
	}
	if left := rdb.Keys(t.Context(), "asynq:{default}:t:*").Val(); len(left) != 0 {
		t.Errorf("asynq still has %v", left)
	}
}
