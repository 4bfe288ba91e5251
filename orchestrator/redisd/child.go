package redisd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/orchestrator/supervise"
)

// serverNames are the executables looked for: Valkey speaks and keeps the same.
var serverNames = []string{"redis-server", "valkey-server"}

// findServer returns the redis-server to run.
func findServer(name string) (string, error) {
	names := serverNames
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
func (s *Server) startChild(ctx context.Context, path string, port int) error {
	logFile := filepath.Join(s.cfg.DataDir, "logs", "redis.log")
	// The end of the process is told once while we wait for its first answer.
	var once sync.Once
	died := make(chan struct{})
	if err := s.cfg.writeAuthFile(s.password); err != nil {
		return err
	}
	proc, err := supervise.Start(supervise.Config{
		Name: "redis",
		Path: path,
		// No --dir: before version 7 a path with a space cannot be given.
		Dir: s.cfg.redisDir(),
		Args: []string{
			authFile, // everybody can read arguments
			"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--daemonize", "no", "--databases", strconv.Itoa(databases),
			"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
		},
		LogFile: logFile,
		PIDDir:  s.cfg.pidDir(),
		Grace:   s.cfg.Grace,
		OnExit:  func(supervise.Exit) { once.Do(func() { close(died) }) },
		Logger:  s.cfg.Logger,
	})
	if err != nil {
		return err
	}
	url := ownURL(port, s.password)
	// It is mostly there in some hundredths of a second, but a busy disk can
	// take its time: look more often than at a stranger, and for longer.
	soon := s.cfg
	soon.Attempts, soon.Interval = 120*soon.Attempts, soon.Interval/20
	err = soon.await(ctx, url, died)
	var asked *pingError
	if errors.As(err, &asked) && asked.hopeless() { // by whom: ours is a Redis, and takes this password
		err = fmt.Errorf("port %d: %w: %w", port, errPortTaken, err)
	}
	if err == nil {
		err = isOurs(ctx, url, s.cfg.PingTimeout, proc)
	}
	if err != nil {
		var ended bool
		select {
		case <-died:
			ended = true
		default:
		}
		_ = proc.Kill()
		if !ended {
			return fmt.Errorf("start %s: %w", path, err)
		}
		tail := supervise.LogTail(logFile, 2<<10)
		if strings.Contains(tail, "Address already in use") {
			return fmt.Errorf("start %s: port %d: %w", path, port, errPortTaken)
		}
		return fmt.Errorf("start %s: it ended at once; the end of %s:\n%s", path, logFile, strings.TrimSpace(tail))
	}
	s.proc, s.url = proc, url
	return os.WriteFile(s.cfg.portFile(), []byte(strconv.Itoa(port)), 0o600)
}

// isOurs makes sure that it is our child that answers at url.
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
// have the lock on it, and which its pid file did not lead to. Two on the same
// files would ruin them.
func (s *Server) shutDownLeftover(ctx context.Context) error {
	port, err := s.cfg.lastPort()
	if err != nil {
		return nil
	}
	url := s.cfg.findLeftover(ctx, port)
	if url == "" {
		return nil // nobody there, or somebody else
	}
	rdb, err := connect(url, s.cfg.PingTimeout)
	if err != nil {
		return err
	}
	defer rdb.Close()
	s.cfg.Logger.Info("stopping a redis-server that works in our folder", "port", port)
	_ = rdb.Shutdown(ctx).Err() // its answer is the end of the connection
	for limit := time.Now().Add(s.cfg.Grace); time.Now().Before(limit); {
		if Ping(ctx, url, s.cfg.PingTimeout) != nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("a redis-server at port %d works in %s and does not shut down; stop it", port, s.cfg.redisDir())
}

func sameFolder(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}

// adopt moves what a built-in Redis has saved here into the child, when the
// child is empty.
func (s *Server) adopt(ctx context.Context) error {
	file := s.cfg.snapshotFile()
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	opt, err := redis.ParseURL(s.url)
	if err != nil {
		return err
	}
	opt.ReadTimeout, opt.WriteTimeout = time.Minute, time.Minute
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	empty, err := databaseEmpty(ctx, rdb)
	if err != nil {
		return err
	}
	if !empty {
		s.cfg.Logger.Warn("the saved contents of a built-in Redis stay unused: redis-server has contents of its own", "file", file)
		return nil
	}
	keys, err := readSnapshot(file)
	if errors.Is(err, errSnapshot) {
		s.cfg.Logger.Warn("the saved contents of a built-in Redis cannot be read", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := load(ctx, rdb, keys); err != nil {
		return fmt.Errorf("move the contents of the built-in Redis into redis-server: %w", err)
	}
	s.cfg.Logger.Info("moved the contents of the built-in Redis into redis-server", "keys", len(keys))
	return os.Rename(file, file+".moved")
}
