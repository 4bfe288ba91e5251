package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// fillMemory lets Redis take nothing that needs memory any more.
func fillMemory(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	testutil.Ok(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := rdb.Set(t.Context(), "x", "x", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("a write to a full Redis: %v, want OOM", err)
	}
}

func freeMemory(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	testutil.Ok(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
}

// answers reports whether exactly the workers with these names reply to a ping.
func answers(t *testing.T, c *tasks.Client, wait time.Duration, names ...string) bool {
	t.Helper()
	pongs, err := c.Inspect().PingWorkers(t.Context(), wait)
	if err != nil || len(pongs) != len(names) {
		return false
	}
	for i, p := range pongs {
		if !p.Answered || p.Worker != names[i] {
			return false
		}
	}
	return true
}

// listed returns the names of the live workers.
func listed(t *testing.T, c *tasks.Client) (names []string) {
	t.Helper()
	ws := testutil.Must(c.Inspect().Workers(t.Context()))(t)
	for _, w := range ws {
		names = append(names, w.Name)
	}
	return names
}

// rejected returns how many calls Redis rejected with a kind of error.
func rejected(t *testing.T, rdb redis.UniversalClient, kind string) (n int) {
	t.Helper()
	info := testutil.Must(rdb.Info(t.Context(), "errorstats").Result())(t)
	_, after, _ := strings.Cut(info, "errorstat_"+kind+":count=")
	_, _ = fmt.Sscan(after, &n)
	return n
}

// ranOnce checks that each task of a workflow that has ended ran once.
func ranOnce(t *testing.T, w *world, id string) {
	t.Helper()
	ended(t, w, id)
	for _, n := range nodes(t, w, id) {
		if times := w.ran(id + "." + n.ID); times != 1 && n.Queue != "" {
			t.Errorf("%s ran %d times, want once", n.Task, times)
		}
	}
}

// Redis rejects writes for a while, because it is out of memory or a replica: a send fails with an error that names the remedy, results
// of that time are stored later, and no task runs twice.
func TestNothingRunsTwiceWhileRedisRejectsWrites(t *testing.T) {
	t.Parallel()
	replicate := func(host, port string) func(*testing.T, redis.UniversalClient) {
		return func(t *testing.T, rdb redis.UniversalClient) {
			t.Helper()
			testutil.Ok(t, rdb.(*redis.Client).ReplicaOf(t.Context(), host, port).Err())
		}
	}
	for kind, c := range map[string]struct {
		remedy        string
		reject, allow func(*testing.T, redis.UniversalClient)
	}{
		"OOM":      {"raise it", fillMemory, freeMemory},
		"READONLY": {"", replicate("127.0.0.1", "1"), replicate("NO", "ONE")},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Server(t).Client()
			w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Concurrency = 32 })
			shapes := []tasks.Signature[int]{
				tasks.Chain(Hold.S("shut"), Inc),
				tasks.Chord(tasks.Group(Hold.S("shut"), tasks.Chain(ID.S(1), Inc)), Sum),
				tasks.Chord(tasks.Map(tasks.After(Hold.S("shut"), Range.S(3)), Double), Sum),
				tasks.OnSuccess(tasks.Chain(Hold.S("shut"), Inc), Note),
				tasks.Chain(tasks.Join(Hold.S("shut"), Replace.S(AB{2, 3})), Plus),
			}
			var runs []*tasks.Run[int]
			for i := range 25 {
				runs = append(runs, sent(t, w, shapes[i%len(shapes)]))
			}
			testutil.Eventually(t, "each is at the task that waits", func() bool { return len(w.noted("at shut")) == len(runs) })
			c.reject(t, rdb)
			if _, err := ID.S(1).Send(t.Context(), w.client); !tasks.Refused(err) || !strings.Contains(err.Error(), c.remedy) {
				t.Errorf("send: got %v, want an error that names the remedy", err)
			}
			before := rejected(t, rdb, kind)
			w.open("shut")
			testutil.Eventually(t, "the results are rejected", func() bool { return rejected(t, rdb, kind) > before+len(runs) })
			c.allow(t, rdb)
			want := []int{2, 3, 6, 2, 6}
			for i, run := range runs {
				wantValue(t, run, want[i%len(want)])
				ranOnce(t, w, run.ID())
			}
		})
	}
}

