package tracing

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

func text(name, value string) attribute.KeyValue { return attribute.String(name, value) }

// Server returns a handler that creates a span for each request. Its name contains the route returned by route, or only the method if
// that is "". It continues the trace of a request, if any.
func (t *Tracing) Server(next http.Handler, route func(*http.Request) string) http.Handler {
	if t == nil {
		return next
	}
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := route(r); path != "" {
			trace.SpanFromContext(r.Context()).SetAttributes(semconv.HTTPRoute(path))
		}
		next.ServeHTTP(w, r)
	})
	return otelhttp.NewHandler(routed, "", otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(format),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			method := r.Method
			if !slices.Contains(methods, method) {
				method = "HTTP"
			}
			return strings.TrimSpace(method + " " + route(r))
		}))
}

// Client returns a transport that creates a span for each request in a trace and propagates the trace.
func (t *Tracing) Client(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return otelhttp.NewTransport(next, otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(format),
		otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanContextFromContext(r.Context()).IsValid() }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method }))
}

// methods lists the methods that are used in span names.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// address returns attributes for host and port of a server.
func address(hostport string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(short(strings.Trim(hostport, "[]")))}
	}
	attrs := []attribute.KeyValue{semconv.ServerAddress(short(host))}
	if n, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, semconv.ServerPort(n))
	}
	return attrs
}

// short truncates untrusted strings.
func short(s string) string {
	if len(s) <= 256 {
		return s
	}
	return strings.ToValidUTF8(s[:256], "") + "…"
}
