package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/addressfilter"
	"muster/sites/definition"
)

// Concurrent requests and redirects of a session have the same cookies and route. After a block both change.
func TestSessionIsOneVisitor(t *testing.T) {
	t.Parallel()
	g := &guests{answer: func(r visit, _ int) (int, string) {
		if r.path == "/blocked" {
			return 403, ""
		}
		return 200, ""
	}}
	c, w, base := newGuests(t, g, quick+"cookies: {was: here}\nsession: {start: /}\n")
	for range 2 {
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				path := fmt.Sprint("/p", i)
				if i%4 == 0 {
					path = "/moved"
				}
				if _, err := c.Get(t.Context(), base+path, definition.KindDetail); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := c.Get(t.Context(), base+"/blocked", definition.KindDetail); ClassOf(err) != Blocked {
			t.Errorf("got %v, want %s", err, Blocked)
		}
	}
	order, of := g.by()
	for i, visitor := range order {
		if list := of[visitor]; len(list) != 1+30+8+1 {
			t.Errorf("%s: got %d requests, want 40", visitor, len(list))
		}
		for _, r := range of[visitor] {
			if want := fmt.Sprint("w", i+1); r.route != want || r.was != "here" {
				t.Errorf("%s: got %+v, want the route %s and the cookie of the definition", visitor, r, want)
			}
		}
	}
	c.Close()
	if len(order) != 2 || w.made != 2 {
		t.Errorf("got visitors %v, %d routes, want 2 visitors on w1 and w2", order, w.made)
	}
}

// Some responses and errors end a session, others do not.
func TestSessionEndsWithBlocksAndErrors(t *testing.T) {
	t.Parallel()
	type scenario struct {
		answer func(visit, int) (int, string)
		block  bool // the page is found to be blocked
		fail   error
		pages  int
		want   []int // pages of each visitor
	}
	plain := func(visit, int) (int, string) { return 200, "" }
	second := func(status int) func(visit, int) (int, string) {
		return func(_ visit, n int) (int, string) {
			if n == 1 {
				return status, ""
			}
			return 200, ""
		}
	}
	for name, v := range map[string]scenario{
		"200":        {answer: plain, pages: 6, want: []int{6}},
		"404":        {answer: second(404), pages: 6, want: []int{6}},
		"403":        {answer: second(403), pages: 6, want: []int{2, 2, 2}},
		"401":        {answer: second(401), pages: 4, want: []int{2, 2}},
		"407":        {answer: second(407), pages: 4, want: []int{2, 2}},
		"429":        {answer: second(429), pages: 4, want: []int{2, 2}},
		"500":        {answer: second(500), pages: 6, want: []int{6}},
		"all 500":    {answer: func(visit, int) (int, string) { return 500, "" }, pages: 6, want: []int{6}},
		"all 404":    {answer: func(visit, int) (int, string) { return 404, "" }, pages: 6, want: []int{6}},
		"soft block": {answer: plain, block: true, pages: 3, want: []int{1, 1, 1}},
		"proxy":      {answer: plain, fail: proxyFault{}, pages: 4, want: []int{1, 1, 1, 1}},
		"timeouts":   {answer: plain, fail: context.DeadlineExceeded, pages: 6, want: []int{6}},
		"no proxy":   {answer: plain, fail: errNoRoute, pages: 6, want: []int{6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &guests{answer: v.answer}
			var mu sync.Mutex
			var byRoute []string
			def, base := site(t, g.ServeHTTP, quick+"session: {}\n")
			w := &routes{fail: func(route string) error {
				mu.Lock()
				defer mu.Unlock()
				byRoute = append(byRoute, route)
				return v.fail
			}}
			c := NewClient(Config{Definition: def, Clock: free{}, Transport: w, Route: w.route, NoProxy: errNoRoute, Via: func(*http.Response) string { return "proxy" }})
			defer c.Close()
			for i := range v.pages {
				page, err := c.Get(t.Context(), fmt.Sprint(base, "/", i), definition.KindDetail)
				if err == nil && v.block {
					page.OnBlocked()
				}
			}
			counts := map[string]int{}
			for _, route := range byRoute {
				counts[route]++
			}
			var got []int
			for i := range w.made {
				got = append(got, counts[fmt.Sprint("w", i+1)])
			}
			if !slices.Equal(got, v.want) {
				t.Errorf("got sessions with %v pages, want %v", got, v.want)
			}
		})
	}
}

