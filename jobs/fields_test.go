package jobs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
)

// A job has the fields of its request, and defaults for the others.
func TestJobKeepsItsFields(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Prompt: "only a prompt", At: time.Now().Add(time.Hour)}) // so that it has not begun
		for what, c := range map[string]struct{ got, want any }{
			"kind":                   {j.Kind, jobs.KindPipeline},
			"pipeline":               {j.Name, "default"},
			"context":                {string(j.Context), "{}"},
			"status":                 {j.Status, jobs.Created},
			"stages":                 {[]jobs.StageStatus{j.Stages[0].Status, j.Stages[1].Status}, []jobs.StageStatus{jobs.StagePending, jobs.StagePending}},
			"items":                  {j.Items, jobs.Counts{}},
			"document":               {j.Document, (*jobs.Document)(nil)},
			"usage":                  {len(j.Usage), 0},
			"priority":               {j.Priority, 0},
			"generation":             {j.Generation, 1},
			"on failure":             {j.OnFailure, jobs.OnFailureCancel},
			"stuck":                  {j.StuckAfter, time.Hour},
			"timeout":                {j.Timeout, 168 * time.Hour},
			"ended":                  {j.CompletedAt.IsZero(), true},
			"error":                  {j.ErrorMessage, ""},
			"id of a version 4 UUID": {[]any{len(j.ID), j.ID[14:15]}, []any{36, "4"}},
		} {
			if !reflect.DeepEqual(c.got, c.want) {
				t.Errorf("%s of a new job: got %v, want %v", what, c.got, c.want)
			}
		}

		doc := &jobs.Document{Name: "a b.pdf", Hash: "h1", Size: 7, Type: "application/pdf", Source: "/in/a b.pdf"}
		at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		full := w.create(jobs.Request{
			Pipeline: "long", Prompt: "all\nof it ü", Document: doc, Context: json.RawMessage(`{"b":{"c":[1,2]},"a":12345678901234567890}`),
			Priority: -7, Labels: []string{"x", "y z"}, OnFailure: jobs.OnFailureRun, After: []string{j.ID}, At: at, StuckAfter: 5 * time.Minute,
		})
		full = w.until(full.ID, jobs.Created)
		for what, c := range map[string]struct{ got, want any }{
			"pipeline":   {full.Name, "long"},
			"prompt":     {full.Prompt, "all\nof it ü"},
			"document":   {full.Document, doc},
			"context":    {string(full.Context), `{"a":12345678901234567890,"b":{"c":[1,2]}}`},
			"priority":   {full.Priority, -7},
			"labels":     {full.Labels, []string{"x", "y z"}},
			"on failure": {full.OnFailure, jobs.OnFailureRun},
			"after":      {full.After, []string{j.ID}},
			"at":         {full.At, at},
			"stuck":      {full.StuckAfter, 5 * time.Minute},
		} {
			if !reflect.DeepEqual(c.got, c.want) {
				t.Errorf("%s: got %v, want %v", what, c.got, c.want)
			}
		}
	})
}

// A change of a job moves its version and its time, and so does each change of its state.
func TestChangesMoveTheTimeOfAJob(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		running := w.until(j.ID, jobs.Processing)
		if running.Version <= 1 { // the version of a created job
			t.Errorf("version of a job that began: got %d after 1", running.Version)
		}
		var edited jobs.Job
		priority := 1
		testutil.Eventually(t, "an edit is later than the start", func() bool {
			var err error
			if edited, err = w.Edit(w.ctx, j.ID, w.until(j.ID, jobs.Processing).Version, jobs.Edit{Priority: &priority}); err != nil {
				t.Fatal(err)
			}
			return edited.UpdatedAt.After(running.UpdatedAt)
		})
		if edited.Version <= running.Version || edited.CreatedAt != j.CreatedAt {
			t.Errorf("an edited job: version %d after %d, created %v, before %v", edited.Version, running.Version, edited.CreatedAt, j.CreatedAt)
		}
	})
}

func TestJobThatFailedSaysInWhichStage(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		for range 2 {
			testutil.Ok(t, w.Fail(w.ctx, w.take("creator", "c1"), errors.New("cannot be read"), 0, true))
		}
		failed := w.until(j.ID, jobs.Failed)
		var got struct {
			Stages []struct {
				Stage, Error string
				Attempts     int
			}
		}
		if err := json.Unmarshal(failed.ErrorDetails, &got); err != nil {
			t.Fatalf("details %q: %v", failed.ErrorDetails, err)
		}
		if len(got.Stages) != 1 || got.Stages[0].Stage != "create" || got.Stages[0].Error != "cannot be read" || got.Stages[0].Attempts != 2 {
			t.Errorf("details: got %+v, want two attempts of stage create", got)
		}
		if !strings.Contains(failed.ErrorMessage, "cannot be read") || failed.CompletedAt.IsZero() || failed.Stages[0].Status != jobs.StageFailed {
			t.Errorf("a job that failed: %q, ended %v", failed.ErrorMessage, failed.CompletedAt)
		}
	})
}

