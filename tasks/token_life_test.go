package tasks_test

import (
	"context"
	"encoding/json"
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
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The attempt of an outside party ends at its deadline, which extensions move. Another follows as MaxRetry says, with a token of its own.
func TestDeadlineOfAnExternalTask(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, (&desk{}).mux())
	c := f.Client()
	run := started(t, c, tasks.Chain(fragile.S(draft{"a"}), publish), tasks.Timeout(time.Hour), tasks.MaxRetry(1), tasks.ConstantBackoff(time.Minute))
	f.Advance(0)
	first := tokenOf(t, c, opened(t, c, fragile.Name(), 1)[0])
	f.Advance(50 * time.Minute)
	if err := c.Extend(t.Context(), first, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	f.Advance(90 * time.Minute) // far behind its first deadline
	if err := c.Extend(t.Context(), first, time.Minute); err != nil {
		t.Fatal(err)
	}
	o := opened(t, c, fragile.Name(), 1)[0]
	if want := f.Now().Add(time.Minute); !o.Deadline.Equal(want) || o.Attempt != 1 {
		t.Errorf("got deadline %s, attempt %d, want %s, 1", o.Deadline, o.Attempt, want)
	}
	if err := c.Extend(t.Context(), first, 0); err == nil {
		t.Error("extended by nothing")
	}

	f.Advance(90 * time.Second) // it passes, and the back-off runs
	if got := allOpen(t, c, fragile.Name()); len(got) > 0 {
		t.Errorf("open between two attempts: %+v", got)
	}
	nodes, err := c.Nodes(t.Context(), run.ID())
	if err != nil || nodes[0].Status != tasktype.Retry || !strings.Contains(nodes[0].Message, "deadline") {
		t.Errorf("got %+v, %v, want %s", nodes, err, tasktype.Retry)
	}
	wantError(t, "answer between two attempts", c.Complete(t.Context(), first, json.RawMessage(`{}`)), tasks.ErrStale)
	f.Advance(time.Minute)
	o = opened(t, c, fragile.Name(), 1)[0]
	if o.Attempt != 2 || string(o.Input) != `{"Text":"a"}` {
		t.Errorf("got %+v, want attempt 2 with its input", o)
	}
	wantError(t, "answer to an attempt before", c.Complete(t.Context(), first, json.RawMessage(`{}`)), tasks.ErrStale)
	second := tokenOf(t, c, o)
	f.Drain()
	if _, err = run.Wait(t.Context()); wantFailure(t, err, "deadline").Code != tasktype.CodeTimeout {
		t.Errorf("got %v, want code %s", err, tasktype.CodeTimeout)
	}
	wantError(t, "answer behind the last deadline", c.Complete(t.Context(), second, json.RawMessage(`{}`)), tasks.ErrCompleted)
}

// Without a time limit there is no deadline, and none to extend.
func TestExternalTaskWithoutDeadline(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, (&desk{}).mux())
	c := f.Client()
	run := started(t, c, review.S(draft{"a"}), tasks.Timeout(0))
	f.Advance(1000 * time.Hour)
	o := opened(t, c, review.Name(), 1)[0]
	token := tokenOf(t, c, o)
	if err := c.Extend(t.Context(), token, time.Hour); err != nil {
		t.Fatal(err)
	}
	f.Advance(1000 * time.Hour)
	if o = opened(t, c, review.Name(), 1)[0]; !o.Deadline.IsZero() {
		t.Errorf("got deadline %s, want none", o.Deadline)
	}
	if err := tasks.Complete(t.Context(), c, review, token, opinion{true}); err != nil {
		t.Fatal(err)
	}
	if got, err := run.Wait(t.Context()); err != nil || !got.OK {
		t.Errorf("got %v, %v", got, err)
	}
}

