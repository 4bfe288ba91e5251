package tasks_test

import (
	"context"
	"encoding/json"
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
	d := &desk{client: tasks.NewClient(rdb), passed: make(chan string, 100), answer: func(string) {}}
	t.Cleanup(func() { _ = d.client.Close() })
	cfg := tasks.WorkerConfig{Grace: time.Second, Concurrency: 2}
	for _, c := range change {
		c(&cfg)
	}
	w, err := tasks.NewWorker(d.client, d.mux(), cfg)
	testutil.Ok(t, err)
	during(t, w.Run)
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
		page, next, err := c.OpenTokens(t.Context(), task, cursor)
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
	token, err := c.NewToken(t.Context(), o.Workflow, o.Node)
	testutil.Ok(t, err)
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
		if err := tasks.Complete(ctx, d.client, publish, token, "no"); err == nil || !strings.Contains(err.Error(), review.Name()) {
			t.Errorf("result of another type: got %v, want an error that names %s", err, review.Name())
		}
		testutil.Ok(t, tasks.Complete(ctx, d.client, review, token, opinion{true}))
		wantValue(t, run, "published true")
		d.wantOpenTasks(t)
		d.wantCompleted(t, run.ID(), token)
		if left := allOpen(t, d.client, review.Name()); len(left) > 0 {
			t.Errorf("still open: %+v", left)
		}
		testutil.Eventually(t, "the workflow has ended", func() bool { p, err := run.Progress(ctx); return err == nil && p.Ended })
		nodes, err := d.client.Nodes(ctx, run.ID())
		if err != nil || nodes[1].Worker != "" || nodes[1].Attempts != 1 || nodes[1].Started.IsZero() {
			t.Errorf("got %+v, %v, want one attempt of no worker", nodes, err)
		}
		testutil.Ok(t, run.Forget(ctx))
		wantError(t, "completion in an expired workflow", d.client.Complete(ctx, token, json.RawMessage(`{}`)), tasks.ErrUnknown)
	})
}

// wantOpenTasks checks which tasks have open nodes.
func (d *desk) wantOpenTasks(t *testing.T, want ...tasktype.OpenTask) {
	t.Helper()
	got, err := d.client.OpenTasks(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("open tasks: got %+v, %v, want %+v", got, err, want)
	}
}

// A task whose open nodes were of workflows that are gone is listed until its nodes are.
func TestOpenTasksForgetWorkflowsThatAreGone(t *testing.T) {
	t.Parallel()
	d := newDesk(t, redistest.New(t))
	run := started(t, d.client, review.S(draft{"a"}))
	opened(t, d.client, review.Name(), 1)
	keys, err := d.client.Redis().Keys(t.Context(), "muster:{*}:w:"+run.ID()+"~*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("got %v, %v, want the key of the workflow", keys, err)
	}
	testutil.Ok(t, d.client.Redis().Del(t.Context(), keys[0]).Err())
	if left := allOpen(t, d.client, review.Name()); len(left) > 0 {
		t.Errorf("still open: %+v", left)
	}
	d.wantOpenTasks(t)
	if left := d.client.Redis().Keys(t.Context(), "muster:{*}:open*").Val(); len(left) > 0 {
		t.Errorf("left are the keys %q", left)
	}
}

// wantWaiting checks that the second of three nodes of a workflow waits for an external result.
func (d *desk) wantWaiting(t *testing.T, run *tasks.AsyncResult[string], o tasktype.OpenToken) {
	t.Helper()
	ctx := limited(t)
	if p, err := run.Progress(ctx); err != nil || p.Status != tasktype.Started || p.Done != 1 || p.Total != 3 {
		t.Errorf("progress: got %+v, %v, want 1 of 3, %s", p, err, tasktype.Started)
	}
	nodes, err := d.client.Nodes(ctx, run.ID())
	testutil.Ok(t, err)
	if n := nodes[1]; n.Status != tasktype.Started || n.Waits != "waits for an external result" || !n.Due.Equal(o.Deadline) || n.Attempts != 1 {
		t.Errorf("got %+v, want one that waits for an external result until %s", n, o.Deadline)
	}
}

// wantCompleted checks that nothing can be done any more with the token of node 1 of a workflow.
func (d *desk) wantCompleted(t *testing.T, id, token string) {
	t.Helper()
	ctx := limited(t)
	wantError(t, "second answer", tasks.Complete(ctx, d.client, review, token, opinion{true}), tasks.ErrCompleted)
	wantError(t, "failure after it", d.client.Fail(ctx, token, errors.New("no")), tasks.ErrCompleted)
	wantError(t, "extension after it", d.client.Extend(ctx, token, time.Hour), tasks.ErrCompleted)
	_, err := d.client.NewToken(ctx, id, "1")
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
			"empty":              {"", tasks.ErrUnknown},
			"garbage":            {"x.y.z\x00", tasks.ErrUnknown},
			"short secret":       {"abcd." + run.ID() + ".0", tasks.ErrUnknown},
			"no node":            {secret + "." + run.ID(), tasks.ErrUnknown},
			"other workflow":     {secret + ".none.0", tasks.ErrUnknown},
			"node it has not":    {secret + "." + run.ID() + ".7", tasks.ErrUnknown},
			"field of the store": {secret + "." + run.ID() + ".g", tasks.ErrUnknown},
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
		for node, want := range map[string]error{"1": tasks.ErrNotOpen, "9": tasks.ErrNoNode, "g": tasks.ErrNoNode, "0:1": tasks.ErrNoNode, "0.1": tasks.ErrNoNode} {
			_, err := d.client.NewToken(ctx, run.ID(), node)
			wantError(t, "new token for node "+node, err, want)
			wantError(t, "complete node "+node, d.client.CompleteNode(ctx, run.ID(), node, json.RawMessage(`{}`)), want)
			wantError(t, "fail node "+node, d.client.FailNode(ctx, run.ID(), node, errors.New("no")), want)
			wantError(t, "extend node "+node, d.client.ExtendNode(ctx, run.ID(), node, time.Hour), want)
			if want == tasks.ErrNoNode {
				wantError(t, "revoke node "+node, d.client.RevokeNode(ctx, run.ID(), node), want)
			}
		}
		if err := d.client.ExtendNode(ctx, run.ID(), "0", time.Hour); err != nil {
			t.Error(err)
		}
		_, err := d.client.NewToken(ctx, "none", "0")
		wantError(t, "new token for no workflow", err, tasks.ErrUnknown)
		if err := d.client.Complete(ctx, second, json.RawMessage(`{`)); err == nil || !strings.Contains(err.Error(), "JSON") {
			t.Errorf("result that is not JSON: got %v", err)
		}
		large := json.RawMessage(`"` + strings.Repeat("x", 16<<20) + `"`)
		if err := d.client.Complete(ctx, second, large); err == nil || !strings.Contains(err.Error(), "16777216") {
			t.Errorf("result that is too large: got %v", err)
		}
		if err := d.client.CompleteNode(ctx, run.ID(), "0", large); err == nil || !strings.Contains(err.Error(), "16777216") {
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
