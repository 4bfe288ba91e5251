package artifact_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/dnstest"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/artifact"
	"muster/tasks/workqueue"
)

// TestMain resolves names below .test to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"id":"a"}`: "a http.fetch []",
		`{"artifact_id":"a","kind":"k","resolver":" ","resolver_name":"x"}`:                   "a k [resolver:x]",
		`{"id":" a ","resolver_hint":"u","resolver":"v","url":"https://H.example:443/x"}`:     "a http.fetch [resolver:u host:h.example]",
		`{"id":"a","url":"","pdf_url":"http://p:8080","urls":["http://no"]}`:                  "a http.fetch [host:p:8080]",
		`{"id":"a","urls":["", "http://first"],"pdf_urls":["http://second"]}`:                 "a http.fetch [host:first]",
		`{"id":"a","plan":{"url":"http://plan/x"},"urls":[1]}`:                                "a http.fetch [host:plan]",
		`{"id":"a","url":"http://` + strings.Repeat("x", 300) + `/","note":"garbage is cut"}`: "a http.fetch [host:http://" + strings.Repeat("x", 293) + "]",
		`{}`:                        `no ID`,
		`{"id":5}`:                  `no ID`,
		`[1]`:                       `not array`,
		`null`:                      `not null`,
		`{"id":"a"`:                 `unexpected end`,
		`{"id":"a","priority":"x"}`: `must be an integer`,
	} {
		it, err := artifact.Parse([]byte(line))
		got := fmt.Sprint(it.ID, " ", it.Kind, " ", it.ResourceKeys)
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s is %q, want %q", line, got, want)
		}
	}
}

// A URL without a host is enqueued and reported with its line.
func TestImportDoubts(t *testing.T) {
	t.Parallel()
	q := workqueue.New(redistest.New(t), "q", workqueue.Config{})
	var said []string
	rep, err := artifact.Import(t.Context(), q, strings.NewReader(`{"id":"a","url":"http://fine.example:8080/"}
{"id":"b","url":"http://me:secret@example.com:99999/"}
{"id":"c"}
{"id":"d","resolver":"r","url":"http://`+strings.Repeat("x", 300)+`/"}
`), artifact.ImportConfig{Doubtful: func(n int64, err error) { said = append(said, fmt.Sprint(n, ": ", err)) }})
	if err != nil || rep != (artifact.Report{New: 4, Lines: 4}) {
		t.Fatalf("got %+v, %v; want 4 new of 4 lines", rep, err)
	}
	want := `2: artifact "b": no host in "http://example.com:99999/": the port 99999 is above 65535`
	if len(said) != 2 || said[0] != want || !strings.HasPrefix(said[1], `4: artifact "d": no host in `) {
		t.Errorf("got warnings %q, want %q and one for line 4", said, want)
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	lines.WriteString("\xef\xbb\xbf")
	for i := range 2500 {
		fmt.Fprintf(&lines, `{"id":"a%d","url":"http://h%d.example/"}`+"\n", i, i%7)
	}
	lines.WriteString("\n  \nnot json\n" + `{"url":"http://no.id"}` + "\n" + `{"id":"long","x":"` + strings.Repeat("x", 100_000) + `"}` +
		"\n" + `{"id":"a1"}` + "\n{\"id\":\"bad\xff\"}\n" + `{"id":"last"}`)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(lines.Bytes())
	_ = z.Close()

	for name, in := range map[string][]byte{"plain": lines.Bytes(), "gzip": packed.Bytes()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.New(redistest.New(t), "q", workqueue.Config{})
			var bad []int64
			cfg := artifact.ImportConfig{MaxLine: 50_000, BadLine: func(n int64, err error) { bad = append(bad, n) }}
			rep, err := artifact.Import(t.Context(), q, bytes.NewReader(in), cfg)
			if err != nil || rep != (artifact.Report{New: 2501, Duplicate: 1, Errors: 4, Lines: 2508}) {
				t.Fatalf("got %+v, %v; want 2501 new, 1 duplicate, 4 errors, 2508 lines", rep, err)
			}
			if !slices.Equal(bad, []int64{2503, 2504, 2505, 2507}) {
				t.Errorf("got bad lines %v, want 2503, 2504, 2505 and 2507", bad)
			}
			// A repeated import, as after an interruption.
			rep, err = artifact.Import(t.Context(), q, bytes.NewReader(in), artifact.ImportConfig{Limit: 10})
			if err != nil || rep != (artifact.Report{Duplicate: 10, Lines: 10}) {
				t.Fatalf("got %+v, %v; want 10 duplicates of 10 lines", rep, err)
			}
			if s, err := q.Stats(t.Context()); err != nil || s.Queued != 2501 {
				t.Fatalf("got %+v, %v; want 2501 queued", s, err)
			}
		})
	}
	q := workqueue.New(redistest.New(t), "q", workqueue.Config{})
	rep, err := artifact.Import(t.Context(), q, bytes.NewReader(packed.Bytes()[:packed.Len()/2]), artifact.ImportConfig{})
	if err == nil || rep.New == 0 {
		t.Fatalf("half a gzip file: got %+v, %v; want some items and an error", rep, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := artifact.Import(ctx, q, bytes.NewReader(lines.Bytes()), artifact.ImportConfig{}); err == nil {
		t.Fatal("got nil from a cancelled import, want an error")
	}
}

const pdf = "%PDF content"

var pdfSum = fmt.Sprintf("%x", sha256.Sum256([]byte(pdf)))

// files serves the artifacts of TestFetch.
func files() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/a.pdf", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf; x=y")
		_, _ = io.WriteString(w, pdf)
	})
	mux.Handle("/moved", http.RedirectHandler("/a.pdf", http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short")
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 2000)) })
	return mux
}

