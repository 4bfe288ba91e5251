package render

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// stub is a Renderer without a browser.
type stub func(Request) (*http.Response, error)

func (f stub) Render(_ context.Context, r Request) (*http.Response, error) { return f(r) }
func (stub) Check() error                                                  { return nil }

// A Client returns the page, or the error with its class, of the Renderer behind a Handler.
func TestClientUsesAHandler(t *testing.T) {
	t.Parallel()
	var got Request
	h := &Handler{Logger: slog.New(slog.DiscardHandler), Renderer: stub(func(r Request) (*http.Response, error) {
		got = r
		if strings.HasSuffix(r.URL, "/slow") {
			return nil, &Error{Timeout, errors.New("too slow")}
		}
		header := http.Header{urlHeader: {"http://shop.example/here"}, "Set-Cookie": {"a=1", "b=2"}}
		return &http.Response{StatusCode: 410, Header: header, Body: io.NopCloser(strings.NewReader("<h1>Gone</h1>"))}, nil
	})}
	key := "secret"
	h.Key.Store(&key)
	s := testutil.Serve(t, h)
	c := &Client{URL: s.URL, Key: key, HTTP: http.DefaultClient}
	sent := Request{URL: "http://shop.example/there", Headers: map[string]string{"Cookie": "x=1"}, Milliseconds: 5000, Wait: "h1", Session: "one", Proxy: "http://p:1", MaxBytes: 100}
	res := testutil.Must(c.Render(t.Context(), sent))(t)
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 410 || string(text) != "<h1>Gone</h1>" || len(res.Header["Set-Cookie"]) != 2 || res.Header.Get("X-Page-URL") != "http://shop.example/here" {
		t.Errorf("got %d %v %q, %v, want the page", res.StatusCode, res.Header, text, err)
	}
	if got.Headers["Cookie"] != "x=1" || got.Wait != sent.Wait || got.Session != sent.Session || got.Proxy != sent.Proxy || got.timeout() != sent.timeout() || got.maxBytes() != 100 {
		t.Errorf("got the request %+v, want %+v", got, sent)
	}
	for name, want := range map[string]struct {
		client *Client
		url    string
		class  string
		text   string
	}{
		"the class of the Renderer": {c, "http://shop.example/slow", Timeout, "too slow"},
		"an invalid URL":            {c, "ftp://shop.example/", Failed, "http or https"},
		"a wrong key":               {&Client{URL: s.URL, Key: "other", HTTP: http.DefaultClient}, sent.URL, Failed, "wrong or missing key"},
		"no service":                {&Client{URL: "http://127.0.0.1:1/", HTTP: http.DefaultClient}, sent.URL, Failed, "render.url"},
	} {
		_, err := want.client.Render(t.Context(), Request{URL: want.url})
		if e, ok := errors.AsType[*Error](err); !ok || e.Class != want.class || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: got %v, want %s: …%s…", name, err, want.class, want.text)
		}
	}
}

// Without a key, a Handler serves neither other hosts, as of a web page whose name resolves to loopback, nor forms of web pages.
func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	h := &Handler{Logger: slog.New(slog.DiscardHandler), Renderer: stub(func(Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}
	for name, c := range map[string]struct {
		method, host, kind, body string
		status                   int
	}{
		"good":       {"POST", "127.0.0.1:8090", "application/json", `{"url": "http://shop.example/"}`, 200},
		"other host": {"POST", "evil.example:8090", "application/json", `{"url": "http://shop.example/"}`, 403},
		"form":       {"POST", "127.0.0.1:8090", "text/plain", `{"url": "http://shop.example/"}`, 415},
		"GET":        {"GET", "127.0.0.1:8090", "application/json", "", 405},
		"no JSON":    {"POST", "localhost:8090", "application/json", `url=http://shop.example/`, 400},
		"no URL":     {"POST", "[::1]:8090", "application/json", `{}`, 400},
		"too long":   {"POST", "127.0.0.1:8090", "application/json", `{"url": "` + strings.Repeat("x", 2<<20) + `"}`, 400},
	} {
		r := httptest.NewRequest(c.method, "http://"+c.host+"/render", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, c.status)
		}
	}
}
