package jobs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
)

func init() {
	pipelines["reviews"] = &pipeline.Pipeline{Name: "reviews", Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob},
		{Name: "enrich", Role: "enricher", Takes: pipeline.TakesItem, Review: true},
		{Name: "check", Role: "checker", Takes: pipeline.TakesItem, Review: true},
	}}
}

// failAll fails n items of a role for the last time.
func (w *world) failAll(role string, n int) {
	w.t.Helper()
	for range n {
		testutil.Ok(w.t, w.Fail(w.ctx, w.take(role, "f"), permanent{errors.New("unclear")}, 0, true))
	}
}

func TestAcceptedItemGoesToItsNextStage(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "reviews"})
		w.emit("a", "b")
		w.failAll("enricher", 2)
		it, err := w.Decide(w.ctx, j.ID, "a", jobs.Decision{Accept: true, By: "ada", Patch: json.RawMessage(`{"text":"corrected"}`)})
		if err != nil || it.Status != jobs.ItemPending || it.Stage != "check" || it.Text != "corrected" || it.ReviewedBy != "ada" {
			t.Fatalf("accepted: got %+v, %v, want it to wait for the stage check with its text corrected", it, err)
		}
		if _, err := w.Decide(w.ctx, j.ID, "a", jobs.Decision{Accept: true}); !errors.Is(err, jobs.ErrNotReview) {
			t.Errorf("a second decision: got %v, want %v", err, jobs.ErrNotReview)
		}
		testutil.Must(w.Decide(w.ctx, j.ID, "b", jobs.Decision{Reason: "no", By: "bob"}))(t)
		work := w.take("checker", "v")
		if work.Item.Text != "corrected" || work.Attempt != 1 {
			t.Errorf("work of the next stage: got attempt %d of %+v", work.Attempt, work.Item)
		}
		w.complete(work, jobs.Answer{})
		w.until(j.ID, jobs.Completed)
		if it, err := w.Item(w.ctx, j.ID, "a"); err != nil || it.Status != jobs.ItemIntegrated || it.Agent != "v" || it.ReviewedBy != "ada" {
			t.Errorf("the accepted item: got %+v, %v", it, err)
		}
		entries := testutil.Must(w.client.Redis().XRange(w.ctx, eventsKey(j.ID), "-", "+").Result())(t)
		var decided []string
		for _, e := range entries {
			if e.Values["type"] == "item.decided" {
				decided = append(decided, fmt.Sprint(e.Values["data"]))
			}
		}
		slices.Sort(decided)
		sameList(t, "decisions", decided, []string{
			`{"by":"ada","decision":"accept","key":"a","reason":""}`, `{"by":"bob","decision":"reject","key":"b","reason":"no"}`,
		})
	})
}

func TestDecideAll(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "reviews"})
		w.emit("a", "b", "c")
		w.complete(w.take("enricher", "e"), jobs.Answer{})
		w.failAll("enricher", 2)
		if n, err := w.DecideAll(w.ctx, j.ID, []string{"a", "b"}, jobs.Decision{Accept: true}); n != 1 || err != nil {
			t.Fatalf("two of which one is in review: got %d, %v, want 1", n, err)
		}
		w.failAll("checker", 2)
		if n, err := w.DecideAll(w.ctx, j.ID, nil, jobs.Decision{Reason: "no"}); n != 3 || err != nil {
			t.Fatalf("all: got %d, %v, want 3", n, err)
		}
		if got, want := w.until(j.ID, jobs.Completed).Items, (jobs.Counts{Total: 3, Rejected: 3}); got != want {
			t.Errorf("items: got %+v, want %+v", got, want)
		}
	})
}
