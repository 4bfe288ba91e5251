package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// Workflows are found by their names and labels while they run and after they have ended.
func TestWorkflowsAreFoundByNameAndLabels(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		acme, zen := map[string]string{"customer": "acme", "release": "1.2 → é"}, map[string]string{"customer": "zen"}
		ended := sent(t, w, ID.S(1), tasks.Name("Nightly import"), tasks.Labels(acme))
		failed := sent(t, w, Fail.S(1), tasks.Name("Nightly import"), tasks.Labels(zen), tasks.Labels(map[string]string{"empty": ""}))
		other := sent(t, w, ID.S(2))
		for _, r := range []*tasks.Run[int]{ended, failed, other} {
			testutil.Ok(t, r.WaitAll(t.Context()))
		}
		running := sent(t, w, Hold.S("labels"), tasks.Labels(acme))
		defer w.open("labels")
		for _, c := range []struct {
			filter tasktype.WorkflowFilter
			want   []string
		}{
			{tasktype.WorkflowFilter{Name: "Nightly import"}, []string{failed.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Name: "t.id"}, []string{other.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Contains: "night"}, []string{failed.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Contains: "T.FAIL"}, []string{failed.ID()}},
			{tasktype.WorkflowFilter{Labels: acme}, []string{running.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Labels: map[string]string{"customer": "acme"}, State: tasktype.WorkflowRunning}, []string{running.ID()}},
			{tasktype.WorkflowFilter{Labels: map[string]string{"empty": ""}}, []string{failed.ID()}},
			{tasktype.WorkflowFilter{Labels: map[string]string{"customer": "acm"}}, nil},
			{tasktype.WorkflowFilter{Labels: map[string]string{"customer": "acme", "none": "x"}}, nil},
			{tasktype.WorkflowFilter{Name: "Nightly"}, nil},
		} {
			page, _, err := w.client.Inspect().Workflows(t.Context(), c.filter)
			testutil.Ok(t, err)
			got := map[string]bool{}
			for _, found := range page {
				got[found.ID] = true
			}
			want := map[string]bool{}
			for _, id := range c.want {
				want[id] = true
			}
			if !maps.Equal(got, want) {
				t.Errorf("%+v: got %+v, want %v", c.filter, page, c.want)
			}
		}
		d, err := ended.Detail(t.Context())
		if err != nil || d.Name != "Nightly import" || !maps.Equal(d.Labels, acme) {
			t.Errorf("detail: got %q, %v, %v, want the name and the labels", d.Name, d.Labels, err)
		}
	})
}

func TestNamesAndLabelsOutOfRangeAreErrorsOfSend(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		label := func(k, v string) tasks.SendOption { return tasks.Labels(map[string]string{k: v}) }
		for want, o := range map[string]tasks.SendOption{
			"Name(\"\")":          tasks.Name(""),
			"Name(\"a\\tb\")":     tasks.Name("a\tb"),
			"Name(\"xxx":          tasks.Name(strings.Repeat("x", 201)),
			"key \"\"":            label("", "v"),
			"key \"a b\"":         label("a b", "v"),
			"key \"a=b\"":         label("a=b", "v"),
			"value of k":          label("k", "a\nb"),
			"more than 1024":      label("k", strings.Repeat("x", 1<<20)),
			"labels have 1028":    label("long", strings.Repeat("x", 1024)),
			"key \"xxxxxxxxxxxxx": label(strings.Repeat("x", 64), ""),
		} {
			if err := refusal(t, w, ID.S(1), o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
	})
}

