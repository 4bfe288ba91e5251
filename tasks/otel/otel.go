// Package otel creates OpenTelemetry spans for the tasks of workflows.
//
// The sender adds its trace to the workflow, and workers continue it:
//
//	run, err := signature.Send(ctx, client, otel.Trace(ctx))
//
//	mux.Use(otel.Middleware(client, otel.Config{}))
//
// # Spans
//
// Each attempt of a task is a span of kind consumer with the name of the task. Its parent is the sender's span or, in
// a workflow without a trace, the span of the first attempt, so that a workflow is one trace. The context of the handler
// contains the span.
//
// The attributes follow the semantic conventions for messaging, version 1.43: messaging.system (muster),
// messaging.operation.type and messaging.operation.name (process), messaging.destination.name (the queue),
// messaging.message.id (the idempotency key), messaging.message.conversation_id (the workflow), messaging.client.id
// (the worker) and error.type. Additional attributes are muster.workflow, muster.node, muster.worker and
// muster.attempt.
//
// Errors are recorded, except for [tasks.Again], [tasks.ResultPending] and errors caused by the shutdown of a worker,
// which are events.
//
// Only programs that import this package depend on OpenTelemetry.
package otel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	upstream "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"muster/tasks"
	"muster/tasks/tasktype"
)

// Config configures [Middleware].
type Config struct {
	// Provider creates the tracer. Defaults to the global provider of OpenTelemetry.
	Provider trace.TracerProvider
	// Logger receives warnings about spans with a separate trace. Defaults to none.
	Logger *slog.Logger
}

// Lifetime of a stored traceparent after its last use, and timeout of the Redis calls of a task.
const (
	keepFor  = 24 * time.Hour
	patience = time.Second
	maxRoots = 10000
)

// format is the W3C Trace Context format.
var format = propagation.TraceContext{}

// traceparent is the header of format that identifies a span.
const traceparent = "traceparent"

// Trace returns a Send option that adds the trace of ctx to the headers of the workflow.
func Trace(ctx context.Context) tasks.SendOption {
	headers := propagation.MapCarrier{}
	format.Inject(ctx, headers)
	return tasks.Headers(headers)
}

// Middleware returns a middleware for [tasks.Mux.Use] that creates a span for each attempt. The span of the first attempt of a
// workflow without a trace is stored in the Redis of client. While that is unreachable, tasks of such workflows have separate
// traces and are delayed by up to a second.
func Middleware(client *tasks.Client, cfg Config) tasks.Middleware {
	if cfg.Provider == nil {
		cfg.Provider = upstream.GetTracerProvider()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &tracing{client: client, cfg: cfg, tracer: cfg.Provider.Tracer("muster/tasks")}
	return t.run
}

type tracing struct {
	client *tasks.Client
	cfg    Config
	tracer trace.Tracer
	roots  roots
}

func (t *tracing) run(ctx context.Context, info tasktype.Info, next func(context.Context) error) (err error) {
	ctx = format.Extract(ctx, propagation.MapCarrier(info.Headers))
	first := false // no earlier attempt of the workflow has a span
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx, first = t.join(ctx, info)
	}
	ctx, span := t.tracer.Start(ctx, info.Task,
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			semconv.MessagingSystemKey.String("muster"),
			semconv.MessagingOperationTypeProcess,
			semconv.MessagingOperationName("process"),
			semconv.MessagingDestinationName(info.Queue),
			semconv.MessagingMessageID(info.Key),
			semconv.MessagingMessageConversationID(info.Workflow),
			semconv.MessagingClientID(info.Worker),
			attribute.String("muster.workflow", info.Workflow),
			attribute.String("muster.node", info.Node),
			attribute.String("muster.worker", info.Worker),
			attribute.Int("muster.attempt", info.Attempt),
		))
	if first {
		t.lead(ctx, info)
	}
	defer func() {
		p := recover()
		switch {
		case p != nil:
			span.RecordError(fmt.Errorf("panic: %v", p), trace.WithStackTrace(true))
			span.SetAttributes(semconv.ErrorTypeKey.String("panic"))
			span.SetStatus(codes.Error, "panic")
		case err != nil && (!tasks.IsFailure(err) || errors.Is(context.Cause(ctx), tasks.ErrShutdown)):
			span.AddEvent("waits for another call or an external result")
		case err != nil:
			span.RecordError(err)
			span.SetAttributes(semconv.ErrorType(err))
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
		if p != nil {
			panic(p)
		}
	}()
	return next(ctx)
}

// sendOf identifies the send of the workflow of an attempt: a later workflow can have the same id.
func sendOf(info tasktype.Info) string { return strings.TrimSuffix(info.Key, "."+info.Node) }

// join returns a context with the parent span for the attempts of a workflow without a trace. If there is none yet,
// first is true and the span of this attempt becomes the parent.
func (t *tracing) join(ctx context.Context, info tasktype.Info) (_ context.Context, first bool) {
	workflow := sendOf(info)
	if text, ok := t.roots.Load(workflow); ok {
		return format.Extract(ctx, propagation.MapCarrier{traceparent: text}), false
	}
	callCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := t.client.Redis().GetEx(callCtx, traceKey(t.client.Namespace(), workflow), keepFor).Result()
	if errors.Is(err, redis.Nil) {
		return ctx, true
	}
	if err != nil {
		t.cfg.Logger.WarnContext(ctx, "span has a separate trace", "workflow", info.Workflow, "node", info.Node, "error", err)
		return ctx, false
	}
	t.roots.Store(workflow, text)
	return format.Extract(ctx, propagation.MapCarrier{traceparent: text}), false
}

// roots caches the parent spans of workflows that were sent without a trace.
type roots struct {
	mu  sync.Mutex // guards all
	all map[string]string
}

// Load returns the cached parent of a workflow.
func (r *roots) Load(workflow string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, ok := r.all[workflow]
	return text, ok
}

// Store caches the parent of a workflow. It clears the cache when it is full.
func (r *roots) Store(workflow, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil || len(r.all) >= maxRoots {
		r.all = map[string]string{}
	}
	r.all[workflow] = text
}

// lead stores the span of ctx as the parent of the workflow, unless there is one.
func (t *tracing) lead(ctx context.Context, info tasktype.Info) {
	own := propagation.MapCarrier{}
	format.Inject(ctx, own)
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := t.client.Redis().SetNX(callCtx, traceKey(t.client.Namespace(), sendOf(info)), own[traceparent], keepFor).Err(); err != nil {
		t.cfg.Logger.WarnContext(ctx, "further spans have separate traces", "workflow", info.Workflow, "node", info.Node, "error", err)
	}
}
