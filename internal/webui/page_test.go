package webui

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"muster/internal/testutil"
)

type userKey struct{}

// user is the session of a request, which a login middleware stores in the context.
type user struct {
	name  string
	admin atomic.Bool
}

func userOf(ctx context.Context) *user {
	u, _ := ctx.Value(userKey{}).(*user)
	return u
}

func isAdmin(ctx context.Context) bool { u := userOf(ctx); return u != nil && u.admin.Load() }

// served returns a handler of a page with the data of ask. Its permissions depend on the user in the context.
func served(log *slog.Logger, ask Ask) http.Handler {
	return New(Config{
		Pages: fstest.MapFS{"pages/shown.html": {Data: []byte(`{{define "main"}}{{.Data}}{{end}}`)}},
		May:   func(*http.Request) bool { return false },
		Reads: func(r *http.Request) string { return fmt.Sprint(isAdmin(r.Context())) },

		Logger: log,
	}).Page("shown", ask)
}

var silent = slog.New(slog.DiscardHandler)

// get requests a page as a user. tag is "" for a full load.
func get(ctx context.Context, h http.Handler, path, tag string, u *user) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, userKey{}, u), http.MethodGet, path, nil)
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Concurrent polls of a page share a rendering, even if the first client disconnects. A poll after one second renders the page again,
// and has no content if the page is unchanged.
func TestPollsShareRenderings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var renderings atomic.Int64
		h := served(silent, func(ctx context.Context, _ *http.Request) (View, error) {
			renderings.Add(1)
			time.Sleep(500 * time.Millisecond)
			return View{Data: "unchanged"}, ctx.Err()
		})
		var polls sync.WaitGroup
		first, disconnect := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer disconnect()
		polls.Go(func() { get(first, h, "/", "none", nil) })
		synctest.Wait()
		for range 100 {
			polls.Go(func() {
				if w := get(t.Context(), h, "/", "none", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "unchanged") || w.Header().Get(pollHeader) != "1" {
					t.Errorf("got %d %v %s, want the page and an interval of 1 s", w.Code, w.Header(), w.Body)
				}
			})
		}
		polls.Wait()
		if got := renderings.Load(); got != 1 {
			t.Errorf("101 polls rendered the page %d times, want once", got)
		}
		tag := get(t.Context(), h, "/", "none", nil).Header().Get("ETag")
		time.Sleep(time.Second)
		if w := get(t.Context(), h, "/", tag, nil); w.Code != http.StatusNotModified || w.Body.Len() > 0 || renderings.Load() != 2 {
			t.Errorf("after a second: got %d and %d bytes after %d renderings, want 304 and two renderings", w.Code, w.Body.Len(), renderings.Load())
		}
	})
}

// A full load is always rendered. A poll after it is not older, although an earlier rendering finishes later.
func TestPollIsNotOlderThanPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Int64
		h := served(silent, func(_ context.Context, r *http.Request) (View, error) {
			v := version.Load()
			if r.Header.Get("If-None-Match") != "" {
				time.Sleep(time.Second) // a slow rendering for a poll
			}
			return View{Data: v}, nil
		})
		body := func(tag string) string { return get(t.Context(), h, "/", tag, nil).Body.String() }
		go body("none")
		synctest.Wait()
		version.Store(1)
		if got := body(""); !strings.Contains(got, ">1</main>") {
			t.Errorf("a full load: got %s, want version 1", got)
		}
		for range 2 {
			if got := body("none"); !strings.Contains(got, ">1</main>") {
				t.Errorf("a poll after it: got %s, want version 1", got)
			}
			time.Sleep(500 * time.Millisecond) // the slow rendering ends
		}
	})
}

