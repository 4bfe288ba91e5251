package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/jobs"
	"muster/jobs/document"
)

// post sends JSON, or what is given as bytes.
func post(t *testing.T, h http.Handler, method, path string, body any, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	data, ok := body.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost:8000"+path, bytes.NewReader(data))
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

type fieldsOf map[string]any

func decode(t *testing.T, w *httptest.ResponseRecorder) fieldsOf {
	t.Helper()
	var v fieldsOf
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return v
}

func TestStatusesOfJobs(t *testing.T) {
	t.Parallel()
	cfg, _ := faked(t)
	h := handler(t, cfg)
	for _, c := range []struct {
		method, path, body string
		want               int
		says               string
	}{
		{"POST", "/jobs", `{"prompt": " \n"}`, 400, `"location":"body.prompt"`},
		{"POST", "/jobs", `{"prompt": "p", "context": [1]}`, 400, `"location":"body.context"`},
		{"POST", "/jobs", `{"prompt": "p", "stuck_after": "soon"}`, 400, `"location":"body.stuck_after"`},
		{"POST", "/jobs", `{"prompt": "p"`, 400, `invalid JSON`},
		{"POST", "/jobs", ``, 400, `"location":"body"`},
		{"POST", "/jobs", `{"prompt": "p", "document_url": "http://127.0.0.1/x"}`, 400, `"location":"body.document_url"`},
		{"GET", "/jobs/not%20an%20id", ``, 400, `"location":"path.id"`},
		{"GET", "/jobs/not-a-uuid", ``, 404, "no such job"},
		{"GET", "/jobs/" + noJob, ``, 404, "no such job"},
		{"GET", "/jobs/scrape_a_b_1234", ``, 404, "no such job"},
		{"GET", "/jobs/" + aJob, ``, 200, `"progress_percent":40`},
		{"GET", "/jobs?limit=0", ``, 400, `"location":"query.limit"`},
		{"GET", "/jobs?limit=101", ``, 400, `"location":"query.limit"`},
		{"GET", "/jobs?offset=-1", ``, 400, `"location":"query.offset"`},
		{"GET", "/jobs?status=done", ``, 400, `created, processing, completed, failed, cancelled, pending`},
		{"GET", "/jobs?state=done", ``, 400, `"location":"query.state"`},
		{"GET", "/jobs?status=created&status=failed", ``, 200, `"total":1`},
		{"GET", "/jobs?kind=pipeline", ``, 400, `"location":"query.kind"`},
		{"GET", "/v1/jobs?limit=1001", ``, 400, `"location":"query.limit"`},
		{"GET", "/v1/jobs?context=acme", ``, 400, `KEY=VALUE`},
		{"GET", "/v1/jobs?context=customer=a&context=customer=b", ``, 400, `"location":"query.context"`},
		{"GET", "/v1/jobs/stuck", ``, 200, `{"data":[{`},
		{"GET", "/v1/jobs/daily", ``, 200, `{"data":[{`},
		{"GET", "/v1/reviews", ``, 200, `"key":"a/b"`},
		{"GET", "/v1/jobs?cursor=abc", ``, 400, `"location":"query.cursor"`},
		{"GET", "/jobs/stuck", ``, 200, "no agent of role creator"},
		{"GET", "/jobs/" + aJob + "/progress", ``, 200, `"eta_seconds":60`},
		{"GET", "/jobs/" + noJob + "/progress", ``, 404, "no such job"},
		{"GET", "/jobs/" + aJob + "/report", ``, 200, "a report as json"},
		{"GET", "/jobs/" + aJob + "/report?format=text", ``, 200, "a report as text"},
		{"GET", "/jobs/" + aJob + "/report?format=pdf", ``, 400, `"location":"query.format"`},
		{"GET", "/jobs/" + noJob + "/report", ``, 404, "no such job"},
		{"GET", "/v1/jobs/" + aJob + "/items/a%2Fb", ``, 200, `"key":"a/b"`},
		{"GET", "/v1/jobs/" + aJob + "/items/c", ``, 404, "no such item"},
		{"GET", "/v1/jobs/" + aJob + "/items?status=done", ``, 400, `"location":"query.status"`},
		{"GET", "/v1/jobs/" + noJob + "/document", ``, 404, "no such job"},
		{"GET", "/stats/daily", ``, 200, `"jobs_created":2`},
		{"GET", "/stats/daily?days=0", ``, 400, `"location":"query.days"`},
		{"GET", "/stats/daily?days=31", ``, 400, `"location":"query.days"`},
		{"GET", "/stats/daily?days=7;DROP", ``, 400, `"location":"query.days"`},
		{"GET", "/status", ``, 200, `"completed":2500`},
		{"GET", "/v1/pipelines", ``, 200, `"timeout":"1h0m0s"`},
		{"GET", "/v1/pipelines/nowhere", ``, 404, "no pipeline"},
		{"POST", "/v1/jobs/" + aJob + "/items/k/decide", `{"accept": false}`, 400, `"location":"body.reason"`},
		{"PATCH", "/v1/jobs/" + aJob, `{"priority": 1}`, 400, `"location":"header.If-Match"`},
		{"PUT", "/jobs", `{}`, 405, "GET, HEAD, POST"},
		{"GET", "/nowhere", ``, 404, "/openapi.json"},
	} {
		w := post(t, h, c.method, c.path, []byte(c.body))
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %s: got %d %s, want %d and %q", c.method, c.path, c.body, w.Code, w.Body, c.want, c.says)
		}
		if c.want >= 400 && w.Header().Get("Content-Type") != problemType {
			t.Errorf("%s %s: got %s, want a problem", c.method, c.path, w.Header().Get("Content-Type"))
		}
	}
	w := post(t, h, "POST", "/jobs", []byte("prompt=p"), header("Content-Type", "application/x-www-form-urlencoded"))
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("a form without files: got %d %s, want 415", w.Code, w.Body)
	}
	for path, contentType := range map[string][]string{
		"/jobs": {"text/plain"}, "/v1/agents": {"text/plain"}, "/v1/webhooks": {"application/xml"}, "/v1/jobs/" + aJob + "/stages/create/fail": {"multipart/form-data; boundary=x"},
	} {
		w := post(t, h, "POST", path, []byte("{}"), func(r *http.Request) { r.Header["Content-Type"] = contentType })
		if w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%s with Content-Type %q: got %d %s, want 415", path, contentType, w.Code, w.Body)
		}
	}
}