// A test may have a handler answer in the place of the outside.
func TestStubOfAnExternalTask(t *testing.T) {
	t.Parallel()
	got, err := taskstest.Run(t, (&desk{}).mux(), tasks.Chain(review.S(draft{"a"}), publish), taskstest.Returns(review, opinion{true}))
	if err != nil || got != "published true" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A deadline passes without a fleet that jumps, too.
func TestDeadlinePasses(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		run := started(t, d.client, tasks.Chain(review.S(draft{"a"}), publish), tasks.Timeout(20*time.Millisecond))
		_, err := run.Wait(limited(t))
		if f := wantFailure(t, err, "deadline"); f.Code != tasktype.CodeTimeout || f.Task != review.Name() || f.Attempts != 1 {
			t.Errorf("got %+v", f)
		}
		if left := allOpen(t, d.client, review.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
	})
}

// What the outside says failed is tried again as for a handler.
func TestFailFromOutside(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		run := started(t, d.client, fragile.S(draft{"a"}))
		var last string
		for attempt := 1; attempt <= 3; attempt++ {
			o := opened(t, d.client, fragile.Name(), 1)[0]
			if o.Attempt != attempt {
				t.Fatalf("got attempt %d, want %d", o.Attempt, attempt)
			}
			last = tokenOf(t, d.client, o)
			if err := d.client.Fail(ctx, last, tasks.WithCode("tired", fmt.Errorf("not %d", attempt))); err != nil {
				t.Fatal(err)
			}
		}
		_, err := run.Wait(ctx)
		if f := wantFailure(t, err, "not 3"); f.Code != "tired" || f.Attempts != 3 {
			t.Errorf("got %+v", f)
		}
		wantError(t, "failure after the last", d.client.Fail(ctx, last, errors.New("no")), tasks.ErrCompleted)

		run = started(t, d.client, fragile.S(draft{"b"}))
		token := tokenOf(t, d.client, opened(t, d.client, fragile.Name(), 1)[0])
		if err := d.client.Fail(ctx, token, nil); err == nil {
			t.Error("failed without a cause")
		}
		if err := d.client.Fail(ctx, token, tasks.Again(time.Second)); err == nil {
			t.Error("called again from outside")
		}
		if err := d.client.Fail(ctx, token, tasks.Permanent(errors.New("never"))); err != nil {
			t.Fatal(err)
		}
		_, err = run.Wait(ctx)
		if f := wantFailure(t, err, "never"); f.Code != tasktype.CodePermanent || f.Attempts != 1 {
			t.Errorf("got %+v", f)
		}
	})
}

// A handler passes its token on, and its slot runs others while the answer is out.
func TestHandlerGivesItsTaskAway(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		const n = 20 // many more than slots
		run := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, n), handed), verdicts))
		all := opened(t, d.client, handed.Name(), n)
		if got, err := drafting.S("beside").Send(ctx, d.client); err != nil {
			t.Fatal(err)
		} else if _, err := got.Wait(ctx); err != nil {
			t.Errorf("a task beside them: %v", err)
		}
		wantAnswer := 0
		for i := range n {
			token := <-d.passed
			if i == 0 { // the first says that it failed, and its next attempt passes on another
				if err := d.client.Fail(ctx, token, errors.New("once more")); err != nil {
					t.Fatal(err)
				}
				wantError(t, "answer after a failure", tasks.Complete(ctx, d.client, handed, token, opinion{}), tasks.ErrStale)
				continue
			}
			wantAnswer++
			if err := tasks.Complete(ctx, d.client, handed, token, opinion{true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tasks.Complete(ctx, d.client, handed, <-d.passed, opinion{false}); err != nil {
			t.Fatal(err)
		}
		if got, err := run.Wait(ctx); err != nil || got != wantAnswer {
			t.Errorf("got %d, %v, want %d", got, err, wantAnswer)
		}
		if all[0].Attempt != 1 {
			t.Errorf("got %+v", all[0])
		}
	})
}

