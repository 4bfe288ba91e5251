package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"muster/internal/clip"
	"muster/internal/logctx"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
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
			c.Logger.Log(r.Context(), level, "request", "method", r.Method, "path", clip.Ellipsis(r.URL.Path, 200),
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

// recovered logs panics of handlers and responds with a problem, unless the response has begun.
func (c Config) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watched := &statusWriter{ResponseWriter: w}
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { // deliberate: the client must notice that the response is incomplete
				panic(cause)
			}
			c.Logger.ErrorContext(r.Context(), "a request panicked", "request_id", RequestID(r.Context()),
				"route", c.pattern(r), "panic", cause, "stack", string(debug.Stack()))
			if watched.status != 0 {
				panic(http.ErrAbortHandler)
			}
			writeProblem(w, problem(http.StatusInternalServerError, "internal server error; see the server log for this request ID"))
		}()
		next.ServeHTTP(watched, r)
	})
}

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

// Timing counts and times the requests of a Handler for Prometheus. The label route is the pattern of a route, as in
// /jobs/{id}, and never a path. Requests that wait for something to happen, which are polls for work and streams, are
// counted but not timed.
type Timing struct {
	duration *prometheus.HistogramVec
	requests *prometheus.CounterVec
	size     *prometheus.SummaryVec
	open     *prometheus.GaugeVec
}

// NewTiming returns the collector of the requests of one process.
func NewTiming() *Timing {
	labels := []string{"method", "route", "code"}
	t := &Timing{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_http_request_duration_seconds", Help: "Duration of requests, except requests that wait for work or events. Paths without a route have the route other.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}, labels),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_http_requests_total", Help: "Completed requests.",
		}, labels),
		size: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "muster_http_response_size_bytes", Help: "Bytes of responses.",
		}, labels),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "muster_http_requests_in_flight", Help: "Requests in progress; requests that wait for work or events have the state waiting.",
		}, []string{"state"}),
	}
	t.open.WithLabelValues("waiting")
	t.open.WithLabelValues("active")
	return t
}

func (t *Timing) parts() []prometheus.Collector {
	return []prometheus.Collector{t.duration, t.requests, t.size, t.open}
}

// Describe implements prometheus.Collector.
func (t *Timing) Describe(ch chan<- *prometheus.Desc) {
	for _, part := range t.parts() {
		part.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (t *Timing) Collect(ch chan<- prometheus.Metric) {
	for _, part := range t.parts() {
		part.Collect(ch)
	}
}

// timedRoute is the key of the label route in the context of a request.
type timedRoute struct{}

// timed counts and times the requests to next by the pattern of their route.
func (c Config) timed(next http.Handler) http.Handler {
	t := c.Timing
	if t == nil {
		return next
	}
	route := promhttp.WithLabelFromCtx("route", func(ctx context.Context) string {
		label, _ := ctx.Value(timedRoute{}).(string)
		return label
	})
	counted := promhttp.InstrumentHandlerCounter(t.requests, promhttp.InstrumentHandlerResponseSize(t.size, next, route), route)
	waiting := promhttp.InstrumentHandlerInFlight(t.open.WithLabelValues("waiting"), counted)
	active := promhttp.InstrumentHandlerInFlight(t.open.WithLabelValues("active"), promhttp.InstrumentHandlerDuration(t.duration, counted, route))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		label := cmp.Or(c.route(r), "other")
		r = r.WithContext(context.WithValue(r.Context(), timedRoute{}, label))
		if c.routeOf(r).waits {
			waiting.ServeHTTP(w, r)
			return
		}
		active.ServeHTTP(w, r)
	})
}

const (
	maxBody      = 1 << 20  // bytes of most requests
	maxItemsBody = 16 << 20 // bytes of a request with items
	bodyTime     = 30 * time.Second
)

// readJSON reads a JSON body, for operations whose body huma does not read.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *Problem) {
	ct := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(ct); ct != "" && (err != nil || media != "application/json" && !strings.HasSuffix(media, "+json")) {
		return nil, problem(http.StatusUnsupportedMediaType, "the body must be application/json, not %.100q", ct)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // not supported by a recorder
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, bodyTooLarge(limit)
	case err != nil:
		return nil, badField("body", "read the body: %v", err)
	case len(data) == 0:
		return nil, badField("body", "a JSON object is required")
	case !json.Valid(data):
		return nil, badField("body", "invalid JSON")
	}
	return data, nil
}

// keyOf returns a key for a location, or a short form of a long one.
func keyOf(raw []byte) string { return clip.Ellipsis(string(raw), 100) }

// plainText returns why a text of a query, path or form cannot be kept, or "".
func plainText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "the text is not valid UTF-8"
	case strings.ContainsRune(text, 0):
		return "the text has a NUL character"
	}
	return ""
}

// Object is a JSON object as it was sent.
type Object = client.Object
