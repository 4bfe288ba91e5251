package tasks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

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

// An open member keeps its place of AtMost.
func TestOpenMembersKeepTheirPlaces(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		ctx := limited(t)
		run := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, 5), review, tasks.AtMost(2)), verdicts))
		beside := started(t, d.client, tasks.Chord(tasks.Each(make([]draft, 5), fragile), verdicts))
		opened(t, d.client, fragile.Name(), 5)
		for left := 5; left > 0; left-- {
			all := opened(t, d.client, review.Name(), min(2, left))
			testutil.Ok(t, tasks.Complete(ctx, d.client, review, tokenOf(t, d.client, all[0]), opinion{true}))
		}
		wantValue(t, run, 5)
		testutil.Ok(t, beside.Revoke(ctx))
		if left := allOpen(t, d.client, fragile.Name()); len(left) > 0 {
			t.Errorf("open after the revocation: %+v", left)
		}
	})
}

// Whatever ends an open node ends its token.
func TestRevocationEndsAToken(t *testing.T) {
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
			page, next, err := d.client.OpenTokens(ctx, review.Name(), cursor)
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
			if _, _, err := d.client.OpenTokens(ctx, review.Name(), cursor); !errors.Is(err, tasks.ErrCursor) {
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
		n, err := d.client.Node(ctx, o.Workflow, o.Node)
		if err != nil || !reflect.DeepEqual(n.Choices, want) {
			t.Errorf("got %s, %v, want %s", n.Choices, err, want)
		}
		testutil.Ok(t, d.client.Complete(ctx, tokenOf(t, d.client, o), o.Choices[1].Value))
		wantValue(t, run, "published false")
		if n, err := d.client.Node(ctx, o.Workflow, o.Node); err != nil || n.Choices != nil {
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
