package api

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"muster/orchestrator/access"
	"muster/tasks/limit"
)

const (
	failures     = 20                     // logins from an address that may fail at once, and in a minute
	maxBlocked   = 10_000                 // clients that a process remembers
	shareOfBurst = 100                    // a process takes this part of the tokens of a client at once
	shareTime    = time.Minute            // after which unused tokens are lost
	patience     = 500 * time.Millisecond // with Redis; then a request is not limited
	policyName   = `"requests"`
	limitsPrefix = "muster:api"
)

// limits rate-limits clients across all processes: the buckets are in Redis, which deletes full ones. While Redis is
// unavailable, requests are not limited.
type limits struct {
	requests *limit.TokenBucket // nil: no limit
	failures *limit.TokenBucket // nil: no limit
	rate     float64            // of requests, a second
	burst    int

	mu      sync.Mutex           // guards the fields below
	blocked map[string]time.Time // clients with too many failed logins, until when
	shares  map[string]share     // tokens of clients

	guesses [64]sync.Mutex // of clients, by hash: one guess at a time
	seed    maphash.Seed
}

// share is the part of the bucket of a client that this process has taken, so that most requests need no command of Redis.
type share struct {
	unused int
	left   int // in Redis
	until  time.Time
}

func newLimits(c Config) *limits {
	l := &limits{rate: c.Rate, burst: max(c.Burst, int(math.Ceil(c.Rate)), 1), blocked: map[string]time.Time{}, shares: map[string]share{}, seed: maphash.MakeSeed()}
	if c.Client == nil {
		return l
	}
	bucket := func(r limit.Rate) *limit.TokenBucket {
		return limit.NewTokenBucket(c.Client.Redis(), limit.BucketConfig{Namespace: limitsPrefix, Default: r, FailOpen: true, Logger: c.Logger})
	}
	l.failures = bucket(limit.PerMinute(failures))
	if l.rate > 0 {
		l.requests = bucket(limit.Rate{Capacity: float64(l.burst), PerSec: l.rate})
	}
	return l
}

// clientOf returns the address of a client; of IPv6 the network, all of which one
// client can have. No header counts: anyone can send it.
func clientOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, _ := addr.Prefix(64) // never fails
	return network.String()
}

// allow counts a request per key and address, or without a key per address. It reports whether the request is
// allowed, and responds to it otherwise.
func (l *limits) allow(w http.ResponseWriter, r *http.Request, caller access.Caller, client string) bool {
	if l.requests == nil {
		return true
	}
	key := client
	if caller.ID != "" {
		key = identityOf(caller) + " " + client
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	got, err := l.take(ctx, key)
	if err != nil {
		return true
	}
	full := float64(l.burst-got.Left) / l.rate
	h := w.Header()
	h.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d;w=%d", policyName, l.burst, wholeSeconds(float64(l.burst)/l.rate)))
	h.Set("RateLimit", fmt.Sprintf("%s;r=%d;t=%d", policyName, got.Left, wholeSeconds(full)))
	if !got.OK {
		tooMany(w, got.Wait, fmt.Sprintf("more than %g requests a second; see Retry-After, and the settings api.rate and api.burst", l.rate))
	}
	return got.OK
}

// take takes a token of a client, from the share of this process or from Redis. From a bucket that is nearly empty it takes only one.
func (l *limits) take(ctx context.Context, key string) (limit.TakeResult, error) {
	now := time.Now()
	l.mu.Lock()
	s, ok := l.shares[key]
	if ok && s.unused > 0 && now.Before(s.until) {
		s.unused--
		l.shares[key] = s
		l.mu.Unlock()
		return limit.TakeResult{OK: true, Left: s.left + s.unused}, nil
	}
	l.mu.Unlock()
	n := max(1, l.burst/shareOfBurst)
	if !ok || s.left < l.burst/2 {
		n = 1
	}
	got, err := l.requests.Take(ctx, "client "+key, float64(n))
	if err == nil && !got.OK && n > 1 {
		n = 1
		got, err = l.requests.Take(ctx, "client "+key, 1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.shares) >= maxBlocked {
		clear(l.shares)
	}
	l.shares[key] = share{n - 1, got.Left, now.Add(shareTime)}
	got.Left += n - 1
	return got, err
}

func wholeSeconds(s float64) int { return max(1, int(math.Ceil(s))) }

// tooMany rejects a request over the limit.
func tooMany(w http.ResponseWriter, wait time.Duration, why string) {
	w.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(wait.Seconds())))
	writeProblem(w, problem(http.StatusTooManyRequests, "%s", why))
}

// guess locks the logins of a client: a failure is counted before the next login is compared, however many arrive
// concurrently.
func (l *limits) guess(client string) (unlock func()) {
	m := &l.guesses[maphash.String(l.seed, client)%uint64(len(l.guesses))]
	m.Lock()
	return m.Unlock
}

// failed counts a failed login. It returns the time until the client may retry, or 0.
func (l *limits) failed(ctx context.Context, client string) (wait time.Duration) {
	if l.failures == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := l.failures.Take(ctx, "failed "+client, 1)
	if err != nil || got.OK {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.blocked) >= maxBlocked {
		for other, until := range l.blocked {
			if !time.Now().Before(until) {
				delete(l.blocked, other)
			}
		}
	}
	if len(l.blocked) < maxBlocked {
		l.blocked[client] = time.Now().Add(got.Wait)
	}
	return max(got.Wait, time.Millisecond)
}

// blocks reports whether logins of a client failed too often just now.
func (l *limits) blocks(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, ok := l.blocked[client]
	if ok && !time.Now().Before(until) {
		delete(l.blocked, client)
		ok = false
	}
	return ok
}

// identityOf returns the name under which a caller is limited. Tokens of one subject count together, although their
// IDs differ.
func identityOf(caller access.Caller) string {
	if caller.ID == "" || caller.IsToken() {
		return caller.Owner()
	}
	return caller.Owner() + " " + caller.ID
}

// Limits of concurrently open requests per process, of one caller and of all callers together.
const (
	maxStreams, maxStreamsEach = 500, 50 // streams of events
	maxBodies, maxBodiesEach   = 16, 4   // requests with a body above maxBody: they take memory until they are decoded
)

// shares limits the concurrently open requests of callers.
type shares struct {
	what      string // as in "streams of events"
	all, each int

	mu   sync.Mutex // guards the fields below
	open int
	of   map[string]int // by the identity of the caller
}

func newShares(what string, all, each int) *shares {
	return &shares{what: what, all: all, each: each, of: map[string]int{}}
}

// take reserves a place for the caller of ctx until release is called. The error is a *Problem.
func (s *shares) take(ctx context.Context) (release func(), err error) {
	who := identityOf(access.CallerOf(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[who] >= s.each:
		return nil, problem(http.StatusTooManyRequests, "limit of %d %s per caller reached; wait until one ends", s.each, s.what)
	case s.open >= s.all:
		return nil, problem(http.StatusTooManyRequests, "limit of %d %s for all callers together reached; try again later", s.all, s.what)
	}
	s.open++
	s.of[who]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.of[who]--; s.of[who] == 0 {
			delete(s.of, who)
		}
	}, nil
}

// sized limits the large bodies that a caller sends at a time.
func (c Config) sized(next http.Handler) http.Handler {
	bodies := newShares("requests with a large body", maxBodies, maxBodiesEach)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 && r.ContentLength <= maxBody {
			next.ServeHTTP(w, r)
			return
		}
		release, err := bodies.take(r.Context())
		if err != nil {
			writeProblem(w, problemOf(err, ""))
			return
		}
		defer release()
		next.ServeHTTP(w, r)
	})
}