// The more pages are open, the less often each is rendered. A page may set a longer interval.
func TestIntervalOfPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var renderings atomic.Int64
		h := served(silent, func(_ context.Context, r *http.Request) (View, error) {
			renderings.Add(1)
			if r.URL.Path == "/slow" {
				return View{Every: 7 * time.Second}, nil
			}
			return View{}, nil
		})
		if got := get(t.Context(), h, "/slow", "none", nil).Header().Get(pollHeader); got != "2" {
			t.Errorf("a page that changes slowly: got an interval of %q s, want 2", got)
		}
		time.Sleep(time.Minute)
		for page := range 100 {
			get(t.Context(), h, fmt.Sprint("/", page), "", nil)
		}
		if got := get(t.Context(), h, "/", "none", nil).Header().Get(pollHeader); got != "1" {
			t.Errorf("pages that were loaded but are not open: got an interval of %q s, want 1", got)
		}
		time.Sleep(time.Minute)
		renderings.Store(0)
		for range 60 { // seconds
			for page := range 100 {
				get(t.Context(), h, fmt.Sprint("/", page), "none", nil)
			}
			time.Sleep(time.Second)
		}
		if got := renderings.Load(); got < 300 || got > 600 {
			t.Errorf("100 open pages were rendered %d times in a minute, want 300 to 600 times", got)
		}
	})
}

// A page is rendered with the context of the request, and shared only between readers with equal permissions.
// Changed permissions apply to the next poll.
func TestPollsHaveThePermissionsOfTheirReader(t *testing.T) {
	t.Parallel()
	ada, grace, eve := &user{name: "ada"}, &user{name: "grace"}, &user{name: "eve"}
	ada.admin.Store(true)
	grace.admin.Store(true)
	lowered := func() {}
	h := served(silent, func(ctx context.Context, r *http.Request) (View, error) {
		if userOf(ctx) != userOf(r.Context()) {
			return View{}, errors.New("two users")
		}
		if isAdmin(ctx) {
			lowered()
			return View{Data: "secret"}, nil
		}
		return View{Data: "public"}, nil
	})
	for range 2 {
		for u, want := range map[*user]string{ada: "secret", grace: "secret", eve: "public", nil: "public"} {
			w := get(t.Context(), h, "/", "none", u)
			if got := w.Body.String(); !strings.Contains(got, want) {
				t.Errorf("%+v: got %s, want %s", u, got, want)
			}
		}
	}
	ada.admin.Store(false)
	if got := get(t.Context(), h, "/", "none", ada).Body.String(); strings.Contains(got, "secret") {
		t.Errorf("after the permissions have changed: got %s", got)
	}
	lowered = func() { grace.admin.Store(false) }
	if w := get(t.Context(), h, "/lowered", "none", grace); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("permissions that change during the rendering: got %d %s, want 503", w.Code, w.Body)
	}
}

// A page that panics shows an error and is logged. It recovers, and other pages are not affected.
func TestPageThatPanics(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	bad := true
	h := served(slog.New(slog.NewTextHandler(&log, nil)), func(context.Context, *http.Request) (View, error) {
		if bad {
			panic("a bug of the page")
		}
		return View{Data: "fine"}, nil
	})
	for _, tag := range []string{"", "none"} {
		if w := get(t.Context(), h, "/", tag, nil); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), errInternal.Error()) || strings.Contains(w.Body.String(), "a bug") {
			t.Errorf("If-None-Match %q: got %d %s, want 500 and %q", tag, w.Code, w.Body, errInternal)
		}
	}
	if got := strings.Count(log.String(), "page panicked"); got != 2 {
		t.Errorf("got %d log records of two panics: %s", got, log.String())
	}
	bad = false
	if w := get(t.Context(), h, "/other", "none", nil); w.Code != http.StatusOK {
		t.Errorf("another page: got %d", w.Code)
	}
}

// Pages are compressed for clients that accept it.
func TestPagesAreCompressed(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a long page ", 1000)
	server := testutil.Serve(t, served(silent, func(context.Context, *http.Request) (View, error) { return View{Data: text}, nil }))
	for _, encoding := range []string{"gzip", "identity"} {
		r := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil))(t)
		r.Header.Set("Accept-Encoding", encoding)
		res := testutil.Must(server.Client().Do(r))(t)
		defer res.Body.Close()
		raw := testutil.Must(io.ReadAll(res.Body))(t)
		if compressed := res.Header.Get("Content-Encoding") == "gzip"; compressed != (encoding == "gzip") || compressed == (len(raw) > len(text)) {
			t.Errorf("%s: got %v and %d bytes", encoding, res.Header, len(raw))
		}
		if encoding == "gzip" {
			z, err := gzip.NewReader(strings.NewReader(string(raw)))
			testutil.Ok(t, err)
			if raw, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(string(raw), text) {
			t.Errorf("%s: got %.500s, want the page", encoding, raw)
		}
	}
}

