package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// story is a case that needs more than one value to tell.
type story struct {
	number string
	run    func(t *testing.T, w *world)
}

func wantFailure(t *testing.T, err error, message string) *tasks.Failure {
	t.Helper()
	var f *tasks.Failure
	if !errors.As(err, &f) || !strings.Contains(f.Message, message) {
		t.Fatalf("got error %v, want a failure with %q", err, message)
	}
	return f
}

var stories = []story{
	{"20 callback once, with the value", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.OnSuccess(tasks.Chain(ID.S(1), Inc), Note))
		if err != nil || got != 2 || !slices.Equal(w.noted("note"), []int{2}) {
			t.Fatalf("got %v, %v, noted %v", got, err, w.noted("note"))
		}
	}},
	{"6 the same callback twice on one signature runs twice", func(t *testing.T, w *world) {
		x := tasks.OnSuccess(tasks.OnSuccess(ID.S(1), Note), Note)
		if got, err := send(t, w, x); err != nil || got != 1 || len(w.noted("note")) != 2 {
			t.Fatalf("got %v, %v, noted %v", got, err, w.noted("note"))
		}
		all := tasks.OnError(tasks.OnError(half(), Err), Err)
		for i, s := range []tasks.Signature[[]int]{
			tasks.Chain(tasks.OnError(tasks.OnError(Fail.S(2), Err), Err), Range),
			all,
			tasks.Map(all, ID),
			tasks.OnError(tasks.OnError(tasks.Map(Range.S(1), Fail), Err), Err),
		} {
			_, err := send(t, w, s)
			wantFailure(t, err, "E")
			if n := len(w.failures()); n != 2*(i+1) {
				t.Errorf("form %d: errbacks ran %d times in all, want %d", i, n, 2*(i+1))
			}
		}
	}},
	{"14 chain of a chain has all steps", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.After(ID.S(1), tasks.Chain(tasks.Chain(ID.S(2), Inc), Inc)))
		if ns := nodes(t, w, run.ID()); len(ns) != 4 {
			t.Fatalf("nodes %+v", ns)
		}
		ended(t, w, run.ID())
	}},
	{"18 id of choice of a chain", func(t *testing.T, w *world) {
		run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), w.client, tasks.ID("T"))
		if err != nil || run.ID() != "T" {
			t.Fatalf("got %v, %v", run.ID(), err)
		}
		if got, err := tasks.Attach[int](w.client, "T").Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
	}},
	{"21 callback of every step", func(t *testing.T, w *world) {
		s := tasks.OnSuccess(ID.S(1337), Note)
		for range 41 {
			s = tasks.OnSuccess(tasks.Chain(s, ID), Note)
		}
		if got, err := send(t, w, s); err != nil || got != 1337 || len(w.noted("note")) != 42 {
			t.Fatalf("got %v, %v, noted %d times", got, err, len(w.noted("note")))
		}
	}},
	{"26 45 70 queue of a send", func(t *testing.T, w *world) {
		queues := func(s interface {
			Send(context.Context, *tasks.Client, ...tasks.SendOption) (*tasks.AsyncResult[int], error)
		}) string {
			run, err := s.Send(t.Context(), w.client, tasks.Queue("Q"), tasks.In(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, n := range nodes(t, w, run.ID()) {
				if n.Queue != "" {
					out = append(out, n.Queue)
				}
			}
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			return strings.Join(out, " ")
		}
		if got := queues(tasks.Chain(tasks.Chain(ID.S(1), Inc), Inc)); got != "Q default default" {
			t.Errorf("chain: %s", got)
		}
		if got := queues(tasks.Chord(tasks.Each(ints(3), ID), Sum)); got != "Q Q Q Q" {
			t.Errorf("chord and group: %s", got)
		}
	}},
	{"38 65 callback of a group and of a chord, once", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.OnSuccess(tasks.Chord(tasks.OnSuccess(tasks.Each([]int{42, 1337}, ID), Total), Sum), Note))
		if err != nil || got != 1379 || !slices.Equal(w.noted("note"), []int{1379}) || !slices.Equal(w.noted("total"), []int{1379}) {
			t.Fatalf("got %v, %v, noted %v and %v", got, err, w.noted("note"), w.noted("total"))
		}
	}},
	{"41 errback of a group gets the member that failed", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Group(ID.S(1), Fail.S(7)), Err))
		wantFailure(t, err, "E7")
		if fs := w.failures(); len(fs) != 1 || fs[0].Node != "1" || fs[0].Task != "t.fail" || fs[0].Attempts != 1 {
			t.Fatalf("errback got %+v", fs)
		}
	}},
	{"46 what every member comes after", func(t *testing.T, w *world) {
		first, second := ID.S(1), ID.S(2)
		run := sent(t, w, tasks.After(tasks.After(first, second), tasks.Each(ints(5), ID)))
		ns := nodes(t, w, run.ID())
		if len(ns) < 7 || len(ns[0].Needs) != 0 || !slices.Equal(ns[1].Needs, []string{ns[0].ID}) {
			t.Fatalf("nodes %+v", ns)
		}
		for _, n := range ns[2:7] {
			if !slices.Equal(n.Needs, []string{ns[1].ID}) {
				t.Errorf("member %+v", n)
			}
		}
		ended(t, w, run.ID())
	}},
	{"48 countdowns of members", func(t *testing.T, w *world) {
		var ms []tasks.Signature[int]
		for i := range 10 {
			ms = append(ms, ID.S(i, tasks.In(time.Duration(i+1)*time.Hour)))
		}
		began := time.Now()
		run := sent(t, w, tasks.Group(ms...))
		due, err := w.client.Due(t.Context(), 20)
		if err != nil || len(due) != 10 {
			t.Fatalf("due %+v, %v", due, err)
		}
		for i, d := range due {
			if off := d.Due.Sub(began) - time.Duration(i+1)*time.Hour; d.Node != strconv.Itoa(i) || off.Abs() > time.Minute {
				t.Errorf("member %s is due in %v", d.Node, d.Due.Sub(began))
			}
		}
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
	}},
	{"72 members' values outlive no flag: they stay until the retention is over", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum))
		if got, err := run.Wait(limited(t)); err != nil || got != 7 {
			t.Fatalf("got %v, %v", got, err)
		}
		ended(t, w, run.ID())
	}},
	{"86 88 chain of groups, each task once", func(t *testing.T, w *world) {
		mark := func(n int) tasks.Signature[int] { return Echo.S(Mark{"once", n}) }
		var s tasks.Signature[[]int]
		n := 0
		for i, size := range []int{3, 3, 1, 1, 2, 4} {
			var ms []tasks.Signature[int]
			for range size {
				n++
				ms = append(ms, mark(n))
			}
			if i == 0 {
				s = tasks.Group(ms...)
			} else {
				s = tasks.After(s, tasks.Group(ms...))
			}
		}
		if _, err := send(t, w, tasks.After(s, tasks.Group(Echo.S(Mark{"done", 1})))); err != nil {
			t.Fatal(err)
		}
		ran := w.noted("once")
		slices.Sort(ran)
		if !slices.Equal(ran, ints(15)[1:]) || len(w.noted("done")) != 1 {
			t.Fatalf("ran %v, done %v", ran, w.noted("done"))
		}
	}},
	{"98 what is stored grows with the nodes", func(t *testing.T, w *world) {
		var nest func(depth int) tasks.Signature[int]
		nest = func(depth int) tasks.Signature[int] {
			if depth == 0 {
				return ID.S(1)
			}
			var ms []tasks.Signature[int]
			for range 8 {
				ms = append(ms, nest(depth-1))
			}
			return tasks.Chord(tasks.Group(ms...), Sum)
		}
		perNode := func(depth int) float64 {
			run, err := nest(depth).Send(t.Context(), w.client, tasks.In(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			all, err := w.client.Redis().HGetAll(t.Context(), flowKey(t, w.client.Redis(), run.ID())).Result()
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for k, v := range all {
				size += len(k) + len(v)
			}
			n := len(nodes(t, w, run.ID()))
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			return float64(size) / float64(n)
		}
		if flat, deep := perNode(1), perNode(3); deep > 1.5*flat {
			t.Fatalf("%.0f bytes for each node one deep, %.0f three deep", flat, deep)
		}
	}},
	{"121 122 errback of a chain, once, with the step that failed", func(t *testing.T, w *world) {
		for at := range 3 {
			s := ID.S(1)
			for i := range 5 {
				step := Inc
				if i == at {
					step = Fail
				}
				s = tasks.Chain(s, step)
			}
			_, err := send(t, w, tasks.OnError(s, Err))
			wantFailure(t, err, "E")
			if fs := w.failures(); len(fs) != at+1 || fs[at].Node != strconv.Itoa(at+1) {
				t.Fatalf("errback got %+v", fs)
			}
		}
	}},
	{"125 errback that is retried", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(Fail.S(1), ErrFlaky))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("errback ended %d times, want once", n)
		}
	}},
	{"130 errback of a body, in its forms", func(t *testing.T, w *world) {
		head := tasks.Chord(tasks.Group(ID.S(42)), Sum)
		for i, s := range []tasks.Signature[int]{
			tasks.Chord(tasks.Group(ID.S(42)), FailAll),
			tasks.Chain(tasks.Chain(head, Fail), Inc),
			tasks.Chord(tasks.OnError(tasks.Group(tasks.Chain(head, Fail), tasks.Chain(head, ID)), Err), Sum),
		} {
			if i < 2 {
				s = tasks.OnError(s, Err)
			}
			if _, err := send(t, w, s); err == nil {
				t.Fatal("no failure")
			}
			if n := len(w.failures()); n != i+1 {
				t.Fatalf("form %d: errback ran %d times in all", i, n)
			}
		}
	}},
	{"135 errbacks of header and chord", func(t *testing.T, w *world) {
		header := tasks.OnError(tasks.Group(Fail.S(1), ID.S(1), Fail.S(2), Fail.S(3)), Err)
		_, err := send(t, w, tasks.OnError(tasks.Chord(header, Sum), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 4 {
			t.Fatalf("errbacks ran %d times, want once for each of 3 members and once for the chord", n)
		}
	}},
	{"136 138 nothing behind a failure stays pending", func(t *testing.T, w *world) {
		f := tasks.Chain(Add.S(AB{1, 1}), Fail)
		g := tasks.Group(tasks.Chain(f, Inc), tasks.Chain(f, Inc))
		run := sent(t, w, tasks.Group(tasks.Chord(g, Sum), tasks.Chord(tasks.Map(g, Inc), Sum)))
		_, err := run.Wait(limited(t))
		wantFailure(t, err, "E2")
		ended(t, w, run.ID())
		for _, n := range nodes(t, w, run.ID()) {
			if n.ID > "1" && n.Status != tasktype.Skipped {
				t.Errorf("node %s %s is %s", n.ID, n.Task, n.Status)
			}
		}
	}},
	{"142 errback of a chord with a failing chord in its header, once", func(t *testing.T, w *world) {
		inner := tasks.Chord(tasks.Group(ID.S(1), Fail.S(5)), Total)
		_, err := send(t, w, tasks.OnError(tasks.Chord(tasks.Group(ID.S(3), inner, ID.S(2)), Total), Err))
		wantFailure(t, err, "E5")
		if n := len(w.failures()); n != 1 || len(w.noted("total")) != 0 {
			t.Fatalf("errback ran %d times, bodies %d times", n, len(w.noted("total")))
		}
	}},
	{"155 revoke while a header runs", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chord(tasks.Group(Hold.S("a"), Hold.S("b")), Total))
		testutil.Eventually(t, "the header runs", func() bool { return len(w.noted("at a"))+len(w.noted("at b")) == 2 })
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrRevoked) {
			t.Fatalf("got %v", err)
		}
		ended(t, w, run.ID())
		if s, err := run.Status(t.Context()); err != nil || s != tasktype.Revoked || len(w.noted("total")) != 0 {
			t.Fatalf("%v, %v, body ran %v", s, err, w.noted("total"))
		}
	}},
	{"156 revoke a group: every member", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Group(Hold.S("a"), tasks.Chord(tasks.Each(ints(20), ID, tasks.In(time.Hour)), Sum)))
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		for _, n := range nodes(t, w, run.ID()) {
			if n.Status != tasktype.Revoked {
				t.Errorf("node %s %s is %s", n.ID, n.Task, n.Status)
			}
		}
	}},
	{"160 171 callbacks of a task that is replaced, and of its replacement", func(t *testing.T, w *world) {
		replaced := tasks.OnSuccess(Deep.S(2), Note)
		got, err := send(t, w, tasks.OnSuccess(tasks.Chord(tasks.Group(replaced, ID.S(1)), Sum), Note))
		if err != nil || got != 45 {
			t.Fatalf("got %v, %v", got, err)
		}
		// Nobody waits for callbacks, nor they for each other.
		testutil.Eventually(t, "both callbacks", func() bool {
			ran := w.noted("note")
			slices.Sort(ran)
			return slices.Equal(ran, []int{44, 45})
		})
		_, err = send(t, w, tasks.Group(tasks.OnError(FailTo.S(1), Err), ID.S(1)))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("errback ran %d times", n)
		}
	}},
	{"172 order of plans in plans", func(t *testing.T, w *world) {
		if _, err := send(t, w, tasks.Chain(Nested.S("A"), Echo1)); err != nil {
			t.Fatal(err)
		}
		if log := w.noted("log"); !slices.Equal(log, []int{'a', 'b', 'c', 'C', 'B', 'A'}) {
			t.Fatalf("log %v", log)
		}
	}},
	{"176 what a run knows of itself survives retries and plans", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.Chain(Keys.S("x"), Show[[]string]()))
		var keys []string
		if err != nil || json.Unmarshal([]byte(got), &keys) != nil || len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] {
			t.Fatalf("got %s, %v", got, err)
		}
	}},
	{"180 184 a wait that ends before the workflow", func(t *testing.T, w *world) {
		for _, s := range []tasks.Signature[int]{
			Fail.S(1, tasks.MaxRetry(3), tasks.ConstantBackoff(time.Hour)),
			tasks.Chord(tasks.Each(ints(3), ID, tasks.In(time.Hour)), Sum),
		} {
			run := sent(t, w, s)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := run.Wait(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
			if p, err := run.Progress(t.Context()); err != nil || p.Ended || p.Done != 0 || p.Status.Terminal() {
				t.Fatalf("got %+v, %v", p, err)
			}
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"181 a failure is told without waiting for what still runs", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chord(tasks.Group(Hold.S("late"), tasks.Chain(Fail.S(1), Inc)), Sum))
		_, err := run.Wait(limited(t))
		wantFailure(t, err, "E1")
		if p, err := run.Progress(t.Context()); err != nil || p.Ended || p.Status != tasktype.Failed {
			t.Fatalf("got %+v, %v", p, err)
		}
		w.open("late")
		ended(t, w, run.ID())
	}},
	{"186 188 a handle by its id, until the results are forgotten", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Each([]int{5, 6}, Slow2))
		if err := run.Forget(t.Context()); err == nil {
			t.Fatal("a workflow that runs was forgotten")
		}
		w.open("slow2")
		again := tasks.Attach[[]int](w.client, run.ID())
		if got, err := again.Wait(limited(t)); err != nil || !slices.Equal(got, []int{5, 6}) {
			t.Fatalf("got %v, %v", got, err)
		}
		ended(t, w, run.ID())
		if err := again.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Nodes(t.Context(), run.ID()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("after it was forgotten: %v", err)
		}
		if err := again.Forget(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("forgotten twice: %v", err)
		}
	}},
	{"190 the tree of what a plan started has every value", func(t *testing.T, w *world) {
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
			t.Fatalf("inside of the plan: %v", inside)
		}
	}},
	{"22 errback of an inner chain", func(t *testing.T, w *world) {
		inner := tasks.OnError(tasks.Chain(ID.S(1), Fail), Err)
		_, err := send(t, w, tasks.Chain(inner, Inc))
		wantFailure(t, err, "E1")
		if fs := w.failures(); len(fs) != 1 || fs[0].Node != "1" || fs[0].Task != "t.fail" {
			t.Fatalf("errback got %+v", fs)
		}
	}},
	{"42 callback on every member", func(t *testing.T, w *world) {
		ms := make([]tasks.Signature[int], 42)
		for i := range ms {
			ms[i] = tasks.OnSuccess(ID.S(1), Note)
		}
		if _, err := send(t, w, tasks.Group(ms...)); err != nil || len(w.noted("note")) != 42 {
			t.Fatalf("%v, noted %d times", err, len(w.noted("note")))
		}
	}},
	{"40 errback once for every failed member of a group", func(t *testing.T, w *world) {
		var ms []tasks.Signature[int]
		for i := range 6 {
			ms = append(ms, Fail.S(i), ID.S(i))
		}
		_, err := send(t, w, tasks.OnError(tasks.Group(ms...), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 6 {
			t.Fatalf("errback ran %d times, want 6", n)
		}
	}},
	{"131 errback of a chord once, however many members failed", func(t *testing.T, w *world) {
		var ms []tasks.Signature[int]
		for i := range 6 {
			ms = append(ms, Fail.S(i), ID.S(i))
		}
		_, err := send(t, w, tasks.OnError(tasks.Chord(tasks.Group(ms...), Sum), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("errback ran %d times, want once", n)
		}
	}},
	{"132 errback once for every failed member of a body", func(t *testing.T, w *world) {
		head := tasks.Chord(tasks.Group(ID.S(1)), Sum)
		_, err := send(t, w, tasks.OnError(tasks.Group(tasks.Chain(head, Fail), tasks.Chain(head, Fail), tasks.Chain(head, ID)), Err))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 2 {
			t.Fatalf("errback ran %d times, want 2", n)
		}
	}},
	{"134 errback of a body of many once for one failed header", func(t *testing.T, w *world) {
		head := tasks.Chord(tasks.Group(Fail.S(1)), Sum)
		_, err := send(t, w, tasks.OnError(tasks.Group(tasks.Chain(head, ID), tasks.Chain(head, ID)), Err))
		wantFailure(t, err, "E1")
		if n := len(w.failures()); n != 1 {
			t.Fatalf("errback ran %d times, want once", n)
		}
	}},
	{"errback of a map once for every failed member", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Map(Range.S(3), Fail), Err))
		wantFailure(t, err, "E")
		if n := len(w.failures()); n != 3 {
			t.Fatalf("errback ran %d times, want 3", n)
		}
	}},
	{"124 errback after the last attempt", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(Fail.S(1, tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond)), Err))
		if f := wantFailure(t, err, "E1"); f.Attempts != 3 || len(w.noted("fail")) != 3 || len(w.failures()) != 1 {
			t.Fatalf("%+v, ran %d times, errback %d times", f, len(w.noted("fail")), len(w.failures()))
		}
	}},
	{"128 members of a failed chord stay readable", func(t *testing.T, w *world) {
		run, err := tasks.Group(ID.S(7), Fail.S(1)).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		values, done, err := tasks.Members(t.Context(), run)
		if err != nil || values[0] != 7 || !done[0] || done[1] {
			t.Fatalf("%v %v %v", values, done, err)
		}
	}},
	{"161 inner and outer errback of a failing plan, once each", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Chain(tasks.OnError(FailTo.S(3), Err), Inc), Err))
		wantFailure(t, err, "E3")
		if n := len(w.failures()); n != 2 {
			t.Fatalf("errbacks ran %d times, want 2", n)
		}
	}},
	{"after waits for what it comes after", func(t *testing.T, w *world) {
		s := tasks.After(tasks.Each([]AB{{1, 30}, {2, 10}}, Slow), tasks.Group(Echo.S(Mark{"slow", 3}), Echo.S(Mark{"slow", 3})))
		_, err := send(t, w, s)
		if order := w.noted("slow"); err != nil || len(order) != 4 || !slices.Equal(order[2:], []int{3, 3}) {
			t.Fatalf("%v: order %v", err, order)
		}
	}},
	{"fail fast in a map, settled", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.Chord(tasks.Settle(tasks.Map(Range.S(20), Fail, tasks.FailFast(), tasks.AtMost(1))), Settled))
		if err != nil || !strings.HasPrefix(got, "E0") || !strings.HasSuffix(got, "revoked") {
			t.Fatalf("got %q, %v", got, err)
		}
	}},
	{"154 revoke stops what runs and what waits", func(t *testing.T, w *world) {
		run, err := tasks.Chain(tasks.Map(Range.S(20), tasks.New[int, int]("t.hold"), tasks.AtMost(2)), Sum).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		for p, err := range run.Watch(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Chunks == 20 {
				break
			}
		}
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrRevoked) {
			t.Fatalf("got %v", err)
		}
		ended(t, w, run.ID())
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatalf("revoke twice: %v", err)
		}
	}},
	{"151 revoked member fails its chord", func(t *testing.T, w *world) {
		run, err := tasks.Chord(tasks.Group(ID.S(1), ID.S(2, tasks.In(time.Hour))), Sum).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.client.RevokeNode(t.Context(), run.ID(), "1"); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrRevoked) {
			t.Fatalf("got %v", err)
		}
		ended(t, w, run.ID())
	}},
	{"178 unknown id", func(t *testing.T, w *world) {
		if _, err := tasks.Attach[int](w.client, "nobody").Status(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("got %v", err)
		}
		if _, err := tasks.Attach[int](w.client, "nobody").Wait(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("got %v", err)
		}
	}},
	{"64 id of choice, sent twice", func(t *testing.T, w *world) {
		s := Echo.S(Mark{"twice", 1})
		if _, err := send(t, w, s, tasks.ID("mine")); err != nil {
			t.Fatal(err)
		}
		run, err := s.Send(t.Context(), w.client, tasks.ID("mine"))
		if !errors.Is(err, tasks.ErrDuplicate) || run.ID() != "mine" {
			t.Fatalf("got %v, %v", run.ID(), err)
		}
		if got, err := run.Wait(limited(t)); err != nil || got != 1 || len(w.noted("twice")) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
	}},
	{"unique key", func(t *testing.T, w *world) {
		first, err := ID.S(1, tasks.In(time.Hour)).Send(t.Context(), w.client, tasks.Unique("u", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		second, err := ID.S(2).Send(t.Context(), w.client, tasks.Unique("u", time.Hour))
		if !errors.Is(err, tasks.ErrDuplicate) || second.ID() != first.ID() {
			t.Fatalf("got %v, %v", second.ID(), err)
		}
		if err := first.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := ID.S(2).Send(t.Context(), w.client, tasks.Unique("u", time.Hour)); err != nil {
			t.Fatalf("after the first has ended: %v", err)
		}
	}},
	{"71 countdown of a chord delays all of it", func(t *testing.T, w *world) {
		began := time.Now()
		got, err := send(t, w, tasks.Chord(tasks.Each([]int{1, 2}, Note), Sum), tasks.In(300*time.Millisecond))
		if d := time.Since(began); err != nil || got != 3 || d < 300*time.Millisecond {
			t.Fatalf("got %v, %v after %v", got, err, d)
		}
	}},
	{"eta of a step, to the millisecond", func(t *testing.T, w *world) {
		var late []int
		for i := range 10 { // a busy machine may be late now and then, but never early
			at := time.Now().Add(200 * time.Millisecond).Truncate(time.Millisecond)
			_, err := send(t, w, tasks.Chain(ID.S(1), tasks.New[int, int]("t.when"), tasks.At(at)))
			ran := w.noted("when")
			if err != nil || len(ran) != i+1 {
				t.Fatalf("%v, ran %v", err, ran)
			}
			late = append(late, ran[i]-int(at.UnixMilli()))
			if late[i] < 0 {
				t.Fatalf("ran %d ms before its time", -late[i])
			}
			if late[i] <= 250 {
				return
			}
		}
		t.Fatalf("ran %v ms after its time", late)
	}},
	{"191 192 progress and metadata", func(t *testing.T, w *world) {
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
	{"unregistered task fails in the end", func(t *testing.T, w *world) {
		startImpatient(t, w)
		_, err := send(t, w, tasks.New[int, int]("t.nobody", tasks.Queue("nobody")).S(1))
		if f := wantFailure(t, err, "has a handler for t.nobody"); f.Code != tasktype.CodeUnregistered {
			t.Fatalf("got %+v", f)
		}
	}},
	{"retry in, permanent and coded errors", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.New[string, int]("t.verdict", tasks.MaxRetry(9)).S("permanent"))
		if f := wantFailure(t, err, "never"); f.Attempts != 1 || f.Code != tasktype.CodePermanent {
			t.Fatalf("got %+v", f)
		}
		got, err := send(t, w, tasks.New[string, int]("t.verdict", tasks.MaxRetry(1)).S("retryin"))
		if err != nil || got != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
		_, err = send(t, w, tasks.New[string, int]("t.verdict").S("coded"))
		if f := wantFailure(t, err, "blocked"); f.Code != "http_403" {
			t.Fatalf("got %+v", f)
		}
	}},
	{"result over the cap", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.New[int, string]("t.big").S(1<<20))
		if f := wantFailure(t, err, "store it and return a key"); f.Code != tasktype.CodeResult {
			t.Fatalf("got %+v", f)
		}
	}},
	{"soft time limit", func(t *testing.T, w *world) {
		_, err := send(t, w, Slow.S(AB{1, 10000}, tasks.Timeout(20*time.Millisecond)))
		if f := wantFailure(t, err, "deadline"); f.Code != tasktype.CodeTimeout {
			t.Fatalf("got %+v", f)
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
	{"at most so many members run at once", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.Chord(tasks.Map(Range.S(20), tasks.New[int, int]("t.count"), tasks.AtMost(3)), Sum))
		most := 0
		for _, n := range w.noted("count") {
			most = max(most, n)
		}
		if err != nil || got != 190 || most > 3 || most < 2 { // on a busy machine not all three need come at once
			t.Fatalf("got %v, %v, %d at once", got, err, most)
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
	{"workers, queues and concurrency", func(t *testing.T, w *world) {
		ws, err := w.client.Workers(t.Context())
		if err != nil || len(ws) != 1 || ws[0].Name != w.worker.Name() || ws[0].Concurrency != 8 || !slices.Contains(ws[0].Tasks, "t.add") {
			t.Fatalf("workers %+v, %v", ws, err)
		}
		if _, err := send(t, w, ID.S(1)); err != nil {
			t.Fatal(err)
		}
		rest(t, w, "default")
		run, err := ID.S(1).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		qs, err := w.client.Queues(t.Context())
		if err != nil || len(qs) != 1 || !qs[0].Paused || qs[0].Pending != 1 {
			t.Fatalf("queues %+v, %v", qs, err)
		}
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		if err := w.client.SetConcurrency(t.Context(), w.worker.Name(), 2); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "concurrency shows", func() bool {
			ws, err := w.client.Workers(t.Context())
			return err == nil && len(ws) == 1 && ws[0].Concurrency == 2
		})
		if _, err := send(t, w, tasks.Each(ints(12), tasks.New[int, int]("t.count"))); err != nil {
			t.Fatal(err)
		}
		if most := slices.Max(w.noted("count")); most > 2 {
			t.Fatalf("%d ran at once, want 2 at most", most)
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

// sent sends s.
func sent[O any](t *testing.T, w *world, s tasks.Signature[O], opts ...tasks.SendOption) *tasks.AsyncResult[O] {
	t.Helper()
	run, err := s.Send(t.Context(), w.client, opts...)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return run
}

func nodes(t *testing.T, w *world, id string) []tasktype.Node {
	t.Helper()
	ns, err := w.client.Nodes(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// The tasks that only stories use.
var (
	Total    = tasks.New[[]int, int]("t.total")
	ErrFlaky = tasks.New[tasks.Failure, string]("t.errflaky", tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond))
	Nested   = tasks.New[string, string]("t.nested")
	Out      = tasks.New[string, string]("t.out")
	Echo1    = tasks.New[string, string]("t.say")
	Keys     = tasks.New[string, []string]("t.ownkeys", tasks.MaxRetry(5), tasks.ConstantBackoff(time.Millisecond))
	Slow2    = tasks.New[int, int]("t.slow2")
)

// extra binds the tasks that only stories use.
func (w *world) extra(m *tasks.Mux) {
	w.extraValues(m)
	w.extraAttempts(m)
	w.extraWaits(m)
}

// extraValues binds tasks whose value or notes count.
func (w *world) extraValues(m *tasks.Mux) {
	tasks.Handle(m, Total, func(_ context.Context, ns []int) (int, error) {
		w.note("total", sum(ns))
		return sum(ns), nil
	})
	// In A, In B, In C, Out C, Out B, Out A: A answers with B and then what is left of itself.
	tasks.HandlePlan(m, Nested, func(_ context.Context, name string) (tasks.Signature[string], error) {
		w.note("log", int(name[0]-'A'+'a'))
		if name == "C" {
			return Out.S(name), nil
		}
		return tasks.After(Nested.S(string(name[0]+1)), Out.S(name)), nil
	})
	tasks.Handle(m, Out, func(_ context.Context, name string) (string, error) {
		w.note("log", int(name[0]))
		return name, nil
	})
	tasks.Handle(m, tasks.New[int, int]("t.when"), func(context.Context, int) (int, error) {
		w.note("when", int(time.Now().UnixMilli()))
		return 0, nil
	})
	tasks.Handle(m, tasks.New[int, string]("t.big"), func(_ context.Context, n int) (string, error) {
		return strings.Repeat("x", n), nil
	})
	tasks.Handle(m, tasks.New[int, int]("t.keys"), func(ctx context.Context, n int) (int, error) {
		tasks.PublishKey(ctx, "result_count", strconv.Itoa(n))
		return n, nil
	})
}

// extraAttempts binds tasks that tell their attempts apart.
func (w *world) extraAttempts(m *tasks.Mux) {
	tasks.Handle(m, ErrFlaky, func(ctx context.Context, f tasks.Failure) (string, error) {
		if tasks.InfoFrom(ctx).Attempt == 1 {
			return "", errors.New("errback")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fails = append(w.fails, f)
		return "", nil
	})
	var mu sync.Mutex
	var keys []string
	tasks.Handle(m, Keys, func(ctx context.Context, _ string) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		if keys = append(keys, tasks.InfoFrom(ctx).Key); len(keys) < 3 {
			return nil, errors.New("again")
		}
		return keys, nil
	})
	tasks.Handle(m, tasks.New[string, int]("t.verdict"), func(ctx context.Context, how string) (int, error) {
		a := tasks.InfoFrom(ctx).Attempt
		switch {
		case how == "permanent":
			return 0, tasks.Permanent(errors.New("never"))
		case how == "retryin" && a == 1:
			return 0, tasks.RetryIn(5*time.Millisecond, errors.New("later"))
		case how == "coded":
			return 0, tasks.WithCode("http_403", errors.New("blocked"))
		}
		return a, nil
	})
}

// extraWaits binds tasks that take until a gate opens, until they are cancelled, or a moment.
func (w *world) extraWaits(m *tasks.Mux) {
	tasks.Handle(m, Slow2, func(ctx context.Context, n int) (int, error) { return n, w.pass(ctx, "slow2") })
	tasks.Handle(m, tasks.New[int, int]("t.hold"), func(ctx context.Context, n int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	tasks.Handle(m, tasks.New[int, int]("t.progress"), func(ctx context.Context, n int) (int, error) {
		tasks.SetProgress(ctx, 3, 4)
		return n, w.pass(ctx, "progress")
	})
	var now atomic.Int64
	tasks.Handle(m, tasks.New[int, int]("t.count"), func(ctx context.Context, n int) (int, error) {
		w.note("count", int(now.Add(1)))
		defer now.Add(-1)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
		return n, nil
	})
}

func TestStories(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, s := range stories {
			t.Run(s.number, func(t *testing.T) {
				if err := rdb.FlushDB(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.MaxResult = 1 << 18 })
				s.run(t, w)
			})
		}
	})
}

func TestSchedulersSendEachTickOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		sent := make(chan string, 100)
		done := make(chan error, 3)
		for range 3 {
			s := tasks.NewScheduler(w.client, tasks.SchedulerConfig{Sent: func(_, id string) { sent <- id }})
			if err := s.Add("often", "@every 50ms", Note.S(1)); err != nil {
				t.Fatal(err)
			}
			go func() { done <- s.Run(ctx) }()
		}
		seen := map[string]bool{}
		for range 6 {
			select {
			case id := <-sent:
				if seen[id] {
					t.Errorf("tick %s was sent twice", id)
				}
				seen[id] = true
			case <-time.After(waitLimit):
				t.Fatal("no tick")
			}
		}
		stop()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for id := range seen {
			ended(t, w, id)
		}
	})
}

func TestSchedulerRefusesBadSpecs(t *testing.T) {
	t.Parallel()
	s := tasks.NewScheduler(tasks.NewClient(redistest.Mini(t)), tasks.SchedulerConfig{})
	for i, spec := range []string{"", "* * *", "@every x", "@every 1us", "61 * * * *"} {
		if err := s.Add(fmt.Sprint(i), spec, Note.S(1)); err == nil {
			t.Errorf("spec %q was taken", spec)
		}
	}
	for i, spec := range []string{"* * * * *", "*/5 * * * * *", "CRON_TZ=Europe/Berlin 0 3 * * *", "@daily", "@every 90s"} {
		if err := s.Add("good"+fmt.Sprint(i), spec, Note.S(1)); err != nil {
			t.Errorf("spec %q: %v", spec, err)
		}
	}
}

// startImpatient starts a worker of queue nobody, without handlers, that does not wait long for one.
func startImpatient(t *testing.T, w *world) {
	t.Helper()
	ready := make(chan struct{})
	worker, err := tasks.NewWorker(w.client, tasks.NewMux(), tasks.WorkerConfig{Queues: map[string]int{"nobody": 1}, HandlerWait: time.Second,
		Ready: func() { close(ready) }})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Background(t, worker.Run)
	<-ready
}
