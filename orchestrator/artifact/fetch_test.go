package artifact_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/artifact"
	"muster/tasks/workqueue"
)

// world is a queue of artifacts with its content directory.
type world struct {
	t   *testing.T
	rdb redis.UniversalClient
	q   *workqueue.Queue
	dir string
}

// local is a filter that allows the local hosts of tests.
var local, _ = addressfilter.New(addressfilter.Local()...)

func newWorld(t *testing.T, attempts int) *world {
	rdb := redistest.New(t)
	return &world{t, rdb, workqueue.New(rdb, "q", workqueue.Config{
		MaxAttempts: attempts, Backoff: workqueue.Backoff{Base: time.Millisecond},
	}), t.TempDir()}
}

func (w *world) enqueue(id, payload string) {
	w.t.Helper()
	it := testutil.Must(artifact.Item(id, []byte(payload)))(w.t)
	testutil.Must(w.q.Enqueue(w.t.Context(), it))(w.t)
}

// drain fetches until no item is open.
func (w *world) drain(workers int, cfg artifact.FetcherConfig) {
	w.t.Helper()
	cfg.Dir, cfg.Logger = w.dir, slog.New(slog.DiscardHandler)
	if cfg.Filter == nil {
		cfg.Filter = local
	}
	f := testutil.Must(artifact.NewFetcher(cfg))(w.t)
	p := testutil.Must(workqueue.NewPool(w.q, workqueue.Handlers{artifact.FetchKind: f.Handle}, workqueue.PoolConfig{Workers: workers, Drain: true}))(w.t)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := p.Run(ctx); err != nil || ctx.Err() != nil {
		s, _ := w.q.Stats(w.t.Context())
		w.t.Fatalf("run: got %v, %v; want nil; %+v", err, ctx.Err(), s)
	}
}

// want checks the final state of an item: state, used attempts and a part of the note.
func (w *world) want(id string, state workqueue.State, attempts int, note string) {
	w.t.Helper()
	got, err := w.q.Get(w.t.Context(), id)
	if err != nil || len(got) != 1 {
		w.t.Fatalf("%s: got %v, %v; want one item", id, got, err)
	}
	if it := got[0]; it.State != state || it.Attempts != attempts || !strings.Contains(it.Note, note) {
		w.t.Errorf("%s is %s after %d attempts, %q; want %s, %d, %q", id, it.State, it.Attempts, it.Note, state, attempts, note)
	}
}

// host serves h and records the times and the concurrency of requests.
type host struct {
	*httptest.Server
	mu       sync.Mutex // guards the fields below
	times    []time.Time
	now, max int
}

func newHost(t *testing.T, h http.HandlerFunc) *host {
	s := &host{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.times = append(s.times, time.Now())
		s.now++
		s.max = max(s.max, s.now)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.now--
			s.mu.Unlock()
		}()
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *host) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

// apart checks that the average interval between requests is at least d, minus the time in transit.
func (s *host) apart(t *testing.T, d time.Duration) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, last := s.times[0], s.times[len(s.times)-1]; last.Sub(first) < time.Duration(len(s.times)-1)*d-50*time.Millisecond {
		t.Errorf("%d requests within %v, want %v between them", len(s.times), last.Sub(first), d)
	}
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// A URL that robots.txt disallows is skipped. If robots.txt is unavailable, nothing is fetched.
func TestRobotsAreObeyed(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(w, "user-agent: muster\ndisallow: /private\n")
		case "/in":
			http.Redirect(w, r, "/private/x", http.StatusFound)
		default:
			hello(w, r)
		}
	})
	down := newHost(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	w := newWorld(t, 1)
	w.enqueue("open", `{"url":"`+h.URL+`/x"}`)
	w.enqueue("private", `{"url":"`+h.URL+`/private/x"}`)
	w.enqueue("led in", `{"url":"`+h.URL+`/in"}`)
	w.enqueue("unknown", `{"url":"`+down.URL+`/x"}`)
	w.drain(2, artifact.FetcherConfig{Robots: true})
	w.want("open", workqueue.StateDone, 0, "")
	w.want("private", workqueue.StateSkipped, 0, "disallowed by robots.txt")
	w.want("led in", workqueue.StateSkipped, 0, "disallowed by robots.txt")
	w.want("unknown", workqueue.StateError, 1, "fetch robots.txt")
	if n := h.asked(); n != 3 {
		t.Errorf("the host received %d requests, want 3: robots.txt and the two allowed pages", n)
	}
	if n := down.asked(); n != 1 {
		t.Errorf("the host without robots.txt received %d requests, want 1 for robots.txt", n)
	}
}

