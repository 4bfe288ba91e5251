package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/facttest"
	"muster/tasks/redistest"
)

var errCut = errors.New("cut off")

// cutter is a connection that ends after so many calls, as that of a process that dies there. What
// Redis holds then is what a crash leaves behind.
type cutter struct {
	left  atomic.Int64
	after bool          // the last call is made, and its answer lost
	dead  chan struct{} // closed when the connection has ended
	once  sync.Once
}

// dies reports whether this call is the last one or comes after it, and whether to make it all the same.
func (c *cutter) dies() (dead, call bool) {
	n := c.left.Add(-1)
	if n > 0 {
		return false, true
	}
	c.once.Do(func() { close(c.dead) })
	return true, n == 0 && c.after
}

func (c *cutter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *cutter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		dead, call := c.dies()
		if !dead {
			return next(ctx, cmd)
		}
		if call {
			_ = next(ctx, cmd)
		}
		cmd.SetErr(errCut)
		return errCut
	}
}

func (c *cutter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		dead, call := c.dies()
		if !dead {
			return next(ctx, cmds)
		}
		if call {
			_ = next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errCut)
		}
		return errCut
	}
}

// The tasks of the cut-off tests. Unique yields another value each time it runs, so that two uses of
// its value tell whether they got the same.
var (
	Unique     = tasks.New[int, int64]("cut.unique")
	UniquePlan = tasks.New[int, int64]("cut.plan")
	UniqueList = tasks.New[int, []int]("cut.list")
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
	tasks.Handle(m, Show[any](), func(ctx context.Context, v any) (string, error) {
		ran(ctx)
		return fmt.Sprintf("%v", v), nil
	})
	return m
}

// witness is a workflow that yields the same string twice if every node had one value only.
func witness() tasks.Signature[tasks.Pair[string, string]] {
	h := tasks.Group(Unique.S(1), UniquePlan.S(2), tasks.After(Unique.S(3), Unique.S(4))).With(tasks.AtMost(2))
	list := tasks.Map(UniqueList.S(2), Unique, tasks.AtMost(1))
	both := tasks.Join(h, list)
	show := Show[tasks.Pair[[]int64, []int64]]()
	return tasks.Join(tasks.Chain(both, show), tasks.Chain(both, show))
}

// A worker that dies between any two calls to Redis, or before it hears the answer of one, leaves a
// state from which another finds the way: every value is one value, and nothing stays behind.
func TestCutOff(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for k := 1; k <= 34; k++ {
		url := redistest.URL(t)
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := cutOff(t.Context(), url, int64(k)); err != nil {
				t.Errorf("cut off after %d calls: %v", k, err)
			}
		})
	}
	all.Wait()
}

func cutOff(ctx context.Context, url string, k int64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*waitLimit)
	defer cancel()
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
	cut := &cutter{after: k%2 == 1, dead: make(chan struct{})}
	cut.left.Store(1 << 40)
	doomed.AddHook(cut)
	ready := make(chan struct{})
	first, err := tasks.NewWorker(tasks.NewClient(doomed), world.mux(), tasks.WorkerConfig{Name: "first", Concurrency: 2, Ready: func() { close(ready) }})
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	var firstErr error
	workers.Go(func() { firstErr = first.Run(ctx) })
	<-ready
	cut.left.Store(k)
	run, err := witness().Send(ctx, c)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = run.Wait(ctx)
	}()
	select {
	case <-cut.dead:
	case <-ended: // it had no more to call
	}
	first.Kill()
	workers.Wait()
	if firstErr != nil {
		return firstErr
	}
	second, err := tasks.NewWorker(c, world.mux(), tasks.WorkerConfig{Name: "second", Grace: time.Second})
	if err != nil {
		return err
	}
	sctx, stop := context.WithCancel(ctx)
	defer stop()
	workers.Go(func() { _ = second.Run(sctx) })
	if err := tasks.ExpireLeases(ctx, c, "first"); err != nil {
		return err
	}
	got, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	if got.First != got.Second || strings.Count(got.First, " ") < 4 {
		return fmt.Errorf("two uses of the same values got %q and %q", got.First, got.Second)
	}
	for p, err := range run.Watch(ctx) {
		if err != nil {
			return fmt.Errorf("%w at %+v", err, p)
		}
	}
	world.mu.Lock()
	defer world.mu.Unlock()
	for node, n := range world.runs {
		if n > 2 {
			return fmt.Errorf("node %s ran %d times, and one worker died", node, n)
		}
	}
	for {
		left := c.Redis().ZRange(ctx, "muster:{s00}:agenda", 0, -1).Val()
		running := c.Redis().HGetAll(ctx, "muster:{s00}:running").Val()
		if len(left) == 0 && len(running) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left behind: agenda %v, running %v", left, running)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// W10: a sender that dies while it sends leaves a workflow that runs, or none.
func TestSenderCutOff(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	var found atomic.Int64
	t.Cleanup(func() {
		if found.Load() == 0 {
			t.Error("no send got as far as storing its workflow")
		}
	})
	for k := range 20 {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(opts)
			cut := &cutter{after: k%2 == 1, dead: make(chan struct{})}
			cut.left.Store(int64(k/2 + 1))
			rdb.AddHook(cut)
			id := fmt.Sprint("w10-", k)
			_, err := tasks.Chord(tasks.Each(ints(3), ID), Sum).Send(t.Context(), tasks.NewClient(rdb), tasks.ID(id))
			_ = rdb.Close()
			agendaNow(t, w.client.Redis()) // which they do by themselves, seconds later
			got, werr := tasks.Attach[int](w.client, id).Wait(limited(t))
			switch {
			case errors.Is(werr, tasks.ErrUnknown):
				if err == nil {
					t.Errorf("cut off after %d calls: sent without error, and unknown", k)
				}
			case werr != nil || got != 3:
				t.Errorf("cut off after %d calls: got %v, %v", k, got, werr)
			default:
				found.Add(1)
				ended(t, w, id)
			}
		})
	}
}

// W7: two runs of a node at once, as when a worker sleeps past its lease and wakes up: the first
// outcome counts, everywhere, and what follows runs once.
func TestTwoRunsOfOneNode(t *testing.T) {
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
		facttest.Eventually(t, "the first run", func() bool { return len(w.noted("first runs")) == 1 })
		if err := tasks.ExpireLeases(t.Context(), w.client, "sleeper"); err != nil {
			t.Fatal(err)
		}
		facttest.Eventually(t, "the second run counts", func() bool { return nodes(t, w, chord.ID())[0].Status == tasks.Success })
		w.open("run 1")
		w.open("late")
		if got, err := chord.Wait(limited(t)); err != nil || got != "[2 1]" {
			t.Fatalf("got %v, %v", got, err)
		}
		ended(t, w, chord.ID())

		// 196: what a header is made from.
		spread := sent(t, w, tasks.Chord(tasks.Map(list.S(0, tasks.Queue("two")), Note), Total))
		facttest.Eventually(t, "the first run", func() bool { return len(w.noted("first runs")) == 2 })
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
