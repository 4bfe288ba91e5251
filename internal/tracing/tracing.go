// Package tracing makes spans by OpenTelemetry of what a request causes: the
// request, the tasks of its job, the work of agents, the pages of a scrape.
//
// A nil *Tracing is tracing that is off: its methods may be called, and make no
// spans. [Headers] and [Context] carry the trace and the ids of logs in both cases.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"muster/internal/logctx"
)

// The bounds of what waits for the collector.
const (
	maxQueue = 8192            // spans; further ones are dropped
	maxBatch = 512             // spans in a request
	batchFor = 2 * time.Second // how long a span waits for others
	maxValue = 1024            // bytes of an attribute
)

// Tracing makes spans and exports them. Its methods may be called concurrently.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
	timeout  time.Duration
}

// format is the W3C Trace Context.
var format = propagation.TraceContext{}

// Collector is where spans go; package otlp has one.
type Collector struct {
	Exporter sdk.SpanExporter
	Address  string // for logs, without secrets
	Idle     func() // closes idle connections
}

// Config sets up tracing. Package otlp opens a collector from it.
type Config struct {
	Endpoint string            // of the collector
	Headers  map[string]string // of requests to it
	Sample   float64           // the share of traces that are exported, from 0 to 1
	Service  string            // its name in spans
	Timeout  time.Duration     // of an export, and of Close
}

// Provider returns the provider of spans, or nil if tracing is off.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// New returns tracing of the settings that sends spans to a collector. It connects to
// nothing: a collector that does not answer costs spans, and is logged once in a
// minute. Close it.
func New(cfg Config, to Collector, logger *slog.Logger) (*Tracing, error) {
	e := &exporter{logger: logger, to: to}
	e.over, e.end = context.WithCancel(context.Background())
	about, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName(cfg.Service), semconv.ServiceInstanceID(instance()),
	))
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracing{exporter: e, timeout: cfg.Timeout}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValue // paths and headers come from clients
	t.provider = sdk.NewTracerProvider(
		sdk.WithResource(about), sdk.WithIDGenerator(ids{}), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.Sample))),
		sdk.WithSpanProcessor(stamp{}),
		sdk.WithRawSpanLimits(limits),
		sdk.WithBatcher(e, sdk.WithMaxQueueSize(maxQueue), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(batchFor), sdk.WithExportTimeout(cfg.Timeout)),
	)
	t.tracer = t.provider.Tracer("muster")
	return t, nil
}

// instance names this process.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%s.%d", host, os.Getpid())
}

// Close exports what waits, for at most the timeout of the settings. No span may
// begin after it. Spans that could not be exported are logged, and no error.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	// A Shutdown with a deadline returns while it still sends.
	defer time.AfterFunc(t.timeout, t.exporter.end).Stop()
	defer t.exporter.end()
	if err := t.provider.Shutdown(context.Background()); err != nil {
		t.exporter.report(context.Background(), err, 0)
	}
	t.exporter.to.Idle()
}

// Headers returns what work that ctx causes carries, in a workflow or a record: the
// trace of ctx, and the ids of its request and job. [Context] reads it.
func Headers(ctx context.Context) map[string]string {
	out := logctx.Headers(ctx)
	format.Inject(ctx, propagation.MapCarrier(out))
	return out
}

// Context returns a context with the trace and the ids of headers.
func Context(ctx context.Context, headers map[string]string) context.Context {
	return logctx.Receive(format.Extract(ctx, propagation.MapCarrier(headers)), headers)
}

// Parent returns the traceparent of the span of ctx, or "".
func Parent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	format.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// stamp adds the ids of logs to each span, so that a trace is found by the id of
// its request or job.
type stamp struct{}

// OnStart implements sdk.SpanProcessor.
func (stamp) OnStart(ctx context.Context, s sdk.ReadWriteSpan) {
	for _, name := range []string{logctx.RequestID, logctx.Job} {
		if value := logctx.Value(ctx, name); value != "" {
			s.SetAttributes(text("muster."+name, value))
		}
	}
}

// OnEnd implements sdk.SpanProcessor.
func (stamp) OnEnd(sdk.ReadOnlySpan) {}

// Shutdown implements sdk.SpanProcessor.
func (stamp) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdk.SpanProcessor.
func (stamp) ForceFlush(context.Context) error { return nil }

// oneLine returns the beginning of an error.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return line
}
