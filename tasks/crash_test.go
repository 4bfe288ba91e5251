package tasks_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// The crash tests run this test binary as a worker process.
const (
	childURL   = "MUSTER_TASKS_TEST_CHILD_URL"
	childName  = "MUSTER_TASKS_TEST_CHILD_NAME"
	childDies  = "MUSTER_TASKS_TEST_CHILD_DIES" // after which call to Redis, or how long after it was ready
	childSlots = "MUSTER_TEST_CHILD_SLOTS"      // tasks that it runs at once
)

var (
	stepTask  = tasks.New[string, string]("crash.step")
	joinTask  = tasks.New[[]string, string]("crash.join")
	dieTask   = tasks.New[string, string]("crash.die")
	slowTask  = tasks.New[int, int]("crash.slow")
	manySteps = tasks.New[int, int]("crash.steps") // so many
)

// crashMux counts every run of a node in Redis, and holds the nodes that are asked to.
func crashMux(c *tasks.Client) *tasks.Mux {
	m := tasks.NewMux()
	rdb := c.Redis()
	step := func(ctx context.Context, in string) (string, error) {
		key := "runs:" + tasks.InfoFrom(ctx).Workflow + "." + tasks.InfoFrom(ctx).Node
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
	}
	tasks.Handle(m, stepTask, step)
	tasks.Handle(m, joinTask, func(ctx context.Context, in []string) (string, error) {
		key := "runs:" + tasks.InfoFrom(ctx).Workflow + "." + tasks.InfoFrom(ctx).Node
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
	tasks.Handle(m, manySteps, func(ctx context.Context, steps int) (sum int, err error) {
		flow := store.Keys(store.DefaultNamespace).Prefix(0) + "w:" + tasks.InfoFrom(ctx).Workflow + "~"
		for i := range steps {
			name := fmt.Sprintf("step %d", i)
			n, err := tasks.Step(ctx, name, func(ctx context.Context) (int, error) {
				if list, err := storedSteps(ctx, rdb, flow, steps); err != nil || slices.ContainsFunc(list, func(s tasktype.Step) bool { return s.Name == name }) {
					rdb.Incr(ctx, "stored before")
				}
				n, err := rdb.Incr(ctx, "ran").Result()
				return int(n), err
			})
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	})
	canvas.Handle(m, nil, nil)
	return m
}

// storedSteps reads the steps of the only node of a workflow.
func storedSteps(ctx context.Context, rdb redis.Cmdable, flow string, n int) (out []tasktype.Step, err error) {
	var fields []string
	for i := range n + 1 {
		fields = append(fields, store.StepField("0", i+1))
	}
	raws, err := rdb.HMGet(ctx, flow, fields...).Result()
	for _, raw := range raws {
		if text, ok := raw.(string); ok {
			st, ok := store.ParseStep(text)
			if !ok {
				return nil, fmt.Errorf("damaged step %q", text)
			}
			out = append(out, st)
		}
	}
	return out, err
}

// TestChildWorker is the worker process of the tests below; run by itself it has nothing to do.
func TestChildWorker(t *testing.T) {
	url := os.Getenv(childURL)
	if url == "" {
		t.SkipNow()
	}
	opt := testutil.Must(redis.ParseURL(url))(t)
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(dying(os.Getenv(childDies)))
	c := tasks.NewClient(rdb)
	life, _ := time.ParseDuration(os.Getenv(childDies)) // of a child that dies at no call
	slots, _ := strconv.Atoi(os.Getenv(childSlots))     // 0: the default
	w, err := tasks.NewWorker(c, crashMux(c), tasks.WorkerConfig{
		Name:        os.Getenv(childName),
		Concurrency: slots,
		Ready: func() {
			fmt.Println("child is ready")
			if life > 0 {
				time.AfterFunc(life, redistest.Die)
			}
		},
	})
	testutil.Ok(t, err)
	testutil.Ok(t, w.Run(t.Context()))
}

// dying returns a fault that kills the process after a call: "taken": nodes were
// taken; "turned": results were stored and nodes taken.
func dying(after string) *redistest.Fault {
	f := redistest.NewFault(redistest.Killed, 1)
	f.Reply = func(cmd redis.Cmder) bool {
		kind := kindOf(cmd)
		taken := false
		if script, ok := cmd.(*redis.Cmd); ok {
			list, _ := script.Slice()
			taken = len(list) > 4 // the elements follow
		}
		switch after {
		case "taken":
			return kind == "take" && taken
		case "turned":
			return kind == "turn" && taken
		}
		return false
	}
	f.Arm()
	return f
}

// kindOf returns the kind of a call to Redis. A script of the store has its name, and turns have three: "take" only takes nodes,
// "turn" ends leases, "advance" makes changes of nodes without leases. "finish" is the script of
// asynq that ends a task. Other calls are "script", or have the name of their command.
func kindOf(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 4 || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return cmd.Name()
	}
	said := make([]string, len(args))
	for i, a := range args {
		said[i] = fmt.Sprint(a)
	}
	sha := said[1]
	if cmd.Name() == "eval" {
		sha = fmt.Sprintf("%x", sha1.Sum([]byte(sha)))
	}
	switch name := store.ScriptName(sha); {
	case name == "turn" && said[8] == "direct":
		return "advance"
	case name == "turn" && said[12] == "0" && said[13] == "0": // no leases end
		return "take"
	case name != "":
		return name
	case strings.HasSuffix(said[3], ":active"):
		return "finish"
	}
	return "script"
}

func childCommand(url, name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildWorker$", "-test.timeout=120s")
	cmd.Env = append(append(os.Environ(), childURL+"="+url, childName+"="+name), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// doomed runs a worker process that dies at a point of the waiting workflow, maybe before it is ready.
func doomed(t *testing.T, url, name, point string, env ...string) {
	t.Helper()
	err := childCommand(url, name, append(env, childDies+"="+point)...).Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("worker process: got %v, want it killed", err)
	}
}

// child starts a worker process and waits until it takes tasks.
func child(t *testing.T, url, name string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := childCommand(url, name, env...)
	out := testutil.Must(cmd.StdoutPipe())(t)
	testutil.Ok(t, cmd.Start())
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
	c := testutil.Must(tasks.Connect(t.Context(), url))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return c
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	testutil.Ok(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// A task says that the worker that ran it has vanished with its machine, and another worker runs it.
func TestKilledWorkerIsFoundDead(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	first := child(t, url, "first")
	held := started(t, c, stepTask.S("hold on"))
	testutil.Eventually(t, "the step runs", func() bool {
		return c.Redis().Exists(t.Context(), "runs:"+held.ID()+".0").Val() == 1
	})
	lost := func() bool {
		ns, err := c.Workflow(held.ID()).Nodes(t.Context())
		return err == nil && ns[0].Waits == "its worker first is lost; another one will run it"
	}
	if lost() {
		t.Error("a task of a live worker says that its worker is lost")
	}
	kill(t, first)
	testutil.Eventually(t, "the task says that its worker is lost", lost)
	child(t, url, "second")
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // less than a lease of asynq's
	defer cancel()
	if got, err := held.Wait(ctx); err != nil || got != "on" {
		t.Errorf("got %q, %v after %s, want a value", got, err, time.Since(began))
	}
}

// While the server of a shard of a Cluster does not reply, work is sent to the other shards, and the tasks of a dead worker run again in these.
func TestClusterWithoutAShard(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name, c.Concurrency = "dead", 100 })
	runs := make([]*tasks.Run[int], 48)
	for i := range runs {
		runs[i] = sent(t, w, Hold.S("a"))
	}
	testutil.Eventually(t, "all run", func() bool { return len(w.noted("at a")) == len(runs) })
	down := shards(t, rdb)[0]
	cut := redis.NewClusterClient(rdb.(*redis.ClusterClient).Options())
	t.Cleanup(func() { _ = cut.Close() })
	cut.AddHook(redistest.Calls(func(_ context.Context, next func() error, cmds ...redis.Cmder) error {
		for _, cmd := range cmds {
			if slices.ContainsFunc(cmd.Args(), func(arg any) bool { return strings.HasPrefix(fmt.Sprint(arg), down) }) {
				cmd.SetErr(redistest.ErrFault)
				return redistest.ErrFault
			}
		}
		return next()
	}))
	c, sends := newClient(t, cut), 0
	for range 24 {
		if _, err := ID.S(1).Send(t.Context(), c); err == nil {
			sends++
		} else if !errors.Is(err, redistest.ErrFault) {
			t.Error(err)
		}
	}
	if sends == 0 {
		t.Error("nothing was sent")
	}
	if err := c.ExpireLeases(t.Context(), "dead"); !errors.Is(err, redistest.ErrFault) {
		t.Errorf("got %v, want the error of a shard", err)
	}
	for _, run := range runs {
		want := 2
		if strings.HasPrefix(flowKey(t, rdb, run.ID()), down) {
			want = 1
		}
		testutil.Eventually(t, fmt.Sprintf("the task runs %d times", want), func() bool { return w.ran(run.ID()+".0") == want })
	}
}

// A worker that cannot lease one of its tasks finds dead workers nevertheless: on a Cluster they can have tasks in the shards of other servers.
func TestDeadWorkerIsFoundBesideALeaseThatFails(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	asked := make(chan struct{}, 1000)
	rdb.AddHook(redistest.Calls(func(_ context.Context, next func() error, cmds ...redis.Cmder) error {
		if args := cmds[0].Args(); len(args) > 1 && store.ScriptName(fmt.Sprint(args[1])) == "adopt" {
			asked <- struct{}{}
			return redistest.ErrFault
		}
		return next()
	}))
	w := newWorld(t, rdb)
	sent(t, w, Hold.S("a"))
	<-asked
	run := sent(t, w, ID.S(1, tasks.Queue("other")))
	const shard = "muster:{0}:"
	testutil.Ok(t, rdb.LMove(t.Context(), shard+"ring:other", shard+"taken:other:dead", "LEFT", "RIGHT").Err())
	testutil.Ok(t, rdb.ZAdd(t.Context(), shard+"takers", redis.Z{Member: "other:dead"}).Err())
	testutil.Eventually(t, "the task is on its ring again", func() bool {
		return rdb.LIndex(t.Context(), shard+"ring:other", 0).Val() == run.ID()+"~@1"
	})
}

// Nodes that a worker has taken and not begun run once, at whatever step the worker is killed, also if it is in no list of
// workers, as after a roll-back of Redis.
func TestKilledBatchRunsEachUnbegunNodeOnce(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, dies string
		unlisted   bool
	}{
		{"a batch was taken", "taken", false},
		{"a batch was taken and the worker is not listed", "taken", true},
		{"a batch has ended and another was taken", "turned", false},
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
			run := started(t, cl, tasks.Chord(tasks.Group(steps...), joinTask))
			// With one slot: a step that runs in another one when the worker dies has begun, and runs again.
			doomed(t, url, "first", c.dies, childSlots+"=1")
			if list, _ := cl.Inspect().Active(t.Context()); len(list) == 0 {
				t.Fatal("the worker died without a batch")
			}
			child(t, url, "second")
			if c.unlisted {
				testutil.Ok(t, rdb.ZRem(t.Context(), "muster:workers", "first").Err())
			} else {
				testutil.Ok(t, cl.ExpireLeases(t.Context(), "first"))
			}
			wantValue(t, run, "0 1 2 3 4 5")
			ran := rdb.Keys(t.Context(), "runs:"+run.ID()+".*").Val()
			if len(ran) != 7 {
				t.Errorf("ran: %v, want six steps and their join", ran)
			}
			for _, key := range ran {
				if n := rdb.Get(t.Context(), key).Val(); n != "1" {
					t.Errorf("%s is %s, want 1", key, n)
				}
			}
		})
	}
}

