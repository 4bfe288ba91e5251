package logctx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"

	"go.opentelemetry.io/otel/trace"

	"muster/internal/logctx"
	"muster/internal/testutil"
)

func TestLinesContainTheIDsOfTheirContext(t *testing.T) {
	t.Parallel()
	ids := logctx.With(logctx.With(t.Context(), logctx.RequestID, "r1", logctx.Job, "old"), logctx.Job, "j1")
	span := trace.ContextWithSpanContext(ids, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	const traced = ` trace_id=01000000000000000000000000000000 span_id=0200000000000000`
	for _, c := range []struct {
		name string
		log  func(*slog.Logger)
		want string
	}{
		{"none", func(l *slog.Logger) { l.InfoContext(t.Context(), "m", "a", 1) }, "msg=m a=1"},
		{"ids", func(l *slog.Logger) { l.InfoContext(ids, "m", "a", 1) }, "msg=m a=1 request_id=r1 job=j1"},
		{"span", func(l *slog.Logger) { l.InfoContext(span, "m") }, "msg=m request_id=r1 job=j1" + traced},
		{"line has the attribute", func(l *slog.Logger) { l.InfoContext(ids, "m", "job", "mine") }, "msg=m job=mine request_id=r1"},
		{"logger has the attribute", func(l *slog.Logger) { l.With("job", "its").InfoContext(ids, "m") }, "job=its msg=m request_id=r1"},
		{"group", func(l *slog.Logger) { l.With("b", 2).WithGroup("g").With("c", 3).InfoContext(ids, "m", "job", "other") },
			"b=2 request_id=r1 job=j1 g.c=3 msg=m g.job=other"},
		{"no context", func(l *slog.Logger) { l.Info("m") }, "msg=m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			c.log(slog.New(logctx.Handler(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
				if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
					return slog.Attr{}
				}
				return a
			}}))))
			got := strings.Fields(b.String())
			for _, word := range strings.Fields(c.want) {
				if n := strings.Count(" "+strings.Join(got, " ")+" ", " "+word+" "); n != 1 {
					t.Errorf("got %q, which has %s %d times, want once", b.String(), word, n)
				}
			}
			if want := strings.Fields(c.want); len(got) != len(want) {
				t.Errorf("got %q, want the words of %q", b.String(), c.want)
			}
		})
	}
	if got := logctx.Value(ids, logctx.Job); got != "j1" {
		t.Errorf("Value returned %q, want j1", got)
	}
	if got := logctx.Value(context.Background(), logctx.Job); got != "" {
		t.Errorf("Value of an empty context returned %q", got)
	}
}

func TestHandlerKeepsTheRulesOfSlog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	err := slogtest.TestHandler(logctx.Handler(slog.NewJSONHandler(&b, nil)), func() []map[string]any {
		var lines []map[string]any
		for line := range strings.Lines(b.String()) {
			var m map[string]any
			testutil.Ok(t, json.Unmarshal([]byte(line), &m))
			lines = append(lines, m)
		}
		return lines
	})
	if err != nil {
		t.Error(err)
	}
}
