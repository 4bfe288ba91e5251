package redisd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/orchestrator/supervise"
)

// databases is how many databases a redis-server of ours has.
const databases = 16

// findServer returns the path of the redis-server to run: of the given name, or
// else the one on the PATH. Valkey has the same protocol and files.
func findServer(name string) (string, error) {
	names := []string{"redis-server", "valkey-server"}
	if name != "" {
		names = []string{name}
	}
	for _, n := range names {
		if path, err := exec.LookPath(n); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("%w: no %s on the PATH; install it (Debian, Ubuntu: apt install redis-server; Fedora: dnf install redis; macOS: brew install redis), or run with the built-in Redis (redis.mode: embedded)", ErrNoServer, names[0])
}

// startChild runs a redis-server of our own on the data folder and waits until
// it answers.
func (s *Server) startChild(ctx context.Context, path string, port int, password string) error {
	if err := errors.Join(s.cfg.folder().checkManifest(), s.cfg.folder().writeAuthFile(password)); err != nil {
		return err
	}
	var logged int64 // before this start
	if info, err := os.Stat(s.cfg.folder().logFile()); err == nil {
		logged = info.Size()
	}
	died := make(chan struct{}) // closed when the process has ended once
	proc, err := supervise.Start(supervise.Config{
		Name: "redis",
		Path: path,
		// No --dir: before version 7 a path with a space cannot be given.
		Dir: s.cfg.folder().redisDir(),
		Args: []string{
			authFile, // everybody can read arguments
			"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--daemonize", "no", "--databases", strconv.Itoa(databases),
			"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
		},
		LogFile: s.cfg.folder().logFile(),
		PIDDir:  s.cfg.folder().pidDir(),
		Grace:   s.cfg.Grace,
		OnExit:  onceExit(died),
		Logger:  s.cfg.Logger,
	})
	if err != nil {
		return err
	}
	url := ownURL(port, password)
	if err := s.cfg.awaitChild(ctx, url, port, proc, died, logged); err != nil {
		_ = proc.Kill()
		return fmt.Errorf("start %s: %w", path, err)
	}
	if what := s.cfg.folder().cutOff(logged); what != "" {
		s.warnings = append(s.warnings, fmt.Sprintf("the end of the append-only file of Redis was incomplete, as after a power cut, and was cut off: %s; what it had is done again. If more than some seconds are missing, stop Muster and restore a backup of %s", what, s.cfg.folder().redisDir()))
	}
	s.mode, s.proc, s.url = Child, proc, url
	s.guarantee = fmt.Sprintf("A redis-server of our own, at %s, with an append-only file in %s: a crash of Muster loses nothing, a crash of the machine at most the last second of writes, two seconds while the disk is busy.", withoutPassword(url), s.cfg.folder().redisDir())
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.unwatch = cancel
	s.watched.Go(func() { s.restartHung(watching) })
	return s.cfg.folder().rememberPort(port)
}

// onceExit returns what closes died at the first call.
func onceExit(died chan struct{}) func(supervise.Exit) {
	var once sync.Once
	return func(supervise.Exit) { once.Do(func() { close(died) }) }
}

// awaitChild waits until proc answers at url. The error is errPortTaken when
// another server has the port. Its log had the length logged before.
func (c Config) awaitChild(ctx context.Context, url string, port int, proc *supervise.Process, died <-chan struct{}, logged int64) error {
	// It answers within some hundredths of a second, but a busy disk can delay
	// it: look more often than at a Redis of others, and for longer.
	soon := c
	soon.Attempts, soon.Interval = 120*c.Attempts, c.Interval/20
	err := soon.await(ctx, url, died)
	var failed *pingError
	if errors.As(err, &failed) && failed.hopeless() { // ours is a Redis and takes this password
		err = fmt.Errorf("port %d: %w: %w", port, errPortTaken, err)
	}
	if err == nil {
		err = isOurs(ctx, url, c.PingTimeout, proc)
	}
	if err == nil {
		return nil
	}
	select {
	case <-died:
	default:
		return err
	}
	tail := supervise.LogTail(c.folder().logFile(), 2<<10)
	if strings.Contains(tail, "Address already in use") {
		return fmt.Errorf("port %d: %w", port, errPortTaken)
	}
	tail = strings.TrimSpace(tail)
	if c.folder().isUnreadable(logged) {
		tail += "\nIf it cannot read its data: " + c.folder().wayOut()
	}
	return fmt.Errorf("it ended at once; the end of %s:\n%s", c.folder().logFile(), tail)
}

// isOurs returns an error unless the Redis at url is the process proc.
func isOurs(ctx context.Context, url string, limit time.Duration, proc *supervise.Process) error {
	rdb, err := connect(url, limit)
	if err != nil {
		return err
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	text, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if got := parseInfo(text)["process_id"]; got != strconv.Itoa(proc.Status().PID) {
		return fmt.Errorf("%w by another Redis, process %s", errPortTaken, got)
	}
	return nil
}

// shutDownLeftover ends a redis-server that works in our folder although we
// have the lock on it, and that has no pid file. Two on the same files would
// destroy them.
func (c Config) shutDownLeftover(ctx context.Context) error {
	port, err := c.folder().lastPort()
	if err != nil {
		return nil
	}
	url := c.findLeftover(ctx, port)
	if url == "" {
		return nil // no server, or one that is not ours
	}
	rdb, err := connect(url, c.PingTimeout)
	if err != nil {
		return err
	}
	defer rdb.Close()
	c.Logger.Info("stopping a redis-server that works in our folder", "port", port)
	_ = rdb.Shutdown(ctx).Err() // it closes the connection without an answer
	for limit := time.Now().Add(c.Grace); time.Now().Before(limit); {
		if Ping(ctx, url, c.PingTimeout) != nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("a redis-server at port %d works in %s and does not shut down; stop it", port, c.folder().redisDir())
}

func sameFolder(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}
