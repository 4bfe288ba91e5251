package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

func drawn(t *testing.T, nodes []tasktype.Node, o treeOptions) string {
	t.Helper()
	var b strings.Builder
	if err := writeTree(&b, nodes, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTreeShowsStatesAndTimes(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	nodes := []tasktype.Node{
		{ID: "0", Task: "fetch", Status: tasktype.Success, Started: at(0), Ended: at(120), Attempts: 1},
		{ID: "1", Task: "fetch", Status: tasktype.Failed, Started: at(500), Ended: at(510), Attempts: 3, Message: "status\n503"},
		{ID: "2", Task: "fetch", Status: tasktype.Retry, Started: at(20), Due: at(4000), Attempts: 1, Message: "reset"},
		{ID: "3", Task: "merge", Status: tasktype.Skipped, Needs: []string{"0", "1", "2"}},
		{ID: "4", Task: "plan", Status: tasktype.Started, Started: at(600), Worker: "w1", Done: 2, Total: 5, Needs: []string{"3"}},
		{ID: "4:0", Task: "deep", Status: tasktype.Success, Within: "4", Needs: []string{"4"}, Started: at(700), Ended: at(90_700), Attempts: 1},
		{ID: "4:1", Task: "deeper", Status: tasktype.Pending, Within: "4", Needs: []string{"4:0"}},
		{ID: "5", Task: "sorry", Status: tasktype.Pending, Side: true, Needs: []string{"3"}},
	}
	got := drawn(t, nodes, treeOptions{now: at(2600)})
	want := strings.Join([]string{
		"TASK         NODE  STATUS    START   TOOK",
		"(group)",
		"├─ fetch     0     SUCCESS     +0s  120ms",
		"├─ fetch     1     FAILURE  +500ms   10ms  3 attempts, status 503",
		"└─ fetch     2     RETRY     +20ms         due in 1.4s, reset",
		"→ merge      3     SKIPPED",
		"→ plan       4     STARTED  +600ms   2.0s  on w1, 2 of 5",
		"└─ deep      4:0   SUCCESS  +700ms  1m30s",
		"   → deeper  4:1   PENDING",
		"sorry        5     PENDING                 beside 3",
		"",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nexpected\n%s", got, want)
	}
	for _, width := range []int{1, 30, 40, 60, 80} {
		for line := range strings.Lines(drawn(t, nodes, treeOptions{now: at(2600), width: width})) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("a line of %d columns in a width of %d: %s", n, width, line)
			}
		}
	}
}

func TestTreeOfManyShowsWhatMatters(t *testing.T) {
	t.Parallel()
	var nodes []tasktype.Node
	top := tasktype.Node{ID: "1", Task: "(map check)", Status: tasktype.Started}
	for i := range 1000 {
		n := tasktype.Node{ID: "1." + string(rune('0'+i%10)) + strings.Repeat("x", i/10), Task: "check", Status: tasktype.Success, Within: "1"}
		if i == 777 {
			n.Status, n.Task = tasktype.Failed, "bad"
		}
		nodes = append(nodes, n)
	}
	nodes = append([]tasktype.Node{top}, nodes...)
	few := drawn(t, nodes, treeOptions{})
	if n := strings.Count(few, "\n"); n > 10 || !strings.Contains(few, "bad") || !strings.Contains(few, "996 more: 996 SUCCESS") {
		t.Errorf("%d lines:\n%s", n, few)
	}
	if n := strings.Count(drawn(t, nodes, treeOptions{all: true}), "\n"); n != 1002 {
		t.Errorf("all have %d lines, expected 1002", n)
	}
}

// Parallel nodes are branches and chains are chains, also if a later node depends on all of them.
func TestTreeDrawsBranchesAndChains(t *testing.T) {
	t.Parallel()
	ok := func(name string) tasks.Task[int, int] { return tasks.New[int, int](name) }
	pair := tasks.New[tasks.Pair[int, int], int]("pair")
	bad, instead := tasks.New[int, int]("bad"), tasks.New[tasks.Failure, tasks.Pair[int, tasks.Pair[int, int]]]("instead")
	finish := tasks.New[tasks.Pair[[]tasks.Outcome[int], tasks.Pair[[]tasks.Outcome[int], []tasks.Outcome[int]]], int]("finish")
	mux := tasks.NewMux()
	for _, name := range []string{"a", "b", "c", "d"} {
		tasks.Handle(mux, ok(name), func(_ context.Context, n int) (int, error) { return n, nil })
	}
	tasks.Handle(mux, pair, func(context.Context, tasks.Pair[int, int]) (int, error) { return 0, nil })
	tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New("bad") })
	tasks.Handle(mux, instead, func(context.Context, tasks.Failure) (out tasks.Pair[int, tasks.Pair[int, int]], err error) {
		return out, nil
	})
	tasks.Handle(mux, finish, func(context.Context, tasks.Pair[[]tasks.Outcome[int], tasks.Pair[[]tasks.Outcome[int], []tasks.Outcome[int]]]) (int, error) {
		return 0, nil
	})
	try := func(s tasks.Signature[int]) tasks.Signature[[]tasks.Outcome[int]] {
		return tasks.Settle(tasks.Group(s))
	}
	a, b := ok("a").S(1), ok("b").S(2)
	c := tasks.After(a, ok("c").S(3))
	d := tasks.After(c, ok("d").S(4))
	fleet := taskstest.New(t, mux)
	for name, tc := range map[string]struct {
		send func() (id string, err error)
		want string
	}{
		"rescued join": {func() (string, error) {
			r, err := tasks.Join(a, tasks.Join(b, bad.S(1))).Rescue(instead).Send(t.Context(), fleet.Client())
			return r.ID(), err
		}, `
(join)
├─ a
├─ b
└─ bad
→ instead
→ (rescue)
`},
		"chain below a join": {func() (string, error) {
			r, err := tasks.Chain(tasks.Join(try(a), tasks.Join(try(c), try(d))), finish).Send(t.Context(), fleet.Client())
			return r.ID(), err
		}, `
a
→ c
→ d
`},
		"shared branches": {func() (string, error) {
			both := tasks.Group(a, b)
			r, err := tasks.Chain(tasks.Join(tasks.After(both, ok("c").S(1)), tasks.After(both, ok("d").S(1))), pair).Send(t.Context(), fleet.Client())
			return r.ID(), err
		}, `
(group)
├─ a
└─ b
`},
	} {
		id, err := tc.send()
		if err != nil {
			t.Fatal(err)
		}
		fleet.Drain()
		nodes, err := fleet.Client().Nodes(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for line := range strings.Lines(drawn(t, nodes, treeOptions{})) {
			name, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "  "+"")
			got.WriteString(strings.TrimRight(name, " ") + "\n")
		}
		if !strings.Contains(got.String(), tc.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got.String(), tc.want)
		}
	}
}