func TestListingsRefuseWhatTheyCannotHave(t *testing.T) {
	t.Parallel()
	c := tasks.NewClient(redistest.New(t))
	workflows := func(f tasktype.WorkflowFilter) func(context.Context) error {
		return func(ctx context.Context) error {
			page, next, err := c.Inspect().Workflows(ctx, f)
			if len(page) != 0 || next != "" {
				t.Errorf("%+v: got %v, cursor %q, want none", f, page, next)
			}
			return err
		}
	}
	rates := func(f tasktype.RateFilter) func(context.Context) error {
		return func(ctx context.Context) error {
			points, err := c.Inspect().Rates(ctx, f)
			if len(points) != 0 {
				t.Errorf("%+v: got %v, want none", f, points)
			}
			return err
		}
	}
	for _, r := range []struct {
		ask  func(context.Context) error
		want string // in the error; none if empty
	}{
		{workflows(tasktype.WorkflowFilter{}), ""},
		{workflows(tasktype.WorkflowFilter{State: tasktype.WorkflowRunning, Name: "a", After: time.Now(), Before: time.Now(), Limit: 1000}), ""},
		{workflows(tasktype.WorkflowFilter{State: "PENDING"}), "not a state"},
		{workflows(tasktype.WorkflowFilter{Limit: 1001}), "1 to 1000"},
		{workflows(tasktype.WorkflowFilter{Limit: -1}), "1 to 1000"},
		{workflows(tasktype.WorkflowFilter{Cursor: "x"}), "not a cursor"},
		{rates(tasktype.RateFilter{}), ""},
		{rates(tasktype.RateFilter{Queue: "q", Task: "t", Since: time.Now().Add(-99 * time.Hour), Step: time.Minute}), ""},
		{rates(tasktype.RateFilter{Step: time.Hour}), ""},
		{rates(tasktype.RateFilter{Step: time.Second}), "minute or an hour"},
	} {
		err := r.ask(t.Context())
		if r.want == "" && err != nil || r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want)) {
			t.Errorf("got error %v, want one with %q", err, r.want)
		}
	}
}

func TestWorkersStoreDepths(t *testing.T) {
	t.Parallel()
	c := newClient(t, redistest.Server(t).Client())
	started(t, c, nodeWords.S("a", tasks.Queue("gpu")))
	runWorker(t, c, tasks.NewMux(), tasks.WorkerConfig{Name: "w"})
	testutil.Eventually(t, "a depth of this minute is stored", func() bool {
		depth, err := c.Inspect().History(t.Context(), tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Names: []string{"gpu"}})
		return err == nil && len(depth) == 1 && depth[0].Values[0].Value == 1
	})
}

func TestFailuresAndDurationsOfATask(t *testing.T) {
	t.Parallel()
	f := nodeFleet(t)
	c := f.Client()
	var ids []string
	for i := range 3 {
		run := started(t, c, tasks.Group(nodeShaky.S("a"), nodeWords.S("b")))
		ids = append(ids, run.ID())
		f.Drain()
		if i == 1 {
			testutil.Ok(t, run.Delete(t.Context()))
		}
	}
	failed, err := c.Inspect().Failures(t.Context(), nodeShaky.Name(), 10)
	if err != nil || len(failed) != 2 {
		t.Fatalf("got %+v, %v, want the two of workflows that are there", failed, err)
	}
	for i, id := range []string{ids[2], ids[0]} {
		if n := failed[i]; n.Workflow != id || n.Node != "0" || n.Failure.Code != "odd" || !strings.HasPrefix(n.Failure.Message, fmt.Sprint("attempt ", 18-12*i)) || n.Ended.IsZero() {
			t.Errorf("failure %d: got %+v, want the failure of workflow %s", i, n, id)
		}
	}
	if one, err := c.Inspect().Failures(t.Context(), nodeShaky.Name(), 1); err != nil || len(one) != 1 || one[0].Workflow != ids[2] {
		t.Errorf("got %+v, %v, want the last", one, err)
	}
	if none, err := c.Inspect().Failures(t.Context(), nodeWords.Name(), 10); err != nil || len(none) > 0 {
		t.Errorf("got %+v, %v, want none", none, err)
	}
	for task, want := range map[string]int64{nodeShaky.Name(): 18, nodeWords.Name(): 3, "none": 0} {
		points, err := c.Inspect().Durations(t.Context(), tasktype.DurationFilter{Task: task, Since: time.Unix(0, 0)})
		var n int64
		for _, p := range points {
			n += p.Durations.Count()
		}
		if err != nil || n != want {
			t.Errorf("%s: got %d attempts in %+v, %v, want %d", task, n, points, err, want)
		}
	}
}

