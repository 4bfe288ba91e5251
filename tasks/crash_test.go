package tasks_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// The crash tests run this test binary as a worker process.
const (
	childURL   = "MUSTER_TASKS_TEST_CHILD_URL"
	childName  = "MUSTER_TASKS_TEST_CHILD_NAME"
	childDies  = "MUSTER_TASKS_TEST_CHILD_DIES"  // after which call to Redis, or how long after it was ready
	childTakes = "MUSTER_TASKS_TEST_CHILD_TAKES" // from which queue
)

var (
	stepTask = tasks.New[string, string]("crash.step")
	joinTask = tasks.New[[]string, string]("crash.join")
	dieTask  = tasks.New[string, string]("crash.die")
	failTask = tasks.New[string, int]("crash.fail")
	slowTask = tasks.New[int, int]("crash.slow")
	askTask  = tasks.New[string, string]("crash.ask", tasks.External())
	handTask = tasks.New[string, string]("crash.hand")
)

// crashMux counts every run of a node in Redis, and holds the nodes that are asked to.
func crashMux(c *tasks.Client) *tasks.Mux {
	m := tasks.NewMux()
	rdb := c.Redis()
	tasks.Handle(m, stepTask, func(ctx context.Context, in string) (string, error) {
		key := "runs:" + tasks.InfoFrom(ctx).Key
		n, err := rdb.Incr(ctx, key).Result()
		if err != nil {
			return "", err
		}
		rdb.Expire(ctx, key, time.Hour)
		if strings.HasPrefix(in, "hold") && n == 1 {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return strings.TrimPrefix(in, "hold "), nil
	})
	tasks.Handle(m, joinTask, func(ctx context.Context, in []string) (string, error) {
		key := "runs:" + tasks.InfoFrom(ctx).Key
		if err := rdb.Incr(ctx, key).Err(); err != nil {
			return "", err
		}
		rdb.Expire(ctx, key, time.Hour)
		return strings.Join(in, " "), nil
	})
	tasks.Handle(m, dieTask, func(context.Context, string) (string, error) {
		os.Exit(3)
		return "", nil
	})
	tasks.Handle(m, slowTask, func(ctx context.Context, n int) (int, error) {
		select {
		case <-time.After(50 * time.Millisecond):
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	tasks.Handle(m, handTask, func(ctx context.Context, in string) (string, error) {
		token, err := tasks.TokenFrom(ctx)
		if err != nil {
			return "", err
		}
		passed := "passed:" + tasks.InfoFrom(ctx).Workflow
		if n, err := rdb.RPush(ctx, passed, token).Result(); err != nil {
			return "", err
		} else if n == 1 {
			die()
			select {}
		}
		rdb.Expire(ctx, passed, time.Hour)
		return tasks.ResultPending[string](ctx)
	})
	tasks.Handle(m, failTask, func(context.Context, string) (int, error) { return 0, errors.New("E1") })
	canvas.Handle(m)
	return m
}

// TestChildWorker is the worker process of the tests below; run by itself it has nothing to do.
func TestChildWorker(t *testing.T) {
	url := os.Getenv(childURL)
	if url == "" {
		t.SkipNow()
	}
	c, err := tasks.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	c.Redis().AddHook(&dying{after: os.Getenv(childDies)})
	life, _ := time.ParseDuration(os.Getenv(childDies)) // of a child that dies at no call
	w, err := tasks.NewWorker(c, crashMux(c), tasks.WorkerConfig{
		Name:   os.Getenv(childName),
		Queues: map[string]int{cmp.Or(os.Getenv(childTakes), "default"): 1},
		Ready: func() {
			fmt.Println("child is ready")
			if life > 0 {
				time.AfterFunc(life, die)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// dying is a connection that takes its process with it, as kill -9 does, right after a call.
type dying struct {
	after string // "popped": a wake-task was taken out of asynq; "taken": a batch was taken; "turned": one ended and another was taken; "failed": a task has failed; "opened": one waits for an answer
}

func (d *dying) look(cmd redis.Cmder, err error) {
	script, ok := cmd.(*redis.Cmd)
	if err != nil || !ok {
		return
	}
	kind, _ := kindOf(cmd)
	list, _ := script.Slice()
	const head = 5 // of the answer to a turn; then there are the elements of its batch
	dies := false
	switch d.after {
	case "popped":
		dies = kind == "pop" // an empty queue is an error
	case "taken":
		dies = kind == "take" && len(list) > head
	case "turned":
		dies = kind == "turn" && len(list) > head
	case "opened":
		dies = kind == "turn" && slices.Contains(cmd.Args(), any("W"))
	case "failed":
		dies = kind == "turn" && slices.Contains(cmd.Args(), any("F"))
	}
	if !dies {
		return
	}
	die()
	select {}
}

// die ends the process as kill -9 does.
func die() {
	if me, err := os.FindProcess(os.Getpid()); err == nil {
		_ = me.Kill()
	}
}

// DialHook implements redis.Hook.
func (d *dying) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (d *dying) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		d.look(cmd, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (d *dying) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			d.look(cmd, cmd.Err())
		}
		return err
	}
}

func childCommand(url, name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildWorker$", "-test.timeout=120s")
	cmd.Env = append(append(os.Environ(), childURL+"="+url, childName+"="+name), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// doomed runs a worker process that dies at a point of what waits for it already, maybe before it is ready.
func doomed(t *testing.T, url, name, point string, env ...string) {
	t.Helper()
	err := childCommand(url, name, append(env, childDies+"="+point)...).Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the worker process was to be killed, and ended with %v", err)
	}
}

// child starts a worker process and waits until it takes tasks.
func child(t *testing.T, url, name string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := childCommand(url, name, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "child is ready") {
			go func() {
				for lines.Scan() {
				}
			}()
			return cmd
		}
	}
	t.Fatalf("worker process did not become ready: %v", lines.Err())
	return nil
}

func connect(t *testing.T, url string) *tasks.Client {
	t.Helper()
	c, err := tasks.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return c
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// A supervised worker that is killed has its work running again at once.
func TestKilledSupervisedWorker(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	first := child(t, url, "first")
	held, err := tasks.Chain(stepTask.S("hold on"), stepTask).Send(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the step runs", func() bool {
		s, err := held.Status(t.Context())
		as, aerr := c.Active(t.Context())
		return err == nil && aerr == nil && s != tasktype.Success && len(as) == 1 && c.Redis().Exists(t.Context(), "runs:"+held.ID()+".0").Val() == 1
	})
	child(t, url, "second")
	kill(t, first)
	began := time.Now()
	if err := tasks.ExpireLeases(t.Context(), c, "first"); err != nil {
		t.Fatal(err)
	}
	if got, err := held.Wait(limited(t)); err != nil || got != "on" {
		t.Fatalf("got %q, %v", got, err)
	}
	// Who waits for its silence takes six seconds at least; on an idle machine this takes hundredths of one.
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("work of a killed worker was done after %v", d)
	}
}

// A worker that vanishes with its machine is missed by the others.
func TestKilledWorkerThatNobodySupervises(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	first := child(t, url, "first")
	held, err := stepTask.S("hold on").Send(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the step runs", func() bool {
		return c.Redis().Exists(t.Context(), "runs:"+held.ID()+".0").Val() == 1
	})
	child(t, url, "second")
	kill(t, first)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // less than a lease of asynq's
	defer cancel()
	if got, err := held.Wait(ctx); err != nil || got != "on" {
		t.Fatalf("got %q, %v after %v", got, err, time.Since(began))
	}
}

// Nodes that a worker has taken and not begun run once, at whatever step the worker is killed.
func TestKilledWithABatch(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, dies string
		active     int // nodes in batches
		supervised bool
		most       time.Duration
	}{
		{"a wake-task was taken", "popped", 0, true, 2 * time.Second}, // less than until workers look for it
		{"a batch was taken", "taken", 1, true, 2 * time.Second},
		{"a batch has ended and another was taken", "turned", 1, true, 2 * time.Second},
		{"a wake-task was taken by a worker that nobody supervises", "popped", 0, false, 25 * time.Second}, // less than a lease of asynq's
		{"a batch was taken by a worker that nobody supervises", "taken", 1, false, 25 * time.Second},
		{"a batch has ended and another was taken by a worker that nobody supervises", "turned", 1, false, 25 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := redistest.URL(t)
			cl := connect(t, url)
			rdb := cl.Redis()
			var steps []tasks.Signature[string]
			for i := range 6 {
				steps = append(steps, stepTask.S(fmt.Sprint(i)))
			}
			run, err := tasks.Chord(tasks.Group(steps...), joinTask).Send(t.Context(), cl)
			if err != nil {
				t.Fatal(err)
			}
			doomed(t, url, "first", c.dies) // it takes what is ready
			killed := time.Now()
			if n := rdb.LLen(t.Context(), "asynq:{default}:active").Val(); n < 1 {
				t.Fatalf("the worker died with %d wake-tasks taken, want at least 1", n)
			}
			if list, _ := cl.Active(t.Context()); len(list) < c.active || c.active == 0 && len(list) > 0 {
				t.Fatalf("the worker died with %v in batches, want %d nodes", list, c.active)
			}
			child(t, url, "second")
			if c.supervised {
				killed = time.Now()
				if err := tasks.ExpireLeases(t.Context(), cl, "first"); err != nil {
					t.Fatal(err)
				}
			}
			got, err := run.Wait(limited(t))
			if took := time.Since(killed); err != nil || got != "0 1 2 3 4 5" || took > c.most {
				t.Fatalf("got %q, %v after %s, want the steps within %s", got, err, took, c.most)
			}
			t.Logf("took %s", time.Since(killed))
			ran := rdb.Keys(t.Context(), "runs:"+run.ID()+".*").Val()
			if len(ran) != 7 {
				t.Errorf("ran: %v, want six steps and what joins them", ran)
			}
			for _, key := range ran {
				if n := rdb.Get(t.Context(), key).Val(); n != "1" {
					t.Errorf("%s is %s, want 1", key, n)
				}
			}
		})
	}
}

// FailFast, and the worker dies after a member has failed and before its siblings are revoked: those that
// run elsewhere, that wait and that are due later end all the same.
func TestKilledBetweenFailureAndFailFast(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	run := sent(t, w, tasks.GroupOf([]tasks.Signature[int]{Hold.S("never"), tasks.Chain(Hold.S("never"), Inc), ID.S(1, tasks.In(time.Hour)),
		failTask.S("x", tasks.Queue("doomed"))}, tasks.FailFast()))
	testutil.Eventually(t, "siblings run", func() bool { return len(w.noted("at never")) == 2 })
	doomed(t, url, "first", "failed", childTakes+"=doomed")
	failed := 0
	for _, n := range nodes(t, w, run.ID()) {
		switch {
		case n.Status == tasktype.Failed:
			failed++
		case n.Status == tasktype.Revoked:
			t.Fatalf("%s was revoked before the worker died", n.ID)
		}
	}
	if failed != 1 {
		t.Fatalf("the worker died before the failure was stored\n%s", tree(t, w, run.ID()))
	}
	_, err := run.Wait(limited(t))
	wantFailure(t, err, "E1")
	ended(t, w, run.ID())
	for _, n := range nodes(t, w, run.ID()) {
		if n.Queue != "" && n.Status != tasktype.Revoked && n.Status != tasktype.Skipped && n.Task != failTask.Name() {
			t.Errorf("%s %s is %s", n.Task, n.ID, n.Status)
		}
	}
	testutil.Eventually(t, "their handlers have ended", func() bool { busy, _ := w.worker.Slots(); return busy == 0 })
}

// A task that takes its worker with it fails in the end, and its workflow with it.
func TestPoisonTask(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	run, err := tasks.Chain(dieTask.S("x"), stepTask).Send(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ended := func() bool {
		s, err := run.Status(t.Context())
		return err == nil && s.Terminal()
	}
	deaths := killWorkers(t, url, c, ended)
	if deaths < 11 {
		t.Errorf("failed after %d deaths, want at least 11", deaths)
	}
	_, err = run.Wait(limited(t))
	if f := wantFailure(t, err, "its worker died"); f.Code != tasktype.CodeLost {
		t.Fatalf("got %+v", f)
	}
}

// killWorkers starts one worker after the other, each once the one before has died, until ended. It returns how many have
// died before that.
func killWorkers(t *testing.T, url string, c *tasks.Client, ended func() bool) (deaths int) {
	t.Helper()
	for ; !ended(); deaths++ {
		if deaths > 40 {
			t.Fatal("workers die without end")
		}
		name := fmt.Sprintf("victim%d", deaths)
		cmd := childCommand(url, name)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		died := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(died)
		}()
		testutil.Eventually(t, "the worker dies, or all is done", func() bool {
			select {
			case <-died:
				return true
			default:
				return ended()
			}
		})
		_ = cmd.Process.Kill()
		<-died
		if err := tasks.ExpireLeases(t.Context(), c, name); err != nil {
			t.Fatal(err)
		}
	}
	return deaths - 1
}

// Those that run beside a task that takes its worker with it, or were taken together with it, are not
// blamed for that.
func TestNeighboursOfPoison(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	innocent, err := tasks.Each(ints(7), slowTask).Send(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	guilty, err := dieTask.S("x").Send(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ended := func() bool {
		g, gerr := guilty.Status(t.Context())
		i, ierr := innocent.Status(t.Context())
		return gerr == nil && ierr == nil && g.Terminal() && i.Terminal()
	}
	killWorkers(t, url, c, ended)
	if got, err := innocent.Wait(limited(t)); err != nil || !slices.Equal(got, ints(7)) {
		t.Errorf("those beside it came to %v, %v", got, err)
	}
	_, err = guilty.Wait(limited(t))
	if f := wantFailure(t, err, "its worker died"); f.Code != tasktype.CodeLost {
		t.Errorf("got %+v", f)
	}
}

// inWorldsOfAsynq runs a test in a world of its own on each kind of Redis, with a view of asynq's queues.
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

func TestRevokedWorkflowNeverRuns(t *testing.T) {
	t.Parallel()
	inWorldsOfAsynq(t, func(t *testing.T, w *world, in *asynq.Inspector) {
		resume := pause(t, w)
		run := sent(t, w, tasks.Chain(Echo.S(Mark{"w8", 1}), Inc))
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		if q, err := in.GetQueueInfo("default"); err != nil || q.Pending != 0 {
			t.Errorf("%+v, %v, want no wake-task for work that was revoked", q, err)
		}
		resume()
		if _, err := send(t, w, ID.S(1)); err != nil {
			t.Fatal(err)
		}
		if ran := w.noted("w8"); len(ran) != 0 {
			t.Fatalf("a revoked step ran: %v", ran)
		}
	})
}

func TestRedisForgetsItsScripts(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := send(t, w, tasks.Chord(tasks.Each(ints(30), ID), Sum)); err != nil || got != 435 {
			t.Fatalf("got %v, %v, want 435", got, err)
		}
	})
}

// A Redis that restarts, with its log on disk, loses no workflow.
func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	c := connect(t, srv.URL())
	child(t, srv.URL(), "first")
	var runs []*tasks.AsyncResult[string]
	for i := range 20 {
		var members []tasks.Signature[string]
		for k := range 5 {
			members = append(members, tasks.Chain(stepTask.S(fmt.Sprint(i, ".", k)), stepTask))
		}
		run, err := tasks.Chord(tasks.Group(members...), joinTask).Send(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
		if i == 10 {
			srv.Restart()
		}
	}
	for i, run := range runs {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		got, err := run.Wait(ctx)
		cancel()
		if err != nil || len(strings.Fields(got)) != 5 || !strings.HasPrefix(got, fmt.Sprint(i, ".", 0)) {
			rdb := c.Redis()
			t.Fatalf("workflow %d: got %q, %v\nfields %v\nagenda %v\nwake %v\nkeys %v", i, got, err,
				rdb.HGetAll(t.Context(), "muster:{0}:w:"+run.ID()).Val(),
				rdb.ZRangeWithScores(t.Context(), "muster:{0}:agenda", 0, 20).Val(),
				rdb.HGetAll(t.Context(), "muster:{0}:wake:default").Val(), rdb.Keys(t.Context(), "*").Val())
		}
		if n := c.Redis().Get(t.Context(), "runs:"+run.ID()+".11").Val(); n != "1" && n != "2" {
			t.Errorf("join of workflow %d ran %s times", i, n)
		}
	}
}

// A worker that is told to stop gives back what it cannot finish.
func TestStoppedWorkerGivesBack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		other := &world{client: w.client, notes: map[string][]int{}, hold: make(chan struct{})}
		worker, err := tasks.NewWorker(w.client, other.mux(), tasks.WorkerConfig{Grace: 10 * time.Millisecond, Name: "leaver", Queues: map[string]int{"away": 1, "default": 1}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		run, err := Slow.S(AB{1, 2000}, tasks.Queue("away")).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "it runs", func() bool {
			as, err := w.client.Active(t.Context())
			return err == nil && len(as) == 1 && as[0].Worker == "leaver"
		})
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if as, err := w.client.Active(t.Context()); err != nil || len(as) != 0 {
			t.Fatalf("after the stop %v runs, %v", as, err)
		}
		nodes, err := w.client.Nodes(t.Context(), run.ID())
		if err != nil || nodes[0].Status != tasktype.Pending || nodes[0].Attempts != 0 {
			t.Fatalf("given back as %+v, %v", nodes, err)
		}
		if ws, err := w.client.Workers(t.Context()); err != nil || len(ws) != 1 {
			t.Fatalf("workers %v, %v", ws, err)
		}
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