// Errors are not kept, and the number of values is limited.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c Cache[int]
	reads := 0
	for i := range 3 * maxCached {
		v, err := c.Get(t.Context(), fmt.Sprint(i), func(context.Context) (int, time.Duration, error) { reads++; return i, time.Hour, nil })
		if v != i || err != nil {
			t.Fatalf("got %d, %v, want %d", v, err, i)
		}
	}
	if c.Used() != maxCached || reads != 3*maxCached {
		t.Errorf("got %d values after %d reads, want %d", c.Used(), reads, maxCached)
	}
	c = Cache[int]{}
	for _, want := range []error{errInternal, nil} {
		if _, err := c.Get(t.Context(), "0", func(context.Context) (int, time.Duration, error) { return 0, time.Hour, want }); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// While Redis does not respond, polls get 503 after three seconds and full loads after four.
func TestUnresponsiveRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{
			Pages: fstest.MapFS{"pages/shown.html": {Data: []byte(`{{define "main"}}{{end}}`)}},
			May:   func(*http.Request) bool { return false }, Logger: silent,
			Explain: func(err error) (int, string, bool) {
				return http.StatusServiceUnavailable, "Redis is unavailable", errors.Is(err, context.DeadlineExceeded)
			},
		}).Page("shown", func(ctx context.Context, _ *http.Request) (View, error) {
			<-ctx.Done()
			return View{}, ctx.Err()
		})
		for tag, want := range map[string]time.Duration{"": 4 * time.Second, "none": 3 * time.Second} {
			began := time.Now()
			w := get(t.Context(), h, "/", tag, nil)
			if took := time.Since(began); took != want || w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "<h1>Redis is unavailable</h1>") {
				t.Errorf("If-None-Match %q: got %d after %s, want 503 after %s: %s", tag, w.Code, took, want, w.Body)
			}
		}
	})
}

// A poll fails during an outage, although its page need not be rendered again yet. Polls share the ping.
func TestPollNoticesOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var pings atomic.Int64
		var outage atomic.Bool
		h := New(Config{
			Pages: fstest.MapFS{"pages/shown.html": {Data: []byte(`{{define "main"}}{{end}}`)}},
			May:   func(*http.Request) bool { return false }, Logger: silent,
			Ping: func(ctx context.Context) error {
				pings.Add(1)
				if outage.Load() {
					<-ctx.Done()
				}
				return ctx.Err()
			},
		}).Page("shown", func(context.Context, *http.Request) (View, error) { return View{Every: time.Hour}, nil })
		for range 5 {
			if w := get(t.Context(), h, "/", "none", nil); w.Code != http.StatusOK || pings.Load() != 1 {
				t.Fatalf("got %d after %d pings, want 200 after one", w.Code, pings.Load())
			}
		}
		outage.Store(true)
		time.Sleep(time.Second)
		began := time.Now()
		if w := get(t.Context(), h, "/", "none", nil); w.Code < 500 || time.Since(began) != 3*time.Second {
			t.Errorf("during an outage: got %d after %s, want an error after 3 s", w.Code, time.Since(began))
		}
	})
}

