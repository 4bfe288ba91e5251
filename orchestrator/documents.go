package orchestrator

import (
	"context"
	"time"
)

// sweepEvery is how often the folder of documents is swept.
const sweepEvery = time.Hour

// sweepDocuments returns a function that sweeps the folder of documents, once an hour however often it is called. It
// may be called by one goroutine at a time.
func (s *System) sweepDocuments() func(context.Context) {
	var last time.Time
	return func(ctx context.Context) {
		if time.Since(last) < sweepEvery {
			return
		}
		last = time.Now()
		switch n, err := s.Documents.Sweep(ctx, s.Jobs.HasDocument); {
		case err != nil && ctx.Err() == nil:
			s.logger.WarnContext(ctx, "documents without a job stay in the folder of documents", "err", err)
		case n > 0:
			s.logger.InfoContext(ctx, "removed documents without a job", "files", n)
		}
	}
}
