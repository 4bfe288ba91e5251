package crawl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
)

func TestReport(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 20)
	forever := strings.Fields(strings.Repeat("500 ", 50))
	site.Faults = map[string][]string{"/item/1": forever, "/item/2": forever, "/item/3": strings.Fields(strings.Repeat("soft ", 50)), "/item/4": {"404"}}
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if len(sum.Groups) != 2 || sum.Groups[0].Pages+sum.Groups[1].Pages != 3 || sum.Extracted != 36 || sum.Response == nil {
		t.Errorf("got groups %+v, %d extracted, times %v, want 3 pages in 2 groups, 36 extracted", sum.Groups, sum.Extracted, sum.Response)
	}
	if want := map[fetch.Class]int{fetch.OK: 17, fetch.Server: 2, fetch.SoftBlock: 1, fetch.Gone: 1}; !maps.Equal(sum.ByClass, want) {
		t.Errorf("got %v, want %v", sum.ByClass, want)
	}
	for path, want := range map[string]int{"/item/1": 4, "/item/4": 1} { // with three retries of a page with 500
		if asked, _ := site.Counts(path); asked != want {
			t.Errorf("%s was asked for %d times, want %d", path, asked, want)
		}
	}
	text := testutil.Must(os.ReadFile(filepath.Join(filepath.Dir(sum.Files[0]), "report.txt")))(t)
	for _, want := range []string{"17 fetched (0.0 MB), 1 skipped, 3 errors", "36 extracted, 0 invalid, 0 duplicates, 36 written: 36 new", "ALERT", "item.price   100 %", "HTTP status 500", "/item/", "muster scrapes retry j1", "p95"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	health, err := store.LastHealth(t.Context(), s.cfg.Client.Redis())
	if err != nil || len(health) != 1 || health[0].JobID != "j1" || health[0].Status == report.Healthy {
		t.Errorf("got health %+v, error %v, want an unhealthy state of j1", health, err)
	}
	site.Faults = nil
	sum = run(t, begin(t, s, "j2", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if sum.Health.Status != report.Healthy || fmt.Sprint(sum.Health.Before["item.price"]) != "1" {
		t.Errorf("got %+v, want healthy, with item.price in all records before", sum.Health)
	}
}

// The health of each job is announced once with the previous status, and again after an error.
func TestHealthIsAnnounced(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 20)
	site.Faults = map[string][]string{"/item/1": strings.Fields(strings.Repeat("500 ", 50)), "/item/2": strings.Fields(strings.Repeat("500 ", 50))}
	var got []string
	s := process(t, Config{Judged: func(_ context.Context, h report.Health, before report.HealthStatus) error {
		if got = append(got, fmt.Sprintf("%s %s, before %q", h.JobID, h.Status, before)); len(got) == 1 {
			return errors.New("redis is away")
		}
		return nil
	}})
	run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	site.Heal()
	run(t, begin(t, s, "j2", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	want := []string{`j1 degraded, before ""`, `j1 degraded, before ""`, `j2 healthy, before "degraded"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A scrape without a settled page for two minutes is listed and logged once, unless it is paused.
func TestStalledScrape(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		var log bytes.Buffer
		client := tasks.NewClient(rdb)
		site := sitetest.NewShop(t, 1, 3)
		t.Cleanup(func() { _ = client.Close() })
		s := process(t, Config{Client: client, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		run, err := store.Scrape(requestOf(t, site.Definition(t, ""), s.cfg.OutDir, ScrapeOptions{BaseURL: site.URL})).Send(t.Context(), client) // no worker takes it
		testutil.Ok(t, err)
		id := run.ID()
		j := begin(t, s, id, site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
		stalled := func(what string, want int) []Stalled {
			t.Helper()
			list, err := StalledJobs(t.Context(), client)
			if err != nil || len(list) != want {
				t.Errorf("%s: got %v, %v, want %d stalled jobs", what, list, err, want)
			}
			return list
		}
		age := func() {
			t.Helper()
			req := testutil.Must(store.ReadRequest(t.Context(), rdb, id))(t)
			req.Began -= 3 * time.Minute.Milliseconds()
			data, err := json.Marshal(req)
			if err == nil {
				err = rdb.Set(t.Context(), store.RequestKey(id), data, 0).Err()
			}
			testutil.Ok(t, err)
		}
		stalled("at first", 0)
		age()
		j.crawler.counts.add("delay", string(DelayProxies))
		testutil.Ok(t, j.crawler.counts.flush(t.Context()))
		if list := stalled("after three minutes", 1); len(list) == 1 && !regexp.MustCompile(`^shop\.example \(job .*\): no page for 3m\d+s; delays so far: proxies \(1\)$`).MatchString(list[0].String()) {
			t.Errorf("got %s, want the site, the time and the delays", list[0])
		}
		for range 2 {
			s.handlers.jobs.looked = time.Time{}
			s.handlers.jobs.warnStalled(t.Context())
		}
		if n := strings.Count(log.String(), "a scrape makes no progress"); n != 1 {
			t.Errorf("got %d lines, want 1:\n%s", n, log.String())
		}
		enqueue(t, j, site.URL+"/item/0")
		testutil.Must(j.queue.Pause(t.Context()))(t)
		stalled("paused", 0)
		testutil.Must(j.queue.Resume(t.Context()))(t)
		stalled("resumed", 1)
		crawl(t, j)
		stalled("after a page", 0)
		age()
		testutil.Ok(t, rdb.Del(t.Context(), store.RequestKey(id)).Err())
		stalled("after its request has expired", 0)
	})
}