// Each step runs until it is stored, once, and not again, when workers are killed at any point. The variable has other numbers of handlers and
// kills, and another least time until a kill in ms: a node whose workers have died 11 times fails.
func TestKilledWorkersRunStoredStepsOnce(t *testing.T) {
	t.Parallel()
	handlers, kills, life := 60, 4, 100
	_, _ = fmt.Sscan(os.Getenv("MUSTER_TEST_STEPS"), &handlers, &kills, &life)
	const steps = 20
	url := redistest.URL(t)
	c := connect(t, url)
	sends := make([]tasks.Sending, handlers)
	for i := range sends {
		sends[i].Work = manySteps.S(steps)
	}
	sent := testutil.Must(c.SendMany(t.Context(), sends))(t)
	for i := range kills {
		name := fmt.Sprint("doomed", i)
		doomed(t, url, name, (time.Duration(life+37*i%200) * time.Millisecond).String(), childSlots+"=8")
		testutil.Ok(t, c.ExpireLeases(t.Context(), name))
	}
	ended := func() int64 {
		counts := testutil.Must(c.Inspect().CountWorkflows(t.Context()))(t)
		return counts[tasktype.WorkflowSucceeded]
	}
	t.Logf("%d of %d handlers have ended after %d kills", ended(), handlers, kills)
	child(t, url, "last")
	for _, s := range sent {
		sum, err := tasks.Attach[int](c, s.ID).Wait(t.Context())
		stored, serr := storedSteps(t.Context(), c.Redis(), store.Keys(store.DefaultNamespace).Prefix(0)+"w:"+s.ID+"~", steps)
		names := map[string]bool{}
		for _, st := range stored {
			n, _ := strconv.Atoi(string(st.Value))
			names[st.Name], sum = true, sum-n
		}
		if err != nil || serr != nil || len(stored) != steps || len(names) != steps || sum != 0 {
			t.Errorf("workflow %s: got %d steps with %d names, %v, %v, and a result that differs by %d from their sum", s.ID, len(stored), len(names), err, serr, sum)
		}
	}
	if n := c.Redis().Get(t.Context(), "stored before").Val(); n != "" {
		t.Errorf("%s steps ran after they were stored", n)
	}
	ran, _ := c.Redis().Get(t.Context(), "ran").Int()
	t.Logf("functions ran %d times for %d steps", ran, steps*handlers)
	if most := steps*handlers + 8*kills; ran > most {
		t.Errorf("functions ran %d times, want at most %d: once, and once more for each slot of a killed worker", ran, most)
	}
}
