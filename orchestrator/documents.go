package orchestrator

import (
	"context"
	"time"
)

// sweepEvery is the interval between sweeps of the documents directory.
const sweepEvery = time.Hour

// sweepDocuments returns a function that removes documents without a job, at most once an hour. It must not be called
// concurrently.
func (s *System) sweepDocuments() func(context.Context) {
	var last time.Time
	return func(ctx context.Context) {
		if time.Since(last) < sweepEvery {
			return
		}
		last = time.Now()
		switch n, err := s.Documents.Sweep(ctx, s.Jobs.HasDocument); {
		case err != nil && ctx.Err() == nil:
			s.logger.WarnContext(ctx, "cannot remove documents without a job", "err", err)
		case n > 0:
			s.logger.InfoContext(ctx, "removed documents without a job", "files", n)
		}
	}
}
