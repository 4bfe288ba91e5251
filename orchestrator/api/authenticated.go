package api

import (
	"errors"
	"net/http"
	"strings"

	"muster/orchestrator/access"
)

// authenticated puts who a request comes from into its context, and answers those
// that need a key and have none, or send more than they may.
func (c Config) authenticated(next http.Handler) http.Handler {
	limits := newLimits(c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.routeOf(r).open {
			next.ServeHTTP(w, r)
			return
		}
		client := clientOf(r)
		caller, err := c.identify(r, limits.blocks(client))
		if denied, ok := errors.AsType[*access.Denied](err); ok {
			c.deny(w, r, limits, client, denied)
			return
		}
		if err != nil {
			c.Logger.WarnContext(r.Context(), "cannot check a key", "request_id", RequestID(r.Context()), "err", err)
			writeProblem(w, problem(http.StatusServiceUnavailable, "the key cannot be checked now; try again later"))
			return
		}
		if !limits.allow(w, r, caller, client) {
			return
		}
		next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
	})
}

// noCredential is why a request without a key is denied.
const noCredential = "a key is needed: as the password of the login, or as Authorization: Bearer KEY"

// identify returns who a request comes from. Where all keys were taken out of the
// settings while it runs, only a listener on loopback is open.
func (c Config) identify(r *http.Request, guarded bool) (access.Caller, error) {
	closed, err := c.Gate.Closed(r.Context())
	if err != nil || !closed && c.local() {
		return access.Open, err
	}
	credential := credentialOf(r)
	if credential == "" {
		return access.Caller{}, &access.Denied{Why: noCredential}
	}
	return c.Gate.Identify(r.Context(), credential, guarded)
}

// credentialOf returns the key or token in a request, or "".
func credentialOf(r *http.Request) string {
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(credential)
	}
	_, password, _ := r.BasicAuth()
	return password
}

// deny answers a request without a key that counts.
func (c Config) deny(w http.ResponseWriter, r *http.Request, limits *limits, client string, denied *access.Denied) {
	if credentialOf(r) == "" {
		if !limits.allow(w, r, access.Caller{}, client) {
			return
		}
	} else if wait, ok := limits.failed(r.Context(), client); !ok {
		tooMany(w, wait, "too many logins from this address failed; try again later")
		return
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="muster", charset="UTF-8"`)
	writeProblem(w, problem(http.StatusUnauthorized, "%s", denied.Why))
}
