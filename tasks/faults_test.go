package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Any call of a worker can fail, including its start and the calls of asynq: each workflow ends with one value, if
// necessary by another worker, and no key is left.
func TestWorkerSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 20, redistest.ReplyLost: 20, redistest.Repeated: 12, redistest.Crash: 12, redistest.CrashAfter: 12, redistest.Slow: 6, redistest.Frozen: 8,
	}, workWithFault)
}

func workWithFault(t *testing.T, f *redistest.Fault) {
	ctx := limited(t)
	url := redistest.URL(t)
	c := connect(t, url)
	world := &cutWorld{runs: map[ran]int{}}
	run := started(t, c, witness())
	fails := testutil.Must(skipper().Send(ctx, c))(t)
	f.Arm()
	first, ready, over := startWithFault(ctx, t, f, world, "first", tasks.NewClient(f.Client(t, url)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = run.Wait(ctx)
		_, _ = fails.Wait(ctx)
	}()
	select {
	case <-f.Hit():
	case <-ended:
	}
	refused := false // at its start
	switch f.Kind {
	case redistest.Frozen:
	case redistest.Slow:
		select {
		case <-ready:
		default:
			f.Release() // at its start it makes one call after the other
		}
	default:
		select {
		case <-ready:
		case err := <-over:
			refused = true
			if !f.Fails() || !errors.Is(err, redistest.ErrFault) {
				t.Errorf("worker: got %v, want the error of its fault", err)
			}
			over <- nil
		}
	}
	if f.Deadly() {
		first.Kill()
	}
	helped := refused || f.Deadly() || f.Kind == redistest.Frozen
	if helped {
		startWithFault(ctx, t, f, world, "second", c)
		testutil.Ok(t, c.ExpireLeases(ctx, "first"))
	}
	testutil.Ok(t, cutValues(ctx, run, fails))
	f.Release()
	if err := nothingLeft(ctx, c.Redis()); err != nil {
		t.Error(err)
	}
	testutil.Eventually(t, "no slot is in use", func() bool { busy, _ := first.Slots(); return busy == 0 })
	world.mu.Lock()
	defer world.mu.Unlock()
	for r, n := range world.runs {
		if n > 1 && (r.worker != "first" || f.Kind != redistest.Frozen) { // a thawed worker runs the batches that it had taken
			t.Errorf("node %s ran %d times on worker %s", r.node, n, r.worker)
		}
	}
}

// startWithFault starts a worker, which ends with the test.
func startWithFault(ctx context.Context, t *testing.T, f *redistest.Fault, world *cutWorld, name string, c *tasks.Client) (w *tasks.Worker, ready chan struct{}, over chan error) {
	t.Helper()
	ready, over = make(chan struct{}), make(chan error, 1)
	w, err := tasks.NewWorker(c, world.mux(), tasks.WorkerConfig{Name: name, Concurrency: 2, Grace: time.Second, Ready: func() { close(ready) }})
	testutil.Ok(t, err)
	running, stop := context.WithCancel(ctx)
	go func() { over <- w.Run(running) }()
	t.Cleanup(func() {
		f.Release()
		stop()
		if err := <-over; err != nil {
			t.Errorf("worker %s: %v", name, err)
		}
	})
	return w, ready, over
}

// Any call of a client can fail: after a repetition, by the same or another client, it has taken effect once.
func TestClientSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 100, redistest.ReplyLost: 100, redistest.Repeated: 100, redistest.Frozen: 10,
	}, callWithFault)
}

// visitor is a client that repeats calls that fail.
type visitor struct {
	*tasks.Client
	ctx context.Context
}

