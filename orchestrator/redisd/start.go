package redisd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"muster/internal/trust"
	"muster/orchestrator/supervise"
	"muster/tasks/embedded"
)

// start selects the Redis to use, the first of these:
//
//  1. the configured address
//  2. the Redis of a running orchestrator on the data directory
//  3. the Redis that the data directory remembers
//  4. a child or embedded Redis
//
// The modes child and embedded start at 4, or with Reuse at 2 without 3. The mode external stops at 3.
func (s *Server) start(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.folder().redisDir(), 0o700); err != nil {
		return unwritable(s.cfg.DataDir, err)
	}
	for _, dir := range []string{s.cfg.DataDir, s.cfg.folder().redisDir()} {
		if err := trust.Dir(dir); err != nil {
			return fmt.Errorf("use data directory %s: %w", s.cfg.DataDir, err)
		}
	}
	if s.cfg.URL != "" {
		if err := s.useExternal(ctx, s.cfg.URL); err != nil {
			return fmt.Errorf("%w; start that Redis, correct the address, or remove it to let Muster start a Redis", err)
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
		return errors.New("redis.mode is external, but no address is set; use --redis, for example --redis " + s.cfg.LocalURL)
	}
	if shared, err := s.lockData(ctx); shared || err != nil {
		return err
	}
	if s.cfg.Mode == Auto && !s.cfg.folder().hasAppendOnly() && Ping(ctx, s.cfg.LocalURL, s.cfg.PingTimeout) == nil {
		s.cfg.Logger.Info("ignoring the Redis on this machine, because it has no password and all users can modify it; to use it, start with --redis " + s.cfg.LocalURL)
	}
	return s.startOwn(ctx)
}

// usePublished uses the Redis of an orchestrator that runs on the data directory, if it responds.
func (s *Server) usePublished(ctx context.Context) (used bool, err error) {
	a, err := readAddress(s.cfg.DataDir)
	if err != nil || a.Mode != External && !a.Owner.Alive() || Ping(ctx, a.URL, s.cfg.PingTimeout) != nil {
		return false, nil
	}
	return true, s.useShared(ctx, a)
}

// useShared uses the Redis of another orchestrator on the data directory.
func (s *Server) useShared(ctx context.Context, a address) error {
	if err := s.useExternal(ctx, a.URL); err != nil || a.Mode == External {
		return err
	}
	s.shared = true
	s.guarantee = fmt.Sprintf("Redis of another orchestrator on the data directory, at %s; it stops with that orchestrator.", Redact(a.URL))
	return nil
}

// lockData locks the data directory for a child or embedded Redis and stops the leftovers of a crashed run. In mode auto, shared
// reports that another orchestrator holds the lock and its Redis is used.
func (s *Server) lockData(ctx context.Context) (shared bool, err error) {
	s.lock, err = tryLock(s.cfg.folder().lockFile())
	switch {
	case errors.Is(err, errLocked) && s.cfg.Mode == Auto:
		return true, s.awaitShared(ctx)
	case errors.Is(err, errLocked):
		a, _ := readAddress(s.cfg.DataDir) // 0 while the other one starts
		return false, fmt.Errorf("%w: another orchestrator, process %d, runs a Redis on %s; stop it, or choose another directory with --data-dir", ErrInUse, a.Owner.PID, s.cfg.DataDir)
	case errors.Is(err, errors.ErrUnsupported):
		s.cfg.Logger.Warn("cannot lock the data directory on this system; make sure that only one orchestrator uses it", "err", err)
	case err != nil:
		return false, unwritable(s.cfg.DataDir, err)
	}
	return false, s.cfg.endLeftovers(ctx)
}

// awaitShared waits for the Redis of the orchestrator that holds the lock, which may be starting, and uses it.
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
			return fmt.Errorf("%w by another orchestrator whose Redis does not respond: %w; stop it, or choose another directory with --data-dir", ErrInUse, err)
		}
		select {
		case <-time.After(s.cfg.Interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endLeftovers stops the leftovers of a crashed run on the locked data directory.
func (c Config) endLeftovers(ctx context.Context) error {
	if err := tryWrite(c.folder().redisDir()); err != nil {
		return unwritable(c.DataDir, err)
	}
	stale, err := supervise.CleanStale(ctx, c.folder().pidDir(), c.Grace, c.Logger)
	for _, p := range stale {
		if p.Running {
			c.Logger.Info("stopped the redis-server of a crashed run", "pid", p.PID)
		}
	}
	if err != nil {
		return fmt.Errorf("stop leftovers of a crashed run: %w", err)
	}
	return c.shutDownLeftover(ctx)
}

// tryWrite checks that files can be created in dir.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".write-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// startOwn starts a child or embedded Redis on the locked data directory.
func (s *Server) startOwn(ctx context.Context) error {
	password, err := s.cfg.ownPassword()
	if err != nil {
		return err
	}
	if s.cfg.Mode == Child || s.cfg.Mode == Auto && (s.cfg.folder().hasAppendOnly() || !s.cfg.folder().hasEmbedded()) {
		path, err := findServer(s.cfg.Server)
		if err == nil {
			return s.cfg.atPort(func(port int) error { return s.startChild(ctx, path, port, password) })
		}
		if s.cfg.Mode == Child || s.cfg.Server != "" {
			return err
		}
		if s.cfg.folder().hasAppendOnly() && !s.cfg.folder().hasEmbedded() {
			return fmt.Errorf("the jobs of data directory %s are in the files of a redis-server: %w, which starts without those jobs", s.cfg.DataDir, err)
		}
	}
	return s.cfg.atPort(func(port int) error { return s.startEmbedded(port, password) })
}

func (s *Server) startEmbedded(port int, password string) error {
	mini, err := embedded.Start(embedded.Config{Dir: s.cfg.folder().redisDir(), Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Password: password, Logger: s.cfg.Logger})
	if err != nil {
		return err
	}
	s.mode, s.mini, s.url = Embedded, mini, ownURL(port, password)
	s.guarantee = fmt.Sprintf("Embedded Redis at %s; it writes its data to %s every %s, and a crash loses the changes since then.", withoutPassword(s.url), s.cfg.folder().redisDir(), embedded.SaveEvery)
	if s.cfg.folder().hasAppendOnly() {
		s.warnings = append(s.warnings, "the data directory contains files of a redis-server, which the embedded Redis does not use")
	}
	return s.cfg.folder().rememberPort(port)
}

// maxSilentPings is the number of consecutive pings without a reply after which a child is restarted.
const maxSilentPings = 3

// restartHung kills the child if it accepts connections but does not reply; supervision restarts it with its data. restartHung
// blocks until ctx is done.
func (s *Server) restartHung(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	silent, suspect := 0, 0 // pings without a reply, and the PID to which they were sent
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pid, err := s.PID(), s.Ping(ctx)
		if ctx.Err() != nil {
			return
		}
		timedOut := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
		if !timedOut || pid != suspect {
			silent, suspect = 0, pid
		}
		if !timedOut || pid == 0 {
			continue
		}
		silent++
		s.cfg.Logger.WarnContext(ctx, "redis-server does not reply", "pid", pid, "pings", silent, "timeout", s.cfg.PingTimeout)
		if silent == maxSilentPings {
			s.cfg.Logger.ErrorContext(ctx, "redis-server is hung, restarting it", "pid", pid)
			s.proc.Restart(pid)
			silent = 0
		}
	}
}
