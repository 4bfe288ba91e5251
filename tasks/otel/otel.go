// Package otel makes OpenTelemetry spans for the tasks of workflows.
//
// The sender puts its trace into the workflow, and a worker continues it:
//
//	run, err := signature.Send(ctx, client, otel.Trace(ctx))
//
//	mux.Use(otel.Middleware(client, otel.Config{}))
//
// # Spans
//
// Each attempt at a task is a span of kind consumer with the name of the task. It is a child of the sender's span; in a
// workflow that was sent without a trace, of the span of the first attempt that began, so that a workflow is one trace.
// It has links to the spans of the tasks that it comes after and to that of the attempt before it, also if they ran in
// other processes. The context of the handler has the span.
//
// Its attributes are those of the semantic conventions for messaging, version 1.43: messaging.system (muster),
// messaging.operation.type and messaging.operation.name (process), messaging.destination.name (the queue),
// messaging.message.id (the idempotency key), messaging.message.conversation_id (the workflow), messaging.client.id (the
// worker) and error.type; and muster.workflow, muster.node, muster.worker and muster.attempt.
//
// Errors are recorded, but not the errors of [tasks.Again], of [tasks.ResultPending] and of a worker that stops: these
// are events.
//
// Only programs that import this package depend on OpenTelemetry.
package otel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	maxRoots = 10000
)

// format is the W3C Trace Context.
var format = propagation.TraceContext{}

// traceparent is the header of format that names a span.
const traceparent = "traceparent"

// Trace returns an option of Send that adds the trace of ctx to the headers of the workflow.
func Trace(ctx context.Context) tasks.SendOption {
	headers := propagation.MapCarrier{}
	format.Inject(ctx, headers)
	return tasks.Headers(headers)
}

// Middleware returns a middleware for [tasks.Mux.Use] that makes a span for each attempt. Links are found through the
// Redis of client while the task runs, by one call for an attempt that is sampled and none for one that is not. While
// Redis does not answer, spans have no links, and a task waits for it up to a second.
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
	first := false // no attempt of the workflow has had a span
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
	linked := func() {}
	if span.IsRecording() || first {
		linked = t.link(ctx, span, info, first)
	}
	defer func() {
		p := recover()
		linked()
		switch {
		case p != nil:
			span.RecordError(fmt.Errorf("panic: %v", p), trace.WithStackTrace(true))
			span.SetAttributes(semconv.ErrorTypeKey.String("panic"))
			span.SetStatus(codes.Error, "panic")
		case tasks.IsPending(err):
			span.AddEvent("waits for an answer from outside")
		case tasks.IsAgain(err), err != nil && errors.Is(context.Cause(ctx), tasks.ErrShutdown):
			span.AddEvent("called again later")
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

// join returns a context with the span that the attempts of a workflow without a trace are children of. It reports
// whether there is none yet: then that of this attempt is it.
func (t *tracing) join(ctx context.Context, info tasktype.Info) (_ context.Context, first bool) {
	if text, ok := t.roots.Load(info.Workflow); ok {
		return format.Extract(ctx, propagation.MapCarrier{traceparent: text}), false
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := t.client.Redis().HGet(asking, traceKey(info.Workflow), rootField).Result()
	if errors.Is(err, redis.Nil) {
		return ctx, true
	}
	if err != nil {
		t.cfg.Logger.WarnContext(ctx, "span has a trace of its own", "workflow", info.Workflow, "node", info.Node, "error", err)
		return ctx, false
	}
	t.roots.Store(info.Workflow, text)
	return format.Extract(ctx, propagation.MapCarrier{traceparent: text}), false
}

// roots remembers the parents of the spans of workflows that were sent without a trace.
type roots struct {
	mu  sync.Mutex // guards all
	all map[string]string
}

// Load returns the parent of a workflow, if it is remembered.
func (r *roots) Load(workflow string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, ok := r.all[workflow]
	return text, ok
}

// Store remembers the parent of a workflow. Once there are many, it forgets the others.
func (r *roots) Store(workflow, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil || len(r.all) >= maxRoots {
		r.all = map[string]string{}
	}
	r.all[workflow] = text
}

// link links the span of ctx to those of the tasks that its task comes after, and to that of its attempt before. It
// stores the span for those that come after it, and, if it is the first of the workflow, as the parent of all others. It
// does so while the task runs; what it returns waits for the end.
func (t *tracing) link(ctx context.Context, span trace.Span, info tasktype.Info, first bool) (wait func()) {
	own := propagation.MapCarrier{}
	format.Inject(ctx, own)
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	key := traceKey(info.Workflow)
	pipe := t.client.Redis().Pipeline()
	var nodes []string
	var before *redis.SliceCmd
	if span.IsRecording() {
		var err error
		if nodes, err = tasks.Predecessors(asking, t.cfg.MaxLinks); err != nil {
			t.cfg.Logger.WarnContext(ctx, "span is not linked", "workflow", info.Workflow, "node", info.Node, "error", err)
		}
		nodes = append(nodes, info.Node)
		before = pipe.HMGet(asking, key, nodes...)
		pipe.HSet(asking, key, info.Node, own[traceparent])
	}
	if first {
		pipe.HSetNX(asking, key, rootField, own[traceparent])
	}
	pipe.PExpire(asking, key, keepFor)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		if _, err := pipe.Exec(asking); err != nil {
			t.cfg.Logger.WarnContext(ctx, "span is not linked", "workflow", info.Workflow, "node", info.Node, "error", err)
		} else if before != nil {
			addLinks(span, nodes, before.Val())
		}
	}()
	return func() { <-done }
}

// addLinks adds links to the spans of nodes, given by their traceparents.
func addLinks(span trace.Span, nodes []string, before []any) {
	for i, v := range before {
		text, _ := v.(string)
		sc := trace.SpanContextFromContext(format.Extract(context.Background(), propagation.MapCarrier{traceparent: text}))
		if sc.IsValid() {
			span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String("muster.node", nodes[i])}})
		}
	}
}