func TestFetch(t *testing.T) {
	t.Parallel()
	srv := newHost(t, files().ServeHTTP)
	w := newWorld(t, 2)
	rows := []struct {
		id, payload string
		state       workqueue.State
		attempts    int // used attempts
		note        string
	}{
		{"plain", `{"url":"U/a.pdf"}`, workqueue.StateDone, 0, ""},
		{"checked", `{"url":"U/a.pdf","type":"application/PDF","size":12,"sha256":"` + strings.ToUpper(pdfSum) + `"}`, workqueue.StateDone, 0, ""},
		{"moved", `{"urls":["U/moved"]}`, workqueue.StateDone, 0, ""},
		{"gone", `{"url":"U/nothing"}`, workqueue.StateError, 0, "404"},
		{"wrong type", `{"url":"U/a.pdf","type":"text/html"}`, workqueue.StateError, 0, "not \"text/html\""},
		{"wrong size", `{"url":"U/a.pdf","size":5}`, workqueue.StateError, 2, "not 5"},
		{"wrong sum", `{"url":"U/a.pdf","sha256":"00"}`, workqueue.StateError, 2, "SHA-256"},
		{"loop", `{"url":"U/loop"}`, workqueue.StateError, 2, "10 redirects"},
		{"broken", `{"url":"U/broken"}`, workqueue.StateError, 2, "502"},
		{"cut", `{"url":"U/cut"}`, workqueue.StateError, 2, "unexpected EOF"},
		{"big", `{"url":"U/big"}`, workqueue.StateError, 0, "the limit is 1000"},
		{"file", `{"url":"file:///etc/passwd"}`, workqueue.StateError, 2, "artifact_validation_failed"},
		{"none", `{}`, workqueue.StateError, 2, "artifact_validation_failed"},
		{"typed", `{"url":"U/a.pdf","size":"big"}`, workqueue.StateError, 2, "artifact_validation_failed"},
	}
	for _, r := range rows {
		w.enqueue(r.id, strings.ReplaceAll(r.payload, "U", srv.URL))
	}
	w.drain(4, artifact.FetcherConfig{MaxBytes: 1000})
	for _, r := range rows {
		w.want(r.id, r.state, r.attempts, r.note)
	}
	want := fmt.Sprintf(`{"path":"%s/%s","sha256":"%s","size":12,"type":"application/pdf"}`, pdfSum[:2], pdfSum, pdfSum)
	if got, _ := w.q.Get(t.Context(), "moved"); string(got[0].Result) != want {
		t.Errorf("got result %s, want %s", got[0].Result, want)
	}
	if data, err := os.ReadFile(filepath.Join(w.dir, pdfSum[:2], pdfSum)); err != nil || string(data) != pdf {
		t.Errorf("got content %q, %v, want %q", data, err, pdf)
	}
	if parts, _ := filepath.Glob(filepath.Join(w.dir, "incoming", "*")); len(parts) != 0 {
		t.Errorf("got parts %v, want none", parts)
	}
	if _, err := artifact.NewFetcher(artifact.FetcherConfig{}); err == nil {
		t.Error("no directory: got nil, want an error")
	}
}

// A long Retry-After delays an item by at most 15 minutes.
func TestRetryAfterOfAnItemIsBounded(t *testing.T) {
	t.Parallel()
	busy := newHost(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	w := newWorld(t, 2)
	w.enqueue("busy", `{"url":"`+busy.URL+`"}`)
	f := testutil.Must(artifact.NewFetcher(artifact.FetcherConfig{Dir: w.dir, Filter: local}))(t)
	p := testutil.Must(workqueue.NewPool(w.q, workqueue.Handlers{artifact.FetchKind: f.Handle}, workqueue.PoolConfig{}))(t)
	testutil.Background(t, p.Run)
	testutil.Eventually(t, "the item to be delayed", func() bool {
		s, err := w.q.Stats(t.Context())
		return err == nil && s.InProgress == 0 && s.Delayed == 1
	})
	got := testutil.Must(w.q.Get(t.Context(), "busy"))(t)
	if in := time.Until(got[0].Available); in < 14*time.Minute || in > 15*time.Minute || !strings.Contains(got[0].Note, "429") {
		t.Errorf("got %q, next attempt in %v, want 429 and 15 minutes", got[0].Note, in)
	}
}