// The percentage counts a running task in part, and never falls in a Watch.
func TestWatchCountsOwnProgress(t *testing.T) {
	t.Parallel()
	runStories(t, []story{{"a chain", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chain(tasks.New[int, int]("t.progress").S(1), Inc))
		testutil.Eventually(t, "three quarters of one of two tasks count", func() bool {
			p, err := run.Progress(t.Context())
			return err == nil && p.Percent == 37.5
		})
		var seen []float64
		for p, err := range run.Watch(limited(t)) {
			testutil.Ok(t, err)
			if seen = append(seen, p.Percent); len(seen) == 1 {
				w.open("progress")
			}
		}
		if seen[0] != 37.5 || seen[len(seen)-1] != 100 || !slices.IsSorted(seen) {
			t.Errorf("got %v, want 37.5 to 100", seen)
		}
	}}})
}

// A retry starts from the beginning: the progress of the failed attempt does not count.
func TestProgressOfAFailedAttemptDoesNotCount(t *testing.T) {
	t.Parallel()
	runStories(t, []story{{"a retry", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.New[int, int]("t.stumble", tasks.MaxRetry(1), tasks.ConstantBackoff(1<<30)).S(1))
		testutil.Eventually(t, "the first attempt has failed", func() bool {
			nodes, err := run.Nodes(t.Context())
			return err == nil && nodes[0].Status == tasktype.Retry
		})
		if p, err := run.Progress(t.Context()); err != nil || p.Percent != 0 {
			t.Errorf("got %+v, %v, want 0 percent", p, err)
		}
		testutil.Ok(t, run.Revoke(t.Context()))
	}}})
}

// A store of another schema is rejected with the remedy; the rejected worker is never listed as live.
func TestStoreOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*testing.T, redis.UniversalClient) error
		want string
	}{
		"newer": {func(t *testing.T, rdb redis.UniversalClient) error {
			return rdb.Set(t.Context(), "muster:store", "4 1", 0).Err()
		}, "upgrade this program"},
		"no shards": {func(t *testing.T, rdb redis.UniversalClient) error {
			return rdb.Set(t.Context(), "muster:store", "3 0", 0).Err()
		}, "is it the right Redis?"},
		"none": {func(t *testing.T, rdb redis.UniversalClient) error {
			return rdb.Set(t.Context(), "muster:store", "what?", 0).Err()
		}, "is it the right Redis?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.New(t)
			testutil.Ok(t, c.make(t, rdb))
			client := tasks.NewClient(rdb)
			if _, err := ID.S(1).Send(t.Context(), client); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("send: got error %v, want one with %q", err, c.want)
			}
			w := testutil.Must(tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{}))(t)
			if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("worker: got error %v, want one with %q", err, c.want)
			}
			if live, err := client.Inspect().Workers(t.Context()); err != nil || len(live) != 0 {
				t.Errorf("got live workers %v, %v, want none", live, err)
			}
		})
	}
}

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
		run := testutil.Must(c.s.Send(t.Context(), fleet.Client()))(t)
		fleet.Drain()
		d := testutil.Must(run.Detail(t.Context()))(t)
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
	run := testutil.Must(s.Send(t.Context(), f.Client()))(t)
	f.Drain()
	d := testutil.Must(run.Detail(t.Context()))(t)
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
	run := testutil.Must(poll.S(0).Send(t.Context(), f.Client()))(t)
	f.Drain()
	d := testutil.Must(run.Node(t.Context(), "0"))(t)
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
		testutil.Eventually(t, "the handler of the second task runs", func() bool { // a node that a worker has taken may not run yet
			n := nodes(t, w, run.ID())[1]
			return w.ran(run.ID()+".1") == 1 && n.Status == tasktype.Started && n.Attempts == 1
		})
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
			points := testutil.Must(w.client.Inspect().Rates(t.Context(), tasktype.RateFilter{}))(t)
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

