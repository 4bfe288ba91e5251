package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/tracing"
	"muster/tasks"
)

var (
	// ErrNoSources means that no sources are configured.
	ErrNoSources = errors.New("no proxy sources; add lists of proxies to proxies.sources")
	// ErrNoJudges means that no judge is configured.
	ErrNoJudges = errors.New("check proxies: proxies.judges is empty; see muster judge")
)

// SourceNames returns the labels of the configured sources.
func (s *Service) SourceNames() []string {
	var names []string
	for _, from := range s.cfg.Settings().Sources {
		names = append(names, from.Label())
	}
	return names
}

// StartRefresh sends a refresh from the configured sources and returns its ID. If a refresh is running, it returns the
// ID of that one.
func (s *Service) StartRefresh(ctx context.Context) (id string, err error) {
	settings := s.cfg.Settings()
	if len(settings.Sources) == 0 {
		return "", ErrNoSources
	}
	return s.start(ctx, s.Refresh(ctx, settings.Sources...), tasks.Name(RefreshName), tasks.ProgressKeys(ProgressPrefix),
		tasks.Unique(ProgressPrefix, cmp.Or(settings.RefreshTimeout, time.Hour)))
}

// StartRecheck sends a [Recheck] and returns its ID. If one is running, it returns the ID of that one.
func (s *Service) StartRecheck(ctx context.Context) (id string, err error) {
	if !s.cfg.Settings().CanCheck {
		return "", ErrNoJudges
	}
	return s.start(ctx, Recheck.S(RecheckInput{}), tasks.Unique(Recheck.Name(), time.Hour))
}

// RecheckProxy sends a workflow that rechecks one proxy and returns its ID.
func (s *Service) RecheckProxy(ctx context.Context, m Member) (id string, err error) {
	if !s.cfg.Settings().CanCheck {
		return "", ErrNoJudges
	}
	return s.start(ctx, tasks.Chord(tasks.Settle(tasks.Each([][]Candidate{{m.recheckCandidate()}}, Check)), settleRecheck))
}

// start sends a workflow, unless a duplicate is running, and returns the ID of the workflow or of the duplicate.
func (s *Service) start(ctx context.Context, work tasks.Signature[Report], opts ...tasks.SendOption) (id string, err error) {
	run, err := work.Send(ctx, s.cfg.Client, append(opts, tasks.Headers(tracing.Headers(ctx)))...)
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return "", fmt.Errorf("send the workflow: %w", err)
	}
	return run.ID(), nil
}