// An answer that comes before the handler has returned counts, whatever the handler returns then.
func TestAnswerBeforeTheHandlerReturns(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		var early atomic.Pointer[error]
		d.answer = func(token string) {
			if err := d.client.Extend(ctx, token, time.Hour); !errors.Is(err, tasks.ErrNotOpen) {
				t.Errorf("extension of what is not open: got %v, want %v", err, tasks.ErrNotOpen)
			}
			err := tasks.Complete(ctx, d.client, handed, token, opinion{true})
			early.Store(&err)
		}
		run := started(t, d.client, tasks.Chain(handed.S(draft{"a"}), publish))
		if got, err := run.Wait(ctx); err != nil || got != "published true" {
			t.Fatalf("got %q, %v", got, err)
		}
		if err := *early.Load(); err != nil {
			t.Errorf("early answer: %v", err)
		}
		testutil.Eventually(t, "the workflow has ended", func() bool { p, err := run.Progress(ctx); return err == nil && p.Ended })
		if left := allOpen(t, d.client, handed.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
		wantError(t, "second answer", tasks.Complete(ctx, d.client, handed, <-d.passed, opinion{}), tasks.ErrCompleted)
		p, err := run.Progress(ctx)
		if err != nil || p.Done != 2 || p.Total != 2 {
			t.Errorf("got %+v, %v, want 2 of 2", p, err)
		}
	})
}

// An early failure is an attempt that has failed, also when the handler says then that it waits.
func TestFailureBeforeTheHandlerReturns(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		var calls atomic.Int64
		d.answer = func(token string) {
			n := calls.Add(1)
			if err := d.client.Fail(ctx, token, errors.New("early")); n > 2 || err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		}
		run := started(t, d.client, handed.S(draft{"a"}))
		_, err := run.Wait(ctx)
		if f := wantFailure(t, err, "early"); f.Attempts != 2 || calls.Load() != 2 {
			t.Errorf("got %+v after %d calls, want 2 attempts", f, calls.Load())
		}
		if left := allOpen(t, d.client, handed.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
	})
}

// An open member keeps its place of AtMost.
func TestOpenMembersKeepTheirPlaces(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		run := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, 5), review, tasks.AtMost(2)), verdicts))
		beside := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, 5), fragile), verdicts))
		opened(t, d.client, fragile.Name(), 5)
		for left := 5; left > 0; left-- {
			all := opened(t, d.client, review.Name(), min(2, left))
			if err := tasks.Complete(ctx, d.client, review, tokenOf(t, d.client, all[0]), opinion{true}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := run.Wait(ctx); err != nil || got != 5 {
			t.Errorf("got %d, %v, want 5", got, err)
		}
		if err := beside.Revoke(ctx); err != nil {
			t.Fatal(err)
		}
		if left := allOpen(t, d.client, fragile.Name()); len(left) > 0 {
			t.Errorf("open after the revocation: %+v", left)
		}
	})
}

// Whatever ends an open node ends its token.
func TestRevokedWhileOpen(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		for what, end := range map[string]func(run *tasks.AsyncResult[int], o []string) error{
			"revoked workflow": func(run *tasks.AsyncResult[int], _ []string) error { return run.Revoke(ctx) },
			"revoked nodes": func(run *tasks.AsyncResult[int], _ []string) error {
				return errors.Join(d.client.RevokeNode(ctx, run.ID(), "0"), d.client.RevokeNode(ctx, run.ID(), "1"))
			},
			"failed sibling": func(_ *tasks.AsyncResult[int], tokens []string) error {
				return d.client.Fail(ctx, tokens[0], tasks.Permanent(errors.New("no")))
			},
		} {
			t.Run(what, func(t *testing.T) {
				run := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, 2), fragile, tasks.FailFast()), verdicts))
				var tokens []string
				for _, o := range opened(t, d.client, fragile.Name(), 2) {
					tokens = append(tokens, tokenOf(t, d.client, o))
				}
				if err := end(run, tokens); err != nil {
					t.Fatal(err)
				}
				if _, err := run.Wait(ctx); err == nil {
					t.Error("it has a value")
				}
				testutil.Eventually(t, "the workflow has ended", func() bool { p, err := run.Progress(ctx); return err == nil && p.Ended })
				for _, token := range tokens {
					wantError(t, "answer", d.client.Complete(ctx, token, json.RawMessage(`{}`)), tasks.ErrCompleted)
				}
				if left := allOpen(t, d.client, fragile.Name()); len(left) > 0 {
					t.Errorf("still open: %+v", left)
				}
			})
		}
	})
}

