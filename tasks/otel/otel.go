// Package otel makes OpenTelemetry spans for the tasks of workflows.
//
// The sender puts its trace into the workflow, and a worker continues it:
//
//	run, err := signature.Send(ctx, client, otel.Trace(ctx))
//
//	mux.Use(otel.Middleware(client, otel.Config{}))
//
// Each attempt at a task is a span, a child of the sender's span. It has links to the spans of the tasks that it comes
// after and to that of the attempt before it, also if they ran in other processes. Errors are recorded, but not the
// errors of [tasks.Again], of [tasks.ResultPending] and of a worker that stops. The context of the handler has the span.
//
// Only programs that import this package depend on OpenTelemetry.
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

// Config is the configuration of [Middleware].
type Config struct {
	// Provider makes the tracer. Defaults to the global one of OpenTelemetry.
	Provider trace.TracerProvider
	// MaxLinks is the most links of a span to the tasks that it comes after. Defaults to 32.
	MaxLinks int
	// Logger gets warnings of spans that could not be linked. Defaults to none.
	Logger *slog.Logger
}

// How long the traceparents of spans are kept, and how long a task waits for Redis at most.
const (
	keepFor  = 24 * time.Hour
	patience = time.Second
)

// format is the W3C Trace Context.
var format = propagation.TraceContext{}

// Trace returns an option of Send that adds the trace of ctx to the headers of the workflow.
func Trace(ctx context.Context) tasks.SendOption {
	headers := propagation.MapCarrier{}
	format.Inject(ctx, headers)
	return tasks.Headers(headers)
}

// Middleware returns a middleware for [tasks.Mux.Use] that makes a span for each attempt. Links are found through the
// Redis of client; while Redis does not answer, spans have no links.
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

// links returns links to the spans of the tasks that this one comes after, and to that of its attempt before.
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

// keep stores the span of ctx, for the links of the tasks that come after it.
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
