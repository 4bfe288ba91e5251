// Package otel makes spans of the tasks of a workflow, for OpenTelemetry.
//
// The sender puts its trace into the workflow, and a worker continues it:
//
//	run, err := signature.Send(ctx, client, otel.Trace(ctx))
//
//	mux.Use(otel.Middleware(client, otel.Config{}))
//
// Each attempt at a task is a span, a child of the sender's. It links to the spans of the tasks it comes
// after, however many and wherever they ran, and to its own attempt before. Errors are recorded; being
// called again, and a worker that stops, are none. The context of the handler carries the span.
//
// Only those who import this package depend on OpenTelemetry.
package otel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	upstream "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"muster/tasks"
	"muster/tasks/tasktype"
)

// Config says where spans go.
type Config struct {
	// Provider makes the tracer. Defaults to the global one of OpenTelemetry.
	Provider trace.TracerProvider
	// MaxLinks bounds the links of a span to those it comes after. Defaults to 32.
	MaxLinks int
	// Logger gets spans that could not be linked. Defaults to none.
	Logger *slog.Logger
}

// The limits of what is kept of spans, and of how long a task waits for that.
const (
	keepFor  = 24 * time.Hour
	patience = time.Second
)

// format is how traces travel: the standard of the W3C.
var format = propagation.TraceContext{}

// Trace returns the option that puts the trace of ctx into the workflow that is sent.
func Trace(ctx context.Context) tasks.SendOption {
	headers := propagation.MapCarrier{}
	format.Inject(ctx, headers)
	return tasks.Headers(headers)
}

// Middleware returns what makes spans of the tasks of a [tasks.Mux]. Spans are linked through the Redis
// of client; while that does not answer there are spans without links.
func Middleware(client *tasks.Client, cfg Config) tasks.Middleware {
	if cfg.Provider == nil {
		cfg.Provider = upstream.GetTracerProvider()
	}
	if cfg.MaxLinks <= 0 {
		cfg.MaxLinks = 32
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := tracing{client: client, cfg: cfg, tracer: cfg.Provider.Tracer("muster/tasks")}
	return t.run
}

type tracing struct {
	client *tasks.Client
	cfg    Config
	tracer trace.Tracer
}

func (t *tracing) run(ctx context.Context, info tasktype.Info, next func(context.Context) error) (err error) {
	ctx = format.Extract(ctx, propagation.MapCarrier(info.Headers))
	ctx, span := t.tracer.Start(ctx, info.Task,
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(t.links(ctx, info)...),
		trace.WithAttributes(
			attribute.String("messaging.system", "muster"),
			attribute.String("messaging.destination.name", info.Queue),
			attribute.String("messaging.message.id", info.Key),
			attribute.String("muster.workflow", info.Workflow),
			attribute.String("muster.node", info.Node),
			attribute.String("muster.worker", info.Worker),
			attribute.Int("muster.attempt", info.Attempt),
		))
	t.keep(ctx, info)
	defer func() {
		p := recover()
		switch {
		case p != nil:
			span.RecordError(fmt.Errorf("panic: %v", p), trace.WithStackTrace(true))
			span.SetStatus(codes.Error, "panic")
		case tasks.IsPending(err):
			span.AddEvent("waits for an answer from outside")
		case tasks.IsAgain(err), err != nil && errors.Is(context.Cause(ctx), tasks.ErrShutdown):
			span.AddEvent("called again later")
		case err != nil:
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
		if p != nil {
			panic(p)
		}
	}()
	return next(ctx)
}

// links returns links to the spans that a task comes after, and to its attempt before.
func (t *tracing) links(ctx context.Context, info tasktype.Info) []trace.Link {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nodes, err := tasks.Predecessors(ctx, t.cfg.MaxLinks)
	if err != nil {
		t.cfg.Logger.Warn("span has no links", "workflow", info.Workflow, "node", info.Node, "error", err)
		return nil
	}
	nodes = append(nodes, info.Node)
	parents, err := t.client.Redis().HMGet(ctx, traceKey(info.Workflow), nodes...).Result()
	if err != nil {
		t.cfg.Logger.Warn("span has no links", "workflow", info.Workflow, "node", info.Node, "error", err)
		return nil
	}
	var out []trace.Link
	for i, p := range parents {
		text, ok := p.(string)
		if !ok {
			continue
		}
		sc := trace.SpanContextFromContext(format.Extract(context.Background(), propagation.MapCarrier{"traceparent": text}))
		if sc.IsValid() {
			out = append(out, trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String("muster.node", nodes[i])}})
		}
	}
	return out
}

// keep lets those that come after the span of ctx find it.
func (t *tracing) keep(ctx context.Context, info tasktype.Info) {
	headers := propagation.MapCarrier{}
	format.Inject(ctx, headers)
	if headers["traceparent"] == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pipe := t.client.Redis().Pipeline()
	pipe.HSet(ctx, traceKey(info.Workflow), info.Node, headers["traceparent"])
	pipe.PExpire(ctx, traceKey(info.Workflow), keepFor)
	if _, err := pipe.Exec(ctx); err != nil {
		t.cfg.Logger.Warn("span cannot be linked to", "workflow", info.Workflow, "node", info.Node, "error", err)
	}
}