// The navigation has counts, a poll notices that they change, and a page is shown without them if they are not available.
func TestNavigationHasCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n int64
		var failed error
		h := New(Config{
			Pages: fstest.MapFS{"pages/shown.html": {Data: []byte(`{{define "main"}}{{end}}`)}},
			May:   func(*http.Request) bool { return false },
			Menu:  []Link{{Text: "To do", URL: "/todo"}, {Text: "Workers", URL: "/workers"}},
			Counts: func(context.Context) (map[string]Count, error) {
				return map[string]Count{"/todo": {n, "open", false}}, failed
			},
			Logger: silent,
		}).Page("shown", func(context.Context, *http.Request) (View, error) { return View{}, nil })
		const none, one = `<a href="/todo">To do</a>`, `<a href="/todo">To do <span class="count">1<span class="off"> open</span></span></a>`
		w := get(t.Context(), h, "/", "", nil)
		if !strings.Contains(w.Body.String(), none) || !strings.Contains(w.Body.String(), `<a href="/workers">Workers</a>`) {
			t.Errorf("got %s, want no counts", w.Body)
		}
		n = 1
		time.Sleep(keepCounts)
		if w := get(t.Context(), h, "/", w.Header().Get("ETag"), nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), one) {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, one)
		}
		failed = errors.New("redis is away")
		time.Sleep(keepCounts)
		if w := get(t.Context(), h, "/", "", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), none) {
			t.Errorf("got %d %s, want a page without counts", w.Code, w.Body)
		}
	})
}

// The cells of a table with a head get the titles of their columns, also cells that depend on conditions. Other tables are unchanged.
func TestCellsHaveTitles(t *testing.T) {
	t.Parallel()
	const fields = `<table class="fields"><tbody><tr><th scope="row">A</th><td>1</td></tr></tbody></table><table><tbody><tr><td>1</td></tr></tbody></table>`
	for text, want := range map[string]string{
		`<table>
<thead><tr>{{if .}}<th scope="col" class="tight"><input data-all><span>Select</span></th>{{end}}<th scope="col">Task</th><th scope="col" class="n">Failed</th></tr></thead>
<tbody>{{range .}}<tr id="a">{{if .}}<td><input></td>{{end}}<td>{{.}}</td><td class="n{{if .}} bad{{end}}">1</td></tr><tr><td colspan="3"></td></tr>{{end}}</tbody></table>` + fields: `<table class="cards">
<thead><tr>{{if .}}<th scope="col" class="tight"><input data-all><span>Select</span></th>{{end}}<th scope="col">Task</th><th scope="col" class="n">Failed</th></tr></thead>
<tbody>{{range .}}<tr id="a">{{if .}}<td data-title="Select"><input></td>{{end}}<td data-title="Task">{{.}}</td><td data-title="Failed" class="n{{if .}} bad{{end}}">1</td></tr><tr><td colspan="3"></td></tr>{{end}}</tbody></table>` + fields,
		`<table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr>{{if .}}<td>1</td>{{else}}<td colspan="1">–</td>{{end}}<td>2</td></tr></tbody></table>`: `<table class="cards"><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr>{{if .}}<td data-title="A">1</td>{{else}}<td colspan="1">–</td>{{end}}<td data-title="B">2</td></tr></tbody></table>`,
	} {
		got, err := fs.ReadFile(templates{fstest.MapFS{"a.html": {Data: []byte(text)}}}, "a.html")
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a row with more cells than columns is accepted")
		}
	}()
	cards(`<table><thead><tr><th>A</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>`)
}

// A client that disconnects during a rendering does not cause an error.
func TestDisconnectIsNotAFailure(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := New(Config{May: func(*http.Request) bool { return false }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for left, want := range map[bool]string{false: "page failed", true: ""} {
		log.Reset()
		ctx, leave := context.WithCancel(t.Context())
		if left {
			leave()
		}
		w := httptest.NewRecorder()
		s.Fail(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), context.Canceled)
		leave()
		if got := log.String(); !bytes.Contains(log.Bytes(), []byte(want)) || want == "" && (got != "" || w.Body.Len() > 0) {
			t.Errorf("left %v: got the log %q and %d bytes, want %q", left, got, w.Body.Len(), want)
		}
	}
}

func TestPlainTextHidesNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"äöü\n\tשלום": "äöü\n\tשלום", "a\u202eb\u2066c": `a\u202eb\u2066c`, "\x1b[31m\x00": `\u001b[31m\u0000`, "\xff": `\ufffd`, "": "",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
