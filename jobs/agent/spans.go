package agent

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/tracing"
	"muster/jobs"
)

// keepSpans is how long the spans of attempts are kept for the links of the next ones.
const keepSpans = 24 * time.Hour

// beginSpans gives work that is about to be stored its spans: below that of its job, with links to that of the attempt
// before. It does nothing without tracing.
func (s *assignments) beginSpans(ctx context.Context, work []jobs.Work) {
	pipe := s.rdb.Pipeline()
	before := map[int]*redis.StringCmd{}
	for i := range work {
		w := &work[i]
		if w.Span = s.cfg.Tracing.Begin(w.Headers); !w.Span.Sampled() {
			continue
		}
		key := s.keys.spans(w.JobID)
		if w.Attempt > 1 {
			before[i] = pipe.HGet(ctx, key, w.QueueItem)
		}
		pipe.HSet(ctx, key, w.QueueItem, w.Span.Self)
		pipe.Expire(ctx, key, keepSpans)
	}
	if pipe.Len() == 0 {
		return
	}
	_, _ = pipe.Exec(ctx) // without links, spans are still of use
	for i, cmd := range before {
		work[i].Span.Before = cmd.Val()
	}
}

// endSpan ends the span of an assignment that has ended.
func (s *assignments) endSpan(h *held, outcome, message string) {
	w := h.work
	failure := ""
	switch outcome {
	case endFailed, endExpired, endLost, endMoved:
		if failure = outcome; message != "" {
			failure = message
		}
	}
	s.cfg.Tracing.End(tracing.Context(context.Background(), w.Headers), w.Span, "assignment "+w.Stage, failure,
		"muster.assignment", h.id, "muster.stage", w.Stage, "muster.role", h.role, "muster.agent", h.agent, "muster.item", w.QueueItem,
		"muster.mode", h.mode, "muster.attempt", strconv.Itoa(w.Attempt), "muster.outcome", outcome)
}

// within returns ctx with the ids and the span of an assignment.
func within(ctx context.Context, w jobs.Work) context.Context {
	return w.Span.Context(tracing.Context(ctx, w.Headers))
}
