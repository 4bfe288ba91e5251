package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The input and result of an external task.
type (
	draft   struct{ Text string }
	opinion struct{ OK bool }
)

var (
	review   = tasks.New[draft, opinion]("token.review", tasks.External())
	fragile  = tasks.New[draft, opinion]("token.fragile", tasks.External(), tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond))
	drafting = tasks.New[string, draft]("token.draft")
	publish  = tasks.New[opinion, string]("token.publish")
	verdicts = tasks.New[[]opinion, int]("token.count")
	handed   = tasks.New[draft, opinion]("token.handed", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Millisecond))
)

// desk is a worker with handlers around external tasks. The handlers of handed send their tokens to passed.
type desk struct {
	client *tasks.Client
	passed chan string
	answer func(token string) // called before the handler of handed returns
}

func newDesk(t *testing.T, rdb redis.UniversalClient, change ...func(*tasks.WorkerConfig)) *desk {
	t.Helper()
	d := &desk{client: newClient(t, rdb), passed: make(chan string, 100), answer: func(string) {}}
	cfg := tasks.WorkerConfig{Grace: time.Second, Concurrency: 2}
	for _, c := range change {
		c(&cfg)
	}
	runWorker(t, d.client, d.mux(), cfg)
	return d
}

func (d *desk) mux() *tasks.Mux {
	m := tasks.NewMux()
	tasks.Handle(m, drafting, func(_ context.Context, s string) (draft, error) { return draft{s}, nil })
	tasks.Handle(m, publish, func(_ context.Context, o opinion) (string, error) { return fmt.Sprint("published ", o.OK), nil })
	tasks.Handle(m, verdicts, func(_ context.Context, os []opinion) (int, error) {
		n := 0
		for _, o := range os {
			if o.OK {
				n++
			}
		}
		return n, nil
	})
	tasks.Handle(m, handed, func(ctx context.Context, _ draft) (opinion, error) {
		token, err := tasks.TokenFrom(ctx)
		if err != nil {
			return opinion{}, err
		}
		if again, err := tasks.TokenFrom(ctx); again != token {
			return opinion{}, fmt.Errorf("a second token: %v", err)
		}
		d.answer(token)
		d.passed <- token
		return tasks.ResultPending[opinion](ctx)
	})
	return m
}

// onDesks runs a test on each Redis with a separate worker.
func onDesks(t *testing.T, run func(t *testing.T, d *desk), change ...func(*tasks.WorkerConfig)) {
	t.Helper()
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) { run(t, newDesk(t, rdb, change...)) })
}

// opened waits until n nodes of a task are open, and returns them.
func opened(t *testing.T, c *tasks.Client, task string, n int) (all []tasktype.OpenToken) {
	t.Helper()
	testutil.Eventually(t, fmt.Sprintf("%d nodes of %s are open", n, task), func() bool {
		all = allOpen(t, c, task)
		return len(all) == n
	})
	return all
}

// allOpen returns all pages of the open nodes of a task.
func allOpen(t *testing.T, c *tasks.Client, task string) (all []tasktype.OpenToken) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := c.Inspect().OpenTokens(t.Context(), task, cursor)
		testutil.Ok(t, err)
		if all = append(all, page...); next == "" {
			return all
		}
		cursor = next
	}
}

// tokenOf makes a token for a node that is open.
func tokenOf(t *testing.T, c *tasks.Client, o tasktype.OpenToken) string {
	t.Helper()
	token := testutil.Must(c.Workflow(o.Workflow).NewToken(t.Context(), o.Node))(t)
	return token
}