// Open nodes of many workflows are on the pages of their task, each once.
func TestPagesOfManyWorkflows(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		const n = 130
		var ids, got []string
		for i := range n {
			ids = append(ids, started(t, d.client, review.S(draft{fmt.Sprint(i)})).ID())
		}
		large := strings.Repeat("x", 400_000)
		for range 5 {
			ids = append(ids, started(t, d.client, tasks.Chain(drafting.S(large), review)).ID(), started(t, d.client, review.S(draft{large})).ID())
		}
		opened(t, d.client, review.Name(), len(ids))
		pages := 0
		for cursor := ""; ; pages++ {
			page, next, err := d.client.OpenTokens(ctx, review.Name(), cursor)
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, o := range page {
				got = append(got, o.Workflow)
				size += len(o.Input)
			}
			if len(page) > 100 || size > 2<<20 {
				t.Errorf("a page has %d nodes and %d bytes of inputs", len(page), size)
			}
			if cursor = next; next == "" {
				break
			}
		}
		slices.Sort(ids)
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			t.Errorf("pages have %d workflows, want %d", len(got), len(ids))
		}
		if pages < 3 {
			t.Errorf("all is on %d pages", pages+1)
		}
		for _, cursor := range []string{"x", "-1 a", "1"} {
			if _, _, err := d.client.OpenTokens(ctx, review.Name(), cursor); err == nil {
				t.Errorf("cursor %q was taken", cursor)
			}
		}
	})
}

// repeating sends what a script is asked twice, as a connection does whose first answer got lost.
type repeating struct{ redis.Hook }

func (repeating) DialHook(next redis.DialHook) redis.DialHook { return next }
func (repeating) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (repeating) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			_ = next(ctx, redis.NewCmd(ctx, cmd.Args()...))
		}
		return next(ctx, cmd)
	}
}

// An answer whose reply got lost is known when its connection sends it again; a second call is a second answer.
func TestAnswerThatIsSentTwice(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	newDesk(t, c.Redis())
	other := connect(t, url)
	other.Redis().AddHook(repeating{})
	run := started(t, c, tasks.Chain(review.S(draft{"a"}), publish))
	token := tokenOf(t, other, opened(t, other, review.Name(), 1)[0])
	if err := other.Extend(t.Context(), token, time.Hour); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := tasks.Complete(t.Context(), other, review, token, opinion{true}); err != nil {
		t.Errorf("complete: %v", err)
	}
	wantError(t, "second call", tasks.Complete(t.Context(), other, review, token, opinion{true}), tasks.ErrCompleted)
	if got, err := run.Wait(limited(t)); err != nil || got != "published true" {
		t.Errorf("got %q, %v", got, err)
	}

	run2 := started(t, c, fragile.S(draft{"a"}))
	token = tokenOf(t, other, opened(t, other, fragile.Name(), 1)[0])
	if err := other.Fail(t.Context(), token, tasks.Permanent(errors.New("no"))); err != nil {
		t.Errorf("fail: %v", err)
	}
	_, err := run2.Wait(limited(t))
	wantFailure(t, err, "no")
}

