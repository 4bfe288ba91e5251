package tracing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// logEvery is how often trouble with the collector is logged at most.
const logEvery = time.Minute

// exporter sends spans to the collector, and logs how many were lost. Its errors go
// no further: the handler of errors of OpenTelemetry is global, and logs each.
type exporter struct {
	to     Collector
	logger *slog.Logger
	over   context.Context // once done, nothing is sent any more
	end    context.CancelFunc

	mu     sync.Mutex // guards the rest
	logged time.Time
	lost   int // since then
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

// report logs trouble, but not twice in a minute.
func (e *exporter) report(ctx context.Context, err error, lost int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += lost
	if time.Since(e.logged) < logEvery {
		return
	}
	e.logger.WarnContext(ctx, "spans were not exported; see that the collector of tracing.endpoint runs", "endpoint", e.to.Address, "lost", e.lost, "err", oneLine(err))
	e.logged, e.lost = time.Now(), 0
}
