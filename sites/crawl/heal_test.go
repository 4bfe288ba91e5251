package crawl

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
)

// inbox is a webhook that can be down and counts accepted requests.
type inbox struct {
	*httptest.Server
	away  atomic.Bool
	mu    sync.Mutex // guards took
	took  map[string]int
	asked atomic.Int64
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	h := &inbox{took: map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		if h.away.Load() {
			w.WriteHeader(http.StatusNotFound) // which the sink does not try again by itself
			return
		}
		var b struct{ Records []struct{ Type, Key string } }
		switch err := json.NewDecoder(r.Body).Decode(&b); {
		case errors.Is(err, io.ErrUnexpectedEOF): // its sender has gone
			w.WriteHeader(http.StatusBadRequest)
			return
		case err != nil:
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, r := range b.Records {
			h.took[r.Type+" "+r.Key]++
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *inbox) once(t *testing.T, want int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.took) != want {
		t.Errorf("a webhook took %d records, want %d", len(h.took), want)
	}
	for key, n := range h.took {
		if n != 1 {
			t.Errorf("a webhook got record %s %d times, want once", key, n)
		}
	}
}

// sinkTrouble is a fault that prevents the writing of records.
type sinkTrouble struct {
	sinks   []string
	problem string // part of the error
	heal    func()
	check   func(t *testing.T, records int) // nil: nothing beside the files
}

// A job with a failing sink reports it, starts no more pages, and continues when the sink recovers: every record is in every sink
// exactly once.
func TestSinkHeals(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, out string) sinkTrouble{
		"the folder is a file":                        folderIsFile,
		"one webhook of two, and a database, is away": webhookIsAway,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			healSink(t, out, begin(t, out))
		})
	}
}

func folderIsFile(t *testing.T, out string) sinkTrouble {
	path := filepath.Join(out, "shop.example")
	testutil.Ok(t, os.WriteFile(path, nil, 0o644))
	return sinkTrouble{problem: "not a directory", heal: func() { _ = os.Remove(path) }}
}

func webhookIsAway(t *testing.T, out string) sinkTrouble {
	there, away := newInbox(t), newInbox(t)
	away.away.Store(true)
	path := filepath.Join(out, "r.db")
	return sinkTrouble{
		sinks: []string{there.URL, away.URL, "sqlite:" + path}, problem: "404",
		heal: func() { away.away.Store(false) },
		check: func(t *testing.T, records int) {
			there.once(t, records)
			away.once(t, records)
			wantRows(t, path, records)
		},
	}
}

// wantRows checks the number of records and changes in a database.
func wantRows(t *testing.T, path string, want int) {
	t.Helper()
	db := testutil.Must(sql.Open("sqlite", "file:"+path))(t)
	defer db.Close()
	var records, changes int
	if err := db.QueryRow(`SELECT (SELECT COUNT(*) FROM muster_records), (SELECT COUNT(*) FROM muster_changes)`).Scan(&records, &changes); err != nil || records != want || changes != want {
		t.Errorf("got %d records and %d changes in the database, %v, want %d of each", records, changes, err, want)
	}
}

// healSink scrapes a site while its records cannot be written, and again after the fault.
func healSink(t *testing.T, out string, c sinkTrouble) {
	t.Helper()
	site := sitetest.NewShop(t, 1, 30)
	s := newWorker(t, redistest.New(t))
	j := begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL, OutDir: out, Sinks: c.sinks})
	// trouble writes records, as the service does while the job's workflow exists, and returns the writer's error.
	trouble := func() (why string, ok bool) {
		_, _ = s.recorder.Write(t.Context(), j.run)
		_, why, err := store.Written(t.Context(), j.queue.Outputs())
		return why, err == nil
	}
	collect(t, j)
	testutil.Ok(t, fetchFirst(t.Context(), j))
	testutil.Eventually(t, "the job to report "+c.problem, func() bool {
		why, ok := trouble()
		return ok && strings.Contains(why, c.problem)
	})
	before := site.Sum()
	if _, err := crawlOnce(t.Context(), j, "crawler"); !errors.As(err, new(later)) {
		t.Errorf("got %v, want that the job waits", err)
	}
	if after := site.Sum(); after != before {
		t.Errorf("%d pages were begun although records cannot be written, want none", after-before)
	}
	c.heal()
	testutil.Eventually(t, "the trouble is over", func() bool {
		why, ok := trouble()
		return ok && why == ""
	})
	site.IsWhole(t, run(t, j))
	if c.check != nil {
		c.check(t, 2*30)
	}
}

// fetchFirst fetches and settles the first page of a job.
func fetchFirst(ctx context.Context, j *job) error {
	leases, err := j.queue.Lease(ctx, "crawler", 1)
	if err != nil || len(leases) == 0 {
		return fmt.Errorf("got %d leases, %w", len(leases), err)
	}
	return j.crawler.conclude(ctx, leases[0], j.crawler.visit(ctx, leases[0], func() {}))
}
