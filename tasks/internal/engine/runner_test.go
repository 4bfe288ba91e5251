package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// stillClock is a clock whose timers a test fires.
type stillClock struct {
	machineClock
	fire []func()
}

func (c *stillClock) AfterFunc(_ time.Duration, f func()) func() bool {
	c.fire = append(c.fire, f)
	return func() bool { return true }
}

// A suspected node that runs for long does not keep others from running.
func TestSuspectIsAloneForAtMostSomeTime(t *testing.T) {
	t.Parallel()
	c := &stillClock{}
	first := alone(c)
	if first == nil || alone(c) != nil {
		t.Fatal("want one suspected node at first")
	}
	c.fire[0]()
	second := alone(c)
	if second == nil || alone(c) != nil {
		t.Fatal("want one more after some time")
	}
	first()
	if alone(c) != nil {
		t.Error("the end of the first lets a third run beside the second")
	}
	second()
	third := alone(c)
	if third == nil {
		t.Fatal("want another one after the end of the second")
	}
	third()
}

func TestMain(m *testing.M) { redistest.Main(m) }

// The nodes of a batch that a killed worker does not run have not failed, also before their contexts have ended.
func TestBatchOfAKilledWorkerRunsAgain(t *testing.T) {
	t.Parallel()
	l := newLife()
	l.kill()
	r := &Run{w: &runner{local: &local{life: l}, runs: &runs{set: map[*Run]bool{}}}, it: &item{batch: newBatch(1)}, spec: &graph.Spec{}, ctx: t.Context()}
	h := &Handler{Run: func(ctx context.Context, _ []byte) (HandlerResult, error) {
		_, err := r.Join(ctx, nil, func(context.Context, []any) []any { t.Error("the handler is called"); return nil })
		return HandlerResult{}, err
	}}
	if a, here := r.call(h, nil, nil); !here || a.err == nil || a.err.again == nil {
		t.Errorf("got %+v, want it to run again", a)
	}
}

// A slot of a strict worker takes from heavier queues first. It leaves out other queues that have a limit.
func TestOrderOfQueues(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // is not asked
	t.Cleanup(func() { _ = rdb.Close() })
	w := NewWorker(New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler)), nil,
		WorkerConfig{Queues: map[string]int{"a": 3, "b": 2, "c": 1}, QueueLimits: map[string]int{"b": 1}, Strict: true, Concurrency: 1})
	for queue, want := range map[string][]string{"a": {"a", "c"}, "b": {"a", "b", "c"}} {
		if got := w.rings.order(queue, false); !slices.Equal(got, want) {
			t.Errorf("queue %s: got %v, want %v", queue, got, want)
		}
	}
}

// FuzzToken checks that every accepted token is valid, and that errors do not contain the token.
func FuzzToken(f *testing.F) {
	good, _ := newToken("w1", "3.2")
	for _, s := range []string{good, " " + good + "\n", good + ".x", "..", "AAAAAAAAAAAAAAAAAAAAAA.w.0:1.2", "AAAAAAAAAAAAAAAAAAAAAB.w.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseToken(s)
		if err != nil {
			if text, _, _ := strings.Cut(s, "."); !errors.Is(err, ErrUnknown) || len(text) > 10 && strings.Contains(err.Error(), text) {
				t.Errorf("%q: got %v", s, err)
			}
			return
		}
		if _, err := graph.ParseID(got.node); err != nil || got.workflow == "" || got.hash == "" || !strings.HasSuffix(strings.TrimSpace(s), "."+got.workflow+"."+got.node) {
			t.Errorf("%q: got %+v", s, got)
		}
	})
}

