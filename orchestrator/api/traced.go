package api

import (
	"net/http"
	"strings"
)

// traced creates a span for each request, except for the frequent health checks.
func (c Config) traced(next http.Handler) http.Handler {
	spans := c.Tracing.Server(next, c.route)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health", "/ready", "/metrics":
			next.ServeHTTP(w, r)
		default:
			spans.ServeHTTP(w, r)
		}
	})
}

// route returns the path of the route of a request, as in /jobs/{id}, or "".
func (c Config) route(r *http.Request) string {
	pattern := c.pattern(r)
	if _, path, ok := strings.Cut(pattern, " "); ok {
		return path
	}
	return pattern
}
