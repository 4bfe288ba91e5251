package redisd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"muster/internal/atomicfile"
)

// remember records that the jobs of the directory are in the current Redis, and adds a warning if they were in another.
func (s *Server) remember() error {
	before, err := s.cfg.folder().external()
	if err != nil {
		return err
	}
	if s.mode != External {
		if before == "" {
			return nil
		}
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in the Redis at %s and not in the current one; to go back, use that address with --redis", before))
		return os.Remove(s.cfg.folder().externalFile())
	}
	now := withoutPassword(s.url)
	if now == before || s.cfg.folder().isOwn(s.url) {
		return nil
	}
	switch {
	case before != "":
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in the Redis at %s, not in the Redis at %s", before, now))
	case s.cfg.folder().hasAppendOnly():
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in a child Redis, not in the Redis at %s; to use it again, set redis.mode to child", now))
	case s.cfg.folder().hasEmbedded():
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in an embedded Redis, not in the Redis at %s; to use it again, set redis.mode to embedded; to move them, see muster store copy", now))
	}
	return atomicfile.WriteBytes(s.cfg.folder().externalFile(), 0o600, []byte(now+"\n"))
}

// ErrNoStore means that a data directory contains no Redis data.
var ErrNoStore = errors.New("no store")

// Exists returns ErrNoStore if Start with cfg would create an empty Redis. It changes nothing.
func Exists(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil || cfg.URL != "" {
		return err
	}
	if _, err := Discover(ctx, cfg.DataDir); err == nil {
		return nil
	}
	external, err := cfg.folder().external()
	switch {
	case err != nil:
		return err
	case cfg.Mode == External, cfg.Mode == Auto && external != "", cfg.Mode != Embedded && cfg.folder().hasAppendOnly(), cfg.Mode != Child && cfg.folder().hasEmbedded():
		return nil
	}
	return fmt.Errorf("%w in data directory %s: run `muster start`, or name another directory with --data-dir or a Redis with --redis", ErrNoStore, cfg.DataDir)
}

// useRemembered uses the external Redis that stores the jobs of the directory, if any.
func (s *Server) useRemembered(ctx context.Context) (used bool, err error) {
	url, err := s.cfg.folder().external()
	if err != nil || url == "" {
		return false, err
	}
	if err := s.useExternal(ctx, url); err != nil {
		return false, fmt.Errorf("the jobs of data directory %s are in another Redis (see %s): %w; start it, or use its complete address with --redis; to continue without those jobs, use another address with --redis, or set redis.mode to child or embedded (MUSTER_REDIS__MODE=child)", s.cfg.DataDir, s.cfg.folder().externalFile(), err)
	}
	return true, nil
}