// The configured pace or the crawl delay of a host is respected. Waiting items use neither attempts nor workers.
func TestPaceIsKept(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		pace  time.Duration
		fast  int // items of the other host
		delay string
	}{
		"own pace":    {pace: 800 * time.Millisecond, fast: 3},
		"crawl delay": {fast: 40, delay: "user-agent: *\ncrawl-delay: 0.8\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := newHost(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/robots.txt" {
					_, _ = io.WriteString(w, m.delay)
				}
			})
			fast := newHost(t, hello)
			w := newWorld(t, 1)
			for i := range 6 {
				w.enqueue(fmt.Sprint("slow", i), `{"url":"`+slow.URL+`/x"}`)
			}
			for i := range m.fast {
				w.enqueue(fmt.Sprint("fast", i), `{"url":"`+fast.URL+`/x"}`)
			}
			w.drain(2, artifact.FetcherConfig{
				Pacer:  limit.NewPacer(w.rdb, limit.PacerConfig{Interval: m.pace}),
				Robots: m.delay != "",
			})
			slow.apart(t, 300*time.Millisecond)
			for i := range 6 {
				w.want(fmt.Sprint("slow", i), workqueue.StateDone, 0, "")
			}
			// The fast items ran while the slow ones waited.
			if last, slowest := fast.times[len(fast.times)-1], slow.times[len(slow.times)-1]; last.After(slowest) {
				t.Errorf("the last fast item came %v after the last slow one, want before it", last.Sub(slowest))
			}
		})
	}
}