// The fields of a result are passed to the next agent and kept; the last agent can set each field.
func TestItemKeepsItsFields(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		confidence, less := 0.5, 0.25
		emitted := jobs.NewItem{
			Key: "§ 1/2", Text: "must\nbe kept", Name: "Retention", Type: "legal", SourceDocument: "a.pdf", SourceLocation: "p. 3",
			Labels: map[string]bool{"gobd": true, "gdpr": false}, ResearchNotes: "see law", Citations: []string{"c1", "c2"},
			MentionedObjects: []string{"invoice"}, MentionedMessages: []string{"mail"}, Confidence: &confidence, ExternalID: "x", Priority: "high",
			Data: json.RawMessage(`{"n":[1]}`),
		}
		first := w.take("creator", "c")
		w.complete(first, jobs.Answer{Items: []jobs.NewItem{emitted, {Key: "plain", Text: "t"}}})
		work := w.take("validator", "v") // of high priority
		got, err := w.Item(w.ctx, j.ID, emitted.Key)
		if err != nil || got.Status != jobs.ItemValidating || got.Agent != "v" || got.Stage != "validate" || got.JobID != j.ID || len(got.ID) != 36 || got.CreatedAt.IsZero() || got.UpdatedAt.IsZero() {
			t.Errorf("an item that is worked on: %+v, %v", got, err)
		}
		for reader, it := range map[string]jobs.Item{"the agent": *work.Item, "Item": got} {
			if !reflect.DeepEqual(it.NewItem, emitted) {
				t.Errorf("%s gets\n%+v\nwant\n%+v", reader, it.NewItem, emitted)
			}
		}
		plain, err := w.Item(w.ctx, j.ID, "plain")
		if err != nil || plain.Status != jobs.ItemPending || plain.Priority != "medium" || plain.RetryCount != 0 || plain.ExternalID != "" {
			t.Errorf("an item with defaults: %+v, %v", plain, err)
		}
		text, err := json.Marshal(plain)
		for _, want := range []string{`"labels":{"gdpr":false,"gobd":false}`, `"citations":[]`, `"mentioned_objects":[]`, `"mentioned_messages":[]`, `"retry_count":0`} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("an item with defaults: got %s, %v, want %s in it", text, err, want)
			}
		}

		want := jobs.NewItem{
			Key: emitted.Key, Text: "T", Name: "N", Type: "Y", SourceDocument: "D", SourceLocation: "L", Labels: map[string]bool{"gobd": false, "gdpr": true},
			ResearchNotes: "R", Citations: []string{"C"}, MentionedObjects: []string{"O"}, MentionedMessages: []string{"M"}, Confidence: &less,
			ExternalID: "neo-1", Priority: "low", Data: json.RawMessage(`{"m":2}`),
		}
		raw, err := json.Marshal(want)
		testutil.Ok(t, err)
		w.complete(work, jobs.Answer{Patch: raw})
		if got, err = w.Item(w.ctx, j.ID, emitted.Key); err != nil || got.Status != jobs.ItemIntegrated {
			t.Fatalf("an item that was accepted: %+v, %v", got, err)
		}
		if !reflect.DeepEqual(got.NewItem, want) {
			t.Errorf("after the agent set all:\n%+v\nwant\n%+v", got.NewItem, want)
		}
	})
}

// An item whose agent is silent is pending again with its lease, and has failed with its last attempt. The job then
// continues, without a sweep.
func TestItemOfASilentAgentGoesBackAndFailsAtLast(t *testing.T) {
	both(t, func(c *jobs.Config) { c.Lease = 200 * time.Millisecond }, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		w.emit("a")
		for attempt := 1; attempt <= 2; attempt++ {
			if work := w.take("validator", "silent"); work.Attempt != attempt || work.Item.RetryCount != attempt-1 {
				t.Errorf("attempt: got %d with %d retries, want %d", work.Attempt, work.Item.RetryCount, attempt)
			}
		}
		testutil.Eventually(t, "the item has failed and the job has ended", func() bool {
			if _, _, err := w.Take(w.ctx, "validator", "other", 1); err != nil {
				t.Fatal(err)
			}
			got := testutil.Must(w.Get(w.ctx, j.ID))(t)
			return got.Status == jobs.Completed && got.Items.Failed == 1
		})
		if it, err := w.Item(w.ctx, j.ID, "a"); err != nil || it.Status != jobs.ItemFailed || it.RetryCount != 1 || it.LastError == "" {
			t.Errorf("the item: %+v, %v; want it failed after 2 attempts, and why", it, err)
		}
	})
}
