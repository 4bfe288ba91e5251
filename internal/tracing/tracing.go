// Package tracing creates OpenTelemetry spans for requests and their effects: tasks of jobs, work of agents, and pages of scrapes.
//
// A nil *Tracing is disabled: its methods may be called and create no spans. [Headers] and [Context] always propagate the trace and
// the log IDs.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"muster/internal/logctx"
)

// Limits of the export queue.
const (
	maxQueue = 8192            // spans; further spans are dropped
	maxBatch = 512             // spans per request
	batchFor = 2 * time.Second // maximum delay of a span
	maxValue = 1024            // maximum size of an attribute in bytes
)

// Tracing creates and exports spans. Its methods may be called concurrently.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
	timeout  time.Duration
}

// format is the propagation format, W3C Trace Context.
var format = propagation.TraceContext{}

// Collector is a destination of spans; package otlp implements one.
type Collector struct {
	Exporter sdk.SpanExporter
	Address  string // for logs, without secrets
	Idle     func() // closes idle connections
}

// Config are the settings of tracing. Package otlp opens a collector from it.
type Config struct {
	Endpoint string            `yaml:"endpoint" rule:"collector" zero:"" secret:"url"` // URL of the collector
	Headers  map[string]string `yaml:"headers" rule:"headers" secret:"all"`            // headers of requests to the collector
	Sample   float64           `yaml:"sample" range:"0 1"`                             // share of exported traces
	Service  string            `yaml:"service" rule:"required"`                        // service name in spans
	Timeout  time.Duration     `yaml:"timeout" range:"100ms 1m"`                       // timeout of an export and of Close
}

// Provider returns the tracer provider, or nil if tracing is disabled.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// New returns a Tracing that sends spans to a collector. It does not connect: an unavailable collector loses spans, which is logged
// at most once a minute. The caller must call Close.
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
		sdk.WithResource(about), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.Sample))),
		sdk.WithSpanProcessor(stamp{}),
		sdk.WithRawSpanLimits(limits),
		sdk.WithBatcher(e, sdk.WithMaxQueueSize(maxQueue), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(batchFor), sdk.WithExportTimeout(cfg.Timeout)),
	)
	t.tracer = t.provider.Tracer("muster")
	return t, nil
}

// instance returns the name of this process.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%s.%d", host, os.Getpid())
}

// Close exports queued spans, for at most the configured timeout. No span may start afterwards. Lost spans are logged.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	// Shutdown with a deadline would return while it is still sending.
	defer time.AfterFunc(t.timeout, t.exporter.end).Stop()
	defer t.exporter.end()
	if err := t.provider.Shutdown(context.Background()); err != nil {
		t.exporter.report(context.Background(), err, 0)
	}
	t.exporter.to.Idle()
}

// Record creates the span of work that began earlier and ends now, below the span in headers. attributes are pairs of name and
// value; empty values are omitted.
func (t *Tracing) Record(headers map[string]string, began time.Time, name, failure string, attributes ...string) {
	ctx := Context(context.Background(), headers)
	if t == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	var attrs []attribute.KeyValue
	for i := 0; i+1 < len(attributes); i += 2 {
		if attributes[i+1] != "" {
			attrs = append(attrs, text(attributes[i], short(attributes[i+1])))
		}
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(began), trace.WithAttributes(attrs...))
	if failure != "" {
		span.SetStatus(codes.Error, short(failure))
	}
	span.End()
}

// Headers returns the headers that propagate the trace of ctx and the IDs of its request and job, for a workflow or a record.
// [Context] reads them.
func Headers(ctx context.Context) map[string]string {
	out := logctx.Headers(ctx)
	format.Inject(ctx, propagation.MapCarrier(out))
	return out
}

// Context returns a context with the trace and the IDs in headers.
func Context(ctx context.Context, headers map[string]string) context.Context {
	return logctx.Receive(format.Extract(ctx, propagation.MapCarrier(headers)), headers)
}

// Parent returns the traceparent of the span of ctx, or "".
func Parent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	format.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// stamp adds the log IDs to each span, so that a trace can be found by the ID of its request or job.
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

// oneLine returns the first line of an error, truncated.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return line
}