// A failing host receives no more requests: its items fail without one.
func TestBreakerStopsRequestsToTheHost(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	other := newHost(t, hello)
	w := newWorld(t, 1)
	for i := range 20 {
		w.enqueue(fmt.Sprint("a", i), `{"url":"`+h.URL+`/x"}`)
	}
	w.enqueue("other", `{"url":"`+other.URL+`/x"}`)
	b := limit.NewBreaker(w.rdb, limit.BreakerConfig{Threshold: 3, Cooldown: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	w.drain(1, artifact.FetcherConfig{Breaker: b})
	if n := h.asked(); n != 3 {
		t.Errorf("the failing host received %d requests, want 3", n)
	}
	w.want("a0", workqueue.StateError, 1, "502")
	w.want("a19", workqueue.StateError, 1, "circuit breaker open")
	w.want("other", workqueue.StateDone, 0, "")
	s, err := b.State(t.Context(), artifact.HostKey+strings.TrimPrefix(h.URL, "http://"))
	if err != nil || s.State != "open" || !strings.HasPrefix(s.LastBlock, "502") {
		t.Errorf("got %+v, %v; want open by 502", s, err)
	}
}

func TestFetchLimitsAndErrors(t *testing.T) {
	t.Parallel()
	var agent atomic.Value
	var h *host
	h = newHost(t, func(w http.ResponseWriter, r *http.Request) {
		agent.Store(r.UserAgent())
		switch r.URL.Path {
		case "/stall":
			_, _ = io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/secret":
			http.Redirect(w, r, strings.Replace(h.URL, "http://", "ftp://user:hunter2@", 1), http.StatusFound)
		}
	})
	w := newWorld(t, 1)
	w.enqueue("stall", `{"url":"`+h.URL+`/stall"}`)
	w.enqueue("file", `{"url":"`+h.URL+`/file"}`)
	w.enqueue("secret", `{"url":"`+h.URL+`/secret?token=hunter2"}`)
	w.enqueue("dead", `{"url":"http://127.0.0.1:1/?token=hunter2"}`)
	w.drain(4, artifact.FetcherConfig{Stall: 100 * time.Millisecond})
	w.want("stall", workqueue.StateError, 1, "no data received for 100ms")
	w.want("file", workqueue.StateError, 1, "not an http or https URL")
	w.want("dead", workqueue.StateError, 1, "connection refused")
	for _, id := range []string{"secret", "dead"} {
		if got, _ := w.q.Get(t.Context(), id); strings.Contains(got[0].Note, "hunter2") {
			t.Errorf("%s: got note %s, want no secret in it", id, got[0].Note)
		}
	}
	if a := agent.Load(); a != "muster/1.0" {
		t.Errorf("got user agent %q, want muster/1.0", a)
	}
	if _, err := artifact.NewFetcher(artifact.FetcherConfig{Dir: w.dir, UserAgent: "a\nb"}); err == nil {
		t.Error("a user agent with a line break: got nil, want an error")
	}
}

// Content files are complete or do not exist. Partial files of killed processes are removed.
func TestContentsAreComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	incoming := filepath.Join(w.dir, "incoming")
	testutil.Ok(t, os.MkdirAll(incoming, 0o755))
	old, young := filepath.Join(incoming, "old.part"), filepath.Join(incoming, "young.part")
	for _, name := range []string{old, young} {
		testutil.Ok(t, os.WriteFile(name, []byte("x"), 0o644))
	}
	testutil.Ok(t, os.Chtimes(old, time.Time{}, time.Now().Add(-2*time.Hour)))
	inside := make(chan struct{})
	h := newHost(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin ")
		w.(http.Flusher).Flush()
		<-inside
		_, _ = io.WriteString(w, "end")
	})
	w.enqueue("a", `{"url":"`+h.URL+`"}`)
	contents := func() []string {
		files, err := filepath.Glob(filepath.Join(w.dir, "??", "*"))
		if err != nil {
			t.Error(err)
		}
		return files
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.drain(1, artifact.FetcherConfig{}) })
	testutil.Eventually(t, "the partial file exists", func() bool {
		parts, _ := filepath.Glob(filepath.Join(incoming, "*.part"))
		for _, p := range parts {
			if data, _ := os.ReadFile(p); string(data) == "begin " {
				return true
			}
		}
		return false
	})
	if c := contents(); len(c) != 0 {
		t.Errorf("got contents %v of a partial file, want none", c)
	}
	close(inside)
	wg.Wait()
	if c := contents(); len(c) != 1 {
		t.Fatalf("got contents %v, want one", c)
	} else if data, err := os.ReadFile(c[0]); err != nil || string(data) != "begin end" {
		t.Errorf("got content %q, %v; want begin end", data, err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("an old partial file exists, want it removed")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("a partial file that may be in use was removed, want it kept")
	}
}

// The address of an item must be public or explicitly allowed. Otherwise the item fails at once without a request, and no
// breaker counts a failure.
func TestItemsDoNotReachPrivateAddresses(t *testing.T) {
	t.Parallel()
	inside := newHost(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	open := newHost(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		http.Redirect(w, r, "http://"+strings.TrimPrefix(r.URL.Path, "/"), http.StatusFound)
	})
	allowed := testutil.Must(addressfilter.New(open.Listener.Addr().String()))(t)
	urls := []string{
		inside.URL, "http://file.test:" + port, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port,
		open.URL + "/127.0.0.1:" + port, open.URL + "/file.test:" + port, open.URL + "/169.254.169.254", open.URL + "/[::ffff:169.254.169.254]",
	}
	for _, robots := range []bool{false, true} {
		w := newWorld(t, 3)
		for i, u := range urls {
			w.enqueue(fmt.Sprint(i), fmt.Sprintf(`{"url":%q}`, u))
		}
		b := limit.NewBreaker(w.rdb, limit.BreakerConfig{Threshold: 1, Cooldown: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		w.drain(2, artifact.FetcherConfig{Filter: allowed, Breaker: b, Robots: robots})
		for i := range urls {
			w.want(fmt.Sprint(i), workqueue.StateError, 0, "network.allow")
		}
		if n := len(inside.times); n != 0 {
			t.Errorf("with robots.txt %v: got %d requests, want none", robots, n)
		}
		states := testutil.Must(b.States(t.Context()))(t)
		for _, s := range states {
			if s.State != "closed" {
				t.Errorf("with robots.txt %v: the breaker of %s is %s, want closed", robots, s.Key, s.State)
			}
		}
	}
}