// What the services refuse has a status that clients can act on.
func TestErrorsOfTheServices(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	job1 := "/v1/jobs/" + aJob
	for _, c := range []struct {
		err          error
		method, path string
		body         string
		want         int
	}{
		{jobs.ErrTerminal, "DELETE", job1, ``, 409},
		{jobs.ErrTerminal, "POST", job1 + "/cancel", ``, 409},
		{jobs.ErrTerminal, "POST", job1 + "/retry", ``, 409},
		{jobs.ErrTerminal, "POST", job1 + "/stages/create/complete", ``, 409},
		{jobs.ErrTerminal, "POST", job1 + "/stages/create/fail", `{"error":"broken"}`, 409},
		{fmt.Errorf("edit: %w", jobs.ErrStale), "PATCH", job1, `{"priority":1}`, 412},
		{jobs.ErrNotReview, "POST", job1 + "/items/k/decide", `{"accept":true}`, 409},
		{jobs.ErrMismatch, "POST", "/jobs", `{"prompt":"p"}`, 422},
		{jobs.ErrExists, "POST", "/jobs", `{"prompt":"p"}`, 409},
		{&jobs.FieldError{Field: "pipeline", Why: "no pipeline x"}, "POST", "/jobs", `{"prompt":"p"}`, 400},
		{&jobs.FieldError{Field: "cursor", Why: "old"}, "GET", "/v1/jobs", ``, 400},
		{fmt.Errorf("x: %w", document.ErrDownload), "POST", "/jobs", `{"prompt":"p"}`, 502},
		{errors.New("a script has a fault"), "GET", "/jobs", ``, 500},
		{fmt.Errorf("list: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), "GET", "/jobs", ``, 503},
		{fmt.Errorf("list: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), "GET", "/status", ``, 503},
	} {
		f.jobs.err = c.err
		w := post(t, h, c.method, c.path, []byte(c.body), header("If-Match", `"3"`))
		if w.Code != c.want {
			t.Errorf("%s %s with %v: got %d %s, want %d", c.method, c.path, c.err, w.Code, w.Body, c.want)
		}
		if got := decode(t, w); c.want >= 400 && (got["code"] == "" || c.want == 500 && strings.Contains(w.Body.String(), "script")) {
			t.Errorf("%s %s with %v: got %s, want a code and no internal text", c.method, c.path, c.err, w.Body)
		}
		if retry := w.Header().Get("Retry-After"); (retry != "") != (c.want == 503) {
			t.Errorf("%s %s with %v: got Retry-After %q", c.method, c.path, c.err, retry)
		}
	}
}

func TestCreateJob(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }))
	defer files.Close()
	cfg.Documents = documents(t, 1000, files.Listener.Addr().String())
	h := handler(t, cfg)
	w := post(t, h, "POST", "/jobs", []byte(`{"prompt":"Do it","pipeline":"default","context":{"customer":"ac\u00e9me"},"priority":-7,"labels":["a"],
		"after":["`+otherJob+`"],"on_failure":"run","at":"2026-12-01T10:00:00Z","stuck_after":"5m","dedupe":"allow","document_url":"`+files.URL+`/d.pdf"}`),
		header("Idempotency-Key", "order 4711"))
	got := decode(t, w)
	if w.Code != http.StatusCreated || got["job_id"] != aJob || got["prompt"] != "Do it" || w.Header().Get("Location") != "/v1/jobs/"+aJob {
		t.Errorf("got %d %v %v, want 201 and the job", w.Code, w.Header(), got)
	}
	r := f.jobs.request
	if r.Prompt != "Do it" || string(r.Context) != `{"customer":"ac\u00e9me"}` || r.Priority != -7 || !slices.Equal(r.After, []string{otherJob}) || r.OnFailure != "run" ||
		!r.At.Equal(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)) || r.StuckAfter != 5*time.Minute || r.Dedupe != "allow" || r.IdempotencyKey != "order 4711" ||
		r.Document == nil || r.Document.Source != files.URL+"/d.pdf" {
		t.Errorf("got %+v, want what was sent", r)
	}
	f.jobs.joined = true
	if w := post(t, h, "POST", "/jobs", fieldsOf{"prompt": "p"}); w.Code != http.StatusOK || decode(t, w)["duplicate"] != true {
		t.Errorf("a joined job: got %d %s, want 200 and duplicate", w.Code, w.Body)
	}
}