// A node of a workflow that this worker cannot read is put back for a short time, after which the worker looks at it
// again: the timer of a todo does not depend on the workflow.
func TestTimerIsSetThoughItsWorkflowCannotBeRead(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	testutil.Ok(t, rdb.HSet(t.Context(), "muster:{0}:w:newer~", "n", 1, "g", `{"v":99}`).Err())
	e := New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	w := NewWorker(e, nil, WorkerConfig{Queues: map[string]int{"default": 1}, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	begun := time.Now()
	w.dispatcher.settle([]store.Todo{{Ref: "newer~", Timer: time.Minute}})
	select {
	case got := <-w.agenda.timer:
		if got.Before(begun.Add(time.Minute)) {
			t.Errorf("timer: got %v, want one in a minute", got)
		}
	default:
		t.Error("timer: got none, want one in a minute")
	}
}

// A process that was suspended after it read the clock sets no next tick to the past: others have sent the ticks since then.
func TestSuspendedProcessesSendNoTickAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e := New(redistest.New(t), store.DefaultNamespace, slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	first, err := e.Schedules.compile(ctx, &Schedule{Name: "a", Spec: "@every 1h", Sig: &graph.Sig{Shape: graph.Call, Task: "task", Opts: graph.NoOpts, Input: json.RawMessage("1")}, Opts: graph.NoOpts})
	testutil.Ok(t, err)
	testutil.Ok(t, e.Schedules.put(ctx, first))
	late := *first
	late.Next = first.Next.Add(-5 * time.Hour)
	late.Due = store.DueScore(late.Next, false)
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"tick", func() error { _, err := e.Schedules.tick(ctx, 0, "a", late.Next, time.Time{}); return err }},
		{"put", func() error { return e.Schedules.put(ctx, &late) }},
		{"resume", func() error {
			testutil.Ok(t, e.store.Schedules.Pause(ctx, "a"))
			_, err := e.store.Schedules.Resume(ctx, &late)
			return err
		}},
	} {
		testutil.Ok(t, c.do())
		got, _, err := e.Schedules.Get(ctx, "a")
		if testutil.Ok(t, err); !got.Next.Equal(first.Next) {
			t.Errorf("%s: the next tick is %v, want %v as before", c.name, got.Next, first.Next)
		}
	}
}

func TestLogLinesAreDropped(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client()
	testutil.Ok(t, client.Close())
	var out bytes.Buffer
	l := newLogs(&local{env: &env{store: store.New(client, store.DefaultNamespace)}, log: slog.New(slog.NewTextHandler(&out, nil))})
	for i := range maxPending + 10 {
		l.add(store.Flow{Ref: fmt.Sprint(i)}, tasktype.LogLine{})
	}
	for range store.MaxLog + 7 {
		l.add(store.Flow{Ref: "0"}, tasktype.LogLine{})
	}
	if len(l.lines) != maxPending || l.dropped != 10+store.MaxLog+7 {
		t.Errorf("got lines of %d workflows and %d dropped", len(l.lines), l.dropped)
	}
	l.once(t.Context())
	if want := fmt.Sprintf(`msg="log lines of tasks were dropped" lines=%d error="store log lines: redis: client is closed"`, maxPending+10+store.MaxLog+7); !strings.Contains(out.String(), want) {
		t.Errorf("got %.300s, want %s", out.String(), want)
	}
	out.Reset()
	if l.once(t.Context()); out.Len() > 0 || len(l.lines) > 0 {
		t.Errorf("got %s, want nothing to store", out.String())
	}
}

// cannedQueues returns the next error of a list for each call of asynq's dequeue script, and then redis.Nil.
type cannedQueues struct {
	redis.UniversalClient
	errs []error
}

func (c *cannedQueues) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.Nil)
	if len(c.errs) > 0 {
		cmd.SetErr(c.errs[0])
		c.errs = c.errs[1:]
	}
	return cmd
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// The server sleeps only when every queue was found empty since it slept last, in whatever order asynq asks them and
// whatever went wrong before.
func TestServerSleepsOnlyWhenEveryQueueIsEmpty(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		errs []error
		asks string // queues in the order in which asynq asks them
		want string // the errors after which the server sleeps; others are "-"
	}{
		"all empty":                 {nil, "abcbca", "--c--a"},
		"the same twice":            {nil, "bcbca", "----a"},
		"the script was not loaded": {[]error{redisError("NOSCRIPT No matching script")}, "abcbac", "----a-"},
		"one has a task":            {[]error{redis.Nil, nil}, "abcb", "---b"},
		"one has a task later":      {[]error{redis.Nil, redis.Nil, redis.Nil, nil}, "abcabca", "--c---a"},
		"a call failed":             {[]error{redis.Nil, errors.New("connection reset")}, "abacb", "----b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &poller{UniversalClient: &cannedQueues{errs: c.errs}, full: func(string) bool { return false }, queues: 3, every: pollEvery, empty: map[string]bool{}}
				got := ""
				for _, q := range c.asks {
					began := time.Now()
					p.EvalSha(t.Context(), "", []string{"asynq:{" + string(q) + "}:pending", "", "", "asynq:{" + string(q) + "}:lease"})
					if time.Since(began) == pollEvery {
						got += string(q)
					} else {
						got += "-"
					}
				}
				if got != c.want {
					t.Errorf("asked %s: it slept after %s, want %s", c.asks, got, c.want)
				}
			})
		})
	}
}

