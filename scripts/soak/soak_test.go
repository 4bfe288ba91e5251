//go:build unix

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// reportOf returns the report of a run of 40 minutes with one value, which is of(quarter) in each quarter.
func reportOf(name string, of func(quarter int) float64) *report {
	r := &report{Minutes: 40, Accounts: []book{{Kind: kindFlow, Sent: 3, Ended: 3}}}
	for q := range quarters {
		for range 3 {
			for _, drained := range []bool{false, true} {
				r.Samples = append(r.Samples, sample{Quarter: q, Drained: drained, Values: map[string]float64{name: of(q), "fds redis": 5}})
			}
		}
	}
	return r
}

func TestGrowthIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		second, last float64
		ok           bool
	}{
		{"rss orchestrator", 100 << 20, 130 << 20, true},
		{"rss orchestrator", 100 << 20, 150 << 20, false},
		{"goroutines queue run", 30, 60, true},
		{"goroutines queue run", 30, 90, false},
		{"fds worker-1", 20, 60, false},
		{"keys muster:*:w:*", 100, 300, false},
		{"new keys", 0, 100, false},
		{"files data/records", 10, 40, false},
		{"redis memory", 4 << 20, 20 << 20, false},
		{"expiring keys muster:*:w:*", 100, 300, false},
	} {
		r := reportOf(c.name, func(q int) float64 {
			switch q {
			case 1:
				return c.second
			case quarters - 1:
				return c.last
			}
			return 0
		})
		if r.judge(); r.OK != c.ok {
			t.Errorf("%s from %g to %g: got good %t, want %t: %v", c.name, c.second, c.last, r.OK, c.ok, r.Problems)
		}
		if text := r.markdown(); strings.Contains(text, "FAILED") == c.ok || !strings.Contains(text, c.name) {
			t.Errorf("the growth is not in the table:\n%s", text)
		}
	}
}

func TestKeysThatExpireLaterThanAQuarterMayGrow(t *testing.T) {
	t.Parallel()
	for expiry, ok := range map[time.Duration]bool{time.Hour: true, 5 * time.Minute: false} {
		r := reportOf("expiring keys x", func(q int) float64 { return float64(100 * q) })
		for i := range r.Samples {
			r.Samples[i].Values["expiry of x"] = expiry.Seconds()
		}
		if r.judge(); r.OK != ok {
			t.Errorf("keys that expire after %s: got good %t, want %t: %v", expiry, r.OK, ok, r.Problems)
		}
	}
}

func TestImbalanceIsFound(t *testing.T) {
	t.Parallel()
	for _, b := range []book{{kindItem, 5, 4, 0}, {kindItem, 5, 5, 1}, {kindItem, 5, 6, 0}, {kindItem, 0, 0, 0}} {
		r := reportOf("fds worker-1", func(int) float64 { return 1 })
		r.Accounts = append(r.Accounts, b)
		if r.judge(); r.OK {
			t.Errorf("%+v: got no problem", b)
		}
	}
}

// A job counts once with one verdict, even if its deletion fails or the reply is lost.
func TestJobsAreAuditedOnce(t *testing.T) {
	t.Parallel()
	status, deletes, gone := "processing", 0, false
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodDelete:
			deletes++
			if gone = true; deletes == 1 { // deleted, but the reply is lost
				w.WriteHeader(http.StatusBadGateway)
			}
		case r.URL.Path == "/v1/scrapes/lost" || gone:
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprintf(w, `{"id":"there","name":"default","status":%q}`, status)
		}
	}))
	t.Cleanup(srv.Close)
	l := &load{
		s: &system{data: t.TempDir(), url: srv.URL, http: srv.Client()}, jobs: map[string]*sentJob{}, known: map[string]bool{},
		books: map[string]*book{kindJob: {Kind: kindJob}, kindScrape: {Kind: kindScrape}},
	}
	audit := func(wantOpen int, wantErr bool, want book) {
		t.Helper()
		l.addJob("there", sentJob{kind: kindJob}) // added again by a list or a command
		if open, err := l.auditJobs(t.Context()); open != wantOpen || (err != nil) != wantErr {
			t.Errorf("got %d open, error %v; want %d, error %t", open, err, wantOpen, wantErr)
		}
		if got := *l.books[kindJob]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	audit(1, false, book{kindJob, 1, 0, 0})
	mu.Lock()
	status = "completed"
	mu.Unlock()
	audit(1, true, book{kindJob, 1, 0, 0})
	audit(0, false, book{kindJob, 1, 1, 0})
	audit(0, false, book{kindJob, 1, 1, 0})
	l.addJob("lost", sentJob{kind: kindScrape})
	if _, err := l.auditJobs(t.Context()); err != nil || *l.books[kindScrape] != (book{kindScrape, 1, 1, 1}) {
		t.Errorf("got %+v, %v, want the lost scrape to be wrong", *l.books[kindScrape], err)
	}
}
