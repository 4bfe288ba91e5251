package tasks_test

import (
	"context"
	"errors"
	"fmt"
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
)

// The tasks of the cut-off tests. Unique yields another value each time it runs, so that two uses of
// its value show whether they got the same.
var (
	Unique     = tasks.New[int, int64]("cut.unique")
	UniquePlan = tasks.New[int, int64]("cut.plan")
	UniqueList = tasks.New[int, []int]("cut.list")
	UniqueFail = tasks.New[int, int64]("cut.fail")
	UniqueErr  = tasks.New[tasks.Failure, int64]("cut.err")
)

// ran is a node that ran on a worker.
type ran struct{ node, worker string }

type cutWorld struct {
	mu   sync.Mutex // guards runs
	runs map[ran]int
	last atomic.Int64

	limits []tasks.TaskOption // of the task Unique
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
	tasks.Handle(m, tasks.New[int, int64](Unique.Name(), c.limits...), func(ctx context.Context, _ int) (int64, error) { return run(ctx), nil })
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
	h := tasks.GroupOf([]tasks.Signature[int64]{Unique.S(1), UniquePlan.S(2), tasks.After(Unique.S(3), Unique.S(4, tasks.In(20*time.Millisecond)))}, tasks.AtMost(2))
	list := tasks.Map(UniqueList.S(2), Unique, tasks.AtMost(1))
	both := tasks.Join(h, list)
	show := Show[tasks.Pair[[]int64, []int64]]()
	return tasks.Join(tasks.Chain(both, show), tasks.Chain(both, show))
}

// skipper is a workflow that skips the successors of a failure and revokes its siblings.
func skipper() tasks.Signature[[]int64] {
	return tasks.GroupOf([]tasks.Signature[int64]{tasks.OnError(UniqueFail.S(1), UniqueErr), Unique.S(2), Unique.S(3, tasks.In(time.Hour))}, tasks.FailFast())
}

// cutValues checks the results of the workflows of a cut-off test.
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
			return strings.HasPrefix(k, "limit:places:") || strings.HasPrefix(k, "limit:rate:") || // they expire
				strings.HasPrefix(k, "w:") && !strings.Contains(k[2:], ":") || k == "holders" || k == "takers" || k == "queues" || strings.HasPrefix(k, "queue:") ||
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
	diesWhileStopping(t, (*tasks.AsyncResult[any]).Revoke)
}

func TestCancellerThatDiesLeavesAWorkflowThatEnds(t *testing.T) {
	t.Parallel()
	diesWhileStopping(t, (*tasks.AsyncResult[any]).Cancel)
}

// diesWhileStopping lets a client die at each of its calls to Redis while it stops a workflow.
func diesWhileStopping(t *testing.T, stop func(*tasks.AsyncResult[any], context.Context) error) {
	t.Helper()
	url := redistest.URL(t)
	w := newWorld(t, connect(t, url).Redis())
	var stopped, untouched atomic.Int64
	t.Cleanup(func() {
		if stopped.Load() == 0 || untouched.Load() == 0 {
			t.Errorf("%d were stopped and %d were not, want some of each", stopped.Load(), untouched.Load())
		}
	})
	for k := range 28 {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			gate := fmt.Sprint("stopper ", k)
			run := sent(t, w, tasks.GroupOf([]tasks.Signature[int]{Hold.S(gate), ID.S(1, tasks.Queue("unserved")), tasks.Chain(ID.S(2, tasks.In(time.Hour)), Inc)}, tasks.AtMost(2)))
			testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at "+gate)) == 1 })
			f := redistest.NewFault([]redistest.Kind{redistest.Crash, redistest.CrashAfter}[k%2], k/2+1)
			rdb := f.Client(t, url)
			f.Arm()
			_ = stop(tasks.Attach[any](tasks.NewClient(rdb), run.ID()), t.Context())
			if w.client.Redis().HExists(t.Context(), flowKey(t, w.client.Redis(), run.ID()), "x").Val() {
				stopped.Add(1)
			} else {
				untouched.Add(1)
				testutil.Ok(t, stop(tasks.Attach[any](w.client, run.ID()), t.Context()))
			}
			if _, err := run.Wait(limited(t)); !errors.As(err, new(*tasks.Failure)) {
				t.Errorf("got %v, want a failure", err)
			}
			ended(t, w, run.ID())
		})
	}
}
