package orchestrator

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks"
	"muster/tasks/metrics"
)

// Two agents process a job with a document. All requests use HTTP and the production services, whose operations the package
// api tests: here their parts have to fit.
func TestJobOverHTTP(t *testing.T) {
	t.Parallel()
	w := serveSystem(t)
	creator, validator := w.register("creator"), w.register("validator")
	const text = "# Requirements\n"
	doc := testutil.Must(w.system.Documents.Put(t.Context(), "spec.md", strings.NewReader(text)))(t)
	j, _, err := w.system.Jobs.Create(t.Context(), jobs.Request{Prompt: "List them", Document: &doc})
	testutil.Ok(t, err)
	job := "/v1/jobs/" + j.ID
	a := w.lease(creator)
	a.has(t, "lease", 200, map[string]string{"stage": "create", "takes": "job", "job.id": j.ID, "job.document.url": job + "/document"})
	items := []map[string]any{{"key": "a/1", "text": "one"}, {"key": "b", "text": "two"}, {"key": "c", "text": "three"}}
	w.settle(a, "items", map[string]any{"items": items[:2]}).has(t, "items", 200, map[string]string{"added": "2"})
	w.settle(a, "items", map[string]any{"items": items[:2]}).has(t, "the same items", 200, map[string]string{"added": "0"})
	w.settle(a, "complete", map[string]any{"items": items, "usage": map[string]int{"tokens": 100, "requests": 1}}).has(t, "complete", 200, nil)
	for range items {
		a := w.lease(validator)
		switch key := a.text("item.key"); key {
		case "a/1":
			w.settle(a, "complete", map[string]any{"item": map[string]any{"external_id": "x-" + key}, "usage": map[string]int{"tokens": 5}}).has(t, key, 200, nil)
		case "b":
			w.settle(a, "complete", map[string]any{"verdict": "reject", "reason": "not one"}).has(t, key, 200, nil)
		default:
			w.settle(a, "fail", map[string]any{"error": "cannot be done", "permanent": true}).has(t, key, 200, nil)
		}
	}
	w.becomes(j.ID, "completed").has(t, "the job", 200, map[string]string{
		"items.total": "3", "items.integrated": "1", "items.rejected": "1", "items.failed": "1", "creator_status": "completed", "validator_status": "completed", "total_tokens": "105", "total_requests": "1",
	})
	rec := httptest.NewRecorder()
	metrics.Handler(all{w.system.times.jobs, w.system.times.items}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for where, c := range map[string]struct {
		text string
		want []string
	}{
		"metrics":  {rec.Body.String(), []string{`muster_jobs_duration_seconds_count{status="completed"} 1`, `muster_jobs_item_duration_seconds_count{state="integrated"} 1`, `muster_jobs_item_duration_seconds_count{state="rejected"} 1`, `muster_jobs_item_duration_seconds_count{state="failed"} 1`}},
		"document": {w.ask("GET", job+"/document", nil).raw, []string{text}},
		"report":   {w.ask("GET", job+"/report?format=text", nil).raw, []string{"List them", "x-a/1"}},
		"events":   {w.ask("GET", job+"/events?follow=false", nil).raw, []string{"event: job.created", "event: item.failed", "event: job.completed"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s: got no %s in %s", where, want, c.text)
			}
		}
	}

	// A document stays until the last of its jobs is deleted.
	w.ask("POST", job+"/rerun", nil).has(t, "rerun", 201, map[string]string{"version_of": j.ID, "document.name": "spec.md"})
	w.ask("DELETE", job, nil).has(t, "delete", 204, nil)
	next := w.ask("GET", "/jobs", nil)
	next.has(t, "the next one", 200, map[string]string{"jobs.0.version_of": j.ID, "total": "1"})
	id := next.text("jobs.0.id")
	w.ask("GET", "/v1/jobs/"+id+"/document", nil).has(t, "the document that both had", 200, nil)
	w.ask("DELETE", "/jobs/"+id+"?cleanup=true", nil).has(t, "cancel", 200, map[string]string{"status": "cancelled", "cleanup": "true"})
	if f, err := w.system.Documents.Open(doc.Hash); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("document file: got %v, %v, want no file", f, err)
	}
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