// While the memory of Redis is full, workers cannot report that they are alive: the reason is that, and not that none is running.
func TestFullMemoryOfRedisMakesNobodyGone(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb)
	fillMemory(t, rdb)
	if err := w.client.Writable(t.Context()); !tasks.Refused(err) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("writable: got %v, want one that names maxmemory", err)
	}
	testutil.Eventually(t, "the list of workers is out of date", func() bool {
		_, err := w.client.Inspect().Workers(t.Context())
		return tasks.Refused(err)
	})
	freeMemory(t, rdb)
	if err := w.client.Writable(t.Context()); err != nil {
		t.Errorf("writable again: got %v, want no error", err)
	}
	testutil.Eventually(t, "the worker is listed again", func() bool { return slices.Equal(listed(t, w.client), []string{w.worker.Name()}) })
}

// While the disk of Redis is full nothing can be stored, not even that a worker lives.
func TestFullDiskOfRedisMakesNobodyGone(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	rdb := srv.Client()
	w := newWorld(t, rdb)
	name := w.worker.Name()
	run := sent(t, w, tasks.Chain(Hold.S("disk"), Inc))
	testutil.Eventually(t, "the first task runs", func() bool { return len(w.noted("at disk")) == 1 })

	srv.FillDisk()
	err := w.client.Writable(t.Context())
	if !tasks.Refused(err) || !strings.Contains(err.Error(), srv.Dir) || !strings.Contains(err.Error(), "disk") {
		t.Errorf("writable: got %v, want one that names the disk and %s", err, srv.Dir)
	}
	w.open("disk") // the task ends, and that cannot be stored
	testutil.Eventually(t, "the list of workers is out of date", func() bool {
		_, err := w.client.Inspect().Workers(t.Context())
		return tasks.Refused(err)
	})
	if !answers(t, w.client, 2*time.Second, name) {
		t.Error("ping of a live worker: got no reply, want one")
	}
	if _, err := ID.S(1).Send(t.Context(), w.client); !tasks.Refused(err) {
		t.Errorf("send: got %v, want a refusal", err)
	}
	if c, err := tasks.Connect(t.Context(), srv.URL()); err != nil {
		t.Errorf("connect to a Redis whose disk is full: got %v, want no error", err)
	} else {
		if _, err := c.Workflow(run.ID()).Status(t.Context()); err != nil {
			t.Errorf("status of a workflow: got %v, want no error", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}

	srv.FreeDisk()
	wantValue(t, run, 2)
	for _, n := range nodes(t, w, run.ID()) {
		if n.Attempts != 1 || w.ran(run.ID()+"."+n.ID) != 1 {
			t.Errorf("task %s: %d attempts, ran %d times, want 1 and 1", n.Task, n.Attempts, w.ran(run.ID()+"."+n.ID))
		}
	}
	if err := w.client.Writable(t.Context()); err != nil {
		t.Errorf("writable again: got %v, want no error", err)
	}
}

func TestWorkerWaitsForRoomOnTheDiskOfRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	client := newClient(t, srv.Client())
	srv.FillDisk()
	said := make(chan string, 16)
	started := make(chan error, 1)
	go func() {
		worker, err := tasks.StartWorker(t.Context(), client, tasks.NewMux(), tasks.WorkerConfig{Logger: slog.New(lines(said))})
		if err == nil {
			err = worker.Stop()
		}
		started <- err
	}()
	if got := <-said; !strings.Contains(got, "disk") || !strings.Contains(got, srv.Dir) {
		t.Errorf("the worker logs %q, want the full disk and its path", got)
	}
	srv.FreeDisk()
	testutil.Ok(t, <-started)
}

// lines is a log whose lines can be read, as far as there is room.
type lines chan string

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	select {
	case l <- line:
	default:
	}
	return nil
}

// After an outage of Redis that is longer than a lease, no worker is treated as dead: running tasks continue, and run
// once.
func TestWorkersOutliveAnOutageOfRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	var worlds []*world
	var faults []*redistest.Fault
	var runs []*tasks.Run[int]
	for _, queue := range []string{"here", "there"} {
		rdb := srv.Client()
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Queues = map[string]int{queue: 1} })
		runs = append(runs, sent(t, w, Hold.S("outage", tasks.Queue(queue))))
		testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at outage")) == 1 })
		f := redistest.NewFault(redistest.Refused, redistest.EveryCall)
		rdb.AddHook(f)
		worlds, faults = append(worlds, w), append(faults, f)
	}
	rdb := srv.Client()
	beats := func() (out [2]float64) {
		for i, w := range worlds {
			out[i] = rdb.ZScore(t.Context(), "muster:workers", w.worker.Name()).Val()
		}
		return out
	}
	for _, f := range faults {
		f.Arm()
	}
	testutil.Eventually(t, "both have been silent for long", func() bool {
		now := float64(rdb.Time(t.Context()).Val().UnixMilli())
		b := beats()
		return now-b[0] > 9500 && now-b[1] > 9500
	})
	for _, f := range faults {
		f.Disarm()
	}
	for range 2 {
		before := beats()
		testutil.Eventually(t, "both beat", func() bool { b := beats(); return b[0] > before[0] && b[1] > before[1] })
	}
	for i, w := range worlds {
		if n := w.ran(runs[i].ID() + ".0"); n != 1 {
			t.Errorf("the task of worker %d runs %d times", i, n)
		}
		w.open("outage")
		wantValue(t, runs[i], 1)
		if nodes(t, w, runs[i].ID())[0].Worker != w.worker.Name() {
			t.Errorf("it was given to another worker")
		}
	}
}

