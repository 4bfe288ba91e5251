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
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
)

// A session keeps its cookies, headers and route, also with concurrent requests and redirects. After its last use all three
// change.
func TestSessionIsOneVisitor(t *testing.T) {
	t.Parallel()
	g := &visitors{}
	c, w, base := newVisitors(t, g, quick+"cookies: {was: here}\nheaders: {Accept-Language: fr}\nsession:\n  max: 3\n  max_uses: 10"+profiles)
	var wg sync.WaitGroup
	for i := range 60 {
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
	c.Close()
	_, of := g.by()
	byRoute, pages := map[string][]visit{}, 0
	for _, list := range of {
		for _, r := range list {
			byRoute[r.route] = append(byRoute[r.route], r)
		}
	}
	for name, list := range byRoute {
		own := 0
		for _, r := range list {
			if r.agent != list[0].agent || r.was != "here" {
				t.Errorf("%s: got %+v, want the agent of %+v and the cookie", name, r, list[0])
			}
			if want := map[string]string{"agent-a": "de", "agent-b": "fr"}[r.agent]; r.language != want {
				t.Errorf("%s: got the language %q of %s, want %q", name, r.language, r.agent, want)
			}
			if r.path != "/there" {
				own++
			}
		}
		if own > 10 {
			t.Errorf("%s: got %d pages, want at most 10", name, own)
		}
		pages += own
	}
	for visitor, list := range of {
		for _, r := range list {
			if r.route != list[0].route {
				t.Errorf("visitor %s: got the routes %s and %s, want one", visitor, list[0].route, r.route)
			}
		}
	}
	if pages != 60 || len(byRoute) < 6 {
		t.Errorf("got %d pages on %d routes, want 60 on at least 6", pages, len(byRoute))
	}
	if len(w.closed) != w.made {
		t.Errorf("got %d closed routes, want %d", len(w.closed), w.made)
	}
	for next, before := range w.before {
		if n, b := byRoute[next], byRoute[before]; len(n) > 0 && len(b) > 0 && n[0].agent == b[0].agent {
			t.Errorf("%s: got the agent of %s before it, want another", next, before)
		}
	}
	if len(w.before) == 0 {
		t.Error("got no successor of a session, want some")
	}
}

// Some responses and errors end a session, others do not.
func TestSessionEndsWithBlocksAndErrors(t *testing.T) {
	t.Parallel()
	type scenario struct {
		answer  func(visit, int) (int, string)
		block   bool // the page is found to be blocked
		suspect bool // … or suspect
		fail    error
		rest    string
		pages   int
		want    []int // pages of each session
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
		"all 500":    {answer: func(visit, int) (int, string) { return 500, "" }, pages: 6, want: []int{3, 3}},
		"all 404":    {answer: func(visit, int) (int, string) { return 404, "" }, pages: 6, want: []int{6}},
		"soft block": {answer: plain, block: true, pages: 3, want: []int{1, 1, 1}},
		"suspect":    {answer: plain, suspect: true, rest: ", max_errors: 1", pages: 3, want: []int{1, 1, 1}},
		"uses":       {answer: plain, rest: ", max_uses: 2", pages: 5, want: []int{2, 2, 1}},
		"proxy":      {answer: plain, fail: proxyFault{}, pages: 4, want: []int{1, 1, 1, 1}},
		"timeouts":   {answer: plain, fail: context.DeadlineExceeded, pages: 6, want: []int{3, 3}},
		"no proxy":   {answer: plain, fail: errNoRoute, pages: 6, want: []int{6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &visitors{answer: v.answer}
			var mu sync.Mutex
			var byRoute []string
			def, base := site(t, g.ServeHTTP, quick+"session: {max: 1"+v.rest+"}\n")
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
				if err == nil && v.suspect {
					page.Suspect()
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
	g := &visitors{}
	c, w, base := newVisitors(t, g, quick+"session: {max: 4}\n")
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

// A session ends at its maximum age.
func TestSessionEndsAtMaxAge(t *testing.T) {
	t.Parallel()
	g := &visitors{}
	c, w, base := newVisitors(t, g, quick+"session: {max: 1, max_age: 1s}\n")
	testutil.Eventually(t, "a third session", func() bool {
		if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.made == 3
	})
	if order, _ := g.by(); len(order) != 3 {
		t.Errorf("got visitors %v, want 3", order)
	}
}

// Every session first fetches session.start once, while its other requests wait. After a failure the next request retries.
func TestSessionFetchesItsStartFirst(t *testing.T) {
	t.Parallel()
	g := &visitors{}
	failures := 2
	g.answer = func(r visit, _ int) (int, string) {
		if r.path == "/welcome" && failures > 0 {
			failures--
			return 503, ""
		}
		return 200, ""
	}
	c, _, base := newVisitors(t, g, quick+"session: {max: 2, max_errors: 9, start: /welcome}\n")
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
	if len(order) != 2 {
		t.Fatalf("got visitors %v, want 2", order)
	}
	for _, visitor := range order {
		for i, r := range of[visitor] {
			if (r.path == "/welcome") != (i < 2) {
				t.Errorf("%s: got request %d for %s, want /welcome twice and only first", visitor, i, r.path)
			}
		}
	}

	for status, want := range map[int]Class{404: ClientError, 403: Blocked, 500: Server} {
		g := &visitors{answer: func(visit, int) (int, string) { return status, "" }}
		c, _, base := newVisitors(t, g, quick+"session: {max: 2, start: /welcome}\n")
		if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); ClassOf(err) != want {
			t.Errorf("got %v after %d, want %s", err, status, want)
		}
	}
}

// robots.txt is fetched with the User-Agent of the definition outside of sessions, and applies to all of them.
func TestRobotsIsFetchedWithoutASession(t *testing.T) {
	t.Parallel()
	g := &visitors{}
	c, _, base := newVisitors(t, g, "politeness: {delay: 0}\nuser_agent: muster/1.0 (+mailto:me@s.example)\nsession:\n  max: 2"+profiles)
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

// Without profiles, sessions use the default User-Agent.
func TestSessionsHaveTheDefaultUserAgent(t *testing.T) {
	t.Parallel()
	g := &visitors{}
	c, _, base := newVisitors(t, g, quick+"session: {}\n")
	if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); err != nil {
		t.Fatal(err)
	}
	if got := g.requests[0].agent; got != definition.DefaultUserAgent {
		t.Errorf("got %q, want %q", got, definition.DefaultUserAgent)
	}
}

// held is a clock that records its holds.
type held struct {
	mu    sync.Mutex
	times []time.Duration
}

func (h *held) Take(context.Context, string, time.Duration) (time.Duration, error) { return 0, nil }
func (h *held) Hold(_ context.Context, _ string, d time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times = append(h.times, d)
	return nil
}

// A 429 after fetched pages ends its session. If the next session also gets a 429, the site's clock is held.
func TestFirst429EndsOnlyItsSession(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(visit, int) (int, string)
		rest   string
		holds  int
	}{
		"each visitor's third": {answer: func(_ visit, n int) (int, string) {
			if n == 2 {
				return 429, "30"
			}
			return 200, ""
		}},
		"all from the start": {answer: func(visit, int) (int, string) { return 429, "30" }, holds: 8},
		"only one session":   {answer: func(_ visit, n int) (int, string) { return 200 + 229*(n/2), "30" }, rest: ", max: 1", holds: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &visitors{answer: test.answer}
			max := ", max: 2"
			if test.rest != "" {
				max = test.rest
			}
			def, base := site(t, g.ServeHTTP, quick+"session: {max_uses: 50"+max+"}\n")
			h := &held{}
			c := NewClient(Config{Definition: def, Clock: h})
			defer c.Close()
			for i := range 8 {
				_, err := c.Get(t.Context(), fmt.Sprint(base, "/", i), definition.KindDetail)
				if e, ok := errors.AsType[*Error](err); ok && (e.After > 0) != (test.holds > 0) {
					t.Errorf("got %v with After %s, want After: %v", err, e.After, test.holds > 0)
				}
			}
			if len(h.times) != test.holds {
				t.Errorf("got the holds %v, want %d", h.times, test.holds)
			}
		})
	}
}

// A block page with a success status ends its session.
func TestInspectEndsTheSession(t *testing.T) {
	t.Parallel()
	n := 0
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		fmt.Fprint(w, `<html><title>Just a moment...</title><body><h1>Checking your browser</h1><form id="challenge-form"></form></body></html>`)
	}, quick+"session: {max: 1}\n")
	w := &routes{}
	c := NewClient(Config{Definition: def, Clock: free{}, Transport: w, Route: w.route})
	defer c.Close()
	for range 3 {
		p, err := c.Get(t.Context(), base+"/", definition.KindDetail)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := extract.Parse(def, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := Inspect(def, doc); ClassOf(err) != SoftBlock {
			t.Errorf("got %v, want %s", err, SoftBlock)
		}
	}
	if w.made != 3 || len(w.closed) != 3 {
		t.Errorf("got %d sessions, %v closed, want 3 and 3", w.made, w.closed)
	}
}
