package api

import (
	"bytes"
	"context"
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

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
)

// post sends body as JSON, or unchanged if it is bytes or a string.
func post(t *testing.T, h http.Handler, method, path string, body any, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	var data []byte
	switch body := body.(type) {
	case []byte:
		data = body
	case string:
		data = []byte(body)
	default:
		data = testutil.Must(json.Marshal(body))(t)
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
	cfg := served(t)
	h, f := handler(t, cfg), populate(t, cfg, "")
	for _, c := range []struct {
		method, path, body string
		want               int
		says               string
	}{
		{"POST", "/jobs", `{"prompt": " \n"}`, 400, `"location":"body.prompt"`},
		{"POST", "/jobs", `{"prompt": "p", "stuck_after": "soon"}`, 400, `"location":"body.stuck_after"`},
		{"POST", "/jobs", `{"prompt": "p"`, 400, `invalid JSON`},
		{"POST", "/jobs", ``, 400, `"location":"body"`},
		{"POST", "/jobs", `{"prompt": "p", "document_url": "http://127.0.0.1/x"}`, 400, `"location":"body.document_url"`},
		{"POST", "/jobs", `[]`, 400, `"location":"body"`},
		{"POST", "/jobs", `{"prompt": 4711}`, 400, `"location":"body.prompt"`},
		{"POST", "/jobs", `{"prompt": {"a": 1}}`, 400, `"location":"body.prompt"`},
		{"POST", "/jobs", `{"prompt": "a\u0000b"}`, 400, `"location":"body.prompt"`},
		{"POST", "/jobs", `{"prompt": "p", "promt": 1}`, 400, `"location":"body.promt"`},
		{"POST", "/jobs", `{"prompt": "p", "priority": 1.5}`, 400, `"location":"body.priority"`},
		{"POST", "/jobs", `{"prompt": "p", "priority": 1e308}`, 400, `"location":"body.priority"`},
		{"POST", "/jobs", `{"prompt": "p", "priority": ` + strings.Repeat("9", 5000) + `}`, 400, `"location":"body`},
		{"POST", "/jobs", `{"prompt": "p", "dedupe": "nonsense"}`, 400, `"location":"body.dedupe"`},
		{"POST", "/jobs", `{"prompt": "p", "labels": ["` + strings.Repeat("x", jobs.MaxLabel+1) + `"]}`, 400, `"location":"body.labels[0]"`},
		{"POST", "/v1/agents", `{"name": "a", "roles": ["r"], "x": "` + strings.Repeat("x", 2<<20) + `"}`, 413, `"location":"body"`},
		{"GET", "/jobs?status=%00", ``, 400, `"location":"query.status`},
		{"GET", "/v1/jobs?cursor=" + strings.Repeat("x", 5000), ``, 400, `"location":"query.cursor"`},
		{"GET", "/jobs/" + strings.Repeat("x", 5000), ``, 400, `"location":"path.id"`},
		{"GET", "/jobs/not-a-uuid", ``, 404, "no such job"},
		{"GET", "/jobs/scrape_a_b_1234", ``, 404, "no such job"},
		{"GET", "/jobs/" + f.job, ``, 200, `"creator_status":"processing"`},
		{"GET", "/jobs?limit=0", ``, 400, `"location":"query.limit"`},
		{"GET", "/jobs?offset=-1", ``, 400, `"location":"query.offset"`},
		{"GET", "/jobs?status=done", ``, 400, `created, processing, completed, failed, cancelled, pending`},
		{"GET", "/jobs?state=done", ``, 400, `"location":"query.state"`},
		{"GET", "/jobs?status=processing&status=failed", ``, 200, `"total":2`},
		{"GET", "/jobs?kind=pipeline", ``, 400, `"location":"query.kind"`},
		{"GET", "/v1/jobs?limit=1001", ``, 400, `"location":"query.limit"`},
		{"GET", "/v1/jobs?context=acme", ``, 400, `KEY=VALUE`},
		{"GET", "/v1/jobs?context=customer=a&context=customer=b", ``, 400, `"location":"query.context"`},
		{"GET", "/v1/jobs/stuck", ``, 200, `{"data":[`},
		{"GET", "/v1/jobs/daily", ``, 200, `{"data":[`},
		{"GET", "/v1/reviews", ``, 200, `"key":"a/b"`},
		{"GET", "/v1/jobs?cursor=abc", ``, 400, `"location":"query.cursor"`},
		{"GET", "/jobs/" + noJob + "/progress", ``, 404, "no such job"},
		{"GET", "/jobs/" + f.job + "/report", ``, 200, `"integrated_ids":[]`},
		{"GET", "/jobs/" + f.job + "/report?format=text", ``, 200, "OVERVIEW"},
		{"GET", "/jobs/" + f.job + "/report?format=csv", ``, 200, "a/b,"},
		{"GET", "/jobs/" + f.job + "/report?format=pdf", ``, 400, `"location":"query.format"`},
		{"GET", "/jobs/" + noJob + "/report", ``, 404, "no such job"},
		{"GET", "/v1/jobs/" + f.job + "/items/a%2Fb", ``, 200, `"key":"a/b"`},
		{"GET", "/v1/jobs/" + f.job + "/items/c", ``, 404, "no such item"},
		{"GET", "/v1/jobs/" + f.job + "/items?status=done", ``, 400, `"location":"query.status"`},
		{"GET", "/v1/jobs/" + noJob + "/document", ``, 404, "no such job"},
		{"GET", "/stats/daily", ``, 200, `"jobs_created":2`},
		{"GET", "/stats/daily?days=0", ``, 400, `"location":"query.days"`},
		{"GET", "/stats/daily?days=7;DROP", ``, 400, `"location":"query.days"`},
		{"GET", "/v1/pipelines", ``, 200, `"timeout":"1h0m0s"`},
		{"GET", "/v1/pipelines/nowhere", ``, 404, "no pipeline"},
		{"POST", "/v1/jobs/" + f.job + "/items/a%2Fb/decide", `{"accept": false}`, 400, `"location":"body.reason"`},
		{"PATCH", "/v1/jobs/" + f.job, `{"priority": 1}`, 400, `"location":"header.If-Match"`},
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
		"/jobs": {"text/plain"}, "/v1/agents": {"text/plain"}, "/v1/webhooks": {"application/xml"}, "/v1/jobs/" + f.job + "/stages/create/fail": {"multipart/form-data; boundary=x"},
	} {
		w := post(t, h, "POST", path, []byte("{}"), func(r *http.Request) { r.Header["Content-Type"] = contentType })
		if w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%s with Content-Type %q: got %d %s, want 415", path, contentType, w.Code, w.Body)
		}
	}
}

