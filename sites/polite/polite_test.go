package polite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/polite"
)

// network responds to requests without a connection and records their times.
type network struct {
	robots string
	answer func(*http.Request) (*http.Response, error) // for other paths; nil: 200

	mu    sync.Mutex // guards the fields below
	paths []string
	times []time.Time
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.paths, n.times = append(n.paths, req.URL.Path), append(n.times, time.Now())
	n.mu.Unlock()
	if req.URL.Path == "/robots.txt" {
		return answer(req, http.StatusOK, n.robots), nil
	}
	if n.answer != nil {
		return n.answer(req)
	}
	return answer(req, http.StatusOK, "page"), nil
}

// asked returns the requested paths.
func (n *network) asked() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.paths, " ")
}

func answer(req *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}
}

func host(u *url.URL) string { return u.Host }

// get sends a request with a stack and closes the body of the response.
func get(ctx context.Context, rt http.RoundTripper, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// robots.txt is fetched once, at the request rate of the host, and its crawl delay is obeyed up to the maximum.
func TestRobotsPassTheClock(t *testing.T) {
	t.Parallel()
	for delay, want := range map[string]time.Duration{"2": 2 * time.Second, "9999": 5 * time.Second, "0": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{robots: "user-agent: *\ncrawl-delay: " + delay + "\ndisallow: /no\n"}
			rt := polite.New(n, polite.Config{
				Key: host, Robots: &polite.Robots{Agent: "muster/1.0"}, Clock: &polite.LocalClock{},
				Interval: func() time.Duration { return time.Second }, CrawlDelayMax: 5 * time.Second, Patience: time.Minute,
			})
			for _, path := range []string{"a", "b", "c"} {
				testutil.Ok(t, get(t.Context(), rt, "http://shop.example/"+path))
			}
			if err := get(t.Context(), rt, "http://shop.example/no"); !errors.Is(err, polite.ErrDisallowed) {
				t.Errorf("got %v, want ErrDisallowed", err)
			}
			if got, want := n.asked(), "/robots.txt /a /b /c"; got != want {
				t.Fatalf("got requests for %s, want %s", got, want)
			}
			if first, later := n.times[1].Sub(n.times[0]), n.times[3].Sub(n.times[2]); first != time.Second || later != want {
				t.Errorf("crawl-delay %s: got %v after robots.txt and %v between pages, want 1s and %v", delay, first, later, want)
			}
		})
	}
}

// A request that waits for the clock reserves no turn: a hold in the meantime prevents it.
func TestHoldStopsWaitingRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, clock := &network{}, &polite.LocalClock{}
		rt := polite.New(n, polite.Config{Key: host, Clock: clock, Interval: func() time.Duration { return time.Second }, Patience: 2 * time.Second})
		testutil.Ok(t, get(t.Context(), rt, "http://shop.example/a"))
		ended := make(chan error, 1)
		go func() { ended <- get(t.Context(), rt, "http://shop.example/b") }()
		synctest.Wait()
		testutil.Ok(t, clock.Hold(t.Context(), "shop.example", time.Minute))
		err := <-ended
		if w, ok := errors.AsType[*polite.WaitError](err); !ok || w.Key != "shop.example" || w.After != 59*time.Second {
			t.Errorf("got %#v, want a WaitError of shop.example for 59s", err)
		}
		if err := get(t.Context(), rt, "http://other.example/c"); err != nil {
			t.Errorf("another host: got %v, want the page", err)
		}
		if got, want := n.asked(), "/a /c"; got != want {
			t.Errorf("got requests for %s, want %s", got, want)
		}
	})
}

// A transport below the clock repeats a request at its pace.
func TestRepeatedRequestsPassTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		rt := polite.New(repeater{n}, polite.Config{Key: host, Clock: &polite.LocalClock{}, Interval: func() time.Duration { return time.Minute }})
		testutil.Ok(t, get(t.Context(), rt, "http://shop.example/a"))
		if got, want := n.asked(), "/a /a"; got != want || n.times[1].Sub(n.times[0]) != time.Minute {
			t.Errorf("got requests for %s at %v, want %s in a minute", got, n.times, want)
		}
	})
}

// repeater sends each request twice.
type repeater struct{ next http.RoundTripper }

func (r repeater) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := r.next.RoundTrip(req); err != nil {
		return nil, err
	}
	if err := polite.Again(req.Context()); err != nil {
		return nil, err
	}
	return r.next.RoundTrip(req)
}

