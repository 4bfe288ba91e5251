package tracing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// logEvery is the minimum interval between log lines about the collector.
const logEvery = time.Minute

// exporter sends spans to the collector and logs the number of lost spans. It does not return errors, because the global error
// handler of OpenTelemetry would log each of them.
type exporter struct {
	to     Collector
	logger *slog.Logger
	over   context.Context // when done, no spans are sent
	end    context.CancelFunc

	mu     sync.Mutex // guards the fields below
	logged time.Time
	lost   int // spans lost since logged
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.over, cancel)()
	err := e.over.Err()
	if err == nil {
		err = e.to.Exporter.ExportSpans(ctx, spans)
	}
	if err != nil {
		e.report(ctx, err, len(spans))
	}
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.to.Exporter.Shutdown(ctx) }

// report logs an error at most once a minute.
func (e *exporter) report(ctx context.Context, err error, lost int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += lost
	if time.Since(e.logged) < logEvery {
		return
	}
	e.logger.WarnContext(ctx, "spans were not exported; check that the collector of tracing.endpoint is running", "endpoint", e.to.Address, "lost", e.lost, "err", oneLine(err))
	e.logged, e.lost = time.Now(), 0
}