// Errors of the services have a status that clients can act on.
func TestErrorsOfTheServices(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer files.Close()
	cfg := servedOn(t, server.Client(), files.Listener.Addr().String())
	h, f := handler(t, cfg), populate(t, cfg, "")
	ended, _, err := cfg.Jobs.Create(t.Context(), jobs.Request{Prompt: "p", Dedupe: jobs.DedupeAllow})
	if err == nil {
		_, _, err = cfg.Jobs.Cancel(t.Context(), ended.ID, false)
	}
	testutil.Ok(t, err)
	job1, end1 := "/v1/jobs/"+f.job, "/v1/jobs/"+ended.ID
	for _, c := range []struct {
		method, path, body string
		want               int
		code               string
	}{
		{"DELETE", job1, ``, 409, "job_not_ended"},
		{"POST", end1 + "/cancel", ``, 409, "job_ended"},
		{"POST", end1 + "/retry", ``, 409, "job_ended"},
		{"POST", end1 + "/stages/create/complete", ``, 409, "job_ended"},
		{"POST", end1 + "/stages/create/fail", `{"error":"broken"}`, 409, "job_ended"},
		{"PATCH", job1, `{"priority":1}`, 412, "version_mismatch"},
		{"POST", job1 + "/items/s/decide", `{"accept":true}`, 409, "item_not_in_review"},
		{"POST", "/jobs", `{"prompt":"a"}`, 201, ""},
		{"POST", "/jobs", `{"prompt":"b"}`, 422, "idempotency_key_reused"},
		{"POST", "/v1/jobs", `{"prompt":"a","pipeline":"none"}`, 400, "invalid_request"},
		{"GET", "/v1/jobs?cursor=" + makeCursor("jobs", "old"), ``, 400, "invalid_request"},
		{"POST", "/jobs", `{"prompt":"c","document_url":"` + files.URL + `"}`, 502, "download_failed"},
	} {
		w := post(t, h, c.method, c.path, []byte(c.body), header("If-Match", `"77"`), header("Idempotency-Key", "order"))
		if w.Code != c.want || c.code != "" && decode(t, w)["code"] != c.code {
			t.Errorf("%s %s: got %d %s, want %d %s", c.method, c.path, w.Code, w.Body, c.want, c.code)
		}
	}
	if w := post(t, h, "POST", "/jobs", []byte(`{"prompt":"a","dedupe":"reject"}`)); w.Code != http.StatusConflict || decode(t, w)["code"] != "job_exists" {
		t.Errorf("the same work: got %d %s, want 409 job_exists", w.Code, w.Body)
	}
	server.Kill()
	for _, path := range []string{"/jobs", "/status", job1} {
		if w := ask(t, h, "GET", path); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || decode(t, w)["code"] != "unavailable" {
			t.Errorf("%s without Redis: got %d %v %s, want 503 and a time", path, w.Code, w.Header(), w.Body)
		}
	}
}

func TestProblemsOfErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("a script has a fault"), 500},
		{fmt.Errorf("edit: %w", jobs.ErrStale), 412},
		{fmt.Errorf("fetch: %w", document.ErrDownload), 502},
		{fmt.Errorf("poll: %w", agent.ErrTooMany), 429},
		{fmt.Errorf("store: %w", &document.TooLargeError{Name: "d", Limit: 1}), 413},
		{fmt.Errorf("list: %w", context.DeadlineExceeded), 503},
		{fmt.Errorf("list: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), 503},
	} {
		p := problemOf(c.err, "body.")
		if p.Status != c.want || p.Code == "" || c.want == 500 && strings.Contains(p.Detail, "script") {
			t.Errorf("%v: got %+v, want %d, a code and no internal text", c.err, p, c.want)
		}
	}
	if p := problemOf(&jobs.FieldError{Field: "cursor", Why: "old"}, "query."); p.Status != 400 || p.Errors[0].Location != "query.cursor" {
		t.Errorf("got %+v, want 400 at query.cursor", p)
	}
}

func TestCreateJob(t *testing.T) {
	t.Parallel()
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }))
	defer files.Close()
	cfg := servedOn(t, redistest.New(t), files.Listener.Addr().String())
	h := handler(t, cfg)
	first := decode(t, post(t, h, "POST", "/jobs", fieldsOf{"prompt": "p"}))["id"].(string)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	body := []byte(`{"prompt":"Do it","pipeline":"default","context":{"customer":"ac\u00e9me"},"priority":-7,"labels":["a"],
		"after":["` + first + `"],"on_failure":"run","at":"` + at.Format(time.RFC3339) + `","stuck_after":"5m","dedupe":"allow","document_url":"` + files.URL + `/d.pdf"}`)
	w := post(t, h, "POST", "/jobs", body, header("Idempotency-Key", "order 4711"))
	got := decode(t, w)
	id, _ := got["job_id"].(string)
	if w.Code != http.StatusCreated || got["prompt"] != "Do it" || w.Header().Get("Location") != "/v1/jobs/"+id {
		t.Errorf("got %d %v %v, want 201 and the job", w.Code, w.Header(), got)
	}
	j, err := cfg.Jobs.Get(t.Context(), id)
	if err != nil || !strings.Contains(string(j.Context), "customer") || j.Priority != -7 || !slices.Equal(j.Labels, []string{"a"}) || !slices.Equal(j.After, []string{first}) || j.OnFailure != "run" ||
		!j.At.Equal(at) || j.StuckAfter != 5*time.Minute || j.Document == nil || j.Document.Source != files.URL+"/d.pdf" {
		t.Errorf("got %+v, %v, want the fields of the request", j, err)
	}
	if got := decode(t, post(t, h, "POST", "/jobs", body, header("Idempotency-Key", "order 4711"))); got["id"] != id {
		t.Errorf("the same key: got %v, want the same job", got)
	}
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
		w := testutil.Must(create(p.name))(t)
		testutil.Must(io.WriteString(w, p.text))(t)
	}
	testutil.Ok(t, m.Close())
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
	testutil.Ok(t, err)
	_ = f.Close()
	return hash
}

