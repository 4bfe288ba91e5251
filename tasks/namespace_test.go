package tasks_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// tenant is a client and a worker of a namespace, and the entry "hourly" of a schedule.
type tenant struct {
	client *tasks.Client
	plain  chan string // types of the tasks of asynq's clients that ran
}

// who returns the name of the tenant whose worker ran it.
var who = tasks.New[[]string, string]("namespace.who")

func newTenant(t *testing.T, rdb redis.UniversalClient, name string) *tenant {
	t.Helper()
	n := &tenant{tasks.NewClient(rdb, tasks.Namespace(name)), make(chan string, 1)}
	t.Cleanup(func() { _ = n.client.Close() })
	m := tasks.NewMux()
	tasks.Handle(m, who, func(_ context.Context, before []string) (string, error) {
		return strings.Join(append(before, name), "+"), nil
	})
	worker, err := tasks.NewWorker(n.client, m, tasks.WorkerConfig{Name: "worker", Grace: time.Second, Asynq: asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		n.plain <- task.Type()
		return nil
	})})
	testutil.Ok(t, err)
	during(t, worker.Run)
	s := tasks.NewScheduler(n.client, tasks.SchedulerConfig{})
	testutil.Ok(t, s.Add("hourly", "@hourly", who.S(nil)))
	during(t, s.Run)
	return n
}

// keysOf returns the keys of a Redis or of all masters of a Cluster.
func keysOf(t *testing.T, rdb redis.UniversalClient) (all []string) {
	t.Helper()
	var mu sync.Mutex
	list := func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		return err
	}
	var err error
	if c, ok := rdb.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(t.Context(), list)
	} else {
		err = list(t.Context(), rdb.(*redis.Client))
	}
	testutil.Ok(t, err)
	return all
}

// Programs in different namespaces share a Redis: with the same names of queues, workers, workflows, unique keys and schedules
// they have nothing in common.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(testing.TB) redis.UniversalClient{"miniredis": redistest.Mini, "redis": redistest.New, "cluster": redistest.Cluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := connect(t)
			shop, blog := newTenant(t, rdb, "shop"), newTenant(t, rdb, "b")
			for name, n := range map[string]*tenant{"shop": shop, "b": blog} {
				run := started(t, n.client, tasks.Chord(tasks.Group(who.S(nil), who.S(nil)), who), tasks.ID("nightly"), tasks.Unique("key", time.Hour), tasks.ProgressKeys("of_"+name))
				wantValue(t, run, name+"+"+name+"+"+name)
				testutil.Eventually(t, "a worker has registered the queue", func() bool {
					queues, err := n.client.Queues(t.Context())
					return err == nil && len(queues) == 1 && queues[0].Name == "default"
				})
				if list, _, err := n.client.Workflows(t.Context(), tasktype.WorkflowFilter{}); err != nil || len(list) != 1 {
					t.Errorf("tenant %s: got workflows %v, %v, want one", name, list, err)
				}
				if list, err := n.client.Workers(t.Context()); err != nil || len(list) != 1 {
					t.Errorf("tenant %s: got workers %v, %v, want one", name, list, err)
				}
			}

			// A pause is of one queue, also for asynq.
			testutil.Ok(t, shop.client.PauseQueue(t.Context(), "default"))
			testutil.Ok(t, shop.client.PauseSchedule(t.Context(), "hourly"))
			if entry, err := blog.client.Schedule(t.Context(), "hourly"); err != nil || !entry.Paused.IsZero() {
				t.Errorf("got %+v, %v, want an entry that runs", entry, err)
			}
			clients := asynq.NewClientFromRedisClient(rdb)
			for _, queue := range []string{"shop:default", "b:default"} {
				if _, err := clients.Enqueue(asynq.NewTask("to "+queue, nil), asynq.Queue(queue)); err != nil {
					t.Fatal(err)
				}
			}
			if got := <-blog.plain; got != "to b:default" {
				t.Errorf("got task %q", got)
			}
			if got, err := who.S(nil).Do(limited(t), blog.client); err != nil || got != "b" {
				t.Errorf("got %q, %v, want b", got, err)
			}
			stopped := started(t, shop.client, who.S(nil))
			testutil.Ok(t, shop.client.ResumeQueue(t.Context(), "default"))
			if got := <-shop.plain; got != "to shop:default" {
				t.Errorf("got task %q", got)
			}
			wantValue(t, stopped, "shop")
			if got := rdb.Get(t.Context(), "of_shop:nightly:status").Val(); got != "COMPLETE" {
				t.Errorf("got status %q in the progress key, want COMPLETE", got)
			}
			for _, key := range keysOf(t, rdb) {
				if first, _, _ := strings.Cut(key, ":"); !slices.Contains([]string{"shop", "b", "asynq", "of_shop", "of_b"}, first) {
					t.Errorf("key %s is in no namespace", key)
				}
			}
		})
	}
}

// A client with an invalid namespace does nothing.
func TestInvalidNamespace(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	for _, name := range []string{"a b", "a:b", "{a}", "a}", "ä", "asynq", strings.Repeat("n", 1000), "\x00"} {
		if _, err := tasks.Connect(t.Context(), "redis://127.0.0.1:1", tasks.Namespace(name)); !errors.Is(err, tasks.ErrInvalid) {
			t.Errorf("Connect with namespace %.20q: got %v, want ErrInvalid", name, err)
		}
		c := tasks.NewClient(rdb, tasks.Namespace(name))
		worker, err := tasks.NewWorker(c, tasks.NewMux(), tasks.WorkerConfig{})
		testutil.Ok(t, err)
		calls := map[string]error{"Run": worker.Run(t.Context()), "PauseQueue": c.PauseQueue(t.Context(), "q"), "Ping": c.Ping(t.Context())}
		_, calls["Send"] = who.S(nil).Send(t.Context(), c)
		_, calls["Schedules"] = c.Schedules(t.Context())
		for call, err := range calls {
			if !errors.Is(err, tasks.ErrInvalid) || !strings.Contains(err.Error(), "tasks.Namespace") || len(err.Error()) > 500 {
				t.Errorf("%s with namespace %.20q: got %v, want ErrInvalid with the option", call, name, err)
			}
		}
		testutil.Ok(t, c.Close())
	}
	if keys := keysOf(t, rdb); len(keys) > 0 {
		t.Errorf("got keys %v, want none", keys)
	}
}
