package fetch

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"muster/internal/addressfilter"
)

// guests is a site that gives each visitor a cookie, and remembers of each
// request who it was.
type guests struct {
	mu       sync.Mutex
	given    int
	requests []guest
	answer   func(g guest, n int) (status int, header string) // n: so many requests of this visitor before
}

type guest struct{ path, visitor, was, agent, language, way string }

func (g *guests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := guest{path: r.URL.Path, agent: r.UserAgent(), language: r.Header.Get("Accept-Language"), way: r.Header.Get("X-Way")}
	if c, err := r.Cookie("was"); err == nil {
		seen.was = c.Value
	}
	if c, err := r.Cookie("visitor"); err == nil {
		seen.visitor = c.Value
	} else if r.URL.Path != "/robots.txt" {
		g.given++
		seen.visitor = fmt.Sprint("v", g.given)
		http.SetCookie(w, &http.Cookie{Name: "visitor", Value: seen.visitor, Path: "/"})
	}
	n := 0
	for _, old := range g.requests {
		if old.visitor == seen.visitor {
			n++
		}
	}
	g.requests = append(g.requests, seen)
	status, header := 200, ""
	if g.answer != nil {
		status, header = g.answer(seen, n)
	}
	switch {
	case r.URL.Path == "/robots.txt":
		fmt.Fprint(w, "User-agent: *\nDisallow: /private\n")
		return
	case r.URL.Path == "/moved":
		http.Redirect(w, r, "/there", http.StatusFound)
		return
	case status == 429 && header != "":
		w.Header().Set("Retry-After", header)
	}
	w.WriteHeader(status)
	fmt.Fprint(w, page)
}

// by groups the requests by visitor, in the order of their first.
func (g *guests) by() (order []string, of map[string][]guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of = map[string][]guest{}
	for _, r := range g.requests {
		if r.path == "/robots.txt" {
			continue
		}
		if of[r.visitor] == nil {
			order = append(order, r.visitor)
		}
		of[r.visitor] = append(of[r.visitor], r)
	}
	return order, of
}

// ways are routes that show in a header by which of them a request went.
type ways struct {
	mu     sync.Mutex
	made   int
	closed []string
	before map[string]string
	fail   func(way string) error
}

type way struct {
	ways *ways
	name string
}

type wayKey struct{}

func (w *way) Bind(ctx context.Context) context.Context {
	return context.WithValue(ctx, wayKey{}, w)
}

func (w *way) Close() {
	w.ways.mu.Lock()
	defer w.ways.mu.Unlock()
	w.ways.closed = append(w.ways.closed, w.name)
}

func (w *ways) route(before Route) Route {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	next := &way{w, fmt.Sprint("w", w.made)}
	if b, ok := before.(*way); ok {
		if w.before == nil {
			w.before = map[string]string{}
		}
		w.before[next.name] = b.name
	}
	return next
}

func (w *ways) RoundTrip(r *http.Request) (*http.Response, error) {
	if way, ok := r.Context().Value(wayKey{}).(*way); ok {
		if w.fail != nil {
			if err := w.fail(way.name); err != nil {
				return nil, err
			}
		}
		r = r.Clone(r.Context())
		r.Header.Set("X-Way", way.name)
	}
	return plainTransport.RoundTrip(r)
}

// local is a filter that lets tests reach their servers.
var local, _ = addressfilter.New(addressfilter.Local()...)

var plainTransport = DirectTransport(local)

const profiles = `
  profiles:
    - {name: a, headers: {User-Agent: agent-a, Accept-Language: de}}
    - {name: b, headers: {user-agent: agent-b}}
`

func visitors(t *testing.T, g *guests, rest string) (*Client, *ways, string) {
	t.Helper()
	def, base := site(t, g.ServeHTTP, rest)
	w := &ways{}
	c := NewClient(Config{Definition: def, Clock: free{}, Transport: w, Route: w.route, Via: func(r *http.Response) string { return r.Request.Header.Get("X-Way") }})
	t.Cleanup(c.Close)
	return c, w, base
}