// part is a part of a form; a name with a file has a file name.
type part struct{ name, file, text string }

func formOf(t *testing.T, parts ...part) ([]byte, func(*http.Request)) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for _, p := range parts {
		create := m.CreateFormField
		if p.file != "" {
			create = func(name string) (io.Writer, error) { return m.CreateFormFile(name, p.file) }
		}
		w, err := create(p.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, p.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), header("Content-Type", m.FormDataContentType())
}

// stored returns the hash of a document with this content, or "" if it is not stored.
func stored(t *testing.T, cfg Config, content string) string {
	t.Helper()
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	f, err := cfg.Documents.Open(hash)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	return hash
}

func TestCreateJobWithAForm(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	body, as := formOf(t, part{name: "document", file: `C:\temp\..\a b.pdf`, text: "content"}, part{name: "prompt", text: "Do it"},
		part{name: "context", text: `{"a":1}`}, part{name: "priority", text: "5"}, part{name: "labels", text: "x"}, part{name: "labels", text: "y"})
	if w := post(t, h, "POST", "/jobs", body, as); w.Code != http.StatusCreated {
		t.Fatalf("got %d %s, want 201", w.Code, w.Body)
	}
	r := f.jobs.request
	if r.Prompt != "Do it" || string(r.Context) != `{"a":1}` || r.Priority != 5 || !slices.Equal(r.Labels, []string{"x", "y"}) ||
		r.Document == nil || r.Document.Name != "a b.pdf" || stored(t, cfg, "content") != r.Document.Hash {
		t.Errorf("got %+v, want what was sent", r)
	}
	prompt, doc := part{name: "prompt", text: "p"}, part{name: "document", file: "d", text: "c"}
	for what, c := range map[string]struct {
		parts []part
		want  int
		at    string
	}{
		"no prompt":         {[]part{doc}, 400, "body.prompt"},
		"bad context":       {[]part{prompt, {name: "context", text: "{"}}, 400, "body.context"},
		"context no object": {[]part{prompt, {name: "context", text: "[]"}}, 400, "body.context"},
		"bad priority":      {[]part{prompt, {name: "priority", text: "high"}}, 400, "body.priority"},
		"prompt twice":      {[]part{prompt, prompt}, 400, "body.prompt"},
		"document twice":    {[]part{prompt, doc, doc}, 400, "body.document"},
		"two documents":     {[]part{prompt, doc, {name: "document_url", text: "https://x.example/"}}, 400, "body.document_url"},
		"NUL":               {[]part{{name: "prompt", text: "a\x00"}}, 400, "body.prompt"},
		"invalid UTF-8":     {[]part{{name: "prompt", text: "a\xff"}}, 400, "body.prompt"},
		"unknown field":     {[]part{prompt, {name: "promt", text: "x"}}, 400, "body.promt"},
		"large prompt":      {[]part{{name: "prompt", text: strings.Repeat("x", 1<<20+1)}}, 413, "body.prompt"},
		"large document":    {[]part{prompt, {name: "document", file: "d", text: strings.Repeat("x", 1001)}}, 413, "body.document"},
		"many parts":        {slices.Repeat([]part{{name: "labels", text: "x"}}, maxParts+1), 400, "body"},
	} {
		body, as := formOf(t, c.parts...)
		w := post(t, h, "POST", "/jobs", body, as)
		if w.Code != c.want || !strings.Contains(w.Body.String(), `"location":"`+c.at+`"`) {
			t.Errorf("%s: got %d %s, want %d at %s", what, w.Code, w.Body, c.want, c.at)
		}
	}
	doc.text = "refused"
	for what, parts := range map[string][]part{
		"unknown field": {{name: "promt", text: "x"}, doc},
		"blank prompt":  {{name: "prompt", text: " "}, doc},
		"stuck_after":   {{name: "stuck_after", text: "soon"}, doc, prompt},
		"two documents": {{name: "document_url", text: "https://x.example/"}, doc, prompt},
	} {
		body, as := formOf(t, parts...)
		if w := post(t, h, "POST", "/jobs", body, as); w.Code != http.StatusBadRequest || stored(t, cfg, doc.text) != "" {
			t.Errorf("%s before the document: got %d and stored %q, want 400 and nothing", what, w.Code, stored(t, cfg, doc.text))
		}
	}
	body, as = formOf(t, prompt, doc)
	for n := range len(body) - 4 { // the last line break may be missing, and the last two hyphens are needed
		if w := post(t, h, "POST", "/jobs", body[:n], as); w.Code != http.StatusBadRequest {
			t.Fatalf("the first %d of %d bytes: got %d %s, want 400", n, len(body), w.Code, w.Body)
		}
	}
}

