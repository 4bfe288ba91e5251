//go:build e2e && unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/redisd"
)

// endless is a site with an infinite number of listing pages.
type endless struct {
	*httptest.Server
	mu    sync.Mutex // guards the fields below
	at    []time.Time
	asked map[string]int
}

func newEndless(t *testing.T) *endless {
	t.Helper()
	e := &endless{asked: map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.at = append(e.at, time.Now())
		e.asked[r.URL.Path]++
		e.mu.Unlock()
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/p/%d", &n)
		_, _ = fmt.Fprintf(w, "<h1>Page %d</h1><p>%s</p>", n, strings.Repeat("words ", 40))
		for _, child := range []int{2*n + 1, 2*n + 2} {
			_, _ = fmt.Fprintf(w, `<a href="/p/%d">next</a>`, child)
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// since returns the number of requests after a time and the time of the first one.
func (e *endless) since(begin time.Time) (n int, first time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range e.at {
		if !at.After(begin) {
			continue
		}
		if n++; first.IsZero() {
			first = at
		}
	}
	return n, first
}

// last returns the time of the last request.
func (e *endless) last() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.MaxFunc(e.at, time.Time.Compare)
}

// again returns the number of repeated requests.
func (e *endless) again() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.at) - len(e.asked)
}

// scrape starts a scrape of the site with a data directory.
func (e *endless) scrape(t *testing.T, dir string) *run {
	t.Helper()
	file := filepath.Join(dir, "endless.yaml")
	yaml := "site: endless.example\nbase_url: " + e.URL + "\nstart: [/p/0]\nlisting: {links: [{css: a, as: listing}]}\npoliteness: {delay: 0, robots: false, max_per_domain: 4}\n" +
		"records: {page: {from: listing, key: [name], fields: {name: {css: h1, required: true}}}}\n"
	testutil.Ok(t, os.WriteFile(file, []byte(yaml), 0o600))
	conf := filepath.Join(dir, "muster.yaml")
	settings, err := json.Marshal(map[string]any{
		"data_dir": filepath.Join(dir, "data"), "redis": map[string]any{"mode": "child", "server": redisServer(t)},
		"shutdown": map[string]any{"drain": "10s"},
	})
	if err == nil {
		err = os.WriteFile(conf, settings, 0o600)
	}
	testutil.Ok(t, err)
	return muster(t, os.Environ(), "scrape", "--config", conf, "--wait", "--direct", file)
}

// TestStopOfACrawl stops a scrape of listing pages: its crawlers start no pages after their slice of 700 ms, although running tasks
// may continue for ten seconds.
func TestStopOfACrawl(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			site := newEndless(t)
			r := site.scrape(t, t.TempDir())
			r.until(t, "listing pages being fetched", func() bool { n, _ := site.since(time.Time{}); return n > 50 })
			testutil.Ok(t, syscall.Kill(r.cmd.Process.Pid, signal))
			sent := time.Now()
			select {
			case <-r.done:
			case <-time.After(longest):
				t.Fatal("the scrape does not stop")
			}
			if last := site.last(); last.Sub(sent) > 5*time.Second {
				t.Errorf("got a request %s after %s, want at most 700ms", last.Sub(sent), signal)
			}
		})
	}
}

// TestCrawlAfterAKill kills all processes during a scrape. The next command continues it within three seconds and fetches only pages
// again that were in flight or being settled.
func TestCrawlAfterAKill(t *testing.T) {
	t.Parallel()
	site, dir := newEndless(t), t.TempDir()
	first := site.scrape(t, dir)
	first.until(t, "listing pages being fetched", func() bool { n, _ := site.since(time.Time{}); return n > 100 })
	testutil.Ok(t, syscall.Kill(-first.cmd.Process.Pid, syscall.SIGKILL))
	<-first.done
	testutil.Eventually(t, "its Redis exits, too", func() bool {
		_, err := redisd.Discover(t.Context(), filepath.Join(dir, "data"))
		return err != nil
	})
	start := time.Now()
	second := site.scrape(t, dir)
	second.until(t, "the first request", func() bool { n, _ := site.since(start); return n > 20 })
	if _, at := site.since(start); at.Sub(start) > 3*time.Second {
		t.Errorf("the first request came %s after the restart, want at most 3s", at.Sub(start))
	}
	second.interrupt(t)
	<-second.done
	if n := site.again(); n > 2*4 {
		t.Errorf("got %d pages fetched again, want at most those in flight or being settled", n)
	}
}
