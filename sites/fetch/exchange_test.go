package fetch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
)

// slowly responds after a wait for a proxy and the response time of the site.
type slowly struct{ proxy, head, body time.Duration }

func (s slowly) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(s.proxy)
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && s.proxy > 0 {
		trace.GetConn("shop.example:80")
	}
	time.Sleep(s.head)
	text := "User-agent: *\nAllow: /\n"
	if req.URL.Path == "/moved" {
		return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"/"}}, Body: http.NoBody, Request: req}, nil
	}
	if req.URL.Path != "/robots.txt" {
		text = "<html><h1>page</h1>" + strings.Repeat("words ", 20)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(&slowBody{strings.NewReader(text), s.body}), Request: req}, nil
}

type slowBody struct {
	io.Reader
	wait time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.wait)
	b.wait = 0
	return b.Reader.Read(p)
}

// Took excludes the time for robots.txt, the request rate and the wait for a proxy.
func TestTookIsTheResponseTimeOfTheSite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by   slowly
		path string
		want time.Duration
	}{
		"without a proxy":      {slowly{head: 50 * time.Millisecond, body: 10 * time.Millisecond}, "/", 60 * time.Millisecond},
		"after a proxy's wait": {slowly{proxy: 3 * time.Second, head: 50 * time.Millisecond, body: 10 * time.Millisecond}, "/", 60 * time.Millisecond},
		"with a redirect":      {slowly{head: 50 * time.Millisecond, body: 10 * time.Millisecond}, "/moved", 110 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: http://shop.example\nstart: [/]\nrecords: {r: {fields: {v: b}}}\npoliteness: {delay: 10s}\n"))
				testutil.Ok(t, err)
				client, began := NewClient(Config{Definition: def, Transport: c.by, Patience: time.Minute}), time.Now()
				page := testutil.Must(client.Get(t.Context(), "http://shop.example"+c.path, definition.KindDetail))(t)
				if waited := time.Since(began); waited < 5*time.Second || page.Took != c.want {
					t.Errorf("after %s: got %s for the page, want %s", waited, page.Took, c.want)
				}
			})
		})
	}
}

// The route of a request, and whether it was sent, determine whether the site or the proxy failed.
func TestFailureIsOfTheSiteOrTheProxy(t *testing.T) {
	t.Parallel()
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/closes":
			panic(http.ErrAbortHandler)
		case "/407":
			w.WriteHeader(http.StatusProxyAuthRequired)
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
		case "/cut":
			w.Header().Set("Content-Length", "5000")
			_, _ = io.WriteString(w, page)
		}
	}, quick)
	direct := NewClient(Config{Definition: def, Clock: free{}})
	for path, class := range map[string]Class{"/closes": Connect, "/407": ClientError, "/500": Server, "/cut": Truncated} {
		_, err := direct.Get(t.Context(), base+path, definition.KindDetail)
		e, _ := errors.AsType[*Error](err)
		if e == nil || e.Class != class || !e.Direct || e.Via != "" || e.OfSite() != (class != ClientError) {
			t.Errorf("%s, directly: got %+v, want %s of the site", path, e, class)
		}
	}
	proxied := NewClient(Config{Definition: def, Clock: free{}, Transport: DirectTransport(local), Via: func(*http.Response) string { return "p1" }})
	for path, class := range map[string]Class{"/407": Proxy, "/500": Server, "/cut": Truncated} {
		_, err := proxied.Get(t.Context(), base+path, definition.KindDetail)
		e, _ := errors.AsType[*Error](err)
		if e == nil || e.Class != class || e.Direct || e.Via != "p1" {
			t.Errorf("%s, through a proxy: got %+v, want %s by p1", path, e, class)
		}
	}
	unsent := NewClient(Config{Definition: def, Clock: free{}, Transport: unsendable{errors.New("the pool is closed")}})
	_, err := unsent.Get(t.Context(), base, definition.KindDetail)
	if e, _ := errors.AsType[*Error](err); e == nil || e.OfSite() {
		t.Errorf("a request that was not sent: got %+v, want an error that is not the site's", e)
	}
}

type unsendable struct{ err error }

func (f unsendable) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// The timeout of a page begins when its request is sent, also after a redirect: waits for the request rate or a crawl delay do
// not count. Each request has the full timeout.
func TestTimeoutBeginsWhenTheRequestIsSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by   slowly
		path string
		want Class
	}{
		"a page":                    {slowly{head: time.Second, body: time.Second / 2}, "/", OK},
		"a redirect":                {slowly{head: time.Second, body: time.Second / 2}, "/moved", OK},
		"a slow response":           {slowly{head: 3 * time.Second}, "/", Timeout},
		"a slow body":               {slowly{head: time.Second, body: 2 * time.Second}, "/", Timeout},
		"a slow wait for a proxy":   {slowly{proxy: 3 * time.Second}, "/", Timeout},
		"a slow page after another": {slowly{head: 3 * time.Second}, "/moved", Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: http://shop.example\nstart: [/]\nrecords: {r: {fields: {v: b}}}\npoliteness: {delay: 6s, robots: false}\nlimits: {page_timeout: 2s}\n"))
				testutil.Ok(t, err)
				client := NewClient(Config{Definition: def, Transport: untilDone{c.by}, Patience: time.Minute})
				for range 2 { // the second one waits for its turn
					if _, err := client.Get(t.Context(), "http://shop.example"+c.path, definition.KindDetail); ClassOf(err) != c.want {
						t.Errorf("got %v, want class %s", err, c.want)
					}
				}
			})
		})
	}
}

// untilDone aborts requests and bodies when their context is done.
type untilDone struct{ slowly }

func (u untilDone) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := u.slowly.RoundTrip(req)
	if req.Context().Err() != nil {
		return nil, req.Context().Err()
	}
	if err == nil {
		res.Body = ctxBody{res.Body, req.Context()}
	}
	return res, err
}

type ctxBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b ctxBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.ctx.Err() != nil {
		return 0, b.ctx.Err()
	}
	return n, err
}