func TestListFilter(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	w := ask(t, h, "GET", "/v1/jobs?status=pending&status=failed&kind=pipeline&name=default&label=x&offset=5&context=customer=acme&context=a.b=1")
	got := f.jobs.filter
	if w.Code != 200 || got.Limit != 50 || got.Offset != 5 || !got.Pending || !slices.Equal(got.Statuses, []jobs.Status{jobs.Failed}) ||
		got.Kind != "pipeline" || got.Name != "default" || got.Label != "x" || len(got.Context) != 2 || got.Context["customer"] != "acme" || got.Context["a.b"] != "1" {
		t.Errorf("got %d and %+v, want what was asked for", w.Code, got)
	}
	next, _ := decode(t, w)["next"].(string)
	if next == "" || strings.Contains(next, "1-2") {
		t.Fatalf("got the cursor %q, want one that says nothing", next)
	}
	if w := ask(t, h, "GET", "/v1/jobs?cursor="+next); w.Code != 200 || f.jobs.filter.Cursor != "1-2" {
		t.Errorf("got %d and the cursor %q, want 200 and that of the page before", w.Code, f.jobs.filter.Cursor)
	}
	if w := ask(t, h, "GET", "/v1/jobs/"+aJob+"/items?cursor="+next); w.Code != 400 {
		t.Errorf("a cursor of jobs for items: got %d, want 400", w.Code)
	}
}

// An empty list would say that there is no such job.
func TestListByAKeyThatNoPipelineDeclares(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	for query, want := range map[string]string{
		"context=custmer=acme":             "declared are a.b, customer",
		"context=customer=a&context=x=1":   "declares x",
		"name=other&context=customer=acme": "no pipeline declares keys",
	} {
		w := ask(t, h, "GET", "/v1/jobs?"+query)
		if w.Code != 400 || !strings.Contains(w.Body.String(), want) || len(f.jobs.filter.Context) > 0 {
			t.Errorf("%s: got %d %s, want 400 with %q", query, w.Code, w.Body, want)
		}
	}
}

