package tracing

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

func text(name, value string) attribute.KeyValue { return attribute.String(name, value) }

// Server returns a handler with a span for each request, whose name has the route
// that route returns, or only the method where that is "". A request that brings a
// trace continues it. Queries are not in spans: they can hold secrets.
func (t *Tracing) Server(next http.Handler, route func(*http.Request) string) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, original := methodOf(r.Method)
		name := method
		attrs := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(method), semconv.URLPath(short(r.URL.Path)), semconv.URLScheme(scheme(r))}
		if original != "" {
			name = "HTTP"
			attrs = append(attrs, semconv.HTTPRequestMethodOriginal(original))
		}
		if path := route(r); path != "" {
			name += " " + path
			attrs = append(attrs, semconv.HTTPRoute(path))
		}
		attrs = append(attrs, address(r.Host)...)
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			attrs = append(attrs, semconv.ClientAddress(host))
		}
		ctx := format.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...))
		defer span.End()
		watched := &statusWriter{ResponseWriter: w}
		defer func() {
			status := watched.status
			p := recover()
			switch {
			case p != nil && status == 0:
				status = http.StatusInternalServerError
			case status == 0:
				status = http.StatusOK
			}
			span.SetAttributes(semconv.HTTPResponseStatusCode(status))
			if status >= http.StatusInternalServerError || p != nil {
				span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
				span.SetStatus(codes.Error, "")
			}
			if p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(watched, r.WithContext(ctx))
	})
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// methodOf returns the method of a request as spans have it: _OTHER for what is not
// of HTTP, and then also the original.
func methodOf(method string) (known, original string) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method, ""
	}
	return "_OTHER", short(method)
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// address returns host and port of the server of a request.
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

// short bounds what comes from outside.
func short(s string) string {
	if len(s) <= 256 {
		return s
	}
	return strings.ToValidUTF8(s[:256], "") + "…"
}