// Open nodes and their tokens outlive their worker and a restart of Redis, and so do answers that no worker has heard of.
func TestTokensOutliveRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	c := connect(t, server.URL())
	ctx := limited(t)
	run := started(t, c, tasks.Chord(tasks.Each(make([]draft, 3), review), verdicts))
	w, err := tasks.NewWorker(c, (&desk{}).mux(), tasks.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	stop := during(t, w.Run)
	all := opened(t, c, review.Name(), 3)
	tokens := []string{tokenOf(t, c, all[0]), tokenOf(t, c, all[1])}
	stop()
	if err := tasks.Complete(ctx, c, review, tokens[0], opinion{true}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start()
	testutil.Eventually(t, "Redis answers", func() bool { return c.Ping(ctx) == nil })
	tokens = append(tokens, tokenOf(t, c, opened(t, c, review.Name(), 2)[1]))
	var wg sync.WaitGroup
	for _, token := range tokens[1:] {
		wg.Go(func() {
			if err := tasks.Complete(ctx, c, review, token, opinion{true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	newDesk(t, c.Redis())
	if got, err := run.Wait(ctx); err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3", got, err)
	}
}

// A worker that is killed right after it opened a node, or right after its handler passed a token on, loses nothing.
func TestKilledBetweenTokenAndAnswer(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		first tasks.Task[string, string]
		point string // at which it is killed; empty: by its handler
		early bool   // the answer comes before anything runs again
	}{
		"opened":                     {askTask, "opened", true},
		"passed on":                  {handTask, "", true},
		"passed on, then once again": {handTask, "", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := redistest.URL(t)
			cl := connect(t, url)
			rdb := cl.Redis()
			ctx := limited(t)
			run := started(t, cl, tasks.Chain(c.first.S("a"), stepTask))
			doomed(t, url, "first", c.point)
			passed := func() []string { return rdb.LRange(ctx, "passed:"+run.ID(), 0, -1).Val() }
			var token string
			if c.point == "opened" {
				token = tokenOf(t, cl, opened(t, cl, askTask.Name(), 1)[0])
			} else {
				token = passed()[0]
			}
			if c.early {
				if err := cl.Complete(ctx, token, json.RawMessage(`"answered"`)); err != nil {
					t.Errorf("answer before the node runs again: %v", err)
				}
			}
			child(t, url, "second")
			if err := tasks.ExpireLeases(ctx, cl, "first"); err != nil {
				t.Fatal(err)
			}
			if !c.early {
				opened(t, cl, handTask.Name(), 1)
				wantError(t, "token that was replaced", cl.Complete(ctx, token, json.RawMessage(`"late"`)), tasks.ErrStale)
				if err := cl.Complete(ctx, passed()[1], json.RawMessage(`"answered"`)); err != nil {
					t.Error(err)
				}
			}
			if got, err := run.Wait(ctx); err != nil || got != "answered" {
				t.Errorf("got %q, %v", got, err)
			}
			if n := len(passed()); c.point == "" && c.early != (n == 1) {
				t.Errorf("the handler ran %d times", n)
			}
		})
	}
}

// Who waits for a node that nobody opens is told so; a handler is nothing that it lacks.
func TestExternalTaskNeedsAWorkerWithoutHandler(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.URL(t))
	run := started(t, c, review.S(draft{}, tasks.Queue("elsewhere")))
	waits := func() string {
		nodes, err := c.Nodes(t.Context(), run.ID())
		if err != nil {
			t.Fatal(err)
		}
		return nodes[0].Waits
	}
	if got, want := waits(), "no worker is live"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	newDesk(t, c.Redis())
	testutil.Eventually(t, "there is a worker", func() bool { return waits() == "no live worker takes from queue elsewhere" })
	newDesk(t, c.Redis(), func(c *tasks.WorkerConfig) { c.Queues = map[string]int{"elsewhere": 1} })
	opened(t, c, review.Name(), 1)
}

// Outside of a handler there is neither a token nor an answer that is pending.
func TestTokenOutsideOfAHandler(t *testing.T) {
	t.Parallel()
	if _, err := tasks.TokenFrom(t.Context()); err == nil {
		t.Error("a token was made")
	}
	if _, err := tasks.ResultPending[int](t.Context()); err == nil || tasks.IsPending(err) {
		t.Errorf("got %v", err)
	}
}

// A damaged record of an open node harms nothing but its workflow.
func TestDamagedOpenNode(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		rdb := d.client.Redis()
		for _, garbage := range []string{"W", "W|", "W|||", "W|x|y|z|", "W|1|2", "W|1|-5|3|", "W|1|2|99999999999999999999|", "V|1", ""} {
			run := started(t, d.client, tasks.Chain(review.S(draft{"a"}), publish))
			o := opened(t, d.client, review.Name(), 1)[0]
			token := tokenOf(t, d.client, o)
			if err := rdb.HSet(ctx, flowKey(t, rdb, run.ID()), "0", garbage).Err(); err != nil {
				t.Fatal(err)
			}
			_, _, err := d.client.OpenTokens(ctx, review.Name(), "")
			if err != nil {
				t.Errorf("%q: list: %v", garbage, err)
			}
			_ = d.client.Extend(ctx, token, time.Millisecond) // it may be refused
			_ = d.client.Complete(ctx, token, json.RawMessage(`{"OK":true}`))
			_, _ = d.client.NewToken(ctx, run.ID(), "0")
			if err := run.Revoke(ctx); err != nil {
				t.Errorf("%q: revoke: %v", garbage, err)
			}
			if _, err := run.Wait(ctx); errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%q: the workflow has no end", garbage)
			}
			if left := allOpen(t, d.client, review.Name()); len(left) > 0 {
				t.Fatalf("%q: still open: %+v", garbage, left)
			}
		}
		run := started(t, d.client, drafting.S("beside"))
		if _, err := run.Wait(ctx); err != nil {
			t.Errorf("another workflow: %v", err)
		}
	})
}

