package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// scope records the running parts of the system and stops them in reverse order. Dependents start after their dependencies,
// so they stop first.
type scope struct {
	logger *slog.Logger
	mu     sync.Mutex // guards parts
	parts  []part
}

type part struct {
	name string
	stop func(context.Context) error
}

// add registers the stop function of a running part. It is called once. When its context is done, it must return
// immediately.
func (s *scope) add(name string, stop func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, part{name, stop})
}

// close stops all parts in reverse order, even if some of them fail. A second call does nothing.
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