var (
	nodeAdd   = tasks.New[int, int]("node.add")
	nodeList  = tasks.New[int, []int]("node.list")
	nodeSum   = tasks.New[[]int, int]("node.sum")
	nodeWords = tasks.New[string, int]("node.words")
	nodeShaky = tasks.New[string, int]("node.shaky", tasks.MaxRetry(5), tasks.ConstantBackoff(0))
)

// nodeFleet has tasks that succeed, and one that fails in each of its attempts.
func nodeFleet(t *testing.T) *taskstest.Fleet {
	t.Helper()
	mux := tasks.NewMux()
	tasks.Handle(mux, nodeAdd, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, nodeList, func(_ context.Context, n int) ([]int, error) { return []int{n, 2 * n}, nil })
	tasks.Handle(mux, nodeSum, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.Handle(mux, nodeWords, func(_ context.Context, s string) (int, error) { return len(s), nil })
	tries := 0
	tasks.Handle(mux, nodeShaky, func(context.Context, string) (int, error) {
		tries++
		return 0, tasks.WithCode("odd", fmt.Errorf("attempt %d:\n%s", tries, strings.Repeat("x", 1000)))
	})
	return taskstest.New(t, mux)
}

// wantInput checks the displayed input of a node.
func wantInput(t *testing.T, c *tasks.Client, id, node, want string) tasktype.NodeDetail {
	t.Helper()
	d, err := c.Workflow(id).Node(t.Context(), node)
	if err != nil || string(d.Input) != want {
		t.Errorf("node %s: got input %.200s, %v, want %.200s", node, d.Input, err, want)
	}
	return d
}

func TestNodeHasItsInput(t *testing.T) {
	t.Parallel()
	f := nodeFleet(t)
	run, err := tasks.Chord(tasks.Map(nodeList.S(4), nodeAdd), nodeSum).Send(t.Context(), f.Client(), tasks.Headers(map[string]string{"a": "b"}))
	testutil.Ok(t, err)
	wantInput(t, f.Client(), run.ID(), "0", "4")
	nodes := testutil.Must(run.Nodes(t.Context()))(t)
	last := nodes[len(nodes)-1].ID
	wantInput(t, f.Client(), run.ID(), last, "") // it waits for others
	f.Drain()
	wantInput(t, f.Client(), run.ID(), "0", "4")
	wantInput(t, f.Client(), run.ID(), "1.1", "8")
	d := wantInput(t, f.Client(), run.ID(), last, "[5,9]")
	if d.Status != tasktype.Success || d.Task != nodeSum.Name() || d.Headers["a"] != "b" || d.Attempts != 1 || d.Ended.IsZero() {
		t.Errorf("got %+v", d)
	}
	for node, want := range map[string]error{"99": tasks.ErrNotFound, "1.2": tasks.ErrNotFound, "0.1": tasks.ErrNotFound, "odd": tasks.ErrNotFound, "0:1": tasks.ErrNotFound} {
		if _, err := run.Node(t.Context(), node); !errors.Is(err, want) {
			t.Errorf("node %s: got %v, want %v", node, err, want)
		}
	}
	if _, err := f.Client().Workflow("none").Node(t.Context(), "0"); !errors.Is(err, tasks.ErrNotFound) {
		t.Errorf("got %v, want %v", err, tasks.ErrNotFound)
	}
}

// Large inputs are kept of failed nodes only.
func TestFailedNodeKeepsItsInputAndItsAttempts(t *testing.T) {
	t.Parallel()
	f := nodeFleet(t)
	large := strings.Repeat("y", 10_000)
	run := testutil.Must(tasks.Group(nodeShaky.S(large), nodeWords.S(large)).Send(t.Context(), f.Client()))(t)
	wantInput(t, f.Client(), run.ID(), "0", `"`+large+`"`)
	f.Drain()
	d := wantInput(t, f.Client(), run.ID(), "0", `"`+large+`"`)
	if d.Status != tasktype.Failed || d.Failure == nil || d.Failure.Attempts != 6 {
		t.Errorf("got %+v", d.Node)
	}
	var got []string
	for _, a := range d.Tried {
		head, _, _ := strings.Cut(a.Message, "\n")
		got = append(got, fmt.Sprint(a.Attempt, " ", head, " ", len(a.Message), " ", a.Code, " ", time.Since(a.Started).Abs() < time.Hour && !a.Ended.Before(a.Started) && a.Worker != ""))
	}
	if want := []string{"1 attempt 1: 300 odd true", "2 attempt 2: 300 odd true", "3 attempt 3: 300 odd true", "4 attempt 4: 300 odd true", "5 attempt 5: 300 odd true"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the attempts %q, want %q", got, want)
	}
	wantInput(t, f.Client(), run.ID(), "1", "")
}

// Workflows are counted by state, and nodes that wait for their time are in the outbox.
func TestWorkflowsAndOutboxAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.New(t))
	ctx := limited(t)
	if o, err := w.client.Inspect().Outbox(ctx); err != nil || o != (tasktype.Outbox{}) {
		t.Errorf("before all: got the outbox %+v, %v; want it empty", o, err)
	}
	later := sent(t, w, ID.S(1), tasks.In(time.Hour))
	testutil.Eventually(t, "the outbox has the delayed node, which is not due", func() bool {
		o, err := w.client.Inspect().Outbox(ctx)
		return err == nil && o == tasktype.Outbox{Entries: 1}
	})
	testutil.Must(send(t, w, ID.S(1)))(t)
	var failure *tasks.Failure
	if _, err := send(t, w, Fail.S(1)); !errors.As(err, &failure) {
		t.Fatalf("got %v, want a failure", err)
	}
	want := map[tasktype.WorkflowState]int64{tasktype.WorkflowRunning: 1, tasktype.WorkflowSucceeded: 1, tasktype.WorkflowFailed: 1}
	var got map[tasktype.WorkflowState]int64
	counted := func() bool {
		var err error
		got, err = w.client.Inspect().CountWorkflows(ctx)
		maps.DeleteFunc(got, func(_ tasktype.WorkflowState, n int64) bool { return n == 0 })
		return err == nil && maps.Equal(got, want)
	}
	if !testutil.Becomes(counted) {
		t.Errorf("got %v, want %v", got, want)
	}
	testutil.Ok(t, later.Revoke(ctx))
	want = map[tasktype.WorkflowState]int64{tasktype.WorkflowRevoked: 1, tasktype.WorkflowSucceeded: 1, tasktype.WorkflowFailed: 1}
	if !testutil.Becomes(counted) {
		t.Errorf("after the revocation: got %v, want %v", got, want)
	}
}

