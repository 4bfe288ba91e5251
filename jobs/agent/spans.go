package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/tracing"
	"muster/jobs"
)

// keepSpans is how long the spans of attempts are kept for the links of the next ones.
const keepSpans = 24 * time.Hour

// span is the span of an assignment, with its attributes: any process can end it.
type span struct {
	*tracing.Pending
	Headers           map[string]string
	Stage, Role, Mode string
	Attempt           int
}

// beginSpans starts the spans of leased work: below the span of its job, with links to the previous attempt. It does
// nothing without tracing.
func (s *Service) beginSpans(ctx context.Context, mode string, work []jobs.Work) {
	for i := range work {
		w := &work[i]
		if w.Span = s.cfg.Tracing.Begin(w.Headers); !w.Span.Sampled() {
			continue
		}
		last := s.keys.spans(w.JobID)
		if w.Attempt > 1 {
			w.Span.Before = s.rdb.HGet(ctx, last, w.QueueItem).Val()
		}
		raw, _ := json.Marshal(span{w.Span, w.Headers, w.Stage, w.Role, mode, w.Attempt})
		record := s.keys.assignment(refOf(*w).id())
		_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // without it, the span is not exported
			p.HSet(ctx, last, w.QueueItem, w.Span.Self)
			p.Expire(ctx, last, keepSpans)
			p.HSet(ctx, record, "span", raw)
			p.Expire(ctx, record, keepSpans)
			return nil
		})
	}
}

// endSpan ends the span of an assignment that has ended.
func (s *Service) endSpan(h *assigned, text, outcome, message string) {
	var w span
	if text == "" || json.Unmarshal([]byte(text), &w) != nil {
		return
	}
	failure := ""
	switch outcome {
	case endFailed, endExpired, endLost, endMoved:
		failure = cmp.Or(message, outcome)
	}
	s.cfg.Tracing.End(tracing.Context(context.Background(), w.Headers), w.Pending, "assignment "+w.Stage, failure,
		"muster.assignment", h.ID, "muster.stage", w.Stage, "muster.role", w.Role, "muster.agent", h.Agent, "muster.item", h.QueueItem,
		"muster.mode", w.Mode, "muster.attempt", strconv.Itoa(w.Attempt), "muster.outcome", outcome)
}

// within returns ctx with the ids and the span of an assignment.
func within(ctx context.Context, w jobs.Work) context.Context {
	return w.Span.Context(tracing.Context(ctx, w.Headers))
}
