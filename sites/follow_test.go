package sites

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
)

func TestFollowPassesEachRecordOnOnce(t *testing.T) {
	t.Parallel()
	a, c := `{"a":1}`, `{"c":2}`
	path, read, got := filepath.Join(t.TempDir(), "item.jsonl"), int64(0), ""
	for i, step := range []struct{ text, want string }{{"", ""}, {a + "\n{\"b\"", a}, {a + "\n" + c + "\n", a + c}, {a + "\n" + c + "\n", a + c}} { // the torn line is cut off
		if step.text != "" {
			testutil.Ok(t, os.WriteFile(path, []byte(step.text), 0o600))
		}
		n, err := passOn(t.Context(), path, read, func(record []byte) error { got += string(record); return nil })
		if read += n; err != nil || got != step.want {
			t.Errorf("step %d: got %s, %v, want %s", i, got, err, step.want)
		}
	}
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	s := newService(t, redistest.New(t))
	sum := scrape(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	seen := 0
	count := func([]byte) error { seen++; return nil }
	if err := s.Follow(t.Context(), "j1", count); err != nil || seen != sum.Records {
		t.Errorf("a job that is over: got %d records and error %v, want %d and none", seen, err, sum.Records)
	}
	full := errors.New("no")
	if err := s.Follow(t.Context(), "j1", func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("when the function fails: got error %v, want %v", err, full)
	}
	testutil.Ok(t, s.Follow(t.Context(), "unknown", count)) // a job that does not exist
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Follow(ctx, "j1", count); !errors.Is(err, context.Canceled) {
		t.Errorf("when ctx has ended: got error %v, want %v", err, context.Canceled)
	}
}

// Head reads the first records of a file of any size, also while the file grows.
func TestHeadReadsTheFirstRecords(t *testing.T) {
	t.Parallel()
	const record = `{"name":"x"}` + "\n"
	huge := `{"name":"` + strings.Repeat("y", maxHead) + `"}` + "\n"
	for name, c := range map[string]struct {
		text string
		want int
		more bool
	}{
		"few":                   {record + record, 2, false},
		"more":                  {strings.Repeat(record, 4), 3, true},
		"none":                  {"", 0, false},
		"one is being written":  {record + `{"na`, 1, false},
		"one is huge":           {record + huge + record, 1, true},
		"the first one is huge": {huge, 0, true},
		"a damaged line":        {record + "no JSON\n" + record, 2, false},
	} {
		path := filepath.Join(t.TempDir(), "item.jsonl")
		testutil.Ok(t, os.WriteFile(path, []byte(c.text), 0o600))
		head, err := headOf(t.Context(), path, 3)
		if err != nil || head.Type != "item" || len(head.Records) != c.want || head.More != c.more {
			t.Errorf("%s: got %d records of %q, more %v, %v; want %d and %v", name, len(head.Records), head.Type, head.More, err, c.want, c.more)
		}
	}
	if head, err := headOf(t.Context(), filepath.Join(t.TempDir(), "item.jsonl"), 3); err != nil || len(head.Records) != 0 || head.More {
		t.Errorf("a missing file: got %+v, %v, want no records", head, err)
	}
}

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
				run := testutil.Must(s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL}))(t)
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
