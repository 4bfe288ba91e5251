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

// A session is one visitor all through: cookies, headers and way hold
// together also when pages are fetched at once and when they redirect, and at
// the end of its uses all three change.
func TestASessionIsOneVisitor(t *testing.T) {
	t.Parallel()
	g := &guests{}
	c, w, base := visitors(t, g, quick+"cookies: {was: here}\nheaders: {Accept-Language: fr}\nsession:\n  max: 3\n  max_uses: 10"+profiles)
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
	byWay, pages := map[string][]guest{}, 0
	for _, list := range of {
		for _, r := range list {
			byWay[r.way] = append(byWay[r.way], r)
		}
	}
	for name, list := range byWay {
		own := 0
		for _, r := range list {
			if r.agent != list[0].agent || r.was != "here" {
				t.Errorf("%s: got %+v beside %+v", name, r, list[0])
			}
			if want := map[string]string{"agent-a": "de", "agent-b": "fr"}[r.agent]; r.language != want {
				t.Errorf("%s: got the language %q of %s", name, r.language, r.agent)
			}
			if r.path != "/there" {
				own++
			}
		}
		if own > 10 {
			t.Errorf("%s was used for %d pages", name, own)
		}
		pages += own
	}
	for visitor, list := range of {
		for _, r := range list {
			if r.way != list[0].way {
				t.Errorf("visitor %s came by %s and %s", visitor, list[0].way, r.way)
			}
		}
	}
	if pages != 60 || len(byWay) < 6 {
		t.Errorf("got %d pages by %d ways", pages, len(byWay))
	}
	if len(w.closed) != w.made {
		t.Errorf("%d of %d ways were closed", len(w.closed), w.made)
	}
	for next, before := range w.before {
		if n, b := byWay[next], byWay[before]; len(n) > 0 && len(b) > 0 && n[0].agent == b[0].agent {
			t.Errorf("%s looks like %s before it", next, before)
		}
	}
	if len(w.before) == 0 {
		t.Error("no session took the place of another")
	}
}

// What ends a session, and what does not.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	type visit struct {
		answer func(guest, int) (int, string)
		refuse bool // the page is found to be a refusal
		doubt  bool // … or not what it should be
		fail   error
		rest   string
		pages  int
		want   []int // pages of each session
	}
	plain := func(guest, int) (int, string) { return 200, "" }
	second := func(status int) func(guest, int) (int, string) {
		return func(_ guest, n int) (int, string) {
			if n == 1 {
				return status, ""
			}
			return 200, ""
		}
	}
	for name, v := range map[string]visit{
		"200":        {answer: plain, pages: 6, want: []int{6}},
		"404":        {answer: second(404), pages: 6, want: []int{6}},
		"403":        {answer: second(403), pages: 6, want: []int{2, 2, 2}},
		"401":        {answer: second(401), pages: 4, want: []int{2, 2}},
		"407":        {answer: second(407), pages: 4, want: []int{2, 2}},
		"429":        {answer: second(429), pages: 4, want: []int{2, 2}},
		"500":        {answer: second(500), pages: 6, want: []int{6}},
		"all 500":    {answer: func(guest, int) (int, string) { return 500, "" }, pages: 6, want: []int{3, 3}},
		"all 404":    {answer: func(guest, int) (int, string) { return 404, "" }, pages: 6, want: []int{6}},
		"soft block": {answer: plain, refuse: true, pages: 3, want: []int{1, 1, 1}},
		"doubt":      {answer: plain, doubt: true, rest: ", max_errors: 1", pages: 3, want: []int{1, 1, 1}},
		"uses":       {answer: plain, rest: ", max_uses: 2", pages: 5, want: []int{2, 2, 1}},
		"proxy":      {answer: plain, fail: proxyFault{}, pages: 4, want: []int{1, 1, 1, 1}},
		"timeouts":   {answer: plain, fail: context.DeadlineExceeded, pages: 6, want: []int{3, 3}},
		"no proxy":   {answer: plain, fail: errNoWay, pages: 6, want: []int{6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &guests{answer: v.answer}
			var mu sync.Mutex
			var byWay []string
			def, base := site(t, g.ServeHTTP, quick+"session: {max: 1"+v.rest+"}\n")
			w := &ways{fail: func(way string) error {
				mu.Lock()
				defer mu.Unlock()
				byWay = append(byWay, way)
				return v.fail
			}}
			c := NewClient(Config{Definition: def, Clock: free{}, Transport: w, Route: w.route, NoProxy: errNoWay, Via: func(*http.Response) string { return "proxy" }})
			defer c.Close()
			for i := range v.pages {
				page, err := c.Get(t.Context(), fmt.Sprint(base, "/", i), definition.KindDetail)
				if err == nil && v.refuse {
					page.Refused()
				}
				if err == nil && v.doubt {
					page.Suspect()
				}
			}
			counts := map[string]int{}
			for _, way := range byWay {
				counts[way]++
			}
			var got []int
			for i := range w.made {
				got = append(got, counts[fmt.Sprint("w", i+1)])
			}
			if !slices.Equal(got, v.want) {
				t.Errorf("got sessions of %v pages, want %v", got, v.want)
			}
		})
	}
}

var errNoWay = errors.New("no way")

type proxyFault struct{}

func (proxyFault) Error() string    { return "the proxy is dead" }
func (proxyFault) ProxyFault() bool { return true }

type unsent struct{ proxyFault }

func (unsent) Unsent() bool { return true }