// must repeats a call until it returns no error, or an error that means that an earlier call succeeded.
func (v *visitor) must(what string, done []error, call func() error) error {
	for range 5 {
		err := call()
		if err == nil {
			return nil
		}
		for _, is := range done {
			if errors.Is(err, is) {
				return nil
			}
		}
		if !errors.Is(err, redistest.ErrFault) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Errorf("%s: it fails again and again", what)
}

func callWithFault(t *testing.T, f *redistest.Fault) {
	ctx := limited(t)
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	visit := func(c *tasks.Client) (err error) {
		var asks string // whose id is made up
		v := &visitor{c, ctx}
		step := func(what string, call func() error, done ...error) {
			if err == nil {
				err = v.must(what, done, call)
			}
		}
		step("send", func() error {
			_, err := tasks.Chord(tasks.Each(ints(3), Note), Total).Send(ctx, c, tasks.ID("named"))
			return err
		}, tasks.ErrDuplicate)
		step("send the unique one", func() error {
			run, err := review.S(draft{"a"}).Send(ctx, c, tasks.Unique("one", time.Hour))
			if run != nil {
				asks = run.ID()
			}
			if f.Kind == redistest.Repeated && err != nil {
				return fmt.Errorf("sent twice by its connection: %w", err)
			}
			return err
		}, tasks.ErrDuplicate)
		step("send one to revoke", func() error {
			_, err := ID.S(1, tasks.In(time.Hour)).Send(ctx, c, tasks.ID("late"))
			return err
		}, tasks.ErrDuplicate)
		step("revoke", func() error { return c.Workflow("late").Revoke(ctx) })
		step("answer", func() error { return answerOpen(ctx, c, asks) }, tasks.ErrCompleted)
		step("wait", func() error { _, err := tasks.Attach[opinion](c, asks).Wait(ctx); return err })
		step("send one that waits for signals", func() error {
			_, err := tasks.Chain(tasks.Chain(score.S("loan"), nextScore), nextScore).Send(ctx, c, tasks.ID("signalled"))
			return err
		}, tasks.ErrDuplicate)
		for i := range 3 {
			step("signal", func() error { return score.Signal(ctx, c, "signalled", i+1) }, tasks.ErrEnded)
		}
		return err
	}
	f.Arm()
	c := tasks.NewClient(f.Client(t, url))
	t.Cleanup(func() { f.Release(); _ = c.Close() })
	over := make(chan error, 1)
	go func() { over <- visit(c) }()
	if f.Kind == redistest.Frozen {
		select {
		case <-f.Hit():
			if err := visit(w.client); err != nil {
				t.Error(err)
			}
			f.Release()
		case err := <-over:
			over <- err
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	wantValue(t, tasks.Attach[int](w.client, "named"), 3)
	// A call that is repeated by the caller is another signal; one that is repeated by its connection is not.
	if got, err := tasks.Attach[int](w.client, "signalled").Wait(ctx); err != nil || got > 3 || f.Kind == redistest.Repeated && got != 3 {
		t.Errorf("value of the third signal: got %d, %v", got, err)
	}
	const unique = "muster:{0}:u:one"
	rdb := w.client.Redis()
	for _, id := range []string{"named", "late", "signalled", strings.TrimSuffix(rdb.Get(ctx, unique).Val(), "~")} {
		ended(t, w, id)
	}
	if ttl := rdb.PTTL(ctx, unique).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("unique key: got time to live %s, want up to an hour", ttl)
	}
	rdb.Del(ctx, unique)
	if members, bodies := len(w.noted("note")), len(w.noted("total")); members != 3 || bodies != 1 {
		t.Errorf("%d members and %d bodies ran, want 3 and 1", members, bodies)
	}
	if err := nothingLeft(ctx, rdb); err != nil {
		t.Error(err)
	}
}

// answerOpen completes the only node of a workflow, once it is open.
func answerOpen(ctx context.Context, c *tasks.Client, id string) (err error) {
	if !testutil.Becomes(func() bool {
		n, gone := c.Workflow(id).Nodes(ctx)
		err = gone
		return gone != nil || len(n) == 1 && n[0].Waits != "" || n[0].Status.Terminal()
	}) {
		return errors.New("the node is not open")
	}
	if err != nil {
		return err
	}
	token, err := c.Workflow(id).NewToken(ctx, "0")
	if errors.Is(err, tasks.ErrNotOpen) {
		return tasks.ErrCompleted
	}
	if err != nil {
		return err
	}
	if err := c.Extend(ctx, token, time.Hour); err != nil {
		return err
	}
	return review.Complete(ctx, c, token, opinion{true})
}

// The tasks of the cut-off tests. Unique yields another value each time it runs, so that two uses of
// its value show whether they got the same.
var (
	Unique      = tasks.New[int, int64]("cut.unique")
	UniqueBatch = tasks.New[int, int64]("cut.batch")
	UniquePlan  = tasks.New[int, int64]("cut.plan")
	UniqueList  = tasks.New[int, []int]("cut.list")
	UniqueFail  = tasks.New[int, int64]("cut.fail")
	UniqueErr   = tasks.New[tasks.Failure, int64]("cut.err")
)

// ran is a node that ran on a worker.
type ran struct{ node, worker string }

type cutWorld struct {
	mu   sync.Mutex // guards runs
	runs map[ran]int
	last atomic.Int64
}

func (c *cutWorld) mux() *tasks.Mux {
	m := tasks.NewMux()
	run := func(ctx context.Context) int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := tasks.InfoFrom(ctx)
		c.runs[ran{i.Workflow + "." + i.Node, i.Worker}]++
		return c.last.Add(1)
	}
	tasks.Handle(m, Unique, func(ctx context.Context, _ int) (int64, error) { return run(ctx), nil })
	tasks.HandleBatch(m, UniqueBatch, tasks.Batch[int]{Size: 2, Wait: 30 * time.Millisecond}, func(ctx context.Context, _ []int) (out []tasks.Outcome[int64]) {
		for _, ctx := range tasks.NodeContexts(ctx) {
			out = append(out, tasks.Outcome[int64]{Value: run(ctx)})
		}
		return out
	})
	tasks.HandlePlan(m, UniquePlan, func(ctx context.Context, n int) (tasks.Signature[int64], error) {
		run(ctx)
		return Unique.S(n), nil
	})
	tasks.Handle(m, UniqueList, func(ctx context.Context, n int) ([]int, error) { return make([]int, n+int(run(ctx)%2)), nil })
	tasks.Handle(m, UniqueFail, func(ctx context.Context, _ int) (int64, error) { return 0, fmt.Errorf("E%d", run(ctx)) })
	tasks.Handle(m, UniqueErr, func(ctx context.Context, _ tasks.Failure) (int64, error) { return run(ctx), nil })
	tasks.Handle(m, Show[any](), func(ctx context.Context, v any) (string, error) {
		run(ctx)
		return fmt.Sprintf("%v", v), nil
	})
	return m
}

// witness is a workflow that yields the same string twice if every node had one value only.
func witness() tasks.Signature[tasks.Pair[string, string]] {
	h := tasks.Group(Unique.S(1), UniquePlan.S(2), tasks.After(UniqueBatch.S(3), Unique.S(4, tasks.In(20*time.Millisecond)))).With(tasks.AtMost(2))
	list := tasks.Map(UniqueList.S(2), UniqueBatch, tasks.AtMost(2))
	both := tasks.Join(h, list)
	show := Show[tasks.Pair[[]int64, []int64]]()
	return tasks.Join(tasks.Chain(both, show), tasks.Chain(both, show))
}

// skipper is a workflow that skips the successors of a failure and revokes its siblings.
func skipper() tasks.Signature[[]int64] {
	return tasks.Group(tasks.OnError(UniqueFail.S(1), UniqueErr), UniqueBatch.S(2), Unique.S(3, tasks.In(time.Hour))).With(tasks.FailFast())
}

// cutValues checks the results of the workflows of a cut-off test.
func cutValues(ctx context.Context, run *tasks.Run[tasks.Pair[string, string]], fails *tasks.Run[[]int64]) error {
	got, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	if got.First != got.Second || strings.Count(got.First, " ") < 4 {
		return fmt.Errorf("two uses of the same values got %q and %q", got.First, got.Second)
	}
	var failure *tasks.Failure
	if _, err := fails.Wait(ctx); !errors.As(err, &failure) || failure.Task != UniqueFail.Name() {
		return fmt.Errorf("a failure came to %w", err)
	}
	for p, err := range run.Watch(ctx) {
		if err != nil {
			return fmt.Errorf("%w at %+v", err, p)
		}
	}
	for p, err := range fails.Watch(ctx) {
		if err != nil {
			return fmt.Errorf("%w at %+v", err, p)
		}
	}
	return nil
}

// nothingLeft waits until Redis, which has one shard, holds nothing of workflows that have ended but themselves.
func nothingLeft(ctx context.Context, rdb redis.UniversalClient) error {
	const p = "muster:{0}:"
	for {
		left := rdb.Keys(ctx, p+"*").Val()
		left = slices.DeleteFunc(left, func(k string) bool {
			k = strings.TrimPrefix(k, p)
			return strings.HasPrefix(k, "limit:places:") || strings.HasPrefix(k, "limit:rate:") || // they expire
				strings.HasPrefix(k, "batch:") && rdb.PTTL(ctx, p+k).Val() > 0 || // of revoked nodes
				strings.HasPrefix(k, "w:") && !strings.Contains(k[2:], ":") || k == "takers" || k == "queues" || strings.HasPrefix(k, "queue:") ||
				k == "live" || k == "hour" || k == "clock" || strings.HasPrefix(k, "id:") || strings.HasPrefix(k, "done:") || strings.HasPrefix(k, "cm:") || strings.HasPrefix(k, "ch:") || strings.HasPrefix(k, "cd:") || strings.HasPrefix(k, "fails:")
		})
		depths := fmt.Sprint(rdb.HMGet(ctx, p+"queue:default", "ready:n", "ready:h").Val())
		depths = strings.ReplaceAll(depths, "<nil>", "0")
		if len(left) == 0 && depths == "[0 0]" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left keys: %v, depths %s, agenda %v", left, depths, rdb.ZRange(context.WithoutCancel(ctx), p+"agenda", 0, -1).Val())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A sender that dies at any call, or right after it, leaves a complete workflow or none; also when the inputs are
// sent in pieces.
func TestSenderThatDiesLeavesAWholeWorkflowOrNone(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	for _, size := range []int{3, 5_001} { // one piece, two pieces
		var found, unknown atomic.Int64
		t.Cleanup(func() {
			if found.Load() == 0 || unknown.Load() == 0 {
				t.Errorf("%d members: %d sends stored their workflow and %d did not, want some of each", size, found.Load(), unknown.Load())
			}
		})
		for k := range 14 { // a send of two pieces has six calls
			t.Run(fmt.Sprint(size, " members ", k), func(t *testing.T) {
				t.Parallel()
				f := redistest.NewFault([]redistest.Kind{redistest.Crash, redistest.CrashAfter}[k%2], k/2+1)
				rdb := f.Client(t, url)
				f.Arm()
				id := fmt.Sprint("w10-", size, "-", k)
				_, err := tasks.Chord(tasks.Each(ints(size), ID), Sum).Send(t.Context(), tasks.NewClient(rdb), tasks.ID(id))
				got, werr := tasks.Attach[int](w.client, id).Wait(limited(t))
				switch {
				case errors.Is(werr, tasks.ErrNotFound):
					unknown.Add(1)
					if err == nil {
						t.Errorf("cut off after %d calls: sent without error, and unknown", k)
					}
					if ttl := w.client.Redis().PTTL(t.Context(), flowKey(t, w.client.Redis(), id)).Val(); ttl == -1 {
						t.Errorf("cut off after %d calls: its inputs do not expire", k)
					}
				case werr != nil || got != size*(size-1)/2:
					t.Errorf("cut off after %d calls: got %v, %v", k, got, werr)
				default:
					found.Add(1)
					ended(t, w, id)
				}
			})
		}
	}
}

// A task that takes its worker with it fails in the end, and its workflow with it. Tasks that ran beside it, or were taken together
// with it, are not blamed.
func TestTaskThatKillsItsWorkersFails(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	innocent := started(t, c, tasks.Each(ints(7), slowTask))
	run := started(t, c, tasks.Chain(dieTask.S("x"), stepTask))
	ended := func() bool {
		g, gerr := run.Status(t.Context())
		i, ierr := innocent.Status(t.Context())
		return gerr == nil && ierr == nil && g.Terminal() && i.Terminal()
	}
	deaths := killWorkers(t, url, c, ended)
	if got, err := innocent.Wait(limited(t)); err != nil || !slices.Equal(got, ints(7)) {
		t.Errorf("those beside it came to %v, %v", got, err)
	}
	if deaths < 11 {
		t.Errorf("failed after %d deaths, want at least 11", deaths)
	}
	_, err := run.Wait(limited(t))
	if f := wantFailure(t, err, "its worker died"); f.Code != tasktype.CodeLost {
		t.Fatalf("got %+v", f)
	}
	d := testutil.Must(c.Workflow(run.ID()).Node(t.Context(), "0"))(t)
	victims := map[string]bool{}
	for _, a := range d.Tried {
		if a.Outcome == tasktype.OutcomeLost && !a.Started.IsZero() && !a.Ended.Before(a.Started) {
			victims[a.Worker] = true
		}
	}
	if len(victims) != deaths || d.Runs != deaths || d.First.IsZero() || d.Worker == "" {
		t.Errorf("got the workers %v, %d runs, first start %s; want %d workers that died", victims, d.Runs, d.First, deaths)
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
		testutil.Ok(t, cmd.Start())
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
		testutil.Ok(t, c.ExpireLeases(t.Context(), name))
	}
	return deaths - 1
}

// fixedKeys matches the keys of the fleet, its queues and its counts, whose number does not grow with the workflows.
// live and done list workflows, ct and rest count them.
var fixedKeys = regexp.MustCompile(`^(muster:store|muster:workers|muster:\{\d+\}:(queue:.+|queues|takers|live|done:[SFX]|c[mh]:\d+)|` +
	`asynq:(queues|servers|workers)|asynq:\{.+\}:(processed|failed))$`)

// left returns the other keys that never expire, and the keys of workflows.
func left(t *testing.T, rdb redis.UniversalClient) (out []string) {
	t.Helper()
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if fixedKeys.MatchString(key) {
			continue
		}
		if rdb.PTTL(t.Context(), key).Val() == -1 || strings.Contains(key, "}:w:") { // -2: it has expired meanwhile
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// onlyFixedLeft waits until nothing but fixed keys is left.
func onlyFixedLeft(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	if !testutil.Becomes(func() bool { return len(left(t, rdb)) == 0 }) {
		t.Fatalf("left are the keys %q", left(t, rdb))
	}
}

// Revoking workflows before any worker starts leaves no ready nodes.
func TestRevokedWorkflowsWithoutWorkerLeaveNoKeys(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := newClient(t, rdb)
		keep := tasks.Retention(50 * time.Millisecond)
		canvases := []tasks.Signature[int]{
			ID.S(1),
			tasks.Chord(tasks.Each(ints(1000), ID), Sum),
			tasks.Chord(tasks.Each(ints(20), ID, tasks.AtMost(2)), Sum),
			tasks.Chord(tasks.Group(ID.S(1), ID.S(2, tasks.In(time.Hour)), ID.S(3, tasks.Queue("unserved"), tasks.Priority(1))), Sum),
			tasks.Chain(ID.S(1, tasks.At(time.Now().Add(time.Hour))), Inc),
		}
		var runs []*tasks.Run[int]
		for i, s := range slices.Concat(canvases, canvases) {
			opts := []tasks.SendOption{keep}
			if i >= len(canvases) {
				opts = append(opts, tasks.Unique(fmt.Sprint("key", i), 50*time.Millisecond))
			}
			run := started(t, c, s, opts...)
			runs = append(runs, run)
		}
		for _, run := range runs {
			testutil.Ok(t, run.Revoke(t.Context()))
		}
		onlyFixedLeft(t, rdb)
		for _, queue := range []string{"default", "unserved"} {
			h := rdb.HGetAll(t.Context(), shards(t, rdb)[0]+"queue:"+queue).Val()
			if h["ready:k"] != "0" && h["ready:k"] != "" || h["ready:n"] != "0" && h["ready:n"] != "" || h["ready:h"] != "0" && h["ready:h"] != "" {
				t.Errorf("queue %s: got %v, want no depth", queue, h)
			}
		}
		// The queue still works, and a worker leaves nothing of itself and its queue when it stops.
		t.Run("work", func(t *testing.T) {
			run := sent(t, newWorld(t, rdb), tasks.Chord(tasks.Each(ints(500), ID), Sum), tasks.Retention(time.Second), tasks.FailureRetention(time.Second))
			wantValue(t, run, 124750)
		})
		onlyFixedLeft(t, rdb)
		for _, key := range []string{"muster:workers", shards(t, rdb)[0] + "takers"} {
			if rdb.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("key %s is left", key)
			}
		}
	})
}