// A request that waits for another request's robots.txt stops when its context is done.
func TestWaitForRobotsEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, answer := &network{}, make(chan struct{})
		slow := roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/robots.txt" {
				<-answer
			}
			return n.RoundTrip(req)
		})
		rt := polite.New(slow, polite.Config{Key: host, Robots: &polite.Robots{Agent: "muster/1.0"}})
		var group sync.WaitGroup
		group.Go(func() {
			if err := get(t.Context(), rt, "http://shop.example/a"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := get(ctx, rt, "http://shop.example/b"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v, want the end of the context after 1s", err, time.Since(began))
		}
		close(answer)
		group.Wait()
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Without an interval, a process obeys another process's hold of a key soon, and its own immediately.
func TestHoldOfSharedClockAppliesToAllProcesses(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := &polite.SharedClock{Pacer: limit.NewPacer(rdb, limit.PacerConfig{})}, &polite.SharedClock{Pacer: limit.NewPacer(rdb, limit.PacerConfig{})}
		for _, c := range []*polite.SharedClock{one, two} {
			for range 3 {
				if wait, err := c.Take(t.Context(), "h", 0); wait != 0 || err != nil {
					t.Fatalf("got %v, %v, want a turn", wait, err)
				}
			}
		}
		testutil.Ok(t, one.Hold(t.Context(), "h", time.Hour))
		if wait, err := one.Take(t.Context(), "h", 0); err != nil || wait < 59*time.Minute {
			t.Errorf("the process that holds it: got %v, %v, want about an hour", wait, err)
		}
		testutil.Eventually(t, "the other process to wait", func() bool {
			wait, err := two.Take(t.Context(), "h", 0)
			return err == nil && wait > 59*time.Minute
		})
		if wait, err := two.Take(t.Context(), "another", 0); wait != 0 || err != nil {
			t.Errorf("another key: got %v, %v, want a turn", wait, err)
		}
	})
}

// In its own process, a hold applies to turns whose script ran before Redis stored the hold.
func TestHoldOfSharedClockAppliesAtOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	c := &polite.SharedClock{Pacer: limit.NewPacer(rdb, limit.PacerConfig{})}
	held := false
	rdb.AddHook(redistest.Calls(func(ctx context.Context, next func() error, cmds ...redis.Cmder) error {
		err := next()
		if err == nil && !held && strings.HasPrefix(cmds[0].Name(), "eval") {
			held = true
			return c.Hold(ctx, "h", time.Hour)
		}
		return err
	}))
	for range 2 {
		if wait, err := c.Take(t.Context(), "h", 0); err != nil || wait < 59*time.Minute {
			t.Errorf("got %v, %v, want about an hour", wait, err)
		}
	}
}

// intervals is a clock that records the intervals of its turns.
type intervals []time.Duration

func (c *intervals) Take(_ context.Context, _ string, interval time.Duration) (time.Duration, error) {
	*c = append(*c, interval)
	return 0, nil
}

func (c *intervals) Hold(context.Context, string, time.Duration) error { return nil }

// Varied intervals are between 0.5 and 1.5 times the interval, but never shorter than a crawl delay.
func TestIntervalsVary(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interval    time.Duration
		robots      string
		least, most time.Duration
	}{
		"interval":          {time.Hour, "", 30 * time.Minute, 90 * time.Minute},
		"crawl delay":       {0, "crawl-delay: 10", 10 * time.Second, 15 * time.Second},
		"long crawl delay":  {0, "crawl-delay: 9999", time.Minute, 90 * time.Second},
		"longer interval":   {30 * time.Second, "crawl-delay: 10", 15 * time.Second, 45 * time.Second},
		"similar intervals": {10 * time.Second, "crawl-delay: 10", 10 * time.Second, 15 * time.Second},
		"none":              {0, "", 0, 1},
	} {
		n, clock := &network{robots: "user-agent: *\n" + c.robots}, &intervals{}
		rt := polite.New(n, polite.Config{Key: host, Clock: clock, Vary: true, Robots: &polite.Robots{}, CrawlDelayMax: time.Minute, Interval: func() time.Duration { return c.interval }})
		for range 200 {
			testutil.Ok(t, get(t.Context(), rt, "http://a.example/1"))
		}
		paced := (*clock)[1:] // without the request for robots.txt
		if least, most := slices.Min(paced), slices.Max(paced); least < c.least || most > c.most || most > 1 && most-least < (c.most-c.least)/2 {
			t.Errorf("%s: got intervals from %v to %v, want %v to %v", name, least, most, c.least, c.most)
		}
	}
}