// wantError checks that errors.Is(err, want).
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// A workflow waits for an external task in its middle, shows it as waiting, and continues with the result.
func TestExternalTaskIsCompletedExternally(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		run := started(t, d.client, tasks.Chain(tasks.Chain(drafting.S("poem"), review), publish))
		o := opened(t, d.client, review.Name(), 1)[0]
		if o.Workflow != run.ID() || o.Node != "1" || o.Task != review.Name() || string(o.Input) != `{"Text":"poem"}` || o.Attempt != 1 ||
			time.Since(o.Opened).Abs() > waitLimit || o.Deadline.Sub(o.Opened).Round(time.Second) != time.Hour {
			t.Errorf("got %+v", o)
		}
		d.wantWaiting(t, run, o)
		d.wantOpenTasks(t, tasktype.OpenTask{Task: review.Name(), Open: 1})
		token := tokenOf(t, d.client, o)
		if err := publish.Complete(ctx, d.client, token, "no"); err == nil || !strings.Contains(err.Error(), review.Name()) {
			t.Errorf("result of another type: got %v, want an error that names %s", err, review.Name())
		}
		testutil.Ok(t, review.Complete(ctx, d.client, token, opinion{true}))
		wantValue(t, run, "published true")
		d.wantOpenTasks(t)
		d.wantCompleted(t, run.ID(), token)
		if left := allOpen(t, d.client, review.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
		testutil.Eventually(t, "the workflow has ended", func() bool { p, err := run.Progress(ctx); return err == nil && p.Ended })
		nodes, err := run.Nodes(ctx)
		if err != nil || nodes[1].Worker != "" || nodes[1].Attempts != 1 || nodes[1].Started.IsZero() {
			t.Errorf("got %+v, %v, want one attempt of no worker", nodes, err)
		}
		testutil.Ok(t, run.Delete(ctx))
		wantError(t, "completion in an expired workflow", d.client.Complete(ctx, token, json.RawMessage(`{}`)), tasks.ErrNotFound)
	})
}

// wantOpenTasks checks which tasks have open nodes.
func (d *desk) wantOpenTasks(t *testing.T, want ...tasktype.OpenTask) {
	t.Helper()
	got, err := d.client.Inspect().OpenTasks(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("open tasks: got %+v, %v, want %+v", got, err, want)
	}
}

// wantWaiting checks that the second of three nodes of a workflow waits for an external result.
func (d *desk) wantWaiting(t *testing.T, run *tasks.Run[string], o tasktype.OpenToken) {
	t.Helper()
	ctx := limited(t)
	if p, err := run.Progress(ctx); err != nil || p.Status != tasktype.Started || p.Done != 1 || p.Total != 3 {
		t.Errorf("progress: got %+v, %v, want 1 of 3, %s", p, err, tasktype.Started)
	}
	nodes := testutil.Must(run.Nodes(ctx))(t)
	if n := nodes[1]; n.Status != tasktype.Started || n.Waits != "waits for an external result" || !n.Due.Equal(o.Deadline) || n.Attempts != 1 {
		t.Errorf("got %+v, want one that waits for an external result until %s", n, o.Deadline)
	}
}

// wantCompleted checks that nothing can be done any more with the token of node 1 of a workflow.
func (d *desk) wantCompleted(t *testing.T, id, token string) {
	t.Helper()
	ctx := limited(t)
	wantError(t, "second answer", review.Complete(ctx, d.client, token, opinion{true}), tasks.ErrCompleted)
	wantError(t, "failure after it", d.client.Fail(ctx, token, errors.New("no")), tasks.ErrCompleted)
	wantError(t, "extension after it", d.client.Extend(ctx, token, time.Hour), tasks.ErrCompleted)
	_, err := d.client.Workflow(id).NewToken(ctx, "1")
	wantError(t, "new token after it", err, tasks.ErrCompleted)
}

