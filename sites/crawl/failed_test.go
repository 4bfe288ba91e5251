package crawl

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
)

// failedPages reads failed.jsonl: the status of each page by path.
func failedPages(t *testing.T, file, site string) map[string]report.PageStatus {
	t.Helper()
	data := testutil.Must(os.ReadFile(file))(t)
	statuses := map[string]report.PageStatus{}
	for line := range strings.Lines(string(data)) {
		var f report.FailedPage
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.Item == "" || f.Error == "" {
			t.Fatalf("%s: got %v, want a page with its item and error", line, err)
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(f.URL, site), "?")
		if statuses[path] != "" {
			t.Errorf("%s: got it twice, want it once", path)
		}
		statuses[path] = f.Status
	}
	return statuses
}

// Failed pages have a status, which the next run of the job updates: pages that it fetches are resolved and stay so.
func TestFailedPagesHaveAStatus(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 6)
	all := func(fault string, n int) []string { return strings.Fields(strings.Repeat(fault+" ", n)) }
	site.Faults = map[string][]string{
		"/item/1": all("500", 4), "/item/2": all("soft", 4), "/item/3": all("500", 8), "/item/4": append(all("500", 4), "404"),
	}
	s := newWorker(t, redistest.New(t))
	first := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	last := "j1"
	again := func(id string) report.Summary {
		s.recorder.Forget(last) // as its task does at the end
		last = id
		req := testutil.Must(store.ReadRequest(t.Context(), s.cfg.Client.Redis(), "j1"))(t)
		req.Resume = "j1"
		j := testutil.Must(s.handlers.begin(t.Context(), id, req))(t)
		return run(t, j)
	}
	check := func(when, failed string, want map[string]report.PageStatus) {
		t.Helper()
		if got := failedPages(t, first.Failed, site.URL); !maps.Equal(got, want) || failed != "" && failed != first.Failed {
			t.Errorf("%s: got %v in %s, want %v", when, got, failed, want)
		}
	}
	check("at first", first.Failed, map[string]report.PageStatus{"/item/1": report.PagePending, "/item/2": report.PageCaptchaNeeded, "/item/3": report.PagePending, "/item/4": report.PagePending})
	second := again("j2")
	check("after a second run", second.Failed, map[string]report.PageStatus{"/item/1": report.PageResolved, "/item/2": report.PageResolved, "/item/3": report.PagePending, "/item/4": report.PagePermanent})
	third := again("j3")
	if third.Failed != "" || third.Errors != 0 {
		t.Errorf("got %+v, want no failed pages", third)
	}
	check("after a third run", "", map[string]report.PageStatus{"/item/1": report.PageResolved, "/item/2": report.PageResolved, "/item/3": report.PageResolved, "/item/4": report.PagePermanent})
}

// A failed page is listed with its Retry-After. Only the owner can read the files of a job.
func TestFailedPageHasRetryAfter(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 2)
	site.Faults = map[string][]string{"/item/1": {"429"}}
	s := newWorker(t, redistest.New(t))
	def := sitetest.Parse(t, bytes.Replace(site.Definition(t, "").YAML(), []byte("cap: 50ms"), []byte("cap: 50ms, stall_max: 500ms"), 1))
	began := time.Now().UTC().Truncate(time.Second)
	sum := run(t, begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL, CSV: true, Sinks: []string{"sqlite:" + s.cfg.OutDir + "/sub/all.db"}}))
	data, err := os.ReadFile(sum.Failed)
	var f report.FailedPage
	if err != nil || json.Unmarshal(data, &f) != nil || f.RetryAfter.Before(began.Add(time.Second)) {
		t.Errorf("got %s, %v, want a page with retry_after a second after %s", data, err, began)
	}
	kinds := map[string]bool{}
	err = filepath.WalkDir(s.cfg.OutDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == s.cfg.OutDir {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: got mode %v, want it for the owner only", path, info.Mode())
		}
		kinds[filepath.Ext(path)] = true
		return err
	})
	if err != nil || !kinds[".jsonl"] || !kinds[".csv"] || !kinds[".db"] || !kinds[".txt"] {
		t.Errorf("got files %v, %v, want all kinds", kinds, err)
	}
}