// A slot is held until the response body is closed or the request has failed.
func TestSlotsAreReleased(t *testing.T) {
	t.Parallel()
	keyed := limit.NewKeyedLimiter(redistest.New(t), limit.KeyedConfig{Default: 1})
	free := func() bool {
		s := testutil.Must(keyed.TryAcquire(t.Context(), "shop.example"))(t)
		if s == nil {
			return false
		}
		testutil.Ok(t, s.Release(t.Context()))
		return true
	}
	n := &network{answer: func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/broken" {
			return nil, errors.New("broken")
		}
		return answer(req, http.StatusOK, "page"), nil
	}}
	rt := polite.New(n, polite.Config{Key: host, Slots: keyed})
	if err := get(t.Context(), rt, "http://shop.example/broken"); err == nil || !free() {
		t.Errorf("after an error: got %v, want it and a free slot", err)
	}
	req := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example/a", nil))(t)
	res := testutil.Must(rt.RoundTrip(req))(t)
	if free() {
		t.Error("got a free slot before the body is closed, want none")
	}
	if err := get(polite.WithSlots(t.Context(), []string{"shop.example"}), rt, "http://shop.example/b"); err != nil {
		t.Errorf("the holder of the slot: got %v, want the page", err)
	}
	if err := res.Body.Close(); err != nil || !free() {
		t.Errorf("after the body: got %v, want a free slot", err)
	}
}

// A circuit breaker counts failures of the host, but not of requests that were not sent.
func TestBreakerCountsFailuresOfTheHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		robots string
		hold   bool
		opens  bool
	}{
		"a page":                  {},
		"a page that is gone":     {answer: func(r *http.Request) (*http.Response, error) { return answer(r, 404, ""), nil }},
		"an error":                {answer: func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, opens: true},
		"502":                     {answer: func(r *http.Request) (*http.Response, error) { return answer(r, 502, ""), nil }, opens: true},
		"429":                     {answer: func(r *http.Request) (*http.Response, error) { return answer(r, 429, ""), nil }},
		"forbidden by robots.txt": {robots: "user-agent: *\ndisallow: /\n"},
		"not its turn":            {hold: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := limit.NewBreaker(redistest.New(t), limit.BreakerConfig{Threshold: 1, Cooldown: time.Hour, Logger: noLog})
			clock := &polite.LocalClock{}
			rt := polite.New(&network{answer: c.answer, robots: c.robots}, polite.Config{Key: host, Breaker: b, Robots: &polite.Robots{Agent: "muster/1.0"}, Clock: clock})
			if c.hold {
				testutil.Ok(t, clock.Hold(t.Context(), "shop.example", time.Hour))
			}
			first := get(t.Context(), rt, "http://shop.example/a")
			if c.hold != errors.As(first, new(*polite.WaitError)) {
				t.Errorf("got %v, want a WaitError: %v", first, c.hold)
			}
			if err := get(t.Context(), rt, "http://shop.example/b"); errors.As(err, new(*polite.OpenError)) != c.opens {
				t.Errorf("after %v: got %v, want an OpenError: %v", first, err, c.opens)
			}
		})
	}
}

// A robots.txt that could not be fetched is fetched again with the next request.
func TestRobotsErrorIsNotCached(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	down.Store(true)
	n := &network{}
	rt := polite.New(roundTrip(func(req *http.Request) (*http.Response, error) {
		if down.Load() {
			return answer(req, http.StatusServiceUnavailable, ""), nil
		}
		return n.RoundTrip(req)
	}), polite.Config{Key: host, Robots: &polite.Robots{Agent: "muster/1.0"}})
	err := get(t.Context(), rt, "http://shop.example/a")
	if e, ok := errors.AsType[*polite.RobotsError](err); !ok || e.Response == nil || e.Response.StatusCode != 503 || e.Request.URL.Path != "/robots.txt" {
		t.Errorf("got %v, want a RobotsError with 503", err)
	}
	down.Store(false)
	for range 2 {
		if err := get(t.Context(), rt, "http://shop.example/a"); err != nil {
			t.Errorf("got %v, want the page", err)
		}
	}
	if got, want := n.asked(), "/robots.txt /a /a"; got != want {
		t.Errorf("got requests for %s, want %s", got, want)
	}
}