// A session whose way is gone costs the page nothing: it goes in another.
func TestAPageGoesOnInAnotherSession(t *testing.T) {
	t.Parallel()
	g := &guests{}
	c, w, base := visitors(t, g, quick+"session: {max: 4}\n")
	w.fail = func(way string) error {
		if way == "w1" || way == "w2" || way == "w3" {
			return unsent{}
		}
		return nil
	}
	page, err := c.Get(t.Context(), base+"/", definition.KindDetail)
	if err != nil || page.Via != "w4" {
		t.Errorf("got %q %v", page.Via, err)
	}
	w.fail = func(string) error { return unsent{} }
	if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); ClassOf(err) != Proxy {
		t.Errorf("got %v when there is no other", err)
	}
}

// An age ends a session.
func TestSessionsGrowOld(t *testing.T) {
	t.Parallel()
	g := &guests{}
	c, w, base := visitors(t, g, quick+"session: {max: 1, max_age: 1s}\n")
	testutil.Eventually(t, "a third session", func() bool {
		if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.made == 3
	})
	if order, _ := g.by(); len(order) != 3 {
		t.Errorf("got visitors %v", order)
	}
}

// Every session fetches session.start first, once, in its own name, whoever
// else waits for it. When that fails, it is no page's end, and tried again.
func TestSessionStart(t *testing.T) {
	t.Parallel()
	g := &guests{}
	failures := 2
	g.answer = func(r guest, _ int) (int, string) {
		if r.path == "/welcome" && failures > 0 {
			failures--
			return 503, ""
		}
		return 200, ""
	}
	c, _, base := visitors(t, g, quick+"session: {max: 2, max_errors: 9, start: /welcome}\n")
	for range 2 {
		if _, err := c.Get(t.Context(), base+"/first", definition.KindDetail); ClassOf(err) != Server || !strings.Contains(err.Error(), "session.start") {
			t.Errorf("got %v", err)
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
		t.Fatalf("got visitors %v", order)
	}
	for _, visitor := range order {
		for i, r := range of[visitor] {
			if (r.path == "/welcome") != (i < 2) {
				t.Errorf("%s asked for %s as number %d", visitor, r.path, i)
			}
		}
	}

	for status, want := range map[int]Class{404: Refused, 403: Blocked, 500: Server} {
		g := &guests{answer: func(guest, int) (int, string) { return status, "" }}
		c, _, base := visitors(t, g, quick+"session: {max: 2, start: /welcome}\n")
		if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); ClassOf(err) != want {
			t.Errorf("got %v for %d, want %s", err, status, want)
		}
	}
}

// robots.txt is asked for by the honest name, in no session, and holds for
// all of them.
func TestRobotsIsAskedForHonestly(t *testing.T) {
	t.Parallel()
	g := &guests{}
	c, _, base := visitors(t, g, "politeness: {delay: 0}\nuser_agent: muster/1.0 (+mailto:me@s.example)\nsession:\n  max: 2"+profiles)
	for _, path := range []string{"/a", "/b", "/private"} {
		if _, err := c.Get(t.Context(), base+path, definition.KindDetail); (ClassOf(err) == Robots) != (path == "/private") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	robots := 0
	for _, r := range g.requests {
		if r.path == "/robots.txt" {
			robots++
			if !strings.HasPrefix(r.agent, "muster/1.0") || r.way != "" || r.visitor != "" {
				t.Errorf("robots.txt was asked for by %+v", r)
			}
		}
	}
	if robots != 1 {
		t.Errorf("robots.txt was asked for %d times", robots)
	}
}

// Without profiles the visitors are honest.
func TestSessionsAreHonestByDefault(t *testing.T) {
	t.Parallel()
	g := &guests{}
	c, _, base := visitors(t, g, quick+"session: {}\n")
	if _, err := c.Get(t.Context(), base+"/", definition.KindDetail); err != nil {
		t.Fatal(err)
	}
	if got := g.requests[0].agent; got != definition.DefaultUserAgent {
		t.Errorf("got %q", got)
	}
}

// held is a clock that knows for how long it was held.
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

// A 429 that one visitor gets after good pages ends that visitor; when the
// next one gets it too, the site's clock is held for all.
func TestTooManyRequestsOfOneSession(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(guest, int) (int, string)
		rest   string
		holds  int
	}{
		"each visitor's third": {answer: func(_ guest, n int) (int, string) {
			if n == 2 {
				return 429, "30"
			}
			return 200, ""
		}},
		"everybody from the start": {answer: func(guest, int) (int, string) { return 429, "30" }, holds: 8},
		"there is only one":        {answer: func(_ guest, n int) (int, string) { return 200 + 229*(n/2), "30" }, rest: ", max: 1", holds: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &guests{answer: test.answer}
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
					t.Errorf("got %v after %s", err, e.After)
				}
			}
			if len(h.times) != test.holds {
				t.Errorf("the site was held %v", h.times)
			}
		})
	}
}

// A refusal behind a good status ends the session that met it.
func TestInspectEndsTheSession(t *testing.T) {
	t.Parallel()
	n := 0
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		fmt.Fprint(w, `<html><title>Just a moment...</title><body><h1>Checking your browser</h1><form id="challenge-form"></form></body></html>`)
	}, quick+"session: {max: 1}\n")
	w := &ways{}
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
			t.Errorf("got %v", err)
		}
	}
	if w.made != 3 || len(w.closed) != 3 {
		t.Errorf("got %d sessions, %v closed", w.made, w.closed)
	}
}
