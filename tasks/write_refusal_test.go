package tasks_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

// sluice is a connection whose calls a test can have refused, and that remembers which were: by Redis or
// by the test.
type sluice struct {
	mu      sync.Mutex        // guards the fields below
	refuse  func(string) bool // by what kindOf says; nil refuses nothing
	refused map[string]int    // by what kindOf says, and by every key of a workflow
}

// newSluice puts a sluice in front of a connection.
func newSluice(rdb redis.UniversalClient) *sluice {
	g := &sluice{refused: map[string]int{}}
	rdb.AddHook(g)
	return g
}

var errRefused = errors.New("refused by the test")

// kindOf names what a call to Redis is about. A script of ours has its name, and turns have three: "take" ends no
// batch, "turn" ends a batch or a part of one, "advance" makes changes of nodes that are in no batch. Of asynq's
// scripts "pop" takes out of a queue, "push" puts into one, and "finish" ends a task. Other calls are "script", or have
// the name of their command. keys are those of the workflows that a turn or an advance changes.
func kindOf(cmd redis.Cmder) (kind string, keys []string) {
	args := cmd.Args()
	if len(args) < 4 || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return cmd.Name(), nil
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
	case name == "turn":
		return turnOf(said[3], said[3:])
	case name != "":
		return name, nil
	case strings.HasSuffix(said[3], ":pending") && strings.Contains(said[4], ":paused"):
		return "pop", nil
	case strings.Contains(said[3], "}:t:"):
		return "push", nil
	case strings.HasSuffix(said[3], ":active"):
		return "finish", nil
	}
	return "script", nil
}

// turnOf is kindOf for a turn, by its prefix and its arguments, which count from one.
func turnOf(prefix string, argv []string) (kind string, keys []string) {
	for p, end := 15, len(argv); p+5 < end; {
		keys = append(keys, prefix+"w:"+argv[p])
		n, err := strconv.Atoi(argv[p+5])
		if err != nil {
			break
		}
		p += 6 + n
	}
	switch {
	case strings.Contains(argv[4], "u"):
		return "advance", keys
	case argv[8] != "":
		return "turn", keys
	}
	return "take", keys
}

