package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
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
