package jobs_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks/workqueue"
)

// An item that cannot be read is listed as failed, beside the others.
func TestDamagedItemIsListedAsFailed(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		w.take("creator", "c")
		q := workqueue.New(w.client.Redis(), "job:"+j.ID, workqueue.Config{CountLanes: true})
		for id, payload := range map[string]string{"item/good": `{"key":"good","text":"x"}`, "item/bad": `{"key":1`} {
			testutil.Must(q.Enqueue(w.ctx, workqueue.Item{ID: id, Kind: "validate", ResourceKeys: []string{"stage:validate"}, Payload: []byte(payload)}))(t)
		}
		page, err := w.Items(w.ctx, j.ID, jobs.ItemFilter{})
		if err != nil || len(page.Items) != 2 {
			t.Fatalf("items: got %+v, %v, want 2", page.Items, err)
		}
		bad, err := w.Item(w.ctx, j.ID, "bad")
		if err != nil || bad.Key != "bad" || bad.Status != jobs.ItemFailed || !strings.Contains(bad.LastError, "damaged") {
			t.Errorf("item: got %+v, %v, want a failed one with the reason", bad, err)
		}
		n := 0
		if err := w.EachItem(w.ctx, j.ID, func(jobs.Item) error { n++; return nil }); err != nil || n != 2 {
			t.Errorf("each item: got %d, %v, want 2", n, err)
		}
		if err := w.Sweep(w.ctx); err != nil { // it announces the work
			t.Fatal(err)
		}
		if work := w.take("validator", "v"); work.Key != "good" {
			t.Errorf("work: got %q, want good", work.Key)
		}
	})
}

// Another process has read the job before the edit.
func TestAgentsGetTheEditedContext(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		other, err := jobs.New(jobs.Config{Client: w.client, Pipelines: named})
		testutil.Ok(t, err)
		j := w.create(jobs.Request{Context: json.RawMessage(`{"year":1}`)})
		testutil.Ok(t, w.Release(w.ctx, w.take("creator", "c")))
		j, err = w.Get(w.ctx, j.ID)
		testutil.Ok(t, err)
		testutil.Must(other.Edit(w.ctx, j.ID, j.Version, jobs.Edit{Context: json.RawMessage(`{"year":2}`)}))(t)
		if work := w.take("creator", "c"); string(work.Context) != `{"year":2}` {
			t.Errorf("context: got %s, want the edited one", work.Context)
		}
	})
}

// A job comes after one that has failed and was deleted before anybody looked.
func TestJobAfterADeletedFailedOneIsCancelled(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		other, err := jobs.New(jobs.Config{Client: w.client, Pipelines: named}) // does not wake w
		testutil.Ok(t, err)
		first := w.create(jobs.Request{})
		next := w.create(jobs.Request{After: []string{first.ID}})
		anyway := w.create(jobs.Request{After: []string{first.ID}, OnFailure: jobs.OnFailureRun})
		if _, _, err := other.Cancel(w.ctx, first.ID, false); err != nil {
			t.Fatal(err)
		}
		testutil.Ok(t, other.Delete(w.ctx, first.ID))
		if got := w.until(next.ID, jobs.Cancelled); !strings.Contains(got.ErrorMessage, "is cancelled") {
			t.Errorf("error: got %q", got.ErrorMessage)
		}
		w.until(anyway.ID, jobs.Processing)
		if _, err := w.Get(w.ctx, first.ID); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("the first job: got %v, want %v", err, jobs.ErrNotFound)
		}
	})
}

// gone are documents that are removed while a job is created.
type gone struct{ *documents }

func (gone) Open(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist }

func TestCreateSaysThatTheDocumentIsGone(t *testing.T) {
	both(t, func(c *jobs.Config) { c.Documents = gone{c.Documents.(*documents)} }, func(t *testing.T, w *world) {
		req := jobs.Request{Prompt: "x", IdempotencyKey: "k", Document: &jobs.Document{Name: "a.pdf", Hash: "h", Size: 1}}
		for range 2 { // the second call creates a job again, because none exists
			if _, _, err := w.Create(w.ctx, req); !errors.As(err, new(*jobs.FieldError)) || !strings.Contains(err.Error(), "send it again") {
				t.Errorf("create: got %v, want that the document must be sent again", err)
			}
		}
		if page, err := w.List(w.ctx, jobs.Filter{}); err != nil || len(page.Jobs) != 0 {
			t.Errorf("jobs: got %d, %v, want none", len(page.Jobs), err)
		}
	})
}