func (g *sluice) set(refuse func(kind string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = refuse
}

// count returns how many calls of a kind, or on a workflow, were refused.
func (g *sluice) count(what string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused[what]
}

// closed reports whether a call is refused here.
func (g *sluice) closed(cmd redis.Cmder) bool {
	kind, _ := kindOf(cmd)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refuse != nil && g.refuse(kind)
}

// note remembers a call that was refused.
func (g *sluice) note(cmd redis.Cmder, err error) {
	if !errors.Is(err, errRefused) && !redis.HasErrorPrefix(err, "READONLY") && !redis.HasErrorPrefix(err, "OOM") {
		return
	}
	kind, keys := kindOf(cmd)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[kind]++
	for _, k := range keys {
		g.refused[k]++
	}
}

// DialHook implements redis.Hook.
func (g *sluice) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (g *sluice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := errRefused
		if !g.closed(cmd) {
			err = next(ctx, cmd)
		}
		cmd.SetErr(err)
		g.note(cmd, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (g *sluice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var open []redis.Cmder
		for _, cmd := range cmds {
			if g.closed(cmd) {
				cmd.SetErr(errRefused)
			} else {
				open = append(open, cmd)
			}
		}
		var err error
		if len(open) > 0 {
			err = next(ctx, open)
		}
		if len(open) < len(cmds) {
			err = errors.Join(err, errRefused)
		}
		for _, cmd := range cmds {
			g.note(cmd, cmd.Err())
		}
		return err
	}
}

// refusing has many workflows under way while Redis refuses writes: each is at a task that ends
// meanwhile. Once refused holds for each, Redis is healed: every workflow comes to what it should, having
// run each of its tasks once.
func refusing(t *testing.T, w *world, refuse, heal func(), refused func(id string) bool) {
	t.Helper()
	shapes := []tasks.Signature[int]{
		tasks.Chain(Hold.S("shut"), Inc),
		tasks.Chord(tasks.Group(Hold.S("shut"), tasks.Chain(ID.S(1), Inc)), Sum),
		tasks.Chord(tasks.Map(tasks.After(Hold.S("shut"), Range.S(3)), Double), Sum),
		tasks.OnSuccess(tasks.Chain(Hold.S("shut"), Inc), Note),
		tasks.Chain(tasks.Join(Hold.S("shut"), Replace.S(AB{2, 3})), Plus),
	}
	want := []int{2, 3, 6, 2, 6}
	runs := make([]*tasks.AsyncResult[int], 25)
	for i := range runs {
		runs[i] = sent(t, w, shapes[i%len(shapes)])
	}
	testutil.Eventually(t, "all are at the task that waits", func() bool { return len(w.noted("at shut")) == len(runs) })
	testutil.Eventually(t, "their slots have said that they are not back soon", func() bool {
		return slices.Contains([]string{"", "0"}, w.client.Redis().HGet(t.Context(), "muster:{0}:wake:default", "n").Val())
	})
	refuse()
	if _, err := ID.S(1).Send(t.Context(), w.client); err == nil {
		t.Error("sent to a Redis that refuses writes")
	}
	w.open("shut")
	for i, run := range runs {
		testutil.Eventually(t, fmt.Sprintf("workflow %d has met the refusals", i), func() bool { return refused(run.ID()) })
	}
	heal()
	for i, run := range runs {
		if got, err := run.Wait(limited(t)); err != nil || got != want[i%len(want)] {
			t.Errorf("workflow %d: got %v, %v, want %d\n%s", i, got, err, want[i%len(want)], tree(t, w, run.ID()))
		}
		ended(t, w, run.ID())
		for _, n := range nodes(t, w, run.ID()) {
			if times := w.ran(run.ID() + "." + n.ID); times != 1 && n.Queue != "" {
				t.Errorf("%s of workflow %d ran %d times", n.Task, i, times)
			}
		}
	}
	if got, err := send(t, w, tasks.Chord(tasks.Each(ints(50), ID), Sum)); err != nil || got != 1225 {
		t.Errorf("afterwards: got %v, %v", got, err)
	}
}

// Redis refuses writes for a while, as a replica does: what ended meanwhile counts, and ran once.
func TestNothingRunsTwiceWhileRedisIsReadOnly(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := srv.Client()
	w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Concurrency = 32 })
	as := func(args ...any) func() {
		return func() {
			if err := srv.Client().Do(t.Context(), append([]any{"REPLICAOF"}, args...)...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	g := newSluice(rdb)
	refusing(t, w, as("127.0.0.1", "1"), as("NO", "ONE"), func(id string) bool {
		return g.count(flowKey(t, rdb, id)) > 0 // the end of its task
	})
}

// The memory of Redis is full for a while: nothing is lost, and what runs ends once there is room.
func TestNothingIsLostWhileRedisIsOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "maxmemory-policy", "noeviction")
	rdb := srv.Client()
	w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Concurrency = 32 })
	admin := srv.Client()
	g := newSluice(rdb)
	refusing(t, w, func() {
		if err := admin.SetRange(t.Context(), "ballast", 32<<20, "x").Err(); err != nil {
			t.Fatal(err)
		}
		var used int
		for line := range strings.Lines(admin.Info(t.Context(), "memory").Val()) {
			if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
				used, _ = strconv.Atoi(strings.TrimSpace(v))
			}
		}
		if used < 32<<20 {
			t.Fatalf("Redis uses %d bytes", used)
		}
		if err := admin.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used-16<<20)).Err(); err != nil {
			t.Fatal(err)
		}
	}, func() {
		if err := admin.Del(t.Context(), "ballast").Err(); err != nil {
			t.Fatal(err)
		}
	}, func(string) bool {
		// Ends of tasks free memory before they take any, and are let through; the members of maps, and
		// what is taken out of queues, are not. A map that has not begun before has no members to be refused.
		return g.count("inputs") > 0 && g.count("pop") > 0 || g.count("pop") > 10
	})
}

// The end of a task can be stored and asynq not be told of it, for longer than it is tried: asynq then
// delivers the task once more, which finds that it has run.
func TestTaskThatAsynqDeliversTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	w := newWorld(t, rdb)
	g := newSluice(rdb)
	g.set(func(kind string) bool { return kind == "finish" })
	run := sent(t, w, tasks.Chord(tasks.Each(ints(5), Note), Total))
	if got, err := run.Wait(limited(t)); err != nil || got != 10 {
		t.Fatalf("got %v, %v", got, err)
	}
	ended(t, w, run.ID())
	testutil.Eventually(t, "asynq could not be told", func() bool { return g.count("finish") > 0 })
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
	g.set(nil)
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