var errNoRoute = errors.New("no route")

type proxyFault struct{}

func (proxyFault) Error() string    { return "the proxy is down" }
func (proxyFault) ProxyFault() bool { return true }

type unsent struct{ proxyFault }

func (unsent) Unsent() bool { return true }

// A page whose session has lost its route is fetched in another session.
func TestUnsentPageIsFetchedInAnotherSession(t *testing.T) {
	t.Parallel()
	g := &guests{}
	c, w, base := newGuests(t, g, quick+"session: {}\n")
	w.fail = func(route string) error {
		if route == "w1" || route == "w2" || route == "w3" {
			return unsent{}
		}
		return nil
	}
	page, err := c.Get(t.Context(), base+"/", definition.KindDetail)
	if err != nil || page.Via != "w4" {
		t.Errorf("got %q, %v, want w4", page.Via, err)
	}
	w.fail = func(string) error { return unsent{} }
	if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); ClassOf(err) != Proxy {
		t.Errorf("without another: got %v, want %s", err, Proxy)
	}
}

// A visitor first fetches session.start once, while other requests wait. After a failure the next request retries.
func TestSessionFetchesItsStartFirst(t *testing.T) {
	t.Parallel()
	g := &guests{}
	failures := 2
	g.answer = func(r visit, _ int) (int, string) {
		if r.path == "/welcome" && failures > 0 {
			failures--
			return 503, ""
		}
		return 200, ""
	}
	c, _, base := newGuests(t, g, quick+"session: {start: /welcome}\n")
	for range 2 {
		if _, err := c.Get(t.Context(), base+"/first", definition.KindDetail); ClassOf(err) != Server || !strings.Contains(err.Error(), "session.start") {
			t.Errorf("got %v, want %s of session.start", err, Server)
		}
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := c.Get(t.Context(), fmt.Sprint(base, "/", i), definition.KindDetail); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	order, of := g.by()
	if len(order) != 1 {
		t.Fatalf("got visitors %v, want 1", order)
	}
	for _, visitor := range order {
		for i, r := range of[visitor] {
			if (r.path == "/welcome") != (i < 3) {
				t.Errorf("%s: got request %d for %s, want /welcome three times and only first", visitor, i, r.path)
			}
		}
	}

	for status, want := range map[int]Class{404: ClientError, 403: Blocked, 500: Server} {
		g := &guests{answer: func(visit, int) (int, string) { return status, "" }}
		c, _, base := newGuests(t, g, quick+"session: {start: /welcome}\n")
		if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); ClassOf(err) != want {
			t.Errorf("got %v after %d, want %s", err, status, want)
		}
	}
}

// robots.txt is fetched with the User-Agent of the definition outside of sessions, and applies to all of them.
func TestRobotsIsFetchedWithoutASession(t *testing.T) {
	t.Parallel()
	g := &guests{}
	c, _, base := newGuests(t, g, "politeness: {delay: 0}\nuser_agent: muster/1.0 (+mailto:me@s.example)\nsession: {}\n")
	for _, path := range []string{"/a", "/b", "/private"} {
		if _, err := c.Get(t.Context(), base+path, definition.KindDetail); (ClassOf(err) == Robots) != (path == "/private") {
			t.Errorf("%s: got %v, want %s only for /private", path, err, Robots)
		}
	}
	robots := 0
	for _, r := range g.requests {
		if r.path == "/robots.txt" {
			robots++
			if !strings.HasPrefix(r.agent, "muster/1.0") || r.route != "" || r.visitor != "" {
				t.Errorf("got the request %+v for robots.txt, want the honest agent without session and route", r)
			}
		}
	}
	if robots != 1 {
		t.Errorf("got %d requests for robots.txt, want 1", robots)
	}
}

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
