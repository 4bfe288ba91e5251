package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// scope holds what has been started and stops it, the last first. What
// depends on something is started after it, so it is stopped before it.
type scope struct {
	logger *slog.Logger
	mu     sync.Mutex // guards parts
	parts  []part
}

type part struct {
	name string
	stop func(context.Context) error
}

// add registers how to stop a part that has been started. stop is called once;
// the end of its context ends the time that it may take.
func (s *scope) add(name string, stop func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, part{name, stop})
}

// close stops every part, the last first. It continues when one of them fails.
// A second call does nothing.
func (s *scope) close(ctx context.Context) error {
	s.mu.Lock()
	parts := s.parts
	s.parts = nil
	s.mu.Unlock()
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		s.logger.DebugContext(ctx, "stopping", "part", parts[i].name)
		if err := parts[i].stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", parts[i].name, err))
		}
	}
	return errors.Join(errs...)
}
