package tracing

import (
	"context"
	"crypto/rand"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Pending is a span that has begun, and that any process can end: it is stored
// with the work that it is of.
type Pending struct {
	Parent string    `json:"parent"` // traceparent
	Self   string    `json:"self"`   // traceparent
	Before string    `json:"before,omitempty"`
	Began  time.Time `json:"began"`
}

// Begin begins a span below the one in headers. It is nil if tracing is off, or if
// they have none.
func (t *Tracing) Begin(headers map[string]string) *Pending {
	parent := spanOf(headers["traceparent"])
	if t == nil || !parent.IsValid() {
		return nil
	}
	self := trace.NewSpanContext(trace.SpanContextConfig{TraceID: parent.TraceID(), SpanID: newSpanID(), TraceFlags: parent.TraceFlags()})
	return &Pending{Parent: headers["traceparent"], Self: Parent(trace.ContextWithSpanContext(context.Background(), self)), Began: time.Now()}
}

// Sampled reports whether the span will be exported.
func (p *Pending) Sampled() bool { return p != nil && spanOf(p.Self).IsSampled() }

// Context returns a context with the span.
func (p *Pending) Context(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, spanOf(p.Self))
}

// End ends a span. Call it once. Attributes come in pairs of a name and a text; those
// without a text are left out.
func (t *Tracing) End(ctx context.Context, p *Pending, name, failure string, attributes ...string) {
	if t == nil || !p.Sampled() {
		return
	}
	var attrs []attribute.KeyValue
	for i := 0; i+1 < len(attributes); i += 2 {
		if attributes[i+1] != "" {
			attrs = append(attrs, text(attributes[i], short(attributes[i+1])))
		}
	}
	opts := []trace.SpanStartOption{trace.WithTimestamp(p.Began), trace.WithAttributes(attrs...)}
	if before := spanOf(p.Before); before.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: before}))
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, spanOf(p.Parent))
	_, span := t.tracer.Start(context.WithValue(ctx, ownID{}, spanOf(p.Self).SpanID()), name, opts...)
	if failure != "" {
		span.SetStatus(codes.Error, short(failure))
	}
	span.End()
}

// spanOf reads a traceparent.
func spanOf(parent string) trace.SpanContext {
	return trace.SpanContextFromContext(format.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent}))
}

// ownID is the key of the id that the next span of a context gets.
type ownID struct{}

// ids makes the ids of spans: random ones, but for spans that have theirs already.
type ids struct{}

var _ sdk.IDGenerator = ids{}

// NewIDs implements sdk.IDGenerator.
func (ids) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	var id trace.TraceID
	for !id.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
	}
	return id, newSpanID()
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if id, ok := ctx.Value(ownID{}).(trace.SpanID); ok {
		return id
	}
	return newSpanID()
}

func newSpanID() trace.SpanID {
	var id trace.SpanID
	for !id.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
	}
	return id
}
