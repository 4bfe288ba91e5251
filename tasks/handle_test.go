package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestHandlesOfWorkflows(t *testing.T) {
	t.Parallel()
	runStories(t, resultStories)
}

// resultStories check more than one value.
var resultStories = []story{
	{"values of members are kept until the retention is over", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum))
		if got, err := run.Wait(limited(t)); err != nil || got != 7 {
			t.Fatalf("got %v, %v, want 7", got, err)
		}
		ended(t, w, run.ID())
	}},
	{"a wait that ends before the workflow", func(t *testing.T, w *world) {
		for _, s := range []tasks.Signature[int]{
			Fail.S(1, tasks.MaxRetry(3), tasks.ConstantBackoff(time.Hour)),
			tasks.Chord(tasks.Each(ints(3), ID, tasks.In(time.Hour)), Sum),
		} {
			run := sent(t, w, s)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := run.Wait(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
			}
			if p, err := run.Progress(t.Context()); err != nil || p.Ended || p.Done != 0 || p.Status.Terminal() {
				t.Fatalf("got %+v, %v, want nothing done", p, err)
			}
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"a failure is returned without waiting for running tasks", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chord(tasks.Group(Hold.S("late"), tasks.Chain(Fail.S(1), Inc)), Sum))
		_, err := run.Wait(limited(t))
		wantFailure(t, err, "E1")
		if p, err := run.Progress(t.Context()); err != nil || p.Ended || p.Status != tasktype.Failed {
			t.Fatalf("got %+v, %v, want FAILURE and not ended", p, err)
		}
		w.open("late")
		ended(t, w, run.ID())
	}},
	{"a handle by its id, until the results are forgotten", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Each([]int{5, 6}, Slow2))
		if err := run.Forget(t.Context()); err == nil {
			t.Fatal("forget a running workflow: got no error, want one")
		}
		w.open("slow2")
		again := tasks.Attach[[]int](w.client, run.ID())
		if got, err := again.Wait(limited(t)); err != nil || !slices.Equal(got, []int{5, 6}) {
			t.Fatalf("got %v, %v, want [5 6]", got, err)
		}
		ended(t, w, run.ID())
		if err := again.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Nodes(t.Context(), run.ID()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("after Forget: got %v, want ErrUnknown", err)
		}
		if err := again.Forget(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("second Forget: got %v, want ErrUnknown", err)
		}
	}},
	{"the tree of a plan has every value", func(t *testing.T, w *world) {
		run := sent(t, w, ChordPlan.S(3))
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		var inside []string
		for _, n := range nodes(t, w, run.ID()) {
			if strings.HasPrefix(n.ID, "0:") {
				inside = append(inside, n.Task)
			}
		}
		if !slices.Equal(inside, []string{"t.id", "t.id", "t.id", "t.sum"}) {
			t.Fatalf("nodes of the plan: got %v, want t.id three times and t.sum", inside)
		}
	}},
	{"unknown id", func(t *testing.T, w *world) {
		if _, err := tasks.Attach[int](w.client, "unknown").Status(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("got %v, want ErrUnknown", err)
		}
		if _, err := tasks.Attach[int](w.client, "unknown").Wait(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("got %v, want ErrUnknown", err)
		}
	}},
	{"id of choice, sent twice", func(t *testing.T, w *world) {
		s := Echo.S(Mark{"twice", 1})
		if _, err := send(t, w, s, tasks.ID("mine")); err != nil {
			t.Fatal(err)
		}
		run, err := s.Send(t.Context(), w.client, tasks.ID("mine"))
		if !errors.Is(err, tasks.ErrDuplicate) || run.ID() != "mine" {
			t.Fatalf("got id %v, %v, want mine and ErrDuplicate", run.ID(), err)
		}
		if got, err := run.Wait(limited(t)); err != nil || got != 1 || len(w.noted("twice")) != 1 {
			t.Fatalf("got %v, %v, noted %v, want 1, noted once", got, err, w.noted("twice"))
		}
	}},
	{"unique key", func(t *testing.T, w *world) {
		first, err := ID.S(1, tasks.In(time.Hour)).Send(t.Context(), w.client, tasks.Unique("u", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		second, err := ID.S(2).Send(t.Context(), w.client, tasks.Unique("u", time.Hour))
		if !errors.Is(err, tasks.ErrDuplicate) || second.ID() != first.ID() {
			t.Fatalf("got id %v, %v, want %v and ErrDuplicate", second.ID(), err, first.ID())
		}
		if err := first.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := ID.S(2).Send(t.Context(), w.client, tasks.Unique("u", time.Hour)); err != nil {
			t.Fatalf("after the first has ended: %v", err)
		}
	}},
	{"progress and metadata", func(t *testing.T, w *world) {
		run, err := tasks.Chain(ID.S(1), tasks.New[int, int]("t.progress")).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		node := func() tasktype.Node {
			nodes, err := w.client.Nodes(t.Context(), run.ID())
			if err != nil {
				t.Fatal(err)
			}
			return nodes[1]
		}
		testutil.Eventually(t, "own progress shows", func() bool { n := node(); return n.Done == 3 && n.Total == 4 && n.Status == tasktype.Started })
		w.open("progress")
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		n := node()
		if n.Status != tasktype.Success || n.Worker == "" || n.Attempts != 1 || n.Queue != "default" || n.Started.IsZero() || n.Ended.Before(n.Started) {
			t.Fatalf("got %+v", n)
		}
	}},
	{"zero and nameless signatures are refused, opposite orders are one", func(t *testing.T, w *world) {
		if _, err := (tasks.Signature[int]{}).Send(t.Context(), w.client); err == nil || !strings.Contains(err.Error(), "zero Signature") {
			t.Errorf("zero: got %v", err)
		}
		a, b := ID.S(1), ID.S(2)
		// Each is one run, so that the first order that is asked for decides.
		if got, err := send(t, w, tasks.Group(tasks.After(a, b), tasks.After(b, a))); err != nil || !slices.Equal(got, []int{2, 1}) {
			t.Errorf("opposite orders: got %v, %v", got, err)
		}
		if _, err := tasks.New[int, int]("").S(1).Send(t.Context(), w.client); err == nil {
			t.Error("nameless: no error")
		}
		if _, err := tasks.New[chan int, int]("t.id").S(nil).Send(t.Context(), w.client); err == nil || !strings.Contains(err.Error(), "marshal") {
			t.Errorf("channel: got %v", err)
		}
	}},
	{"progress keys", func(t *testing.T, w *world) {
		run, err := tasks.Chord(tasks.Map(Range.S(10), tasks.New[int, int]("t.keys")), Sum).Send(t.Context(), w.client, tasks.ProgressKeys("scrape_shop"))
		if err != nil {
			t.Fatal(err)
		}
		key := func(name string) string {
			v, _ := w.client.Redis().Get(t.Context(), "scrape_shop:"+run.ID()+":"+name).Result()
			return v
		}
		if s := key("status"); s == "" || key("started_at") == "" {
			t.Fatalf("after send: status %q", s)
		}
		if got, err := run.Wait(limited(t)); err != nil || got != 45 {
			t.Fatalf("got %v, %v", got, err)
		}
		if key("status") != "COMPLETE" || key("total_chunks") != "10" || key("completed_chunks") != "10" || key("result_count") != "9" || key("completed_at") == "" {
			t.Fatalf("status %s total %s completed %s results %s", key("status"), key("total_chunks"), key("completed_chunks"), key("result_count"))
		}
		ttl, err := w.client.Redis().TTL(t.Context(), "scrape_shop:"+run.ID()+":status").Result()
		if err != nil || ttl <= 0 || ttl > time.Hour {
			t.Fatalf("time to live %v, %v", ttl, err)
		}
		failed, err := Fail.S(1).Send(t.Context(), w.client, tasks.ProgressKeys("scrape_shop"))
		if err != nil {
			t.Fatal(err)
		}
		run = failed
		if _, err := run.Wait(t.Context()); err == nil || key("status") != "FAILED" {
			t.Fatalf("got %v, status %q", err, key("status"))
		}
	}},
	{"send by name", func(t *testing.T, w *world) {
		run, err := tasks.New[json.RawMessage, json.RawMessage]("t.add").S([]byte(`{"A":1,"B":2}`)).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := run.Wait(limited(t)); err != nil || string(raw) != "3" {
			t.Fatalf("got %s, %v", raw, err)
		}
	}},
}
