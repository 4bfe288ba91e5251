package crawl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
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
