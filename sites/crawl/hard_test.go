package crawl

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
	"muster/tasks/redistest"
)

// Hostile pages among ordinary ones fail with their class, and the job has the records of all others.
func TestHardPages(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = z.Write(bytes.Repeat([]byte("<p>bang</p>"), 8<<10)) // a Buffer does not fail
	}
	_ = z.Close()
	good := "<html><h1>%s</h1>" + strings.Repeat("words ", 50) + "</html>"
	var visited atomic.Int64
	pages := map[string]struct {
		answer http.HandlerFunc
		class  fetch.Class
	}{
		"/good":  {func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, good, r.URL.Path) }, fetch.OK},
		"/large": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, good, strings.Repeat("x", 3<<20)) }, fetch.TooBig},
		"/bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, fetch.TooBig},
		"/deep": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html><h1>deep</h1>words ", strings.Repeat("<div>", 100_000), strings.Repeat("words ", 50))
		}, fetch.OK},
		"/binary": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write(bytes.Repeat([]byte("\x00\x01\xff\xfe\x89PNG\r\n"), 20_000))
		}, fetch.Validate},
		"/drip": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, "<p>")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(10 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
		}, fetch.Timeout},
		"/loop": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) }, fetch.Redirect},
		"/away": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.example/", http.StatusFound)
		}, fetch.Redirect},
		"/visit": {func(w http.ResponseWriter, r *http.Request) { visited.Add(1); fmt.Fprintf(w, good, r.URL.Path) }, fetch.OK},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := pages[r.URL.Path]; ok {
			p.answer(w, r)
			return
		}
		for path := range pages {
			fmt.Fprintf(w, `<a class=to href="%s">page</a>`, path)
		}
		for i := range 20 { // the same page for each visit
			fmt.Fprintf(w, `<a class=to href="/visit?PHPSESSID=%032x">page</a>`, i)
		}
	}))
	t.Cleanup(server.Close)
	def := sitetest.Parse(t, fmt.Appendf(nil, `site: hard
base_url: %s
start: [/]
listing: {links: a.to}
politeness: {delay: 0, robots: false, max_per_domain: 4}
retries: {attempts: 0}
limits: {max_bytes: 2MiB, page_timeout: 8s}
records: {page: {key: [name], fields: {name: {css: h1, required: true}}}}
`, server.URL))
	sum := run(t, begin(t, newWorker(t, redistest.New(t)), "j", def, ScrapeOptions{}))
	want := map[fetch.Class]int{fetch.OK: 1} // the list
	for _, p := range pages {
		want[p.class]++
	}
	if fmt.Sprint(sum.ByClass) != fmt.Sprint(want) || sum.Records != 3 || sum.Errors != 6 || sum.Status != report.StatusComplete {
		t.Errorf("got %s with %d records and %v, want %v: %+v", sum.Status, sum.Records, sum.ByClass, want, sum.Samples)
	}
	if n := visited.Load(); n != 1 {
		t.Errorf("got %d requests for a page, want 1 whatever session its address names", n)
	}
}
