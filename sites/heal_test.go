package sites

import (
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/testutil"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks/redistest"
)

// inbox is a webhook that can be away, and counts what it took.
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
			t.Errorf("a webhook took record %s %d times", key, n)
		}
	}
}

// A job whose sink is away says so, begins no more pages, and goes on when the
// sink is back: every record is everywhere, once.
func TestSinkHeals(t *testing.T) {
	t.Parallel()
	type trouble struct {
		sinks []string
		says  string
		heal  func()
		check func(t *testing.T)
	}
	const records = 2 * 30
	count := func(t *testing.T, path string) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var n, changes int
		if err := db.QueryRow(`SELECT (SELECT COUNT(*) FROM muster_records), (SELECT COUNT(*) FROM muster_changes)`).Scan(&n, &changes); err != nil || n != records || changes != records {
			t.Errorf("the database has %d records and %d changes, %v", n, changes, err)
		}
	}
	for name, make := range map[string]func(t *testing.T, out string) trouble{
		"the folder is none": func(t *testing.T, out string) trouble {
			path := filepath.Join(out, "shop.example")
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return trouble{says: "not a directory", heal: func() { _ = os.Remove(path) }}
		},
		"a database is locked": func(t *testing.T, out string) trouble {
			path := filepath.Join(out, "r.db")
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(1)
			if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
				t.Fatal(err)
			}
			return trouble{sinks: []string{"sqlite:" + path}, says: "locked",
				heal:  func() { _, _ = db.Exec("ROLLBACK") },
				check: func(t *testing.T) { count(t, path) }}
		},
		"one webhook of two, and a database, is away": func(t *testing.T, out string) trouble {
			there, away := newInbox(t), newInbox(t)
			away.away.Store(true)
			path := filepath.Join(out, "r.db")
			return trouble{sinks: []string{there.URL, away.URL, "sqlite:" + path}, says: "404",
				heal: func() { away.away.Store(false) },
				check: func(t *testing.T) {
					there.once(t, records)
					away.once(t, records)
					count(t, path)
				}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := newShop(t, 1, 30)
			rdb := redistest.New(t)
			s, out := newService(t, rdb), t.TempDir()
			c := make(t, out)
			j := begin(t, s, "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL, OutDir: out, Sinks: c.sinks})
			chunks, err := j.collect(t.Context(), "collect")
			if err != nil && !errors.As(err, new(later)) {
				t.Fatal(err)
			}
			why := ""
			testutil.Eventually(t, "there is trouble", func() bool {
				_, _ = s.recorder.Write(t.Context(), j.run) // as the service does while the job's workflow is there
				_, why, err = store.Written(t.Context(), j.queue.Outputs())
				return err == nil && why != ""
			})
			if !strings.Contains(why, c.says) {
				t.Errorf("it says %q, want that it is %s", why, c.says)
			}
			if chunks == nil { // it began to wait before it had them all
				if chunks, err = j.split(t.Context(), []pageID{pageIDOf(j.itemID(visit{URL: "http://shop.example/item/29", Kind: "detail"}))}); err != nil {
					t.Fatal(err)
				}
			}
			before := site.sum()
			if _, err := j.chunk(t.Context(), "chunk", chunks[0]); !errors.As(err, new(later)) {
				t.Errorf("got %v, want that the job waits", err)
			}
			if after := site.sum(); after != before {
				t.Errorf("%d pages were begun although records cannot be written", after-before)
			}
			c.heal()
			testutil.Eventually(t, "the trouble is over", func() bool {
				_, _ = s.recorder.Write(t.Context(), j.run)
				_, why, err := store.Written(t.Context(), j.queue.Outputs())
				return err == nil && why == ""
			})
			var counts []report.Counts
			chunks = again(t, func() ([]store.Chunk, error) { return j.collect(t.Context(), "collect") })
			for _, c := range chunks {
				counts = append(counts, again(t, func() (report.Counts, error) { return j.chunk(t.Context(), "chunk", c) }))
			}
			site.isWhole(t, again(t, func() (report.Summary, error) { return j.aggregate(t.Context(), counts, nil) }))
			if c.check != nil {
				c.check(t)
			}
		})
	}
}

// A database that takes connections and says nothing, or hangs up, is trouble
// that is told, not a job that hangs.
func TestPostgresDrops(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var dropped atomic.Int64
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dropped.Add(1)
			_ = c.Close()
		}
	}()
	site := newShop(t, 1, 3)
	rdb := redistest.New(t)
	s := newService(t, rdb)
	j := begin(t, s, "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL, Sinks: []string{"postgres://me@" + l.Addr().String() + "/app?sslmode=disable"}})
	if _, err := j.collect(t.Context(), "collect"); err != nil && !errors.As(err, new(later)) {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the trouble is told", func() bool {
		_, _ = s.recorder.Write(t.Context(), j.run)
		_, why, err := store.Written(t.Context(), j.queue.Outputs())
		return err == nil && strings.Contains(why, "postgres://127.0.0.1") && dropped.Load() > 1
	})
}
