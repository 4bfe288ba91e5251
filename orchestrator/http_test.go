package orchestrator

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/metrics"
)

// Two agents process a job with a document. All requests use HTTP and the production services.
func TestJobOverHTTP(t *testing.T) {
	t.Parallel()
	w := serveSystem(t)
	creator, validator := w.register("creator"), w.register("validator")
	const text = "# Requirements\n"
	body, media := form(t, text, map[string]string{"prompt": "List them", "context": `{"customer":"acme"}`, "priority": "5"}, map[string]string{"labels": "first"})
	made := w.ask("POST", "/jobs", body, "Content-Type", media, "Idempotency-Key", "order-1")
	if status := made.text("status"); status != "created" && status != "processing" { // an agent can get it at once
		t.Errorf("got status %q of a new job", status)
	}
	made.has(t, "create", 201, map[string]string{
		"kind": "pipeline", "name": "default", "document.name": "spec.md", "document.size": "15", "document.type": "text/markdown",
		"context.customer": "acme", "priority": "5", "labels.0": "first", "prompt": "List them",
	})
	id := made.text("job_id")
	if loc := made.head.Get("Location"); loc != "/v1/jobs/"+id {
		t.Errorf("got Location %q, want /v1/jobs/%s", loc, id)
	}
	t.Run("asked for again", func(t *testing.T) { w.again(t, id, body, media) })
	t.Run("work", func(t *testing.T) { w.work(t, id, creator, validator) })
	t.Run("read", func(t *testing.T) { w.read(t, id, text) })
	t.Run("ended", func(t *testing.T) { w.ended(t, id) })
}

// Each tick of a schedule of jobs creates a job, also with the work of an earlier job.
func TestScheduleCreatesJobs(t *testing.T) {
	t.Parallel()
	w := serveSystem(t)
	trigger := func(prompt string) (workflow string) {
		w.ask("PUT", "/v1/schedules/nightly", map[string]any{"spec": "@yearly", "send": map[string]any{
			"task": "jobs.create", "queue": "orchestrator", "input": map[string]any{"prompt": prompt, "labels": []string{"nightly"}},
		}}).has(t, "put", 204, nil)
		got := w.ask("POST", "/v1/schedules/nightly/trigger", nil)
		got.has(t, "trigger", 202, nil)
		return got.text("id")
	}
	trigger("List them")
	trigger("List them")
	testutil.Eventually(t, "two jobs", func() bool {
		list, _ := w.ask("GET", "/v1/jobs?label=nightly", nil).at("data").([]any)
		return len(list) == 2
	})
	run := tasks.Attach[string](w.system.Client, trigger(" "))
	testutil.Eventually(t, "the failure of an invalid request", func() bool {
		_, err := run.Wait(t.Context())
		f, failed := errors.AsType[*tasks.Failure](err)
		return failed && f.Attempts == 1 && strings.Contains(f.Message, "prompt: must not be empty")
	})
}

// again repeats the request that created a job.
func (w *web) again(t *testing.T, id, body, media string) {
	t.Helper()
	w.ask("POST", "/jobs", body, "Content-Type", media, "Idempotency-Key", "order-1").has(t, "the same key and request", 200, map[string]string{"job_id": id, "duplicate": "true"})
	w.ask("POST", "/jobs", body, "Content-Type", media).has(t, "the same work", 200, map[string]string{"job_id": id, "duplicate": "true"})
	w.ask("POST", "/jobs", map[string]any{"prompt": "other"}, "Idempotency-Key", "order-1").has(t, "the same key, another request", 422, nil)
	rejected, media := form(t, "# Requirements\n", map[string]string{"prompt": "List them", "context": `{"customer": "acme"}`, "dedupe": "reject"}, nil)
	w.ask("POST", "/jobs", rejected, "Content-Type", media).has(t, "the same work, to be refused", 409, nil)
	w.ask("POST", "/jobs", map[string]any{"prompt": "p", "pipeline": "nowhere"}).has(t, "no pipeline", 400, map[string]string{"errors.0.location": "body.pipeline"})
	w.ask("POST", "/jobs", map[string]any{"prompt": "p", "after": []string{"x"}}).has(t, "no job", 400, map[string]string{"errors.0.location": "body.after"})
	large, media := form(t, strings.Repeat("x", 1<<20+1), map[string]string{"prompt": "p"}, nil)
	w.ask("POST", "/jobs", large, "Content-Type", media).has(t, "a large document", 413, map[string]string{"errors.0.location": "body.document"})
	none, media := form(t, "", map[string]string{"prompt": "p"}, nil)
	w.ask("POST", "/jobs", none, "Content-Type", media).has(t, "an empty document", 400, map[string]string{"errors.0.location": "body.document"})
	w.ask("POST", "/jobs", map[string]any{"prompt": "p", "document_url": w.url + "/health"}).has(t, "a document on this machine", 400, map[string]string{"errors.0.location": "body.document_url"})
}

