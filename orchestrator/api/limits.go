package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"muster/internal/limit"
	"muster/orchestrator/access"
)

const (
	patience     = 500 * time.Millisecond // with Redis; then a request is not limited
	policyName   = `"requests"`
	limitsPrefix = "muster:api"
)

// limits rate-limits clients across all processes: the buckets are in Redis, which deletes full ones. While Redis is
// unavailable, requests are not limited.
type limits struct {
	requests *limit.TokenBucket // nil: no limit
	rate     float64            // of requests, a second
	burst    int
}

func newLimits(c Config) *limits {
	l := &limits{rate: c.Rate, burst: max(c.Burst, int(math.Ceil(c.Rate)), 1)}
	if c.Client != nil && l.rate > 0 {
		l.requests = limit.NewTokenBucket(c.Client.Redis(), limit.BucketConfig{
			Namespace: limitsPrefix, Default: limit.Rate{Capacity: float64(l.burst), PerSec: l.rate}, FailOpen: true, Logger: c.Logger,
		})
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
	got, err := l.requests.Take(ctx, "client "+key, 1)
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

func wholeSeconds(s float64) int { return max(1, int(math.Ceil(s))) }

// tooMany rejects a request over the limit.
func tooMany(w http.ResponseWriter, wait time.Duration, why string) {
	w.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(wait.Seconds())))
	writeProblem(w, problem(http.StatusTooManyRequests, "%s", why))
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
	maxStreams, maxStreamsEach = 500, 50  // streams of events
	maxLeases, maxLeasesEach   = 900, 500 // calls for leases of tasks
	maxBodies, maxBodiesEach   = 16, 4    // requests with a body above maxBody: they take memory until they are decoded
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
