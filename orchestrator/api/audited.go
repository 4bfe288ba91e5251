package api

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/orchestrator/access"
)

// auditTime is the timeout for writing an entry.
const auditTime = 2 * time.Second

// audited records changes in the audit log. It omits rejected calls and calls with a key of the role agent, which
// could displace other entries; both are in the process log and in muster_http_requests_total.
func (c Config) audited(next http.Handler) http.Handler {
	if c.Audit == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := c.routeOf(r)
		byAgent := access.CallerOf(r.Context()).Role == access.Agent
		if r.Method == http.MethodGet || r.Method == http.MethodHead || at.frequent || at.operation == "" || byAgent {
			next.ServeHTTP(w, r)
			return
		}
		watched := &statusWriter{ResponseWriter: w}
		ended := false
		defer func() {
			status := watched.code()
			if !ended && watched.status == 0 { // it panicked
				status = http.StatusInternalServerError
			}
			if status < http.StatusBadRequest || status >= http.StatusInternalServerError {
				c.record(r, w.Header(), at.operation, status)
			}
		}()
		next.ServeHTTP(watched, r)
		ended = true
	})
}

// record adds a request to the audit log. The change was made already, so an error is only logged.
func (c Config) record(r *http.Request, answer http.Header, operation string, status int) {
	caller := access.CallerOf(r.Context())
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = ""
	}
	e := access.Entry{
		Caller: caller.Name, CallerID: caller.ID, Role: caller.Role, Operation: operation, Method: r.Method,
		Path: clip.Bytes(asked(r), 300), Status: status, Address: address, Request: RequestID(r.Context()),
	}
	if status == http.StatusCreated {
		e.Created = clip.Bytes(answer.Get("Location"), 300)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), auditTime)
	defer cancel()
	if err := c.Audit.Add(ctx, e); err != nil {
		c.Logger.WarnContext(ctx, "a change is missing in the audit log", "request_id", e.Request, "caller", e.Caller,
			"operation", e.Operation, "path", e.Path, "status", e.Status, "address", e.Address, "err", err)
	}
}

// asked returns the path of a request. The form of a page names its object in the query, which is included; other
// queries may contain anything.
func asked(r *http.Request) string {
	if r.URL.RawQuery == "" || !strings.HasPrefix(r.URL.Path, "/ui/") {
		return r.URL.EscapedPath()
	}
	return r.URL.EscapedPath() + "?" + r.URL.RawQuery
}