// Every node of a workflow is in its drawing once, whatever its shape.
func TestTreeOfEveryShape(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	one := tasks.New[int, int]("one")
	list := tasks.New[int, []int]("list")
	total := tasks.New[[]int, int]("total")
	planned := tasks.New[int, int]("planned")
	bad := tasks.New[int, int]("bad")
	instead := tasks.New[tasks.Failure, int]("instead")
	pair := tasks.New[tasks.Pair[int, int], int]("pair")
	settled := tasks.New[[]tasks.Outcome[int], int]("settled")
	mux := tasks.NewMux()
	tasks.Handle(mux, one, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(mux, list, func(_ context.Context, n int) ([]int, error) { return make([]int, n), nil })
	tasks.Handle(mux, total, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New("bad") })
	tasks.Handle(mux, instead, func(context.Context, tasks.Failure) (int, error) { return -1, nil })
	tasks.Handle(mux, pair, func(_ context.Context, p tasks.Pair[int, int]) (int, error) { return p.First, nil })
	tasks.Handle(mux, settled, func(_ context.Context, os []tasks.Outcome[int]) (int, error) { return len(os), nil })
	tasks.HandlePlan(mux, planned, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Map(list.S(n), one), total), nil
	})
	worker, err := tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Stop(); _ = client.Close() })
	shared := one.S(1)
	for name, s := range map[string]tasks.Signature[int]{
		"task":     one.S(1),
		"chain":    tasks.Chain(tasks.Chain(one.S(1), one), planned),
		"chord":    tasks.Chord(tasks.Group(one.S(1), tasks.Chain(one.S(2), planned), bad.S(1).Rescue(instead)), total),
		"map":      tasks.Chord(tasks.Map(list.S(3), planned, tasks.AtMost(2)), total),
		"diamond":  tasks.Chain(tasks.Join(tasks.Chain(shared, one), tasks.Chain(shared, planned)), pair),
		"after":    tasks.After(tasks.Group(one.S(1), one.S(2)), tasks.Chain(one.S(3), one)),
		"settle":   tasks.Chord(tasks.Settle(tasks.Each([]int{1, 2}, bad)), settled),
		"beside":   tasks.OnError(tasks.OnSuccess(tasks.Chain(one.S(1), bad), one), instead),
		"at most":  tasks.Chord(tasks.Each([]int{1, 2, 3}, one, tasks.AtMost(1)), total),
		"map fail": tasks.OnError(tasks.Chord(tasks.Map(list.S(2), bad), total), instead),
	} {
		run, err := s.Send(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		if err := run.WaitAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		nodes, err := client.Nodes(t.Context(), run.ID())
		if err != nil {
			t.Fatal(err)
		}
		got := drawn(t, nodes, treeOptions{all: true})
		for _, n := range nodes {
			if c := strings.Count(got, " "+n.ID+" "); c != 1 {
				t.Errorf("%s: node %s is drawn %d times:\n%s", name, n.ID, c, got)
			}
		}
	}
}
