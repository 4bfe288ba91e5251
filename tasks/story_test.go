package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/facttest"
	"muster/tasks/redistest"
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
	{"a signature used twice runs once", func(t *testing.T, w *world) {
		x := Echo.S(Mark{"once", 5})
		got, err := send(t, w, tasks.Chain(tasks.Join(tasks.Chain(x, Inc), tasks.Group(x, x)), PairSum))
		if err != nil || got != 16 || len(w.noted("once")) != 1 {
			t.Fatalf("got %v, %v, ran %d times", got, err, len(w.noted("once")))
		}
	}},
	{"after waits for what it comes after", func(t *testing.T, w *world) {
		s := tasks.After(tasks.Each([]AB{{1, 30}, {2, 10}}, Slow), tasks.Group(Echo.S(Mark{"slow", 3}), Echo.S(Mark{"slow", 3})))
		_, err := send(t, w, s)
		if order := w.noted("slow"); err != nil || len(order) != 4 || !slices.Equal(order[2:], []int{3, 3}) {
			t.Fatalf("%v: order %v", err, order)
		}
	}},
	{"fail fast revokes the siblings", func(t *testing.T, w *world) {
		s := tasks.Group(Fail.S(1), Slow.S(AB{1, 10000}), tasks.Chain(Slow.S(AB{2, 10000}), Inc)).With(tasks.FailFast())
		began := time.Now()
		_, err := send(t, w, s)
		wantFailure(t, err, "E1")
		if d := time.Since(began); d > 5*time.Second {
			t.Fatalf("took %v", d)
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
		at := time.Now().Add(200 * time.Millisecond).Truncate(time.Millisecond)
		_, err := send(t, w, tasks.Chain(ID.S(1), tasks.New[int, int]("t.when"), tasks.At(at)))
		ran := w.noted("when")
		if err != nil || len(ran) != 1 {
			t.Fatalf("%v, ran %v", err, ran)
		}
		if late := ran[0] - int(at.UnixMilli()); late < 0 || late > 250 {
			t.Fatalf("ran %d ms after its time", late)
		}
	}},
	{"191 192 progress and metadata", func(t *testing.T, w *world) {
		run, err := tasks.Chain(ID.S(1), tasks.New[int, int]("t.progress")).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		node := func() tasks.NodeInfo {
			nodes, err := w.client.Nodes(t.Context(), run.ID())
			if err != nil {
				t.Fatal(err)
			}
			return nodes[1]
		}
		facttest.Eventually(t, "own progress shows", func() bool { n := node(); return n.Done == 3 && n.Total == 4 && n.Status == tasks.Started })
		w.note("go", 1)
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		n := node()
		if n.Status != tasks.Success || n.Worker == "" || n.Attempts != 1 || n.Queue != "default" || n.Started.IsZero() || n.Ended.Before(n.Started) {
			t.Fatalf("got %+v", n)
		}
	}},
	{"unregistered task fails in the end", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.New[int, int]("t.nobody").S(1))
		if f := wantFailure(t, err, "has a handler for t.nobody"); f.Code != tasks.CodeUnregistered {
			t.Fatalf("got %+v", f)
		}
	}},
	{"retry in, permanent and coded errors", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.New[string, int]("t.verdict", tasks.MaxRetry(9)).S("permanent"))
		if f := wantFailure(t, err, "never"); f.Attempts != 1 || f.Code != tasks.CodePermanent {
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
		if f := wantFailure(t, err, "store it and return a key"); f.Code != tasks.CodeResult {
			t.Fatalf("got %+v", f)
		}
	}},
	{"soft time limit", func(t *testing.T, w *world) {
		_, err := send(t, w, Slow.S(AB{1, 10000}, tasks.Timeout(20*time.Millisecond)))
		if f := wantFailure(t, err, "deadline"); f.Code != tasks.CodeTimeout {
			t.Fatalf("got %+v", f)
		}
	}},
	{"zero, cyclic and nameless signatures are refused", func(t *testing.T, w *world) {
		if _, err := (tasks.Signature[int]{}).Send(t.Context(), w.client); err == nil || !strings.Contains(err.Error(), "zero Signature") {
			t.Errorf("zero: got %v", err)
		}
		a, b := ID.S(1), ID.S(2)
		if _, err := tasks.Group(tasks.After(a, b), tasks.After(b, a)).Send(t.Context(), w.client); err != nil && !strings.Contains(err.Error(), "wait for each other") {
			t.Errorf("cycle: got %v", err)
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
		if err != nil || got != 190 || most != 3 {
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
		if err := w.client.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
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
		facttest.Eventually(t, "concurrency shows", func() bool {
			ws, err := w.client.Workers(t.Context())
			return err == nil && len(ws) == 1 && ws[0].Concurrency == 2
		})
		if _, err := send(t, w, tasks.Each(ints(12), tasks.New[int, int]("t.count"))); err != nil {
			t.Fatal(err)
		}
		if most := slices.Max(w.noted("count")); most != 2 {
			t.Fatalf("%d ran at once, want 2", most)
		}
	}},
	{"send by name", func(t *testing.T, w *world) {
		run, err := w.client.SendRaw(t.Context(), "t.add", []byte(`{"A":1,"B":2}`))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := run.Wait(limited(t)); err != nil || string(raw) != "3" {
			t.Fatalf("got %s, %v", raw, err)
		}
	}},
}

// extra binds the tasks that only stories use.
func (w *world) extra(m *tasks.Mux) {
	tasks.Handle(m, tasks.New[int, int]("t.hold"), func(ctx context.Context, n int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	tasks.Handle(m, tasks.New[int, int]("t.when"), func(context.Context, int) (int, error) {
		w.note("when", int(time.Now().UnixMilli()))
		return 0, nil
	})
	tasks.Handle(m, tasks.New[int, int]("t.progress"), func(ctx context.Context, n int) (int, error) {
		tasks.SetProgress(ctx, 3, 4)
		for len(w.noted("go")) == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return n, ctx.Err()
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
	tasks.Handle(m, tasks.New[int, string]("t.big"), func(_ context.Context, n int) (string, error) {
		return strings.Repeat("x", n), nil
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
	tasks.Handle(m, tasks.New[int, int]("t.keys"), func(ctx context.Context, n int) (int, error) {
		tasks.PublishKey(ctx, "result_count", strconv.Itoa(n))
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
