package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	"muster/internal/logctx"
	"muster/orchestrator/access"
	"muster/orchestrator/redisd"
)

// requestIDHeader has the id of a request, from the client or made here.
const requestIDHeader = "X-Request-Id"

// plainID is an id that a client may choose for its request.
var plainID = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,64}$`)

// RequestID returns the id of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string { return logctx.Value(ctx, logctx.RequestID) }

// identified gives each request an id.
func (c Config) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !plainID.MatchString(id) {
			var b [12]byte
			_, _ = rand.Read(b[:]) // never fails
			id = hex.EncodeToString(b[:])
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(logctx.With(r.Context(), logctx.RequestID, id)))
	})
}

// maxDenials limits the denied requests that a process logs as warnings per second.
const maxDenials = 10

// denials bounds the warnings about denied requests.
type denials struct {
	mu     sync.Mutex
	second int64
	n      int
}

func (d *denials) allow(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Unix() != d.second {
		d.second, d.n = now.Unix(), 0
	}
	d.n++
	return d.n <= maxDenials
}

type loggedCallerKey struct{}

// noteCaller sets the caller in the log line of the request of ctx.
func noteCaller(ctx context.Context, caller access.Caller) {
	if at, ok := ctx.Value(loggedCallerKey{}).(*access.Caller); ok {
		*at = caller
	}
}

// logged logs each request with its status, its address and its caller: denied requests as warnings, mutating requests as
// info, reads and the frequent calls of agents as debug.
func (c Config) logged(next http.Handler) http.Handler {
	var denied denials
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watched, caller := &statusWriter{ResponseWriter: w}, &access.Caller{}
		r = r.WithContext(context.WithValue(r.Context(), loggedCallerKey{}, caller))
		start := time.Now()
		defer func() {
			level := slog.LevelInfo
			if c.routeOf(r).frequent || r.Method == http.MethodGet || r.Method == http.MethodHead {
				level = slog.LevelDebug
			}
			switch watched.code() {
			case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
				level = slog.LevelDebug
				if denied.allow(start) {
					level = slog.LevelWarn
				}
			}
			path := r.URL.Path
			if len(path) > 200 {
				path = path[:200] + "…"
			}
			c.Logger.Log(r.Context(), level, "request", "method", r.Method, "path", path,
				"status", watched.code(), "bytes", watched.bytes, "took", time.Since(start), "address", clientOf(r), "caller", caller.Name)
		}()
		next.ServeHTTP(watched, r)
	})
}

// bounded limits the time that a request waits for an unresponsive Redis.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(redisd.Bounded(r.Context())))
	})
}

// statusWriter records the status and the size of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

func (w *statusWriter) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// writeTime limits the time in which a client reads one part of a response.
const writeTime = time.Minute

// paced limits each write of a response to writeTime. The handler itself may take longer, for example to download a document.
func paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &pacedWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		_ = p.control.SetWriteDeadline(time.Time{}) // the connection may have the deadline of an earlier response
		next.ServeHTTP(p, r)
	})
}

type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) extend() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime)) // not supported by a recorder
}

func (w *pacedWriter) WriteHeader(code int) {
	w.extend()
	w.ResponseWriter.WriteHeader(code)
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// routed serves the routes of mux and responds to other requests with a problem.
func routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := checkAddress(r); p != nil {
			writeProblem(w, p)
			return
		}
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		refused := &buffer{header: http.Header{}, code: http.StatusOK}
		h.ServeHTTP(refused, r)
		if allow := refused.header.Get("Allow"); refused.code == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allow)
			writeProblem(w, problem(refused.code, "%s is not possible here, only %s", r.Method, allow))
			return
		}
		writeProblem(w, problem(http.StatusNotFound, "path not found; see /openapi.json for the operations, and /ui/ for the pages"))
	})
}

// checkAddress refuses paths and queries with texts that cannot be kept.
func checkAddress(r *http.Request) *Problem {
	if why := plainText(r.URL.Path); why != "" {
		return badField("path", "%s", why)
	}
	for name, values := range r.URL.Query() {
		for _, value := range append(values, name) {
			if why := plainText(value); why != "" {
				return badField("query."+keyOf([]byte(name)), "%s", why)
			}
		}
	}
	return nil
}
