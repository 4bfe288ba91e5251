package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// needs describes the dependencies of nodes: "4 <- 3 4:1", in the order of the workflow.
func needs(ns []tasktype.Node) []string {
	var out []string
	for _, n := range ns {
		out = append(out, strings.TrimSpace(n.ID+" <- "+strings.Join(n.Needs, " ")))
	}
	return out
}

// Members of maps and nodes of plans depend on the task that made them, and can run from when it had done so.
func TestDependenciesOfMembersAndPlans(t *testing.T) {
	t.Parallel()
	one, list, total := tasks.New[int, int]("one"), tasks.New[int, []int]("list"), tasks.New[[]int, int]("total")
	planned := tasks.New[int, int]("planned")
	mux := tasks.NewMux()
	tasks.Handle(mux, one, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(mux, list, func(_ context.Context, n int) ([]int, error) { return make([]int, n), nil })
	tasks.Handle(mux, total, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.HandlePlan(mux, planned, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chain(one.S(n, tasks.In(time.Second)), one), nil
	})
	fleet := taskstest.New(t, mux)
	minute := tasks.In(time.Minute)
	for name, c := range map[string]struct {
		s     tasks.Signature[int]
		needs []string
		ready map[string]time.Duration // since the send, of nodes
	}{
		"map": {tasks.Chord(tasks.Map(list.S(2, minute), one, tasks.In(time.Second)), total),
			[]string{"0 <-", "1 <- 0 1.0 1.1", "1.0 <- 0", "1.1 <- 0", "2 <- 1"},
			map[string]time.Duration{"0": 0, "1.0": time.Minute, "1.1": time.Minute, "2": time.Minute + time.Second}},
		"plan": {tasks.Chain(planned.S(1, minute), one),
			[]string{"0 <-", "0:0 <- 0", "0:1 <- 0:0", "1 <- 0 0:1"},
			map[string]time.Duration{"0": 0, "0:0": time.Minute, "0:1": time.Minute + time.Second, "1": time.Minute + time.Second}},
		"map of plans": {tasks.Chord(tasks.Map(list.S(1, minute), planned), total),
			[]string{"0 <-", "1 <- 0 1.0 1.0:1", "1.0 <- 0", "1.0:0 <- 1.0", "1.0:1 <- 1.0:0", "2 <- 1"},
			map[string]time.Duration{"1.0": time.Minute, "1.0:0": time.Minute, "2": time.Minute + time.Second}},
		"map of graphs": {tasks.Chord(tasks.MapFunc(list.S(1, minute), func(v tasks.Signature[int]) tasks.Signature[int] { return tasks.Chain(v, one) }), total),
			[]string{"0 <-", "1 <- 0 1.0 1.0:1", "1.0 <- 0", "1.0:1 <- 1.0", "2 <- 1"},
			map[string]time.Duration{"1.0:1": time.Minute}},
	} {
		run, err := c.s.Send(t.Context(), fleet.Client())
		testutil.Ok(t, err)
		fleet.Drain()
		d, err := run.Detail(t.Context())
		testutil.Ok(t, err)
		if got := needs(d.Nodes); !slices.Equal(got, c.needs) {
			t.Errorf("%s: got the dependencies %q, want %q", name, got, c.needs)
		}
		work := 0
		for _, n := range d.Nodes {
			if want, ok := c.ready[n.ID]; ok && n.Ready.Sub(d.Created).Round(time.Second) != want {
				t.Errorf("%s, node %s: got ready %s after the send, want %s", name, n.ID, n.Ready.Sub(d.Created), want)
			}
			if !n.Step() {
				work++
				if n.First.IsZero() || n.First.Before(n.Scheduled) || n.Runs != 1 {
					t.Errorf("%s, node %s: got first start %s, scheduled %s, %d runs", name, n.ID, n.First, n.Scheduled, n.Runs)
				}
			}
			if n.Task == "planned" && n.Planned.Before(n.Started) {
				t.Errorf("%s, node %s: got planned at %s, want it after the start at %s", name, n.ID, n.Planned, n.Started)
			}
		}
		if d.Progress.Total != work || d.Progress.Done != work {
			t.Errorf("%s: got a progress of %d of %d, want %d tasks", name, d.Progress.Done, d.Progress.Total, work)
		}
	}
}

// A delayed node waits for its time, not for a worker; a skipped one for nothing.
func TestNodeIsScheduledAfterItsDelay(t *testing.T) {
	t.Parallel()
	ok, bad := tasks.New[int, int]("ok"), tasks.New[int, int]("bad")
	mux := tasks.NewMux()
	tasks.Handle(mux, ok, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New("bad") })
	f := taskstest.New(t, mux)
	s := tasks.Chain(tasks.Chain(tasks.Chain(ok.S(1, tasks.In(time.Hour)), ok, tasks.In(time.Minute)), bad), ok)
	run, err := s.Send(t.Context(), f.Client())
	testutil.Ok(t, err)
	f.Drain()
	d, err := run.Detail(t.Context())
	testutil.Ok(t, err)
	for i, want := range []struct{ ready, delay time.Duration }{{0, time.Hour}, {time.Hour, time.Minute}, {time.Hour + time.Minute, 0}} {
		n := d.Nodes[i]
		if got := n.Ready.Sub(d.Created).Round(time.Minute); got != want.ready || n.Scheduled.Sub(n.Ready) != want.delay {
			t.Errorf("node %s: got ready %s after the send and scheduled %s later, want %s and %s", n.ID, got, n.Scheduled.Sub(n.Ready), want.ready, want.delay)
		}
	}
	if n := d.Nodes[3]; n.Status != tasktype.Skipped || !n.Ready.IsZero() || !n.Scheduled.IsZero() {
		t.Errorf("got %s, ready %s, scheduled %s; want a skipped node that was never ready", n.Status, n.Ready, n.Scheduled)
	}
}

