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
			return fmt.Errorf("a dashboard key is too short: use at least %d characters", minKey)
		}
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen at %q: write host:port, as in 127.0.0.1:8080", c.Listen)
	}
	if len(c.Keys) == 0 && !addressfilter.IsLoopback(host) {
		return fmt.Errorf("listen at %s: %w: set dashboard.keys (MUSTER_DASHBOARD__KEYS), or listen at 127.0.0.1", c.Listen, ErrOpen)
	}
	return nil
}

// guard lets requests of the pages themselves and requests with a key through.
// It blocks those that a foreign page sends through the browser of a user who
// has a key, and those under a foreign name that points to our address.
func (c Config) guard(next http.Handler) http.Handler {
	var foreign http.CrossOriginProtection
	next = foreign.Handler(next)
	names := c.names()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")

		if !known(r.Host, names) {
			http.Error(w, fmt.Sprintf("this dashboard is not known as %q here; if it should be, add the name to dashboard.hosts", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if len(c.Keys) > 0 && !c.admits(r) {
			h.Set("WWW-Authenticate", `Basic realm="muster", charset="UTF-8"`)
			http.Error(w, "a key is needed: as the password of the login, or as Authorization: Bearer KEY", http.StatusUnauthorized)
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