// An invalid token leads to an error that does not contain it.
func TestInvalidTokenIsNotInTheError(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		run := started(t, d.client, tasks.Chain(review.S(draft{"a"}), publish))
		o := opened(t, d.client, review.Name(), 1)[0]
		first := tokenOf(t, d.client, o)
		second := tokenOf(t, d.client, o)
		secret := strings.Split(second, ".")[0]
		for what, c := range map[string]struct {
			token string
			want  error
		}{
			"empty":              {"", tasks.ErrNotFound},
			"garbage":            {"x.y.z\x00", tasks.ErrNotFound},
			"short secret":       {"abcd." + run.ID() + ".0", tasks.ErrNotFound},
			"no node":            {secret + "." + run.ID(), tasks.ErrNotFound},
			"other workflow":     {secret + ".none.0", tasks.ErrNotFound},
			"node it has not":    {secret + "." + run.ID() + ".7", tasks.ErrNotFound},
			"field of the store": {secret + "." + run.ID() + ".g", tasks.ErrNotFound},
			"node that waits":    {secret + "." + run.ID() + ".1", tasks.ErrStale},
			"made up":            {strings.Repeat("A", 22) + "." + run.ID() + ".0", tasks.ErrStale},
			"replaced":           {first, tasks.ErrStale},
		} {
			err := d.client.Complete(ctx, c.token, json.RawMessage(`{}`))
			wantError(t, what, err, c.want)
			wantError(t, what+", fail", d.client.Fail(ctx, c.token, errors.New("no")), c.want)
			wantError(t, what+", extend", d.client.Extend(ctx, c.token, time.Hour), c.want)
			if err != nil && (strings.Contains(err.Error(), secret) || c.token != "" && strings.Contains(err.Error(), c.token)) {
				t.Errorf("%s: the error has the token in it: %v", what, err)
			}
		}
		for node, want := range map[string]error{"1": tasks.ErrNotOpen, "9": tasks.ErrNotFound, "g": tasks.ErrNotFound, "0:1": tasks.ErrNotFound, "0.1": tasks.ErrNotFound} {
			_, err := run.NewToken(ctx, node)
			wantError(t, "new token for node "+node, err, want)
			wantError(t, "complete node "+node, run.CompleteNode(ctx, node, json.RawMessage(`{}`)), want)
			wantError(t, "fail node "+node, run.FailNode(ctx, node, errors.New("no")), want)
			wantError(t, "extend node "+node, run.ExtendNode(ctx, node, time.Hour), want)
			if want == tasks.ErrNotFound {
				wantError(t, "revoke node "+node, run.RevokeNode(ctx, node), want)
			}
		}
		if err := run.ExtendNode(ctx, "0", time.Hour); err != nil {
			t.Error(err)
		}
		_, err := d.client.Workflow("none").NewToken(ctx, "0")
		wantError(t, "new token for no workflow", err, tasks.ErrNotFound)
		if err := d.client.Complete(ctx, second, json.RawMessage(`{`)); err == nil || !strings.Contains(err.Error(), "JSON") {
			t.Errorf("result that is not JSON: got %v", err)
		}
		large := json.RawMessage(`"` + strings.Repeat("x", 16<<20) + `"`)
		if err := d.client.Complete(ctx, second, large); err == nil || !strings.Contains(err.Error(), "16777216") {
			t.Errorf("result that is too large: got %v", err)
		}
		if err := run.CompleteNode(ctx, "0", large); err == nil || !strings.Contains(err.Error(), "16777216") {
			t.Errorf("result that is too large, by node: got %v", err)
		}
		testutil.Ok(t, d.client.Complete(ctx, second+"\n", json.RawMessage(`{"OK":true}`)))
		wantValue(t, run, "published true")
	})
}

// Redis has nothing from which a token can be made.
func TestTokenIsNotInRedis(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		started(t, d.client, review.S(draft{"a"}))
		o := opened(t, d.client, review.Name(), 1)[0]
		secret := strings.Split(tokenOf(t, d.client, o), ".")[0]
		have, err := d.client.Redis().HGetAll(t.Context(), flowKey(t, d.client.Redis(), o.Workflow)).Result()
		if err != nil || have["t0"] == "" {
			t.Fatalf("got %v, %v", have, err)
		}
		for field, v := range have {
			if strings.Contains(v, secret) {
				t.Errorf("field %s has the secret: %q", field, v)
			}
		}
	})
}

// An external failure is retried like a failure of a handler.
func TestExternalFailureIsRetried(t *testing.T) {
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
			testutil.Ok(t, d.client.Fail(ctx, last, tasks.WithCode("tired", fmt.Errorf("not %d", attempt))))
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
		testutil.Ok(t, d.client.Fail(ctx, token, tasks.Permanent(errors.New("never"))))
		_, err = run.Wait(ctx)
		if f := wantFailure(t, err, "never"); f.Code != tasktype.CodePermanent || f.Attempts != 1 {
			t.Errorf("got %+v", f)
		}
	})
}