// A handler that asks for further calls, and one that fails and is retried, keep the start of the first run.
func TestNodeCountsItsRuns(t *testing.T) {
	t.Parallel()
	poll := tasks.New[int, int]("poll", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Minute))
	calls := 0
	mux := tasks.NewMux()
	tasks.Handle(mux, poll, func(context.Context, int) (int, error) {
		if calls++; calls == 20 {
			return 0, errors.New("reset")
		} else if calls < 31 {
			return 0, tasks.Again(time.Minute)
		}
		return calls, nil
	})
	f := taskstest.New(t, mux)
	run, err := poll.S(0).Send(t.Context(), f.Client())
	testutil.Ok(t, err)
	f.Drain()
	d, err := f.Client().Node(t.Context(), run.ID(), "0")
	testutil.Ok(t, err)
	if d.Runs != 31 || d.Attempts != 2 || d.Started.Sub(d.First).Round(time.Minute) != 30*time.Minute {
		t.Errorf("got %d runs, %d attempts, first start %s before the last; want 31, 2, 30 minutes", d.Runs, d.Attempts, d.Started.Sub(d.First))
	}
	var got, want []string
	for _, a := range d.Tried {
		got = append(got, fmt.Sprintf("%d %d %s %q %q %t", a.Run, a.Attempt, a.Outcome, a.Code, a.Message, a.Started.IsZero()))
	}
	want = append(want, `1 1 again "" "" false`, `20 1 retry "error" "reset" false`)
	for i := 21; i <= 30; i++ {
		want = append(want, fmt.Sprintf(`%d 2 again "" "" false`, i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the runs\n%q, want\n%q", got, want)
	}
}

// A node that runs when it is revoked keeps its attempt, worker and start, and is counted among the revoked ones; the
// others are as well, once each.
func TestRevokedNodes(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "w1" })
		run := sent(t, w, tasks.Chain(tasks.Chain(ID.S(1), tasks.New[int, int]("t.hold")), ID))
		testutil.Eventually(t, "the second task runs", func() bool { return nodes(t, w, run.ID())[1].Status == tasktype.Started })
		testutil.Ok(t, run.Revoke(t.Context()))
		ended(t, w, run.ID())
		ns := nodes(t, w, run.ID())
		if n := ns[1]; n.Status != tasktype.Revoked || n.Attempts != 1 || n.Runs != 1 || n.Worker != "w1" || n.Started.Before(n.Ready) || n.Ended.Before(n.Started) {
			t.Errorf("running node: got %+v, want a revoked one with its attempt, worker and start", n)
		}
		if n := ns[2]; n.Status != tasktype.Revoked || n.Attempts != 0 || n.Worker != "" || !n.Started.IsZero() || !n.Ready.IsZero() {
			t.Errorf("pending node: got %+v, want a revoked one that never ran", n)
		}
		want := map[string]int64{"t.hold revoked": 1, ID.Name() + " revoked": 1, ID.Name() + " succeeded": 1, "t.hold succeeded": 0}
		testutil.Eventually(t, "the worker has stored its counts", func() bool {
			points, err := w.client.Rates(t.Context(), tasktype.RateFilter{})
			testutil.Ok(t, err)
			got := map[string]int64{}
			for _, p := range points {
				got[p.Task+" succeeded"] += p.Succeeded
				got[p.Task+" revoked"] += p.Revoked
			}
			for what, n := range want {
				if got[what] != n {
					return false
				}
			}
			return true
		})
	})
}
