package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A completion whose reply was lost is recognised when its connection repeats it; a second call is a second
// completion.
func TestCompletionRepeatedByItsConnectionSucceeds(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	newDesk(t, c.Redis())
	f := redistest.NewFault(redistest.Repeated, redistest.EveryCall)
	f.Match = func(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }
	f.Arm()
	other := tasks.NewClient(f.Client(t, url))
	run := started(t, c, tasks.Chain(review.S(draft{"a"}), publish))
	token := tokenOf(t, other, opened(t, other, review.Name(), 1)[0])
	if err := other.Extend(t.Context(), token, time.Hour); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := tasks.Complete(t.Context(), other, review, token, opinion{true}); err != nil {
		t.Errorf("complete: %v", err)
	}
	wantError(t, "second call", tasks.Complete(t.Context(), other, review, token, opinion{true}), tasks.ErrCompleted)
	wantValue(t, run, "published true")

	run2 := started(t, c, fragile.S(draft{"a"}))
	token = tokenOf(t, other, opened(t, other, fragile.Name(), 1)[0])
	if err := other.Fail(t.Context(), token, tasks.Permanent(errors.New("no"))); err != nil {
		t.Errorf("fail: %v", err)
	}
	_, err := run2.Wait(limited(t))
	wantFailure(t, err, "no")
}

// Open nodes and their tokens survive their worker and a restart of Redis, and so do results that no worker has seen.
func TestTokensOutliveRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	c := connect(t, server.URL())
	ctx := limited(t)
	run := started(t, c, tasks.Chord(tasks.Each(make([]draft, 3), review), verdicts))
	w, err := tasks.NewWorker(c, (&desk{}).mux(), tasks.WorkerConfig{})
	testutil.Ok(t, err)
	stop := during(t, w.Run)
	all := opened(t, c, review.Name(), 3)
	tokens := []string{tokenOf(t, c, all[0]), tokenOf(t, c, all[1])}
	stop()
	testutil.Ok(t, tasks.Complete(ctx, c, review, tokens[0], opinion{true}))
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
	wantValue(t, run, 3)
}

// A worker that is killed right after it opened a node, or right after its handler passed a token on, loses nothing.
func TestTokenOutlivesAKilledWorker(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		first tasks.Task[string, string]
		point string // at which it is killed; empty: by its handler
		early bool   // the result comes before anything runs again
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
					t.Errorf("completion before the node runs again: %v", err)
				}
			}
			child(t, url, "second")
			testutil.Ok(t, tasks.ExpireLeases(ctx, cl, "first"))
			if !c.early {
				opened(t, cl, handTask.Name(), 1)
				wantError(t, "token that was replaced", cl.Complete(ctx, token, json.RawMessage(`"late"`)), tasks.ErrStale)
				if err := cl.Complete(ctx, passed()[1], json.RawMessage(`"answered"`)); err != nil {
					t.Error(err)
				}
			}
			wantValue(t, run, "answered")
			if n := len(passed()); c.point == "" && c.early != (n == 1) {
				t.Errorf("the handler ran %d times", n)
			}
		})
	}
}

// A damaged record of an open node harms nothing but its workflow.
func TestDamagedOpenNodeEndsItsWorkflowOnly(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		rdb := d.client.Redis()
		for _, garbage := range []string{"W", "W|", "W|||", "W|x|y|z|", "W|1|2", "W|1|-5|3|", "W|1|2|99999999999999999999|", "V|1", ""} {
			run := started(t, d.client, tasks.Chain(review.S(draft{"a"}), publish))
			o := opened(t, d.client, review.Name(), 1)[0]
			token := tokenOf(t, d.client, o)
			testutil.Ok(t, rdb.HSet(ctx, flowKey(t, rdb, run.ID()), "0", garbage).Err())
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