// Whatever ends an open node ends its token.
func TestRevocationEndsAToken(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		for what, end := range map[string]func(run *tasks.Run[int], o []string) error{
			"revoked workflow": func(run *tasks.Run[int], _ []string) error { return run.Revoke(ctx) },
			"revoked nodes": func(run *tasks.Run[int], _ []string) error {
				return errors.Join(run.RevokeNode(ctx, "0"), run.RevokeNode(ctx, "1"))
			},
			"failed sibling": func(_ *tasks.Run[int], tokens []string) error {
				return d.client.Fail(ctx, tokens[0], tasks.Permanent(errors.New("no")))
			},
		} {
			t.Run(what, func(t *testing.T) {
				run := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, 2), fragile, tasks.FailFast()), verdicts))
				var tokens []string
				for _, o := range opened(t, d.client, fragile.Name(), 2) {
					tokens = append(tokens, tokenOf(t, d.client, o))
				}
				testutil.Ok(t, end(run, tokens))
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
func TestOpenNodesAreListedOnceEach(t *testing.T) {
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
			page, next, err := d.client.Inspect().OpenTokens(ctx, review.Name(), cursor)
			testutil.Ok(t, err)
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
		if got, err := drafting.S("beside").Do(ctx, d.client); err != nil || got.Text != "beside" { // no slot is in use
			t.Errorf("a task beside them: got %v, %v", got, err)
		}
		for _, cursor := range []string{"x", "-1 a", "1"} {
			if _, _, err := d.client.Inspect().OpenTokens(ctx, review.Name(), cursor); !errors.Is(err, tasks.ErrCursor) {
				t.Errorf("cursor %q was taken", cursor)
			}
		}
	})
}

// An open node has the choices of its declaration. Invalid choices are errors of Send.
func TestChoicesOfAnExternalTask(t *testing.T) {
	approve := tasks.New[draft, opinion]("token.approve", tasks.External(), tasks.Choice("Approve", opinion{true}), tasks.Choice("Refuse", opinion{false}))
	want := []tasktype.Choice{{Label: "Approve", Value: []byte(`{"OK":true}`)}, {Label: "Refuse", Value: []byte(`{"OK":false}`)}}
	var eleven []tasks.TaskOption
	for i := range 11 {
		eleven = append(eleven, tasks.Choice(fmt.Sprint(i), opinion{}))
	}
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		run := started(t, d.client, tasks.Chain(approve.S(draft{"a"}, tasks.Timeout(time.Hour)), publish))
		o := opened(t, d.client, approve.Name(), 1)[0]
		if !reflect.DeepEqual(o.Choices, want) {
			t.Errorf("got %s, want %s", o.Choices, want)
		}
		n, err := d.client.Workflow(o.Workflow).Node(ctx, o.Node)
		if err != nil || !reflect.DeepEqual(n.Choices, want) {
			t.Errorf("got %s, %v, want %s", n.Choices, err, want)
		}
		testutil.Ok(t, d.client.Complete(ctx, tokenOf(t, d.client, o), o.Choices[1].Value))
		wantValue(t, run, "published false")
		if n, err := d.client.Workflow(o.Workflow).Node(ctx, o.Node); err != nil || n.Choices != nil {
			t.Errorf("after completion: got %s, %v, want no choices", n.Choices, err)
		}
		for name, opts := range map[string][]tasks.TaskOption{
			"type":  {tasks.Choice("Approve", "yes")},
			"label": {tasks.Choice("Approve", opinion{}), tasks.Choice("Approve", opinion{true})},
			"most":  eleven,
			"large": {tasks.Choice("Approve", strings.Repeat("a", 5000))},
		} {
			if _, err := tasks.New[draft, opinion]("token.odd", opts...).S(draft{"a"}).Send(ctx, d.client); err == nil || !strings.Contains(err.Error(), "tasks.Choice(") {
				t.Errorf("%s: got %v, want an error that names the option", name, err)
			}
		}
	})
}

