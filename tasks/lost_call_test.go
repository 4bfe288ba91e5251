package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

var errCut = errors.New("cut off")

// cutter is a connection on which one call goes wrong: the nth of a kind, or of all if kind is empty. What Redis holds
// then is what a crash or a lost reply leaves behind.
type cutter struct {
	kind string
	call bool // the call is made, and its reply lost; else it is not made
	on   bool // later calls are made again; else the process is as good as dead
	left atomic.Int64
	dead chan struct{} // closed when the call has gone wrong
	once sync.Once
}

func newCutter(kind string, n int, call, on bool) *cutter {
	c := &cutter{kind: kind, call: call, on: on, dead: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// cuts reports whether a call fails, and whether Redis executes it even so.
func (c *cutter) cuts(cmds ...redis.Cmder) (fails, made bool) {
	is := c.kind == "" || slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { kind, _ := kindOf(cmd); return kind == c.kind })
	n := c.left.Load()
	if is {
		n = c.left.Add(-1)
	}
	switch {
	case n > 0:
		return false, true
	case is && n == 0:
		c.once.Do(func() { close(c.dead) })
		return true, c.call
	}
	return !c.on, c.on
}

// DialHook implements redis.Hook.
func (c *cutter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (c *cutter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fails, made := c.cuts(cmd)
		var err error
		if made {
			err = next(ctx, cmd)
		}
		if fails {
			err = errCut
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *cutter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		fails, made := c.cuts(cmds...)
		var err error
		if made {
			err = next(ctx, cmds)
		}
		if fails {
			err = errCut
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// The tasks of the cut-off tests. Unique yields another value each time it runs, so that two uses of
// its value show whether they got the same.
var (
	Unique     = tasks.New[int, int64]("cut.unique")
	UniquePlan = tasks.New[int, int64]("cut.plan")
	UniqueList = tasks.New[int, []int]("cut.list")
	UniqueFail = tasks.New[int, int64]("cut.fail")
	UniqueErr  = tasks.New[tasks.Failure, int64]("cut.err")
)

type cutWorld struct {
	mu   sync.Mutex // guards runs
	runs map[string]int
	last atomic.Int64
}

func (c *cutWorld) mux() *tasks.Mux {
	m := tasks.NewMux()
	ran := func(ctx context.Context) int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs[tasks.InfoFrom(ctx).Key]++
		return c.last.Add(1)
	}
	tasks.Handle(m, Unique, func(ctx context.Context, _ int) (int64, error) { return ran(ctx), nil })
	tasks.HandlePlan(m, UniquePlan, func(ctx context.Context, n int) (tasks.Signature[int64], error) {
		ran(ctx)
		return Unique.S(n), nil
	})
	tasks.Handle(m, UniqueList, func(ctx context.Context, n int) ([]int, error) { return make([]int, n+int(ran(ctx)%2)), nil })
	tasks.Handle(m, UniqueFail, func(ctx context.Context, _ int) (int64, error) { return 0, fmt.Errorf("E%d", ran(ctx)) })
	tasks.Handle(m, UniqueErr, func(ctx context.Context, _ tasks.Failure) (int64, error) { return ran(ctx), nil })
	tasks.Handle(m, Show[any](), func(ctx context.Context, v any) (string, error) {
		ran(ctx)
		return fmt.Sprintf("%v", v), nil
	})
	return m
}

// witness is a workflow that yields the same string twice if every node had one value only.
func witness() tasks.Signature[tasks.Pair[string, string]] {
	h := tasks.GroupOf([]tasks.Signature[int64]{Unique.S(1), UniquePlan.S(2), tasks.After(Unique.S(3), Unique.S(4, tasks.In(20*time.Millisecond)))}, tasks.AtMost(2))
	list := tasks.Map(UniqueList.S(2), Unique, tasks.AtMost(1))
	both := tasks.Join(h, list)
	show := Show[tasks.Pair[[]int64, []int64]]()
	return tasks.Join(tasks.Chain(both, show), tasks.Chain(both, show))
}

// skipper is a workflow that skips what comes after a failure, and the siblings of that.
func skipper() tasks.Signature[[]int64] {
	return tasks.GroupOf([]tasks.Signature[int64]{tasks.OnError(UniqueFail.S(1), UniqueErr), Unique.S(2), Unique.S(3, tasks.In(time.Hour))}, tasks.FailFast())
}

// steps are the kinds of calls that a worker makes for workflows, with how many of each are cut off.
var steps = []struct {
	kind string
	n    int
}{
	{"pop", 3}, {"take", 4}, {"turn", 10}, {"advance", 9}, {"inputs", 1}, {"due", 4}, {"push", 3}, {"finish", 3}, {"publish", 4}, {"hmget", 4}, {"look", 1},
}

// A worker that dies at any call to Redis, or right after it, leaves a state from which another finds the way; one that
// only loses the call, or its reply, finds it by itself. Every value is one value, and nothing stays behind.
func TestWorkersSurviveAnyLostCall(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	slots := make(chan struct{}, 12)
	for _, s := range steps {
		var hit atomic.Int64
		var some sync.WaitGroup
		for n := 1; n <= s.n; n++ {
			for _, how := range []struct {
				name     string
				call, on bool
			}{{"dead before", false, false}, {"dead after", true, false}, {"call lost", false, true}, {"reply lost", true, true}} {
				cut := newCutter(s.kind, 1<<40, how.call, how.on)
				run := func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					if err := cutOff(t, cut, n); err != nil {
						t.Errorf("%s %s %d: %v", how.name, s.kind, n, err)
					}
					if cut.left.Load() <= 0 {
						hit.Add(1)
					}
				}
				some.Go(run)
			}
		}
		all.Go(func() {
			some.Wait()
			t.Logf("%s: %d of %d calls were there to be cut off", s.kind, hit.Load(), 4*s.n)
			if hit.Load() == 0 {
				t.Errorf("no worker made a call of kind %s", s.kind)
			}
		})
	}
	all.Wait()
}

// cutOff has the nth call of a worker go wrong while it runs workflows, and a second worker see them to their ends.
func cutOff(t *testing.T, cut *cutter, n int) error {
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	url := redistest.URL(t)
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	world := &cutWorld{runs: map[string]int{}}

	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	doomed := redis.NewClient(opts)
	defer func() { _ = doomed.Close() }()
	doomed.AddHook(cut)
	ready := make(chan struct{})
	first, err := tasks.NewWorker(tasks.NewClient(doomed), world.mux(), tasks.WorkerConfig{Name: "first", Concurrency: 2, Ready: func() { close(ready) }})
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	var firstErr error
	workers.Go(func() { firstErr = first.Run(ctx) })
	<-ready
	cut.left.Store(int64(n))
	run, err := witness().Send(ctx, c)
	if err != nil {
		return err
	}
	fails, err := skipper().Send(ctx, c)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = run.Wait(ctx)
		_, _ = fails.Wait(ctx)
	}()
	select {
	case <-cut.dead:
	case <-ended: // it had no more to call
	}
	if cut.on {
		<-ended
	} else {
		first.Kill()
		workers.Wait()
		if firstErr != nil {
			return firstErr
		}
		second, err := tasks.NewWorker(c, world.mux(), tasks.WorkerConfig{Name: "second", Grace: time.Second})
		if err != nil {
			return err
		}
		workers.Go(func() { _ = second.Run(ctx) })
		if err := tasks.ExpireLeases(ctx, c, "first"); err != nil {
			return err
		}
	}
	if err := cutValues(ctx, run, fails); err != nil {
		return err
	}
	world.mu.Lock()
	defer world.mu.Unlock()
	for node, n := range world.runs {
		if n > 2 || cut.on && n > 1 {
			return fmt.Errorf("node %s ran %d times", node, n)
		}
	}
	return nothingLeft(ctx, c.Redis())
}

// cutValues checks what the workflows of a cut-off test come to.
func cutValues(ctx context.Context, run *tasks.AsyncResult[tasks.Pair[string, string]], fails *tasks.AsyncResult[[]int64]) error {
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
			return strings.HasPrefix(k, "w:") && !strings.Contains(k[2:], ":") || k == "holders" || strings.HasPrefix(k, "wake:") ||
				k == "live" || k == "hour" || k == "clock" || strings.HasPrefix(k, "done:") || strings.HasPrefix(k, "cm:") || strings.HasPrefix(k, "ch:") || strings.HasPrefix(k, "cd:") || strings.HasPrefix(k, "fails:")
		})
		depths := fmt.Sprint(rdb.HMGet(ctx, p+"wake:default", "dn", "dh").Val())
		depths = strings.ReplaceAll(depths, "<nil>", "0")
		if len(left) == 0 && depths == "[0 0]" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left behind: %v, depths %s, agenda %v", left, depths, rdb.ZRange(context.WithoutCancel(ctx), p+"agenda", 0, -1).Val())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A sender that dies at any call, or right after it, leaves a workflow that runs, or none; also when what it sends goes
// in pieces.
func TestSenderThatDiesLeavesAWholeWorkflowOrNone(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{3, 12_000} {
		var found, unknown atomic.Int64
		t.Cleanup(func() {
			if found.Load() == 0 || unknown.Load() == 0 {
				t.Errorf("%d members: %d sends stored their workflow and %d did not, want some of each", size, found.Load(), unknown.Load())
			}
		})
		for k := range 24 {
			t.Run(fmt.Sprint(size, " members ", k), func(t *testing.T) {
				t.Parallel()
				rdb := redis.NewClient(opts)
				rdb.AddHook(newCutter("", k/2+1, k%2 == 1, false))
				id := fmt.Sprint("w10-", size, "-", k)
				_, err := tasks.Chord(tasks.Each(ints(size), ID), Sum).Send(t.Context(), tasks.NewClient(rdb), tasks.ID(id))
				_ = rdb.Close()
				got, werr := tasks.Attach[int](w.client, id).Wait(limited(t))
				switch {
				case errors.Is(werr, tasks.ErrUnknown):
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

// A client that dies while it revokes a workflow leaves one that ends, as if it had not been there or revoked.
func TestRevokerThatDiesLeavesAWorkflowThatEnds(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	var revoked, untouched atomic.Int64
	t.Cleanup(func() {
		if revoked.Load() == 0 || untouched.Load() == 0 {
			t.Errorf("%d were revoked and %d were not, want some of each", revoked.Load(), untouched.Load())
		}
	})
	for k := range 28 {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			gate := fmt.Sprint("revoker ", k)
			run := sent(t, w, tasks.GroupOf([]tasks.Signature[int]{Hold.S(gate), ID.S(1, tasks.Queue("unserved")), tasks.Chain(ID.S(2, tasks.In(time.Hour)), Inc)}, tasks.AtMost(2)))
			testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at "+gate)) == 1 })
			rdb := redis.NewClient(opts)
			rdb.AddHook(newCutter("", k/2+1, k%2 == 1, false))
			_ = tasks.Attach[any](tasks.NewClient(rdb), run.ID()).Revoke(t.Context())
			_ = rdb.Close()
			if w.client.Redis().HExists(t.Context(), flowKey(t, w.client.Redis(), run.ID()), "x").Val() {
				revoked.Add(1)
			} else {
				untouched.Add(1)
				if err := run.Revoke(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := run.Wait(limited(t)); !errors.As(err, new(*tasks.Failure)) {
				t.Errorf("got %v, want a failure", err)
			}
			ended(t, w, run.ID())
		})
	}
}

// Two runs of a node at once, as when a worker sleeps past its lease and wakes up: the first
// outcome counts, everywhere, and what follows runs once.
func TestFirstOutcomeOfTwoRunsCounts(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		var runs atomic.Int64
		member := tasks.New[int, int]("two.member")
		list := tasks.New[int, []int]("two.list")
		mux := w.mux()
		wait := func(ctx context.Context) (int, error) {
			n := int(runs.Add(1))
			if n%2 == 0 {
				return n, nil
			}
			w.note("first runs", n)
			select {
			case <-w.gate(fmt.Sprint("run ", n)):
			case <-ctx.Done():
			}
			return n, nil
		}
		tasks.Handle(mux, member, func(ctx context.Context, _ int) (int, error) { return wait(ctx) })
		tasks.Handle(mux, list, func(ctx context.Context, _ int) ([]int, error) {
			n, err := wait(ctx)
			return make([]int, n), err
		})
		other, err := tasks.NewWorker(w.client, mux, tasks.WorkerConfig{Name: "sleeper", Queues: map[string]int{"two": 1}, Grace: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		during(t, other.Run)

		// 194: a member of a header.
		chord := sent(t, w, tasks.Chord(tasks.Group(member.S(0, tasks.Queue("two")), Hold.S("late")), Only))
		testutil.Eventually(t, "the first run", func() bool { return len(w.noted("first runs")) == 1 })
		if err := tasks.ExpireLeases(t.Context(), w.client, "sleeper"); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the second run counts", func() bool { return nodes(t, w, chord.ID())[0].Status == tasktype.Success })
		w.open("run 1")
		w.open("late")
		if got, err := chord.Wait(limited(t)); err != nil || got != "[2 1]" {
			t.Fatalf("got %v, %v", got, err)
		}
		ended(t, w, chord.ID())

		// 196: what a header is made from.
		spread := sent(t, w, tasks.Chord(tasks.Map(list.S(0, tasks.Queue("two")), Note), Total))
		testutil.Eventually(t, "the first run", func() bool { return len(w.noted("first runs")) == 2 })
		if err := tasks.ExpireLeases(t.Context(), w.client, "sleeper"); err != nil {
			t.Fatal(err)
		}
		if _, err := spread.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		w.open("run 3")
		ended(t, w, spread.ID())
		if n, bodies := len(w.noted("note")), len(w.noted("total")); n != 4 || bodies != 1 {
			t.Fatalf("%d members ran and %d bodies, want 4 and 1", n, bodies)
		}
	})
}