// Redis with an evicting policy loses keys once its memory is full: workers and senders refuse it.
func TestEvictingRedisIsRefused(t *testing.T) {
	t.Parallel()
	for policy, refused := range map[string]bool{"allkeys-lru": true, "volatile-ttl": true, "noeviction": false} {
		rdb := redistest.Server(t, "maxmemory", "100mb", "maxmemory-policy", policy).Client()
		wantEvictionRefused(t, rdb, policy, refused)
	}
	wantEvictionRefused(t, redistest.Server(t, "maxmemory-policy", "allkeys-lru").Client(), "allkeys-lru", false) // nothing is evicted without a limit
}

// One master of a cluster is enough.
func TestEvictingMasterOfAClusterIsRefused(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	cluster := rdb.(*redis.ClusterClient)
	one := redis.NewClient(&redis.Options{Addr: cluster.Options().Addrs[0]})
	defer one.Close()
	set := func(limit, policy string) {
		t.Helper()
		ctx := context.WithoutCancel(t.Context())
		testutil.Ok(t, errors.Join(one.ConfigSet(ctx, "maxmemory", limit).Err(), one.ConfigSet(ctx, "maxmemory-policy", policy).Err()))
	}
	set("100mb", "allkeys-lru")
	defer set("0", "noeviction") // others get the cluster next
	wantEvictionRefused(t, rdb, "allkeys-lru", true)
}

func wantEvictionRefused(t *testing.T, rdb redis.UniversalClient, policy string, refused bool) {
	t.Helper()
	client := newClient(t, rdb)
	_, serr := ID.S(1).Send(t.Context(), client)
	worker, werr := tasks.StartWorker(t.Context(), client, tasks.NewMux(), tasks.WorkerConfig{})
	if werr == nil {
		testutil.Ok(t, worker.Stop())
	}
	for what, err := range map[string]error{"send": serr, "worker": werr} {
		if errors.Is(err, tasks.ErrEvicts) != refused {
			t.Errorf("%s with policy %s: got %v, want refused: %v", what, policy, err, refused)
		}
		if refused && (!strings.Contains(err.Error(), "noeviction") || !strings.Contains(err.Error(), policy)) {
			t.Errorf("%s: got %v, want an error with the remedy for %s", what, err, policy)
		}
	}
}

// pause has workers take nothing from the default queue until resume is called.
func pause(t *testing.T, w *world) (resume func()) {
	t.Helper()
	rest(t, w, "default")
	return func() {
		t.Helper()
		testutil.Ok(t, w.client.ResumeQueue(t.Context(), "default"))
	}
}

// A stored workflow that cannot be decoded ends with an error that names its key, and harms neither its worker nor other
// workflows.
func TestDamagedWorkflowEndsWithAnError(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		testutil.Ok(t, w.client.PauseQueue(t.Context(), "default"))
		sender := newClient(t, rdb) // another process: the worker has never seen the workflows
		damages := map[string]func(string) string{
			"empty":           func(string) string { return "" },
			"another version": func(g string) string { return strings.Replace(g, "{", `{"v":99,`, 1) },
			"cut":             func(g string) string { return g[:len(g)/2] },
			"no such input":   func(g string) string { return strings.Replace(g, `"i":1`, `"i":7`, 1) },
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
				if err := c.Workflow(run.ID()).Retry(t.Context()); !errors.Is(err, tasks.ErrDamaged) {
					t.Errorf("%s: retry: got %v, want %v", name, err, tasks.ErrDamaged)
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
		testutil.Must(held.Wait(limited(t)))(t)
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
			c := newClient(t, rdb) // each knows only the plans that it has read
			worker := runWorker(t, c, m, tasks.WorkerConfig{Queues: map[string]int{queue: 1}, Concurrency: 1})
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
