package crawl

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks/redistest"
)

// A job with sessions survives all faults, and its report has the reasons of ended sessions.
func TestFaultsInSessions(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 3, 10)
	site.Faults = map[string][]string{
		"/item/1": {"429"}, "/item/2": {"500", "500"}, "/item/3": {"soft"}, "/item/4": {"empty"}, "/item/5": {"cut"}, "/item/6": {"403"}, "/page/2": {"soft"},
	}
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, "session: {}\n"), ScrapeOptions{BaseURL: site.URL}))
	site.IsWhole(t, sum)
	if sum.Status != report.StatusComplete || sum.Errors != 0 {
		t.Errorf("got %+v, want COMPLETE without errors", sum)
	}
	// A fault of a page that another request has in flight hits the same visitor.
	ended := 0
	for why, n := range sum.Sessions {
		ended += n
		if !slices.Contains([]string{"soft_block", "blocked", "rate_limited"}, why) {
			t.Errorf("got sessions that ended because of %s", why)
		}
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(sum.Files[0]), "report.txt"))
	if err != nil || ended < 2 || ended > 4 || !strings.Contains(string(text), "sessions  ended: ") {
		t.Errorf("got %v, want 2 to 4 ended sessions in the report, got %v:\n%s", err, sum.Sessions, text)
	}
}

// Sessions end with their process. The job continues in new ones and fetches no page again.
func TestSessionsEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	visitors, asked := map[string]int{}, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/door" {
			http.SetCookie(w, &http.Cookie{Name: "v", Value: fmt.Sprint("v", len(visitors)), Path: "/"})
			visitors[fmt.Sprint("v", len(visitors))] = 0
			return
		}
		asked[r.URL.Path]++
		c, err := r.Cookie("v")
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		visitors[c.Value]++
		var n int
		if sitetest.Scan(r.URL.Path, "/p/%d", &n) {
			_, _ = fmt.Fprintf(w, "<h1>Page %d</h1>", n)
			return
		}
		for i := range 30 {
			_, _ = fmt.Fprintf(w, "<a href=/p/%d>p</a>", i)
		}
	}))
	t.Cleanup(server.Close)
	def, err := definition.Parse("s.yaml", []byte("site: door\nbase_url: "+server.URL+"\nstart: [/]\nlisting: {links: a}\npoliteness: {delay: 0, robots: false, max_per_domain: 1}\n"+
		"records: {page: {key: [name], fields: {name: {css: h1, required: true}}}}\nsession: {start: /door}\n"))
	if err != nil {
		t.Fatal(err)
	}
	rdb, o := redistest.New(t), ScrapeOptions{OutDir: t.TempDir()}
	first := begin(t, newWorker(t, rdb), "j", def, o)
	collect(t, first)
	for range 11 { // the listing page and ten others
		if err := fetchFirst(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	before := len(visitors)

	second := begin(t, newWorker(t, rdb), "j", def, o) // the first one's memory is lost
	crawl(t, second)
	sum := aggregate(t, second)
	if sum.Records != 30 || sum.Errors != 0 || len(sum.Sessions) != 0 || len(visitors) != before+1 {
		t.Errorf("got %d records, %d errors, sessions %v, visitors %v, want 30 records, no ended sessions and %d visitors", sum.Records, sum.Errors, sum.Sessions, visitors, before+1)
	}
	for path, n := range asked {
		if n != 1 {
			t.Errorf("got %d requests for %s, want 1", n, path)
		}
	}
}

// A process that only fetches forgets a job that another process has closed.
func TestJobsThatAreClosedElsewhereAreForgotten(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 3)
	rdb := redistest.New(t)
	here, there := newWorker(t, rdb), newWorker(t, rdb)
	def, o := site.Definition(t, "session: {}\n"), ScrapeOptions{BaseURL: site.URL, OutDir: t.TempDir()}
	begin(t, here, "j1", def, o)
	run(t, begin(t, there, "j1", def, o))
	if err := rdb.SRem(t.Context(), store.OpenJobsKey, "j1").Err(); err != nil { // as Aggregate does
		t.Fatal(err)
	}
	testutil.Background(t, here.Run)
	testutil.Eventually(t, "the job is forgotten", func() bool { return len(here.handlers.jobs.all()) == 0 })
}

// A missing session.start fails the job with an error that names it; its pages do not count as gone.
func TestSessionStartThatIsGone(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 3)
	s := newWorker(t, redistest.New(t))
	j := begin(t, s, "j1", site.Definition(t, "session: {start: /door}\n"), ScrapeOptions{BaseURL: site.URL})
	collect(t, j)
	crawl(t, j)
	_, err := j.sum(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "session.start") {
		t.Errorf("got error %v, want one of session.start", err)
	}
}
