// Package logctx stores attributes of log lines in contexts, so that each log line with a context contains the IDs of its request,
// job and task.
package logctx

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// The names of log attributes.
const (
	RequestID = "request_id"
	Job       = "job"
	Workflow  = "workflow"
	Node      = "node"
	TraceID   = "trace_id"
	SpanID    = "span_id"
)

type contextKey struct{}

// With returns a context whose log lines contain args, which have the format of [slog.Logger.With]. The last attribute of a name wins.
func With(ctx context.Context, args ...any) context.Context {
	var r slog.Record
	r.Add(args...)
	before := attrsOf(ctx)
	attrs := append(make([]slog.Attr, 0, len(before)+r.NumAttrs()), before...)
	r.Attrs(func(a slog.Attr) bool {
		if i := slices.IndexFunc(attrs, func(b slog.Attr) bool { return a.Key == b.Key }); i >= 0 {
			attrs[i] = a
		} else {
			attrs = append(attrs, a)
		}
		return true
	})
	return context.WithValue(ctx, contextKey{}, attrs)
}

// Value returns an attribute of a context as a string, or "".
func Value(ctx context.Context, name string) string {
	for _, a := range attrsOf(ctx) {
		if a.Key == name {
			return a.Value.String()
		}
	}
	return ""
}

// attrsOf returns the attributes of a context. The caller must not modify them.
func attrsOf(ctx context.Context) []slog.Attr {
	attrs, _ := ctx.Value(contextKey{}).([]slog.Attr)
	return attrs
}

// Handler returns a handler that adds the attributes of the context of each line and the IDs of its span, outside of all groups. It
// does not add attributes that the line or its logger already contains.
func Handler(next slog.Handler) slog.Handler { return &handler{root: next, next: next} }

type handler struct {
	root   slog.Handler                      // with attributes added before the first group
	next   slog.Handler                      // with all attributes and groups
	names  []string                          // names of the attributes of root
	groups []func(slog.Handler) slog.Handler // steps from root to next
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := h.missing(ctx, r)
	if len(attrs) == 0 {
		return h.next.Handle(ctx, r)
	}
	if len(h.groups) == 0 {
		r = r.Clone()
		r.AddAttrs(attrs...)
		return h.next.Handle(ctx, r)
	}
	next := h.root.WithAttrs(attrs)
	for _, step := range h.groups {
		next = step(next)
	}
	return next.Handle(ctx, r)
}

// missing returns the attributes of a context that a record does not contain.
func (h *handler) missing(ctx context.Context, r slog.Record) []slog.Attr {
	attrs := attrsOf(ctx)
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		attrs = append(slices.Clip(attrs), slog.String(TraceID, sc.TraceID().String()), slog.String(SpanID, sc.SpanID().String()))
	}
	if len(attrs) == 0 {
		return nil
	}
	has := slices.Clip(h.names)
	if len(h.groups) == 0 {
		r.Attrs(func(a slog.Attr) bool {
			has = append(has, a.Key)
			return true
		})
	}
	if len(has) == 0 {
		return attrs
	}
	return slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool { return slices.Contains(has, a.Key) })
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(h.groups) > 0 {
		return h.grouped(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
	}
	names := slices.Clip(h.names)
	for _, a := range attrs {
		names = append(names, a.Key)
	}
	next := h.next.WithAttrs(attrs)
	return &handler{root: next, next: next, names: names}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.grouped(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *handler) grouped(step func(slog.Handler) slog.Handler) slog.Handler {
	return &handler{root: h.root, next: step(h.next), names: h.names, groups: append(slices.Clip(h.groups), step)}
}
