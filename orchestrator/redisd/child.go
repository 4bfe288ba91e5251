package redisd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/orchestrator/supervise"
)

// databases is the number of databases of a child Redis.
const databases = 16

// findServer returns the path of the named redis-server, by default of the one in PATH. Valkey has the same protocol and
// files.
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
	return "", fmt.Errorf("%w: %s not found in PATH; install it (Debian, Ubuntu: apt install redis-server; Fedora: dnf install redis; macOS: brew install redis), or use the embedded Redis (redis.mode: embedded)", ErrNoServer, names[0])
}

// startChild starts redis-server on the data directory and waits until it responds.
func (s *Server) startChild(ctx context.Context, path string, port int, password string) error {
	if err := errors.Join(s.cfg.folder().checkManifest(), s.cfg.folder().writeAuthFile(password)); err != nil {
		return err
	}
	var logged int64 // size of the log before this start
	if info, err := os.Stat(s.cfg.folder().logFile()); err == nil {
		logged = info.Size()
	}
	died := make(chan struct{}) // closed when the process exits for the first time
	proc, err := supervise.Start(supervise.Config{
		Name: "redis",
		Path: path,
		// --dir is not used, because Redis before version 7 does not accept a path with a space.
		Dir: s.cfg.folder().redisDir(),
		Args: []string{
			authFile, // arguments are visible to all users
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
	if message := s.cfg.folder().cutOff(logged); message != "" {
		s.warnings = append(s.warnings, fmt.Sprintf("the append-only file of Redis had an incomplete end, as after a power failure, and was truncated: %s; the affected work runs again. If more than a few seconds are missing, stop Muster and restore a backup of %s", message, s.cfg.folder().redisDir()))
	}
	s.mode, s.proc, s.url = Child, proc, url
	s.guarantee = fmt.Sprintf("redis-server started by Muster at %s, with an append-only file in %s: a crash of Muster loses no data; a crash of the machine loses at most the last second of writes, two seconds while the disk is busy.", withoutPassword(url), s.cfg.folder().redisDir())
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.unwatch = cancel
	s.watched.Go(func() { s.restartHung(watching) })
	return s.cfg.folder().rememberPort(port)
}

// onceExit returns an OnExit function that closes died on its first call.
func onceExit(died chan struct{}) func(supervise.Exit) {
	var once sync.Once
	return func(supervise.Exit) { once.Do(func() { close(died) }) }
}

// awaitChild waits until proc responds at url. It returns errPortTaken if another server uses the port. logged is the size of
// the log before the start.
func (c Config) awaitChild(ctx context.Context, url string, port int, proc *supervise.Process, died <-chan struct{}, logged int64) error {
	// A child usually responds within 100 ms, but a busy disk can delay it. Ping more often, and for longer, than an external
	// Redis.
	child := c
	child.Attempts, child.Interval = 120*c.Attempts, c.Interval/20
	err := child.await(ctx, url, died)
	var failed *pingError
	if errors.As(err, &failed) && failed.hopeless() { // the child would accept this password
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
		tail += "\nTo recover unreadable data: " + c.folder().wayOut()
	}
	return fmt.Errorf("redis-server exited at startup; end of %s:\n%s", c.folder().logFile(), tail)
}

// isOurs checks that the Redis at url is the process proc.
func isOurs(ctx context.Context, url string, limit time.Duration, proc *supervise.Process) error {
	rdb, err := connect(url, limit)
	if err != nil {
		return err
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	text, err := rdb.Info(ctx, "server").Result()
	var refusal redis.Error
	if errors.As(err, &refusal) { // redis-server would not refuse
		return fmt.Errorf("%w: another server, which refuses INFO: %w", errPortTaken, err)
	}
	if err != nil {
		return err
	}
	if got := parseInfo(text)["process_id"]; got != strconv.Itoa(proc.Status().PID) {
		return fmt.Errorf("%w: another Redis, process %s", errPortTaken, got)
	}
	return nil
}

// shutDownLeftover stops a redis-server that runs in our directory without a PID file, although we hold the lock. Two servers
// on the same files would destroy them.
func (c Config) shutDownLeftover(ctx context.Context) error {
	port, err := c.folder().lastPort()
	if err != nil {
		return nil
	}
	url := c.findLeftover(ctx, port)
	if url == "" {
		return nil // no server, or a foreign one
	}
	rdb, err := connect(url, c.PingTimeout)
	if err != nil {
		return err
	}
	defer rdb.Close()
	c.Logger.Info("stopping a redis-server that uses the data directory", "port", port)
	_ = rdb.Shutdown(ctx).Err() // the server closes the connection without a reply
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
	return fmt.Errorf("the redis-server on port %d uses %s and does not shut down; stop it", port, c.folder().redisDir())
}

func sameFolder(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}

// manifest returns the path of the list of append-only files (Redis 7 and later).
func (d folder) manifest() string {
	return filepath.Join(d.redisDir(), "appendonlydir", "appendonly.aof.manifest")
}

// checkManifest returns an error for damage of the append-only files that redis-server does not detect: it would start without
// them and overwrite some.
func (d folder) checkManifest() error {
	dir := filepath.Dir(d.manifest())
	text, err := os.ReadFile(d.manifest())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "file" {
			listed[words[1]] = true
		}
	}
	parts, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, part := range parts {
		info, err := part.Info()
		if err != nil {
			continue
		}
		switch name := part.Name(); {
		case strings.HasSuffix(name, ".incr.aof") && info.Size() > 0 && !listed[name]: // an empty file is the remainder of an interrupted rotation
			return fmt.Errorf("append-only file %s contains jobs of this data directory but is not listed in %s: %s", filepath.Join(dir, name), d.manifest(), d.wayOut())
		case strings.HasSuffix(name, ".base.rdb") && info.Size() == 0 && listed[name]:
			return fmt.Errorf("append-only file %s of this data directory is empty: %s", filepath.Join(dir, name), d.wayOut())
		}
	}
	return nil
}

// wayOut returns advice for data that redis-server cannot read.
func (d folder) wayOut() string {
	return fmt.Sprintf("restore the directory %s from a backup; or copy it and truncate the unreadable part with redis-check-aof --fix %s; or move the directory away to start without those jobs",
		filepath.Dir(d.manifest()), d.manifest())
}

// unreadable lists the log messages of redis-server about unreadable data.
var unreadable = []string{
	"reading the append only file", "append log file", "AOF manifest", "AOF MANIFEST", "Unable to obtain the AOF file", "AOF loading aborted",
	"loading DB", "loading the DB", "rdb file reading", "RDB reading", "reading RDB file", "reading the RDB", "RDB CRC", "RDB checksum",
}

// isUnreadable reports whether redis-server has logged unreadable data after an offset of its log.
func (d folder) isUnreadable(since int64) bool {
	text := d.logSince(since)
	return slices.ContainsFunc(unreadable, func(message string) bool { return strings.Contains(text, message) })
}

// cutOff returns the log message of redis-server about a truncated append-only file after an offset of its log, or "".
func (d folder) cutOff(since int64) string {
	for line := range strings.Lines(d.logSince(since)) {
		if _, message, ok := strings.Cut(line, "Truncating the AOF "); ok {
			return strings.TrimSpace(message)
		}
	}
	return ""
}

// logSince returns at most 64 KiB of the log of redis-server, starting at an offset.
func (d folder) logSince(since int64) string {
	f, err := os.Open(d.logFile())
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, 64<<10)
	n, _ := f.ReadAt(text, since) // a short read is the end of the log
	return string(text[:n])
}
