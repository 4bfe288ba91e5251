package redisd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"muster/internal/trust"
	"muster/orchestrator/supervise"
)

// start decides which Redis to use, the first of these:
//
//  1. the address in the configuration
//  2. the Redis of a running orchestrator on the data directory
//  3. the Redis that the data directory remembers
//  4. an own Redis
//
// Modes child and embedded begin at 4, or with Reuse at 2 without 3; mode external ends at 3.
func (s *Server) start(ctx context.Context) error {
	if err := errors.Join(os.MkdirAll(s.cfg.DataDir, 0o755), os.MkdirAll(s.cfg.folder().redisDir(), 0o700)); err != nil {
		return unwritable(s.cfg.DataDir, err)
	}
	for _, dir := range []string{s.cfg.DataDir, s.cfg.folder().redisDir()} {
		if err := trust.Dir(dir); err != nil {
			return fmt.Errorf("use data directory %s: %w", s.cfg.DataDir, err)
		}
	}
	if s.cfg.URL != "" {
		if err := s.useExternal(ctx, s.cfg.URL); err != nil {
			return fmt.Errorf("%w; start that Redis, correct the address, or give none: then Muster runs a Redis of its own", err)
		}
		return nil
	}
	named := s.cfg.Mode == Auto || s.cfg.Mode == External
	if named || s.cfg.Reuse {
		if used, err := s.usePublished(ctx); used || err != nil {
			return err
		}
	}
	if named {
		if used, err := s.useRemembered(ctx); used || err != nil {
			return err
		}
	}
	if s.cfg.Mode == External {
		return errors.New("redis.mode is external and no Redis is named; give its address with --redis, as in --redis " + s.cfg.LocalURL)
	}
	if shared, err := s.lockData(ctx); shared || err != nil {
		return err
	}
	if s.cfg.Mode == Auto && !s.cfg.folder().hasAppendOnly() && Ping(ctx, s.cfg.LocalURL, s.cfg.PingTimeout) == nil {
		s.cfg.Logger.Info("a Redis without a password runs on this machine and is not used, because every user can change it; to use it, start with --redis " + s.cfg.LocalURL)
	}
	return s.startOwn(ctx)
}

// usePublished uses the Redis of an orchestrator that runs on the data folder,
// if there is one that answers.
func (s *Server) usePublished(ctx context.Context) (used bool, err error) {
	a, err := readAddress(s.cfg.DataDir)
	if err != nil || a.Mode != External && !a.Owner.Alive() || Ping(ctx, a.URL, s.cfg.PingTimeout) != nil {
		return false, nil
	}
	return true, s.useShared(ctx, a)
}

// useShared uses the Redis of another orchestrator on the data folder.
func (s *Server) useShared(ctx context.Context, a address) error {
	if err := s.useExternal(ctx, a.URL); err != nil || a.Mode == External {
		return err
	}
	s.shared = true
	s.guarantee = fmt.Sprintf("The Redis of another orchestrator on the data folder, at %s; it ends with that one.", Redact(a.URL))
	return nil
}

// lockData locks the data folder for a Redis of our own and ends what a crashed
// run has left there. In mode auto, shared reports that another orchestrator
// has the lock and that its Redis is used.
func (s *Server) lockData(ctx context.Context) (shared bool, err error) {
	s.lock, err = tryLock(s.cfg.folder().lockFile())
	switch {
	case errors.Is(err, errLocked) && s.cfg.Mode == Auto:
		return true, s.awaitShared(ctx)
	case errors.Is(err, errLocked):
		return false, fmt.Errorf("%w: another orchestrator runs a Redis on %s; stop it, or choose another folder with --data-dir", ErrInUse, s.cfg.DataDir)
	case errors.Is(err, errors.ErrUnsupported):
		s.cfg.Logger.Warn("the data folder cannot be locked here; see that only one orchestrator uses it", "err", err)
	case err != nil:
		return false, unwritable(s.cfg.DataDir, err)
	}
	return false, s.cfg.endLeftovers(ctx)
}

// awaitShared uses the Redis of the orchestrator that has the lock, which may
// be starting just now.
func (s *Server) awaitShared(ctx context.Context) error {
	for try := 1; ; try++ {
		_, err := Discover(ctx, s.cfg.DataDir)
		if err == nil {
			var a address
			if a, err = readAddress(s.cfg.DataDir); err == nil {
				return s.useShared(ctx, a)
			}
		}
		if try == s.cfg.Attempts {
			return fmt.Errorf("%w by another orchestrator whose Redis does not answer: %w; stop it, or choose another folder with --data-dir", ErrInUse, err)
		}
		select {
		case <-time.After(s.cfg.Interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endLeftovers ends what a crashed run has left on the data folder, which is
// locked.
func (c Config) endLeftovers(ctx context.Context) error {
	if err := tryWrite(c.folder().redisDir()); err != nil {
		return unwritable(c.DataDir, err)
	}
	stale, err := supervise.CleanStale(ctx, c.folder().pidDir(), c.Grace, c.Logger)
	for _, p := range stale {
		if p.Running {
			c.Logger.Info("stopped the redis-server that a crashed run had left", "pid", p.PID)
		}
	}
	if err != nil {
		return fmt.Errorf("end what a crashed run has left: %w", err)
	}
	return c.shutDownLeftover(ctx)
}

// tryWrite returns an error unless files can be made in dir.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".write-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// startOwn runs a Redis on the data folder, which is locked.
func (s *Server) startOwn(ctx context.Context) error {
	password, err := s.cfg.ownPassword()
	if err != nil {
		return err
	}
	if saved := filepath.Join(s.cfg.folder().redisDir(), "embedded.snapshot"); exists(saved) {
		s.warnings = append(s.warnings, fmt.Sprintf("%s has the jobs that the built-in Redis of an earlier version saved; this version cannot read them: start those jobs again, and remove the file", saved))
	}
	if s.cfg.Mode != Embedded {
		path, err := findServer(s.cfg.Server)
		if err == nil {
			return s.cfg.atPort(func(port int) error { return s.startChild(ctx, path, port, password) })
		}
		if s.cfg.Mode == Child || s.cfg.Server != "" {
			return err
		}
		if s.cfg.folder().hasAppendOnly() {
			return fmt.Errorf("the jobs of data folder %s are in the files of a redis-server: %w, which starts without those jobs", s.cfg.DataDir, err)
		}
	}
	return s.cfg.atPort(func(port int) error { return s.startEmbedded(port, password) })
}

func (s *Server) startEmbedded(port int, password string) error {
	mini, err := startEmbedded(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), password)
	if err != nil {
		return fmt.Errorf("start the built-in Redis: %w", err)
	}
	s.mode, s.mini, s.url = Embedded, mini, ownURL(port, password)
	s.guarantee = fmt.Sprintf("The Redis built into Muster, at %s; %s.", withoutPassword(s.url), Volatile)
	s.warnings = append(s.warnings, Volatile)
	if s.cfg.folder().hasAppendOnly() {
		s.warnings = append(s.warnings, "the data folder has the files of a redis-server; mode embedded does not use them")
	}
	return s.cfg.folder().rememberPort(port)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
