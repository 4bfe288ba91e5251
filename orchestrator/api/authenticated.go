package api

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"muster/orchestrator/access"
)

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
		caller, err := access.CommandLine, error(nil)
		if !c.Gate.Local(credentialOf(r)) {
			caller, err = c.identify(r)
		}
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
	closed, err := c.Gate.Closed(r.Context())
	if errors.Is(err, access.ErrStale) && c.local() {
		err = nil
	}
	if err != nil || !closed && c.local() {
		return access.Open, err
	}
	credential := credentialOf(r)
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
