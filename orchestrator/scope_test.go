package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func TestScopeStopsPartsInReverseOrderOnce(t *testing.T) {
	t.Parallel()
	s := scope{logger: slog.New(slog.DiscardHandler)}
	var stopped []string
	for _, name := range []string{"redis", "log", "workers", "intake"} {
		s.add(name, func(context.Context) error {
			stopped = append(stopped, name)
			if name == "log" {
				return errors.New("disk full")
			}
			return nil
		})
	}
	err := s.close(t.Context())
	if want := []string{"intake", "workers", "log", "redis"}; !slices.Equal(stopped, want) {
		t.Errorf("got stopped %v, want %v", stopped, want)
	}
	if err == nil || !strings.Contains(err.Error(), "stop log: disk full") {
		t.Errorf("got error %v, want stop log: disk full", err)
	}
	if err := s.close(t.Context()); err != nil || len(stopped) != 4 {
		t.Errorf("a second close: error %v, stopped %v", err, stopped)
	}
}
