package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// noteHandler writes the records of a log as sentences, for people at a terminal who
// have not asked for a log.
type noteHandler struct {
	w     io.Writer
	level slog.Leveler
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h noteHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle implements slog.Handler.
func (h noteHandler) Handle(_ context.Context, r slog.Record) error {
	var more []string
	add := func(a slog.Attr) bool {
		more = append(more, a.Key+": "+a.Value.Resolve().String())
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	text := "muster: " + r.Message
	if len(more) > 0 {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	_, err := io.WriteString(h.w, strings.ReplaceAll(text, "\n", " ")+"\n")
	return err
}

// WithAttrs implements slog.Handler.
func (h noteHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(slices.Clip(h.attrs), attrs...)
	return h
}

// WithGroup implements slog.Handler. Sentences have no groups.
func (h noteHandler) WithGroup(string) slog.Handler { return h }
