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

// Pending is a started span that any process can end. It is stored with its work.
type Pending struct {
	Parent string    `json:"parent"` // traceparent
	Self   string    `json:"self"`   // traceparent
	Before string    `json:"before,omitempty"`
	Began  time.Time `json:"began"`
}

// Begin starts a child span of the span in headers. It returns nil if tracing is disabled or headers contain no span.
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

// End ends a span. It must be called once. attributes are pairs of name and value; empty values are omitted.
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

// spanOf parses a traceparent.
func spanOf(parent string) trace.SpanContext {
	return trace.SpanContextFromContext(format.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent}))
}

// ownID is the context key of the ID for the next span.
type ownID struct{}

// ids generates span IDs: random, unless the context contains one.
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
