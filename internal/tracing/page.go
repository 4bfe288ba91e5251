package tracing

import (
	"context"
	"net/http"
	"net/url"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"muster/internal/tracing/observed"
)

// Page starts the span of a fetch. end must be called once.
func (t *Tracing) Page(ctx context.Context, p observed.Page) (_ context.Context, end func(observed.End)) {
	if t == nil {
		return ctx, func(observed.End) {}
	}
	attrs := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(http.MethodGet),
		text("muster.site", p.Site), text("muster.kind", p.Kind), text("muster.item", p.Item), attribute.Int("muster.attempt", p.Attempt),
	}
	u, err := url.Parse(p.URL)
	if err == nil {
		attrs = append(attrs, semconv.URLFull(safeURL(u)))
		attrs = append(attrs, address(u.Host)...)
	}
	ctx, span := t.tracer.Start(ctx, "page "+p.Kind, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx, func(e observed.End) {
		span.SetAttributes(attribute.Int("muster.records", e.Records))
		if e.Status != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(e.Status))
		}
		if e.Proxy != "" {
			span.SetAttributes(text("muster.proxy", e.Proxy))
		}
		switch {
		case e.Delayed:
			span.AddEvent("delayed", trace.WithAttributes(text("muster.reason", e.Class)))
		case e.Err != nil:
			span.SetAttributes(semconv.ErrorTypeKey.String(e.Class))
			span.SetStatus(codes.Error, e.Class)
		}
		span.End()
	}
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
