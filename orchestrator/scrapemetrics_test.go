package orchestrator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"muster/sites"
	"muster/sites/report"
	"muster/tasks/metrics"
)

func TestScrapeMetrics(t *testing.T) {
	t.Parallel()
	m := newScrapeMetrics(func(site string) bool { return site == "shop" })
	m.add("shop", sites.Visited{Status: 200, Took: 300 * time.Millisecond, Records: 7})
	m.add("shop", sites.Visited{Status: 200, Took: 300 * time.Millisecond, Records: 5})
	m.add("shop", sites.Visited{Class: "soft_block", Took: 10 * time.Millisecond})
	m.add("shop", sites.Visited{Class: "throttled", Delayed: true})
	m.add("a-foreign-site", sites.Visited{Class: "connect"})
	w := httptest.NewRecorder()
	metrics.Handler(m).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	got := w.Body.String()
	for _, want := range []string{
		`muster_scrape_pages_total{outcome="ok",site="shop"} 2`, `muster_scrape_pages_total{outcome="soft_block",site="shop"} 1`, `muster_scrape_pages_total{outcome="connect",site="other"} 1`,
		`muster_scrape_records_total{site="shop"} 12`, `muster_scrape_response_seconds_count{site="shop"} 3`, `muster_scrape_response_seconds_bucket{site="shop",le="0.25"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got no %s in\n%s", want, got)
		}
	}
	for _, no := range []string{"throttled", "somebody"} {
		if strings.Contains(got, no) {
			t.Errorf("got %s, want no such metric", no)
		}
	}
}

// The health of sites is read at most twice a minute. Sites without a definition share the label other.
func TestHealthOfSitesIsExported(t *testing.T) {
	t.Parallel()
	reads := 0
	h := &siteHealth{known: func(site string) bool { return site != "a-foreign-site" && site != "another" }, read: func(context.Context) ([]report.Health, error) {
		reads++
		return []report.Health{{Site: "shop", Status: report.Critical}, {Site: "news", Status: report.Healthy}, {Site: "a-foreign-site", Status: report.Degraded}, {Site: "another", Status: report.Healthy}}, nil
	}}
	for range 3 {
		w := httptest.NewRecorder()
		metrics.Handler(h).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		for _, want := range []string{`muster_site_health{site="shop"} 2`, `muster_site_health{site="news"} 0`, `muster_site_health{site="other"} 1`} {
			if !strings.Contains(w.Body.String(), want+"\n") {
				t.Errorf("got no %s in\n%s", want, w.Body.String())
			}
		}
	}
	if reads != 1 {
		t.Errorf("got %d reads, want 1", reads)
	}
}
