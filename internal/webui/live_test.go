package webui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

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

// loggedIn serves the page "shown" with the data of ask and a middleware that identifies users by the header User.
func loggedIn(t *testing.T, log *slog.Logger, users map[string]*user, ask Ask) *httptest.Server {
	t.Helper()
	s := New(Config{
		Pages: fstest.MapFS{"pages/shown.html": {Data: []byte(`{{define "main"}}{{.Data}}{{end}}`)}},
		May:   func(*http.Request, Class) bool { return false },
		Reads: func(r *http.Request) string {
			if isAdmin(r.Context()) {
				return "all"
			}
			return ""
		},
		Logger: log,
	})
	shown := s.Page("shown", ask)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, users[r.Header.Get("User")])))
	}))
	t.Cleanup(server.Close)
	return server
}

// live opens a page as a user and returns a function that reads the next event, "" at the end.
func live(t *testing.T, server *httptest.Server, path, user string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("User", user)
	res, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	return func() string {
		event := ""
		for lines.Scan() {
			if lines.Text() == "" && strings.HasPrefix(event, "event: ") {
				return event
			}
			event += lines.Text() + "\n"
			if lines.Text() == "" {
				event = ""
			}
		}
		return event
	}
}

// records counts errors in a log.
type records struct {
	slog.Handler
	n atomic.Int64
}

func (*records) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (h *records) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "page panicked" {
		h.n.Add(1)
	}
	return nil
}

// A live page is rendered with the values of the context of the request, and never shared between readers with different permissions.
// A reader whose permissions change gets no further update.
func TestLivePagesUseTheRightsOfTheirReaders(t *testing.T) {
	t.Parallel()
	ada, grace, eve := &user{name: "ada"}, &user{name: "grace"}, &user{name: "eve"}
	ada.admin.Store(true)
	grace.admin.Store(true)
	var version atomic.Int64
	server := loggedIn(t, slog.New(slog.DiscardHandler), map[string]*user{"ada": ada, "grace": grace, "eve": eve}, func(ctx context.Context, r *http.Request) (View, error) {
		if userOf(ctx) != userOf(r.Context()) {
			return View{}, errors.New("two users")
		}
		if isAdmin(ctx) {
			return View{Data: []any{"secret", version.Load()}}, nil
		}
		return View{Data: []any{"public", version.Load()}}, nil
	})
	readers := map[string]func() string{}
	for _, name := range []string{"eve", "ada", "grace"} {
		readers[name] = live(t, server, "/", name)
	}
	for name, want := range map[string]string{"eve": "public", "ada": "secret", "grace": "secret"} {
		if got := readers[name](); !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	if got := live(t, server, "/", "mallory")(); !strings.Contains(got, "public") {
		t.Errorf("without a user: got %q, want public", got)
	}

	first, second := live(t, server, "/lowered", "ada"), live(t, server, "/lowered", "grace")
	first()
	second()
	ada.admin.Store(false)
	version.Add(1)
	if got := first(); got != "" {
		t.Errorf("after the rights have changed: got %q, want EOF", got)
	}
	testutil.Eventually(t, "the other reader gets the update", func() bool { return strings.Contains(second(), "secret 1") })
}

// The first update of a reader is not older than the page that it has already, although others read the page before.
func TestFirstUpdateIsNotOlderThanThePage(t *testing.T) {
	t.Parallel()
	var version atomic.Int64
	server := loggedIn(t, slog.New(slog.DiscardHandler), nil, func(context.Context, *http.Request) (View, error) {
		return View{Data: fmt.Sprintf("version %d.", version.Load())}, nil
	})
	if got := live(t, server, "/", "")(); !strings.Contains(got, "version 0.") {
		t.Fatalf("got %q, want version 0", got)
	}
	for i := range int64(5) {
		version.Store(i + 1)
		if got, want := live(t, server, "/", "")(), fmt.Sprintf("version %d.", i+1); !strings.Contains(got, want) {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

// A page that panics shows an error, is logged once and is not rendered again, like a page that does not change. Other pages are
// updated as before.
func TestPanicOfALivePageEndsThatPageOnly(t *testing.T) {
	t.Parallel()
	log := &records{}
	var good, bad, fixed atomic.Int64
	server := loggedIn(t, slog.New(log), nil, func(_ context.Context, r *http.Request) (View, error) {
		if r.URL.Path == "/bad" && bad.Add(1) > 1 {
			panic("a bug of the page")
		}
		if r.URL.Path == "/fixed" {
			return View{Data: fixed.Add(1), Fixed: true}, nil
		}
		return View{Data: good.Add(1)}, nil
	})
	live(t, server, "/fixed", "")()
	panics, next := live(t, server, "/bad", ""), live(t, server, "/good", "")
	panics()
	if got := panics(); !strings.Contains(got, "event: trouble") || !strings.Contains(got, errPanic.Error()) || strings.Contains(got, "nil map") {
		t.Errorf("got %q, want the event trouble with %q", got, errPanic)
	}
	for range 3 {
		if got := next(); !strings.Contains(got, "event: main") {
			t.Fatalf("another page: got %q, want updates", got)
		}
	}
	if got := live(t, server, "/bad", "")(); !strings.Contains(got, errPanic.Error()) {
		t.Errorf("a later reader: got %q, want %q", got, errPanic)
	}
	if log.n.Load() != 1 || bad.Load() != 2 || fixed.Load() != 1 {
		t.Errorf("got %d log records, %d renderings, and %d of a page that does not change, want 1, 2 and 1", log.n.Load(), bad.Load(), fixed.Load())
	}
}