// A group whose members wait for the same time is one entry of the outbox, which ends with the workflow.
func TestDelayedGroupIsOneEntry(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w, ctx := newWorld(t, rdb), t.Context()
		run := sent(t, w, tasks.Chord(tasks.Each(ints(100), ID, tasks.In(time.Hour)), Sum))
		wantEntries := func(want int64) {
			t.Helper()
			if o, err := w.client.Inspect().Outbox(ctx); err != nil || o.Entries != want {
				t.Errorf("got %+v, %v, want %d entries", o, err, want)
			}
		}
		wantEntries(1)
		due, err := w.client.Inspect().Due(ctx, 10)
		if err != nil || len(due) != 10 || due[9].Node != "9" || time.Until(due[9].Due) < 50*time.Minute {
			t.Errorf("got %+v, %v, want ten nodes that are due in an hour", due, err)
		}
		counts, err := w.client.Inspect().CountDue(ctx, 1000)
		if err != nil || len(counts) != 1 || counts[0].Scheduled != 100 {
			t.Errorf("got %+v, %v, want 100 scheduled tasks", counts, err)
		}
		all := nodes(t, w, run.ID())
		one, err := run.Node(ctx, "99")
		if err != nil || !all[99].Due.Equal(due[9].Due) || !one.Due.Equal(due[9].Due) || string(one.Input) != "99" {
			t.Errorf("got %+v and %+v, %v, want both due at %s", all[99], one, err, due[9].Due)
		}
		testutil.Ok(t, run.RevokeNode(ctx, "5"))
		wantEntries(1)
		testutil.Ok(t, run.Revoke(ctx))
		wantEntries(0)
	})
}