func TestJobCommands(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	w := ask(t, h, "GET", "/jobs/"+aJob)
	got := decode(t, w)
	if w.Header().Get("ETag") != `"3"` || got["creator_status"] != "completed" || got["validator_status"] != "processing" || got["total_tokens"] != 1500.0 || got["total_requests"] != 2.0 {
		t.Errorf("got %v %v, want the states of both stages and the usage", w.Header(), got)
	}
	if w := post(t, h, "PATCH", "/v1/jobs/"+aJob, fieldsOf{"priority": 9, "labels": []string{}}, header("If-Match", w.Header().Get("ETag"))); w.Code != 200 ||
		f.jobs.version != 3 || *f.jobs.edit.Priority != 9 || f.jobs.edit.Labels == nil {
		t.Errorf("edit: got %d, %+v of version %d", w.Code, f.jobs.edit, f.jobs.version)
	}
	if w := post(t, h, "PATCH", "/v1/jobs/"+aJob, fieldsOf{}, header("If-Match", "three")); w.Code != 400 {
		t.Errorf("edit of version three: got %d, want 400", w.Code)
	}
	if w := ask(t, h, "DELETE", "/jobs/"+aJob+"?cleanup=true"); w.Code != 200 || !f.jobs.cleanup || f.jobs.deleted || decode(t, w)["status"] != "cancelled" {
		t.Errorf("cancel: got %d %s, cleanup %v, deleted %v", w.Code, w.Body, f.jobs.cleanup, f.jobs.deleted)
	}
	if w := ask(t, h, "DELETE", "/v1/jobs/"+aJob); w.Code != 204 || !f.jobs.deleted {
		t.Errorf("delete: got %d %s, deleted %v", w.Code, w.Body, f.jobs.deleted)
	}
	if w := ask(t, h, "POST", "/v1/jobs/"+aJob+"/retry"); w.Code != 200 || decode(t, w)["retried"] != 3.0 {
		t.Errorf("retry: got %d %s, want 3 items", w.Code, w.Body)
	}
	if w := post(t, h, "POST", "/v1/jobs/"+aJob+"/stages/create/fail", fieldsOf{"error": "broken"}); w.Code != 200 || f.jobs.failure != "broken" {
		t.Errorf("fail a stage: got %d %s, with %q", w.Code, w.Body, f.jobs.failure)
	}
	if w := post(t, h, "POST", "/v1/jobs/"+aJob+"/items/k/decide", fieldsOf{"accept": false, "reason": "wrong"}); w.Code != 200 || f.jobs.decision.Accept || f.jobs.decision.Reason != "wrong" || f.jobs.decision.By != "open" {
		t.Errorf("decide: got %d %s, with %+v", w.Code, w.Body, f.jobs.decision)
	}
}

func TestCompareJobs(t *testing.T) {
	t.Parallel()
	cfg, _ := faked(t)
	h := handler(t, cfg)
	w := ask(t, h, "GET", "/v1/jobs/"+aJob+"/compare/"+otherJob)
	if list, _ := decode(t, w)["differences"].([]any); len(list) != 2 || !strings.Contains(w.Body.String(), `"same":1`) {
		t.Errorf("compare: got %s, want two differences, and one that is the same counted", w.Body)
	}
	if w := ask(t, h, "GET", "/v1/jobs/"+aJob+"/compare/"+noJob); w.Code != 404 {
		t.Errorf("compare with no job: got %d, want 404", w.Code)
	}
}

// A document is never shown by a browser.
func TestDocumentIsAnAttachment(t *testing.T) {
	t.Parallel()
	cfg, _ := faked(t)
	w := ask(t, handler(t, cfg), "GET", "/v1/jobs/"+aJob+"/document")
	h := w.Header()
	if w.Code != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename=") || strings.Contains(h.Get("Content-Disposition"), "..") ||
		h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("Content-Length") != "25" {
		t.Errorf("got %d %v, want an attachment of 25 bytes", w.Code, h)
	}
}

// A report that fails later is cut off, so that a client does not take a part for the whole.
func TestReportThatFailsIsCutOff(t *testing.T) {
	t.Parallel()
	cfg, _ := faked(t)
	cfg.Reports = fakeReports{fail: errors.New("Redis is gone")}
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("got %v, want an aborted answer", r)
		}
	}()
	ask(t, handler(t, cfg), "GET", "/jobs/"+aJob+"/report")
}
