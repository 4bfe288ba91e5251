package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// waitLimit bounds every wait of a test.
const waitLimit = 2 * time.Minute

// world is a Redis with one worker.
type world struct {
	client *tasks.Client
	worker *tasks.Worker

	mu    sync.Mutex // guards the fields below
	notes map[string][]int
	runs  map[string]int // handler calls, by idempotency key
	fails []tasks.Failure
	gates map[string]chan struct{}
	hold  chan struct{} // closed when handlers that wait may continue
}

func (w *world) note(key string, v int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[key] = append(w.notes[key], v)
}

func (w *world) noted(key string) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.notes[key])
}

// ran returns how often the handler of a node was called, by its idempotency key.
func (w *world) ran(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[key]
}

func (w *world) count(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
	w.mu.Lock()
	if w.runs == nil {
		w.runs = map[string]int{}
	}
	w.runs[info.Workflow+"."+info.Node]++
	w.mu.Unlock()
	return next(ctx)
}

// gate returns a channel that is closed when the gate of that name is opened.
func (w *world) gate(name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gates == nil {
		w.gates = map[string]chan struct{}{}
	}
	if w.gates[name] == nil {
		w.gates[name] = make(chan struct{})
	}
	return w.gates[name]
}

// open lets the handlers at a gate continue.
func (w *world) open(name string) { close(w.gate(name)) }

// pass waits in a handler until the gate of that name is open.
func (w *world) pass(ctx context.Context, name string) error {
	select {
	case <-w.gate(name):
		return nil
	case <-w.hold:
		return errors.New("the test is over")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *world) failures() []tasks.Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.fails)
}

// newWorld starts a worker on rdb and stops it with the test.
func newWorld(t *testing.T, rdb redis.UniversalClient, change ...func(*tasks.WorkerConfig)) *world {
	t.Helper()
	w := &world{client: newClient(t, rdb), notes: map[string][]int{}, hold: make(chan struct{})}
	cfg := tasks.WorkerConfig{Grace: time.Second, Concurrency: 8}
	for _, c := range change {
		c(&cfg)
	}
	w.worker = runWorker(t, w.client, w.mux(), cfg)
	t.Cleanup(func() { close(w.hold) })
	return w
}

// send sends s, waits for its value and then for the end of the workflow.
func send[O any](t *testing.T, w *world, s tasks.Signature[O], opts ...tasks.SendOption) (O, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	run, err := s.Send(ctx, w.client, opts...)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	out, err := run.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("workflow %s: got no end, want one:\n%s", run.ID(), tree(t, w, run.ID()))
	}
	ended(t, w, run.ID())
	return out, err
}

// ended waits until all of a workflow is terminal and checks that its key has a time to live.
func ended(t *testing.T, w *world, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for p, err := range w.client.Workflow(id).Watch(ctx) {
		if err != nil {
			t.Fatalf("workflow %s does not end: %v\n%s", id, err, tree(t, w, id))
		}
		_ = p
	}
	nodes := testutil.Must(w.client.Workflow(id).Nodes(ctx))(t)
	for _, n := range nodes {
		if !n.Status.Terminal() {
			t.Errorf("node %s of an ended workflow: got %s, want a terminal state\n%s", n.ID, n.Status, tree(t, w, id))
		}
	}
	ttl, err := w.client.Redis().PTTL(ctx, flowKey(t, w.client.Redis(), id)).Result()
	if err != nil || ttl <= 0 {
		t.Errorf("ended workflow %s: got time to live %v, %v, want one", id, ttl, err)
	}
}

// rest pauses a queue and waits until the worker takes nothing from it any more: slots that are at it look again for a
// moment.
func rest(t *testing.T, w *world, queue string) {
	t.Helper()
	testutil.Ok(t, w.client.PauseQueue(t.Context(), queue))
	// A worker that waits at a ring takes one more entry, and returns it.
	rdb := w.client.Redis()
	for _, shard := range shards(t, rdb) {
		ring, times := shard+"ring:"+queue, 0
		rdb.RPush(t.Context(), ring, "=rest")
		testutil.Eventually(t, "no slot is in use, and no worker waits", func() bool {
			times++
			if busy, _ := w.worker.Slots(); busy > 0 || rdb.LLen(t.Context(), ring).Val() == 0 {
				times = 0
			}
			return times > 5
		})
		rdb.LRem(t.Context(), ring, 0, "=rest")
	}
}

func tree(t *testing.T, w *world, id string) string {
	nodes, err := w.client.Workflow(id).Nodes(context.WithoutCancel(t.Context()))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s %s %s needs %v\n", n.ID, n.Task, n.Status, n.Needs)
	}
	return b.String()
}

// inWorlds runs a test in a separate world, on each Redis.
func inWorlds(t *testing.T, run func(t *testing.T, w *world), change ...func(*tasks.WorkerConfig)) {
	t.Helper()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) { run(t, newWorld(t, rdb, change...)) })
}

// limited returns a context that ends with the test, or when a wait has taken too long.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// wantValue checks the value of a workflow.
func wantValue[O comparable](t *testing.T, run *tasks.Run[O], want O) {
	t.Helper()
	if got, err := run.Wait(limited(t)); err != nil || got != want {
		t.Errorf("workflow %s: got %v, %v, want %v", run.ID(), got, err, want)
	}
}

// newClient returns a client that is closed with the test.
func newClient(tb testing.TB, rdb redis.UniversalClient, opts ...tasks.ClientOption) *tasks.Client {
	tb.Helper()
	c := tasks.NewClient(rdb, opts...)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// runWorker starts a worker, which stops with the test.
func runWorker(tb testing.TB, c *tasks.Client, m *tasks.Mux, cfg tasks.WorkerConfig) *tasks.Worker {
	tb.Helper()
	w := testutil.Must(tasks.StartWorker(context.WithoutCancel(tb.Context()), c, m, cfg))(tb)
	tb.Cleanup(func() { testutil.Ok(tb, w.Stop()) })
	return w
}

// started sends s.
func started[O any](t *testing.T, c *tasks.Client, s tasks.Signature[O], opts ...tasks.SendOption) *tasks.Run[O] {
	t.Helper()
	run := testutil.Must(s.Send(t.Context(), c, opts...))(t)
	return run
}

// sent sends s from a world.
func sent[O any](t *testing.T, w *world, s tasks.Signature[O], opts ...tasks.SendOption) *tasks.Run[O] {
	t.Helper()
	return started(t, w.client, s, opts...)
}

func nodes(t *testing.T, w *world, id string) []tasktype.Node {
	t.Helper()
	ns := testutil.Must(w.client.Workflow(id).Nodes(t.Context()))(t)
	return ns
}