// An external attempt ends at its deadline, which extensions move. Another follows according to MaxRetry, with a new
// token.
func TestMissedDeadlineEndsTheAttempt(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, (&desk{}).mux())
	c := f.Client()
	run := started(t, c, tasks.Chain(fragile.S(draft{"a"}), publish), tasks.Timeout(time.Hour), tasks.MaxRetry(1), tasks.ConstantBackoff(time.Minute))
	f.Advance(0)
	first := tokenOf(t, c, opened(t, c, fragile.Name(), 1)[0])
	f.Advance(50 * time.Minute)
	testutil.Ok(t, c.Extend(t.Context(), first, 2*time.Hour))
	f.Advance(90 * time.Minute) // long after its first deadline
	testutil.Ok(t, c.Extend(t.Context(), first, time.Minute))
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
	nodes, err := c.Workflow(run.ID()).Nodes(t.Context())
	if err != nil || nodes[0].Status != tasktype.Retry || !strings.Contains(nodes[0].Message, "deadline") {
		t.Errorf("got %+v, %v, want %s", nodes, err, tasktype.Retry)
	}
	wantError(t, "completion between two attempts", c.Complete(t.Context(), first, json.RawMessage(`{}`)), tasks.ErrStale)
	f.Advance(time.Minute)
	o = opened(t, c, fragile.Name(), 1)[0]
	if o.Attempt != 2 || string(o.Input) != `{"Text":"a"}` {
		t.Errorf("got %+v, want attempt 2 with its input", o)
	}
	wantError(t, "completion of an earlier attempt", c.Complete(t.Context(), first, json.RawMessage(`{}`)), tasks.ErrStale)
	second := tokenOf(t, c, o)
	f.Drain()
	if _, err = run.Wait(t.Context()); wantFailure(t, err, "deadline").Code != tasktype.CodeTimeout {
		t.Errorf("got %v, want code %s", err, tasktype.CodeTimeout)
	}
	wantError(t, "completion after the last deadline", c.Complete(t.Context(), second, json.RawMessage(`{}`)), tasks.ErrCompleted)
}

// Without a time limit there is no deadline, and nothing to extend.
func TestNoTimeoutMeansNoDeadline(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, (&desk{}).mux())
	c := f.Client()
	run := started(t, c, review.S(draft{"a"}), tasks.Timeout(0))
	f.Advance(1000 * time.Hour)
	o := opened(t, c, review.Name(), 1)[0]
	token := tokenOf(t, c, o)
	testutil.Ok(t, c.Extend(t.Context(), token, time.Hour))
	f.Advance(1000 * time.Hour)
	if o = opened(t, c, review.Name(), 1)[0]; !o.Deadline.IsZero() {
		t.Errorf("got deadline %s, want none", o.Deadline)
	}
	testutil.Ok(t, review.Complete(t.Context(), c, token, opinion{true}))
	if got, err := run.Wait(t.Context()); err != nil || !got.OK {
		t.Errorf("got %v, %v", got, err)
	}
}

var (
	score     = tasks.New[string, int]("signal.score", tasks.External())
	nextScore = tasks.New[int, int]("signal.score", tasks.External())
	askTwice  = tasks.New[string, int]("signal.ask_twice", tasks.Queue("signal.plans"))
)

// signals sends the numbers 1 to n as signals.
func signals(t *testing.T, c *tasks.Client, id string, n int) {
	t.Helper()
	for i := range n {
		testutil.Ok(t, score.Signal(t.Context(), c, id, i+1))
	}
}

func TestEachSignalIsReceivedOnce(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		const n = 30
		run := started(t, d.client, tasks.Each(make([]string, n), score))
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if err := score.Signal(t.Context(), d.client, run.ID(), i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		got := testutil.Must(run.Wait(limited(t)))(t)
		slices.Sort(got)
		for i := range n {
			if got[i] != i {
				t.Fatalf("got %v, want each signal once", got)
			}
		}
	})
}

func TestSignalsReachNodesOfPlans(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		mux := tasks.NewMux()
		tasks.HandlePlan(mux, askTwice, func(context.Context, string) (tasks.Signature[int], error) {
			return tasks.Chain(score.S("loan"), nextScore), nil
		})
		worker := testutil.Must(tasks.StartWorker(t.Context(), d.client, mux, tasks.WorkerConfig{Queues: map[string]int{"signal.plans": 1}}))(t)
		t.Cleanup(worker.Kill)
		run := started(t, d.client, askTwice.S("loan"))
		signals(t, d.client, run.ID(), 2)
		if got, err := run.Wait(limited(t)); got != 2 || err != nil {
			t.Errorf("got %d, %v, want 2", got, err)
		}
	})
}

