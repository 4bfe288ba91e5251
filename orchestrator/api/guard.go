package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"muster/internal/addressfilter"
)

// minKey is the shortest key that is accepted.
const minKey = 8

// ErrOpen says that the pages would be open to everybody on the network.
var ErrOpen = errors.New("listening beyond this machine needs a key")

// checkAccess refuses to open the pages to others without a key.
func (c Config) checkAccess() error {
	for _, key := range c.Keys {
		if len(key) < minKey {
			return fmt.Errorf("a key is too short: use at least %d characters", minKey)
		}
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen at %q: write host:port, as in 127.0.0.1:8000", c.Listen)
	}
	if len(c.Keys) == 0 && !addressfilter.IsLoopback(host) {
		return fmt.Errorf("listen at %s: %w: set api.keys (MUSTER_API__KEYS), or listen at 127.0.0.1", c.Listen, ErrOpen)
	}
	return nil
}

// hardened sets the headers that tell browsers to be careful with the answer.
func (c Config) hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// hosted blocks requests under a foreign name that points to our address.
func (c Config) hosted(next http.Handler) http.Handler {
	names := c.names()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known(r.Host, names) {
			writeProblem(w, problem(http.StatusMisdirectedRequest, "the host name %.100q is not known here; if it should be, add it to api.hosts", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// crossOrigin blocks changes that a foreign page sends through the browser of a
// user who has a key.
func (c Config) crossOrigin(next http.Handler) http.Handler {
	var foreign http.CrossOriginProtection
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem(http.StatusForbidden, "the request comes from a web page of another site"))
	}))
	return foreign.Handler(next)
}

// openPatterns are the routes that need no key.
var openPatterns = []string{"GET /health", "GET /ready"}

// authenticated lets through requests with a key, and those that need none.
func (c Config) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(c.Keys) > 0 && !c.admits(r) && !slices.Contains(openPatterns, c.pattern(r)) {
			w.Header().Set("WWW-Authenticate", `Basic realm="muster", charset="UTF-8"`)
			writeProblem(w, problem(http.StatusUnauthorized, "a key is needed: as the password of the login, or as Authorization: Bearer KEY"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// names are the host names that requests may use.
func (c Config) names() []string {
	names := []string{"localhost"}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		names = append(names, strings.ToLower(host))
	}
	for _, host := range c.Hosts {
		names = append(names, strings.ToLower(host))
	}
	return names
}

// known reports whether a request for host is meant for us. An address cannot
// be pointed elsewhere, as a name can.
func known(host string, names []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.Contains(names, host)
}

// admits reports whether the request carries one of the keys.
func (c Config) admits(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, given, ok = r.BasicAuth()
	}
	if !ok {
		return false
	}
	// All are compared, and in the same time whatever the key.
	sum, found := sha256.Sum256([]byte(given)), 0
	for _, key := range c.Keys {
		want := sha256.Sum256([]byte(key))
		found |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	return found == 1
}

// readOnly lets through only what changes nothing, unless changes are allowed.
func (c Config) readOnly(next http.Handler) http.Handler {
	if c.Write {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			writeProblem(w, problem(http.StatusForbidden, "the interface is read-only; set api.read_only to false to change things"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
