package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/cors"

	"muster/internal/addressfilter"
	"muster/orchestrator/access"
)

// ErrOpen is the error if the pages would be open to everyone on the network.
var ErrOpen = errors.New("listening beyond this machine needs a key")

// checkAccess reports whether requests need a key. Without keys it returns an error unless only this machine can reach
// the listener.
func (c Config) checkAccess(ctx context.Context) (closed bool, err error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false, fmt.Errorf("listen at %q: write host:port, as in 127.0.0.1:8000", c.Listen)
	}
	closed, err = c.Gate.Closed(ctx)
	if addressfilter.IsLoopback(host) {
		return closed || err != nil, nil
	}
	if err != nil {
		return false, fmt.Errorf("listen at %s: %w", c.Listen, err)
	}
	if !closed {
		return false, fmt.Errorf("listen at %s: %w: create one with muster keys create --name NAME --role admin, set api.keys (MUSTER_API__KEYS) or api.jwt, or listen at 127.0.0.1", c.Listen, ErrOpen)
	}
	return closed, nil
}

// local reports whether only this machine can reach the listener.
func (c Config) local() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && addressfilter.IsLoopback(host)
}

// hardened sets the security headers of responses.
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known(r.Host, c.names(c.Hosts())) {
			writeProblem(w, problem(http.StatusMisdirectedRequest, "the host name %.100q is not known here; if it should be, add it to api.hosts", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// crossOrigin returns the layer that allows web pages of Origins to call the interface with a key that they send. It
// blocks changes that other pages send through a user's browser. A preflight needs no key.
func (c Config) crossOrigin() (func(http.Handler) http.Handler, error) {
	var foreign http.CrossOriginProtection
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem(http.StatusForbidden, "the request comes from a web page of another site; if it should be allowed, add its origin to api.cors"))
	}))
	for _, origin := range c.Origins {
		if err := foreign.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("api.cors: %w", err)
		}
	}
	if len(c.Origins) == 0 {
		return foreign.Handler, nil
	}
	shared := cors.New(cors.Options{
		AllowedOrigins: c.Origins,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", requestIDHeader},
		ExposedHeaders: []string{"ETag", "Location", "Retry-After", "RateLimit", "RateLimit-Policy", requestIDHeader},
		MaxAge:         600, // seconds
	})
	return func(next http.Handler) http.Handler { return shared.Handler(foreign.Handler(next)) }, nil
}

// names are the host names that requests may use, hosts among them.
func (c Config) names(hosts []string) []string {
	names := []string{"localhost"}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		names = append(names, strings.ToLower(host))
	}
	for _, host := range hosts {
		names = append(names, strings.ToLower(host))
	}
	return names
}

// known reports whether host is one of this server's hosts. Addresses are always allowed: DNS cannot rebind them.
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

// readOnly rejects mutating requests, unless changes are allowed or they come from the command line of this machine, which
// has the data directory anyway.
func (c Config) readOnly(next http.Handler) http.Handler {
	if c.Write {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && access.CallerOf(r.Context()) != access.CommandLine {
			c.routeOf(r).forbid(w, r, "the interface is read-only; set api.read_only to false to allow changes")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticated puts the caller of a request into its context. It rejects requests without the key that they need, and
// those beyond the limits.
func (c Config) authenticated(next http.Handler) http.Handler {
	limits := newLimits(c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := c.routeOf(r)
		if at.open {
			next.ServeHTTP(w, r)
			return
		}
		client := clientOf(r)
		caller, err := c.identify(r)
		denied, isDenied := errors.AsType[*access.Denied](err)
		if isDenied && at.optional && credentialOf(r) == "" {
			if limits.allow(w, r, access.Caller{}, client) {
				next.ServeHTTP(w, r)
			}
			return
		}
		if isDenied {
			if limits.allow(w, r, access.Caller{}, client) {
				w.Header().Set("WWW-Authenticate", `Basic realm="muster", charset="UTF-8"`)
				writeProblem(w, problem(http.StatusUnauthorized, "%s", denied.Why))
			}
			return
		}
		if err != nil {
			c.Logger.WarnContext(r.Context(), "cannot check a key", "request_id", RequestID(r.Context()), "err", err)
			writeProblem(w, problem(http.StatusServiceUnavailable, "the key cannot be checked now; try again later"))
			return
		}
		noteCaller(r.Context(), caller)
		if caller != access.CommandLine && !limits.allow(w, r, caller, client) {
			return
		}
		next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
	})
}

// noCredential is why a request without a key is denied.
const noCredential = "a key is needed: as the password of the login, or as Authorization: Bearer KEY"

// identify returns the caller of a request. Where all keys were taken out of the
// settings while it runs, only a listener on loopback is open.
func (c Config) identify(r *http.Request) (access.Caller, error) {
	credential := credentialOf(r)
	if c.Gate.Local(credential) {
		return access.CommandLine, nil
	}
	closed, err := c.Gate.Closed(r.Context())
	if errors.Is(err, access.ErrStale) && c.local() {
		err = nil
	}
	if err != nil || !closed && c.local() {
		return access.Open, err
	}
	if credential == "" {
		return access.Caller{}, &access.Denied{Why: noCredential}
	}
	return c.Gate.Identify(r.Context(), credential)
}

// credentialOf returns the key or token in a request, or "". A browser sends its login with requests that pages of other
// origins make: there only the token that the page itself sends counts.
func credentialOf(r *http.Request) string {
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(credential)
	}
	if foreign(r) {
		return ""
	}
	_, password, _ := r.BasicAuth()
	return password
}

// foreign reports whether a web page of another origin sent a request.
func foreign(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}