func TestCreateJobWithAForm(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h := handler(t, cfg)
	body, as := formOf(t, part{name: "document", file: `C:\temp\..\a b.pdf`, text: "content"}, part{name: "prompt", text: "Do it"},
		part{name: "context", text: `{"a":1}`}, part{name: "priority", text: "5"}, part{name: "labels", text: "x"}, part{name: "labels", text: "y"})
	w := post(t, h, "POST", "/jobs", body, as)
	if w.Code != http.StatusCreated {
		t.Fatalf("got %d %s, want 201", w.Code, w.Body)
	}
	j, err := cfg.Jobs.Get(t.Context(), decode(t, w)["id"].(string))
	if err != nil || j.Prompt != "Do it" || string(j.Context) != `{"a":1}` || j.Priority != 5 || !slices.Equal(j.Labels, []string{"x", "y"}) ||
		j.Document == nil || j.Document.Name != "a b.pdf" || stored(t, cfg, "content") != j.Document.Hash {
		t.Errorf("got %+v, %v, want the fields of the request", j, err)
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
	cfg := served(t)
	h := handler(t, cfg)
	var ids []string
	for _, n := range []fieldsOf{
		{"prompt": "1", "labels": []string{"x"}, "context": fieldsOf{"customer": "acme", "a.b": "1"}},
		{"prompt": "2", "labels": []string{"x"}, "context": fieldsOf{"customer": "other"}},
		{"prompt": "3"},
	} {
		ids = append(ids, decode(t, post(t, h, "POST", "/v1/jobs", n))["id"].(string))
	}
	if err := cfg.Jobs.Sweep(t.Context()); err != nil { // starts the jobs
		t.Fatal(err)
	}
	list := func(query string) (got []string, next string) {
		t.Helper()
		var page struct {
			Data []struct{ ID string }
			Next string
		}
		getJSON(t, h, "/v1/jobs?"+query, &page)
		for _, j := range page.Data {
			got = append(got, j.ID)
		}
		return got, page.Next
	}
	for query, want := range map[string][]string{
		"status=processing&status=failed": {ids[2], ids[1], ids[0]}, "status=pending&status=processing": {ids[2], ids[1], ids[0]}, "status=failed": nil, "name=default&offset=2": {ids[0]},
		"label=x": {ids[1], ids[0]}, "context=customer=acme&context=a.b=1": {ids[0]}, "context=customer=acme&context=a.b=2": nil,
	} {
		if got, _ := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	got, next := list("limit=2")
	if !slices.Equal(got, []string{ids[2], ids[1]}) || next == "" || strings.Contains(next, "-") {
		t.Fatalf("got %q and the cursor %q, want two jobs and an opaque one", got, next)
	}
	if got, _ := list("limit=2&cursor=" + next); !slices.Equal(got, []string{ids[0]}) {
		t.Errorf("the second page: got %q, want %s", got, ids[0])
	}
	if w := ask(t, h, "GET", "/v1/jobs/"+ids[0]+"/items?cursor="+next); w.Code != 400 {
		t.Errorf("a cursor of jobs for items: got %d, want 400", w.Code)
	}
}

// An empty list would suggest that no job has the key.
func TestListByAKeyThatNoPipelineDeclares(t *testing.T) {
	t.Parallel()
	h := handler(t, served(t))
	for query, want := range map[string]string{
		"context=custmer=acme":             "declared are a.b, customer",
		"context=customer=a&context=x=1":   "declares x",
		"name=other&context=customer=acme": "no pipeline declares keys",
	} {
		w := ask(t, h, "GET", "/v1/jobs?"+query)
		if w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want 400 with %q", query, w.Code, w.Body, want)
		}
	}
}

func TestJobCommands(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h, f := handler(t, cfg), populate(t, cfg, "")
	job := "/v1/jobs/" + f.job
	expect := func(w *httptest.ResponseRecorder, code int, want ...string) {
		t.Helper()
		for _, part := range want {
			if w.Code != code || !strings.Contains(w.Body.String(), part) {
				t.Errorf("got %d %s, want %d and %s", w.Code, w.Body, code, part)
			}
		}
	}
	w := ask(t, h, "GET", "/jobs/"+f.job)
	expect(w, 200, `"creator_status":"processing"`, `"validator_status":"processing"`, `"total_tokens":0`)
	version := header("If-Match", w.Header().Get("ETag"))
	expect(post(t, h, "PATCH", job, fieldsOf{"priority": 9, "labels": []string{"l"}}, version), 200, `"priority":9`, `"labels":["l"]`)
	expect(post(t, h, "PATCH", job, fieldsOf{}, header("If-Match", "three")), 400, "header.If-Match")
	expect(post(t, h, "POST", job+"/items/a%2Fb/decide", fieldsOf{"accept": false, "reason": "wrong"}), 200, `"status":"rejected"`, "wrong")
	expect(ask(t, h, "POST", job+"/retry"), 200, `"retried":`)
	expect(ask(t, h, "POST", job+"/pause"), 200, `"paused":true`)
	expect(ask(t, h, "POST", job+"/resume"), 200, f.job)
	expect(ask(t, h, "DELETE", "/jobs/"+f.job+"?cleanup=true"), 200, `"status":"cancelled"`, `"cleanup":true`)
	expect(ask(t, h, "GET", job+"/document"), 404, "not stored here")
	expect(ask(t, h, "DELETE", job), 204, "")
	expect(ask(t, h, "GET", job), 404, "no such job")
	none := fmt.Sprint(decode(t, post(t, h, "POST", "/v1/jobs", fieldsOf{"prompt": "without a document"}))["id"])
	expect(ask(t, h, "DELETE", "/jobs/"+none+"?cleanup=true"), 200, `"status":"cancelled"`, `"cleanup":false`)
	expect(post(t, h, "POST", "/v1/jobs/"+f.other+"/stages/create/fail", fieldsOf{"error": "broken"}), 200, "broken")
}

func TestCompareJobs(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h, f := handler(t, cfg), populate(t, cfg, "")
	w := ask(t, h, "GET", "/v1/jobs/"+f.job+"/compare/"+f.other)
	if list, _ := decode(t, w)["differences"].([]any); len(list) != 2 || !strings.Contains(w.Body.String(), `"same":1`) {
		t.Errorf("compare: got %s, want two differences, and one that is the same counted", w.Body)
	}
	if w := ask(t, h, "GET", "/v1/jobs/"+f.job+"/compare/"+noJob); w.Code != 404 {
		t.Errorf("compare with no job: got %d, want 404", w.Code)
	}
}

// A document is never shown by a browser.
func TestDocumentIsAnAttachment(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	f := populate(t, cfg, "")
	w := ask(t, handler(t, cfg), "GET", "/v1/jobs/"+f.job+"/document")
	h := w.Header()
	if w.Code != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename=") || strings.Contains(h.Get("Content-Disposition"), "..") ||
		h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("Content-Length") != "25" {
		t.Errorf("got %d %v, want an attachment of 25 bytes", w.Code, h)
	}
}

// A response that fails later is cut off, so that a client does not take a part for the whole.
func TestStreamThatFailsIsCutOff(t *testing.T) {
	t.Parallel()
	h, err := only(Config{}.withDefaults(), func(s *server) {
		route(s, describe(s, http.MethodGet, "/report", "report", tagJobs, "Fail after the first bytes"), 0, func(context.Context, *nothing) (*streamOutput, error) {
			return s.stream(http.Header{}, func(_ context.Context, w io.Writer) error {
				_, err := io.WriteString(w, "a part")
				return errors.Join(err, errors.New("Redis is gone"))
			}), nil
		})
	})
	testutil.Ok(t, err)
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("got %v, want an aborted response", r)
		}
	}()
	ask(t, h, "GET", "/report")
}