// work does the work of the agents: two items are integrated, one is rejected and one fails permanently.
func (w *web) work(t *testing.T, id, creator, validator string) {
	t.Helper()
	a := w.lease(creator)
	a.has(t, "lease", 200, map[string]string{
		"stage": "create", "takes": "job", "role": "creator", "attempt": "1", "job.id": id, "job.prompt": "List them", "job.context.customer": "acme",
		"job.document.name": "spec.md", "job.document.url": "/v1/jobs/" + id + "/document",
	})
	w.settle(a, "heartbeat", map[string]any{"usage": map[string]int{"tokens": 10}}).has(t, "heartbeat", 200, nil)
	w.settle(held{a.reply, validator}, "heartbeat", nil).has(t, "heartbeat of another agent", 403, nil)
	w.settle(a, "items", map[string]any{"items": []map[string]any{{"key": "a/1", "text": "one"}, {"key": "b", "text": "two", "labels": map[string]bool{"nowhere": true}}}}).
		has(t, "a label that the pipeline does not have", 400, map[string]string{"errors.0.location": "body.items[1].labels"})
	items := []map[string]any{{"key": "a/1", "text": "one"}, {"key": "b", "text": "=2+2", "citations": []string{"c1"}}}
	w.settle(a, "items", map[string]any{"items": items}).has(t, "items", 200, map[string]string{"added": "2"})
	w.settle(a, "items", map[string]any{"items": items}).has(t, "the same items", 200, map[string]string{"added": "0"})
	more := map[string]any{"items": []map[string]any{{"key": "c", "text": "three"}, {"key": "d", "text": "four"}}, "usage": map[string]int{"tokens": 100, "requests": 1}}
	w.settle(a, "complete", more).has(t, "complete", 200, nil)
	w.settle(a, "complete", more).has(t, "complete again", 200, nil)
	w.settle(a, "items", map[string]any{"items": items}).has(t, "items after the end", 409, nil)

	for range 4 {
		a := w.lease(validator)
		usage := map[string]int{"tokens": 5}
		switch key := a.text("item.key"); key {
		case "a/1", "b":
			w.settle(a, "complete", map[string]any{"item": map[string]any{"external_id": "x-" + key}, "usage": usage}).has(t, key, 200, nil)
		case "c":
			w.settle(a, "complete", map[string]any{"verdict": "maybe"}).has(t, "an unknown verdict", 400, map[string]string{"errors.0.location": "body.verdict"})
			w.settle(a, "complete", map[string]any{"verdict": "reject", "reason": "not one", "usage": usage}).has(t, key, 200, nil)
		case "d":
			w.settle(a, "fail", map[string]any{"error": "cannot be done", "permanent": true, "usage": usage}).has(t, key, 200, nil)
		default:
			t.Fatalf("got item %q in %s, want one of a/1, b, c, d", key, a.raw)
		}
	}
	w.becomes(id, "completed").has(t, "the job", 200, map[string]string{
		"items.total": "4", "items.integrated": "2", "items.rejected": "1", "items.failed": "1", "progress_percent": "100",
		"creator_status": "completed", "validator_status": "completed", "total_tokens": "120", "total_requests": "1",
	})
}