func TestLogLinesOfTasks(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(tasks.LogHandler(slog.NewTextHandler(&out, nil)))
	task := tasks.New[int, int]("log.task", tasks.MaxRetry(1))
	mux := tasks.NewMux()
	tasks.Handle(mux, task, func(ctx context.Context, n int) (int, error) {
		log := logger.With("order", n).WithGroup("card")
		log.DebugContext(ctx, "not enabled")
		log.InfoContext(ctx, "charge the card", "cents", 250)
		if tasks.InfoFrom(ctx).Attempt == 1 {
			return 0, errors.New("declined")
		}
		logger.ErrorContext(ctx, strings.Repeat("é", 600))
		logger.Info("without the context of the task")
		return n, nil
	})
	f := taskstest.New(t, mux)
	ctx, c := t.Context(), f.Client()
	run := started(t, c, task.S(7))
	f.Drain()
	lines, err := c.Workflow(run.ID()).Log(ctx)
	if err != nil || len(lines) != 3 {
		t.Fatalf("got %+v, %v, want three lines", lines, err)
	}
	for i, l := range lines {
		want := tasktype.LogLine{Time: l.Time, Level: "INFO", Node: "0", Task: "log.task", Attempt: 1 + (i+1)/2, Text: "charge the card order=7 card.cents=250"}
		if i == 2 {
			want.Level, want.Text = "ERROR", strings.Repeat("é", 500)
		}
		if l != want || l.Time.IsZero() {
			t.Errorf("line %d: got %+v, want %+v", i, l, want)
		}
	}
	if got := strings.Count(out.String(), "\n"); got != 4 {
		t.Errorf("got %d lines in the output of the program, want 4: %s", got, out.String())
	}
	if _, err := c.Workflow("none").Log(ctx); !errors.Is(err, tasks.ErrNotFound) {
		t.Errorf("log of a workflow that does not exist: got %v", err)
	}
	key := keyOf(t, c, "*:log")
	flow, log := c.Redis().PTTL(ctx, strings.TrimSuffix(key, ":log")).Val(), c.Redis().PTTL(ctx, key).Val()
	if log <= 0 || log > flow || flow-log > time.Second {
		t.Errorf("the log expires after %s, want %s as the workflow", log, flow)
	}
	if err := run.Delete(ctx); err != nil || c.Redis().Exists(ctx, key).Val() != 0 {
		t.Errorf("%v: the log remains after its workflow", err)
	}
}

// keyOf returns the only key that matches a pattern.
func keyOf(t *testing.T, c *tasks.Client, pattern string) string {
	t.Helper()
	keys, err := c.Redis().Keys(t.Context(), pattern).Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("got the keys %q, %v, want one", keys, err)
	}
	return keys[0]
}

// The last lines of a workflow can be read while it is running.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	logger := slog.New(tasks.LogHandler(slog.NewTextHandler(io.Discard, nil)))
	task, end := tasks.New[int, int]("log.many"), make(chan struct{})
	mux := tasks.NewMux()
	tasks.Handle(mux, task, func(ctx context.Context, n int) (int, error) {
		for i := range 300 {
			logger.InfoContext(ctx, fmt.Sprint("line ", i))
		}
		<-end
		return n, nil
	})
	c := newClient(t, redistest.Server(t).Client())
	runWorker(t, c, mux, tasks.WorkerConfig{})
	run := started(t, c, task.S(1))
	testutil.Eventually(t, "the last lines are stored", func() bool {
		lines, err := c.Workflow(run.ID()).Log(t.Context())
		return err == nil && len(lines) == 200 && lines[0].Text == "line 100" && lines[199].Text == "line 299"
	})
	close(end)
}
