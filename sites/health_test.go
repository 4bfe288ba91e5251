package sites

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
)

// A site that rejects every request, is down or has moved is unhealthy although its scrape has no report. The next successful
// scrape makes it healthy.
func TestFailedScrapeIsUnhealthy(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(code)
		}
	}
	for name, broken := range map[string]http.HandlerFunc{
		"404": status(404), "403": status(403), "429": status(429), "500": status(500),
		"error page": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<h1>We are busy</h1>") },
		"moved": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.example/", http.StatusFound)
		},
		"down": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := sitetest.NewShop(t, 1, 3)
			var good atomic.Bool
			site.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if good.Load() || r.URL.Path == "/robots.txt" {
					site.ServeHTTP(w, r)
					return
				}
				broken(w, r)
			})
			yaml := strings.Replace(string(site.Definition(t, "").YAML()), "retries: {base: 10ms, cap: 50ms}", "retries: {attempts: 1, base: 1ms, cap: 1ms, stall_max: 500ms}", 1)
			def := sitetest.Parse(t, []byte(yaml))
			judged := make(chan string, 10)
			s := configured(t, redistest.New(t), NewRegistry(def), Config{Judged: func(_ context.Context, h report.Health, before report.HealthStatus) error {
				judged <- fmt.Sprintf("%s %v, before %q", h.Status, len(h.Alerts) > 0, before)
				return nil
			}})
			work(t, s.cfg.Client, s)
			scrape := func(wantErr bool, want string) {
				t.Helper()
				run, err := s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL})
				testutil.Ok(t, err)
				if _, err := run.Wait(t.Context()); (err != nil) != wantErr {
					t.Errorf("got error %v, want one: %v", err, wantErr)
				}
				if got := <-judged; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if open, err := s.cfg.Client.Redis().SMembers(t.Context(), store.OpenJobsKey).Result(); err != nil || len(open) > 0 {
					t.Errorf("got open jobs %v, %v, want none", open, err)
				}
			}
			scrape(true, `critical true, before ""`)
			good.Store(true)
			scrape(false, `healthy false, before "critical"`)
		})
	}
}