// read reads a completed job.
func (w *web) read(t *testing.T, id, text string) {
	t.Helper()
	job := "/v1/jobs/" + id
	w.ask("GET", job+"/progress", nil).has(t, "progress", 200, map[string]string{"status": "completed", "progress_percent": "100", "items.total": "4"})
	w.ask("GET", job+"/items/a%2F1", nil).has(t, "an item", 200, map[string]string{"status": "integrated", "external_id": "x-a/1", "job_id": id})
	w.ask("GET", job+"/items/none", nil).has(t, "no item", 404, nil)
	w.ask("GET", job+"/items?status=rejected", nil).has(t, "the rejected items", 200, map[string]string{"data.0.key": "c", "data.0.rejection_reason": "not one", "data.1": "<nil>"})
	w.ask("GET", job+"/items?status=failed", nil).has(t, "the failed items", 200, map[string]string{"data.0.key": "d", "data.0.last_error": "cannot be done", "data.1": "<nil>"})
	w.ask("GET", "/v1/jobs?context=customer=acme&status=completed", nil).has(t, "the list by context", 200, map[string]string{"data.0.id": id, "data.1": "<nil>"})
	w.ask("GET", "/v1/jobs?label=first&limit=1", nil).has(t, "the list by label", 200, map[string]string{"data.0.id": id, "next": "<nil>"})

	rec := httptest.NewRecorder()
	metrics.Handler(all{w.system.times.jobs, w.system.times.items}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for _, want := range []string{`muster_jobs_duration_seconds_count{status="completed"} 1`, `muster_jobs_item_duration_seconds_count{state="rejected"} 1`, `muster_jobs_item_duration_seconds_count{state="failed"} 1`} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("the metrics lack %s:\n%s", want, rec.Body)
		}
	}

	hash := w.ask("GET", job, nil).text("document.sha256")
	if has, err := w.system.Jobs.HasDocument(t.Context(), hash); !has || err != nil {
		t.Errorf("got %v, %v, want a document with a job", has, err)
	}
	document := w.ask("GET", job+"/document", nil)
	if document.code != 200 || document.raw != text || !strings.Contains(document.head.Get("Content-Disposition"), "spec.md") {
		t.Errorf("document: got %d %q %v, want the uploaded document", document.code, document.raw, document.head)
	}
	w.ask("GET", job+"/report", nil).has(t, "report", 200, map[string]string{"item_list.3.job_id": id, "item_list.4": "<nil>"})
	if got := w.ask("GET", job+"/report?format=text", nil); got.code != 200 || !strings.Contains(got.raw, "List them") || !strings.Contains(got.raw, "x-a/1") {
		t.Errorf("report as text: got %d %s, want the prompt and the external IDs of items", got.code, got.raw)
	}
	rows, err := csv.NewReader(strings.NewReader(w.ask("GET", job+"/report?format=csv", nil).raw)).ReadAll()
	if err != nil || len(rows) != 5 || rows[0][0] != "key" {
		t.Errorf("report as CSV: got %v, %v, want a header and 4 rows", rows, err)
	}
	ids, types := w.events(id, "", "job.completed")
	if types[0] != "job.created" || len(ids) != len(types) {
		t.Errorf("events: got %v, want a list that begins with job.created, all with IDs", types)
	}
	rest, _ := w.events(id, ids[len(ids)-3], "job.completed")
	if len(rest) != 2 || rest[0] != ids[len(ids)-2] {
		t.Errorf("events after %s: got %v, want the last two of %v", ids[len(ids)-3], rest, ids)
	}
}

// ended sends requests for a finished job: first invalid ones, then valid ones.
func (w *web) ended(t *testing.T, id string) {
	t.Helper()
	job := "/v1/jobs/" + id
	now := w.ask("GET", job, nil)
	w.ask("DELETE", "/jobs/"+id, nil).has(t, "cancel", 409, nil)
	w.ask("POST", job+"/cancel", nil).has(t, "cancel", 409, nil)
	w.ask("POST", job+"/stages/create/complete", nil).has(t, "complete a stage", 409, nil)
	w.ask("POST", job+"/items/c/decide", map[string]any{"accept": true}).has(t, "decide", 409, nil)
	w.ask("PATCH", job, map[string]any{"priority": 1}, "If-Match", now.head.Get("ETag")).has(t, "edit", 409, nil)
	next := w.ask("POST", job+"/rerun", nil)
	next.has(t, "rerun", 201, map[string]string{"version_of": id, "generation": "2", "document.name": "spec.md"})
	second := next.text("id")
	w.ask("GET", job+"/compare/"+second, nil).has(t, "compare", 200, map[string]string{"counts.gone": "4", "differences.0.a.job_id": id})
	w.ask("DELETE", "/jobs/"+second+"?cleanup=true", nil).has(t, "cancel the next one", 200, map[string]string{"success": "true", "status": "cancelled", "cleanup": "false"})
	w.ask("GET", job+"/document", nil).has(t, "the document that both have", 200, nil)
	w.ask("POST", job+"/retry", map[string]any{"keys": []string{"none"}}).has(t, "retry of another item", 200, map[string]string{"retried": "0"})
	w.ask("POST", job+"/retry", nil).has(t, "retry", 200, map[string]string{"retried": "1"})
	w.ask("POST", job+"/pause", nil).has(t, "pause", 200, map[string]string{"status": "processing", "paused": "true"})
	w.ask("POST", job+"/resume", nil).has(t, "resume", 200, map[string]string{"status": "processing"})
	w.ask("POST", job+"/decisions", map[string]any{"accept": true}).has(t, "decide on all", 200, map[string]string{"decided": "0"})
	w.ask("POST", job+"/cancel", nil).has(t, "cancel the reopened one", 200, map[string]string{"status": "cancelled"})
	w.ask("POST", job+"/retry", nil).has(t, "retry of a cancelled one", 409, nil)
	w.ask("DELETE", job, nil).has(t, "delete", 204, nil)
	w.ask("GET", job, nil).has(t, "a job that was deleted", 404, nil)
	w.ask("GET", job+"/document", nil).has(t, "its document", 404, nil)
	if has, err := w.system.Jobs.HasDocument(t.Context(), now.text("document.sha256")); has || err != nil {
		t.Errorf("got %v, %v, want a document without a job", has, err)
	}
	if f, err := w.system.Documents.Open(now.text("document.sha256")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("document file: got %v, %v, want no file", f, err)
	}
}