// The keys of queues that are not used any more are deleted, and no others. A queue that is used again is listed again.
func TestUnusedQueuesAreForgotten(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.New(t), t.Context()
	e := New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	send := func(queue string) string {
		t.Helper()
		id, err := e.Sender.Send(ctx, &graph.Sig{Shape: graph.Call, Task: "t", Opts: &graph.Opts{Queue: queue}, Input: []byte("1")}, graph.NoOpts)
		testutil.Ok(t, err)
		return id
	}
	plain, old := asynq.NewClientFromRedisClient(rdb), float64(time.Now().Add(-2*time.Hour).Unix()/3600)
	for _, q := range []string{"unused", "waits", "fresh", "paused", "served", "plain", "grouped"} {
		id := send(q)
		if q != "waits" {
			testutil.Ok(t, e.Operator.Revoke(ctx, id))
		}
		testutil.Ok(t, e.store.Queues.Look(ctx, []string{q}))
		if q != "fresh" {
			testutil.Ok(t, rdb.ZAdd(ctx, "muster:{0}:queues", redis.Z{Score: old, Member: q}).Err())
		}
	}
	_, err := plain.EnqueueContext(ctx, asynq.NewTask("own", nil), asynq.Queue("plain"))
	for _, err := range []error{
		err,
		e.store.Queues.Pause(ctx, "paused"),
		rdb.SAdd(ctx, "asynq:{grouped}:groups", "a").Err(),
	} {
		testutil.Ok(t, err)
	}
	testutil.Ok(t, e.store.Queues.Look(ctx, []string{"served"}))
	testutil.Ok(t, e.store.Queues.Forget(ctx, time.Hour))
	wantQueues := func(want ...string) {
		t.Helper()
		if got, err := e.store.Queues.Names(ctx); err != nil || !slices.Equal(got, want) {
			t.Errorf("got the queues %v, %v, want %v", got, err, want)
		}
	}
	wantQueues("fresh", "grouped", "paused", "plain", "served", "waits")
	keys, err := rdb.Keys(ctx, "*").Result()
	testutil.Ok(t, err)
	if i := slices.IndexFunc(keys, func(k string) bool { return strings.Contains(k, "unused") }); i >= 0 {
		t.Errorf("got the key %s of a forgotten queue", keys[i])
	}
	send("unused")
	wantQueues("fresh", "grouped", "paused", "plain", "served", "unused", "waits")
}

func TestExample(t *testing.T) {
	t.Parallel()
	type base struct {
		ID string `json:"id"`
	}
	type order struct {
		base
		Amount  float64
		Rush    bool      `json:"rush,omitempty"`
		At      time.Time `json:"at"`
		Lines   []base    `json:"lines"`
		Parent  *order    `json:"parent"`
		Tags    map[string]int
		private int
		Skip    string `json:"-"`
		Raw     json.RawMessage
		Bytes   []byte
		Any     any
	}
	_ = order{}.private
	got := string(example(reflect.TypeFor[base](), 0)) + string(example(reflect.TypeFor[[]*int](), 0)) + string(example(reflect.TypeFor[any](), 0)) + string(example(reflect.TypeFor[chan int](), 0))
	if want := `{"id":""}[0]nullnull`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(example(reflect.TypeFor[order](), 0), &o); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"id": `""`, "Amount": "0", "rush": "false", "at": `"0001-01-01T00:00:00Z"`, "lines": `[{"id":""}]`, "Tags": "{}", "Raw": "null", "Bytes": "null", "Any": "null"} {
		if string(o[name]) != want {
			t.Errorf("%s: got %s, want %s", name, o[name], want)
		}
	}
	if len(o) != 10 || json.Unmarshal(example(reflect.TypeFor[order](), 0), new(order)) != nil {
		t.Errorf("got %s, want ten fields that decode", o)
	}
}