// Wherever in a workflow an external task stands, it is asked with its input, and its answer goes where a result would.
func TestExternalTaskAnywhere(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		mux := d.mux()
		repair := tasks.New[tasks.Failure, opinion]("token.repair", tasks.External())
		split := tasks.New[int, []draft]("token.split")
		planned := tasks.New[draft, opinion]("token.planned")
		tasks.Handle(mux, split, func(_ context.Context, n int) ([]draft, error) { return make([]draft, n), nil })
		tasks.HandlePlan(mux, planned, func(_ context.Context, d draft) (tasks.Signature[opinion], error) {
			return tasks.Chain(drafting.S(d.Text+"!"), review), nil
		})
		w, err := tasks.NewWorker(d.client, mux, tasks.WorkerConfig{Queues: map[string]int{"shapes": 1}})
		if err != nil {
			t.Fatal(err)
		}
		during(t, w.Run)
		shapes := tasks.Queue("shapes")
		answer := func(task string, n int) (inputs []string) {
			for _, o := range opened(t, d.client, task, n) {
				inputs = append(inputs, string(o.Input))
				if err := d.client.Complete(ctx, tokenOf(t, d.client, o), json.RawMessage(`{"OK":true}`)); err != nil {
					t.Errorf("%s %s: %v", task, o.Node, err)
				}
			}
			return inputs
		}

		mapped := started(t, d.client, tasks.Chord(tasks.Map(split.S(3, shapes), review), verdicts))
		answer(review.Name(), 3)
		if got, err := mapped.Wait(ctx); err != nil || got != 3 {
			t.Errorf("map: got %d, %v, want 3", got, err)
		}
		plan := started(t, d.client, tasks.Chain(planned.S(draft{"p"}, shapes), publish))
		if got := answer(review.Name(), 1); got[0] != `{"Text":"p!"}` {
			t.Errorf("plan: got input %s", got[0])
		}
		if got, err := plan.Wait(ctx); err != nil || got != "published true" {
			t.Errorf("plan: got %q, %v", got, err)
		}
		rescue := started(t, d.client, tasks.Chain(fragile.S(draft{"r"}).Rescue(repair), publish))
		if err := d.client.Fail(ctx, tokenOf(t, d.client, opened(t, d.client, fragile.Name(), 1)[0]), tasks.Permanent(errors.New("broken"))); err != nil {
			t.Fatal(err)
		}
		if got := answer(repair.Name(), 1); !strings.Contains(got[0], `"message":"broken"`) {
			t.Errorf("rescue: got input %s", got[0])
		}
		if got, err := rescue.Wait(ctx); err != nil || got != "published true" {
			t.Errorf("rescue: got %q, %v", got, err)
		}
	})
}
