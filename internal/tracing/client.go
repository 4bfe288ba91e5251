package tracing

import (
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Client returns a transport that creates a span for each request in a trace and propagates the trace. The span ends with the header
// of the response.
func (t *Tracing) Client(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return client{t, next}
}

type client struct {
	t    *Tracing
	next http.RoundTripper
}

// CloseIdleConnections implements the method that http.Client.CloseIdleConnections calls.
func (c client) CloseIdleConnections() {
	if closer, ok := c.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (c client) RoundTrip(req *http.Request) (*http.Response, error) {
	if !trace.SpanContextFromContext(req.Context()).IsValid() {
		return c.next.RoundTrip(req)
	}
	ctx, span := c.t.tracer.Start(req.Context(), req.Method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(req.Method), semconv.URLFull(safeURL(req.URL))),
		trace.WithAttributes(address(req.URL.Host)...))
	defer span.End()
	req = req.Clone(ctx)
	format.Inject(ctx, propagation.HeaderCarrier(req.Header))
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		span.SetAttributes(semconv.ErrorType(err))
		span.SetStatus(codes.Error, oneLine(err))
		return resp, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(resp.StatusCode)))
		span.SetStatus(codes.Error, "")
	}
	return resp, nil
}

// safeURL returns a URL without user information and with masked query values, which may contain secrets.
func safeURL(u *url.URL) string {
	safe := *u
	safe.User, safe.Fragment = nil, ""
	if safe.RawQuery != "" {
		query := url.Values{}
		for name := range u.Query() {
			query.Set(name, "REDACTED")
		}
		safe.RawQuery = query.Encode()
	}
	return short(safe.String())
}