func TestSignalErrors(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		wantError(t, "unknown workflow", score.Signal(ctx, d.client, "none", 1), tasks.ErrNotFound)
		run := started(t, d.client, score.S("loan", tasks.In(time.Hour)))
		for want, err := range map[string]error{
			"not JSON":          run.Signal(ctx, score.Name(), []byte("{")),
			"16777216":          run.Signal(ctx, score.Name(), fmt.Appendf(nil, "%q", strings.Repeat("x", 16<<20))),
			"control character": run.Signal(ctx, "a\nb", []byte("1")),
			"tasks.External":    publish.Signal(ctx, d.client, started(t, d.client, publish.S(opinion{}, tasks.In(time.Hour))).ID(), ""),
		} {
			if !errors.Is(err, tasks.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want ErrInvalid with %q", err, want)
			}
		}
		testutil.Ok(t, run.Revoke(ctx))
		wantError(t, "revoked workflow", score.Signal(ctx, d.client, run.ID(), 1), tasks.ErrEnded)
	})
}

func TestSignalsOfATaskAreLimited(t *testing.T) {
	t.Parallel()
	d := newDesk(t, redistest.New(t))
	run := started(t, d.client, score.S("loan", tasks.In(time.Hour)))
	signals(t, d.client, run.ID(), 1000)
	wantError(t, "signal 1001", score.Signal(t.Context(), d.client, run.ID(), 1), tasks.ErrFull)
}

// A handler passes its token on, and its slot runs other tasks while the result is pending.
func TestPendingResultFreesItsSlot(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		const n = 20 // many more than slots
		run := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, n), handed), verdicts), tasks.ID(strings.Repeat("i", 100)))
		all := opened(t, d.client, handed.Name(), n)
		if got, err := drafting.S("beside").Send(ctx, d.client); err != nil {
			t.Fatal(err)
		} else if _, err := got.Wait(ctx); err != nil {
			t.Errorf("a task beside them: %v", err)
		}
		wantAnswer := 0
		for i := range n {
			token := <-d.passed
			if i == 0 { // the first reports a failure, and its next attempt passes on another token
				testutil.Ok(t, d.client.Fail(ctx, token, errors.New("once more")))
				wantError(t, "completion after a failure", handed.Complete(ctx, d.client, token, opinion{}), tasks.ErrStale)
				continue
			}
			wantAnswer++
			testutil.Ok(t, handed.Complete(ctx, d.client, token, opinion{true}))
		}
		testutil.Ok(t, handed.Complete(ctx, d.client, <-d.passed, opinion{false}))
		wantValue(t, run, wantAnswer)
		if all[0].Attempt != 1 {
			t.Errorf("got %+v", all[0])
		}
	})
}

// A result that comes before the handler has returned counts, whatever the handler returns then.
func TestResultBeforeTheHandlerReturnsCounts(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		var early atomic.Pointer[error]
		d.answer = func(token string) {
			if err := d.client.Extend(ctx, token, time.Hour); !errors.Is(err, tasks.ErrNotOpen) {
				t.Errorf("extension of a node that is not open: got %v, want %v", err, tasks.ErrNotOpen)
			}
			err := handed.Complete(ctx, d.client, token, opinion{true})
			early.Store(&err)
		}
		run := started(t, d.client, tasks.Chain(handed.S(draft{"a"}), publish))
		wantValue(t, run, "published true")
		token := <-d.passed // the early completion has returned
		if err := *early.Load(); err != nil {
			t.Errorf("early answer: %v", err)
		}
		testutil.Eventually(t, "the workflow has ended", func() bool { p, err := run.Progress(ctx); return err == nil && p.Ended })
		if left := allOpen(t, d.client, handed.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
		wantError(t, "second answer", handed.Complete(ctx, d.client, token, opinion{}), tasks.ErrCompleted)
		p, err := run.Progress(ctx)
		if err != nil || p.Done != 2 || p.Total != 2 {
			t.Errorf("got %+v, %v, want 2 of 2", p, err)
		}
	})
}

// An early failure is a failed attempt, also if the handler then returns a pending result.
func TestFailureBeforeTheHandlerReturnsCounts(t *testing.T) {
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

// Outside of a handler there is neither a token nor a pending result.
func TestTokenNeedsAHandler(t *testing.T) {
	t.Parallel()
	if _, err := tasks.TokenFrom(t.Context()); err == nil {
		t.Error("a token was made")
	}
	if _, err := tasks.ResultPending[int](t.Context()); err == nil || !tasks.IsFailure(err) {
		t.Errorf("got %v", err)
	}
}
