package fetch

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"muster/internal/addressfilter"
)

// guests is a site that sets a cookie for each visitor and records the visitor of each request.
type guests struct {
	mu       sync.Mutex
	given    int
	requests []visit
	answer   func(g visit, n int) (status int, header string) // n: requests of this visitor so far
}

type visit struct{ path, visitor, was, agent, route string }

func (g *guests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := visit{path: r.URL.Path, agent: r.UserAgent(), route: r.Header.Get("X-Route")}
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

// by groups the requests by visitor, in order of the visitors' first requests.
func (g *guests) by() (order []string, of map[string][]visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of = map[string][]visit{}
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

// routes creates routes that add their name to a request, in the header X-Route.
type routes struct {
	mu   sync.Mutex
	made int
	fail func(route string) error
}

type route struct {
	routes *routes
	name   string
}

type routeKey struct{}

func (w *route) Bind(ctx context.Context) context.Context {
	return context.WithValue(ctx, routeKey{}, w)
}

func (w *routes) route() Route {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	return &route{w, fmt.Sprint("w", w.made)}
}

func (w *routes) RoundTrip(r *http.Request) (*http.Response, error) {
	if route, ok := r.Context().Value(routeKey{}).(*route); ok {
		if w.fail != nil {
			if err := w.fail(route.name); err != nil {
				return nil, err
			}
		}
		r = r.Clone(r.Context())
		r.Header.Set("X-Route", route.name)
	}
	return plainTransport.RoundTrip(r)
}

// local is a filter that allows loopback.
var local, _ = addressfilter.New(addressfilter.Local()...)

var plainTransport = DirectTransport(local)

func newGuests(t *testing.T, g *guests, rest string) (*Client, *routes, string) {
	t.Helper()
	def, base := site(t, g.ServeHTTP, rest)
	w := &routes{}
	c := NewClient(Config{Definition: def, Clock: free{}, Transport: w, Route: w.route, Via: func(r *http.Response) string { return r.Request.Header.Get("X-Route") }})
	t.Cleanup(c.Close)
	return c, w, base
}
