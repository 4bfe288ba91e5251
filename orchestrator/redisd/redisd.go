// Package redisd finds or starts the Redis of an orchestrator. It stops only a Redis that it started.
//
// [Start] selects one of three modes:
//
//   - external: the configuration contains an address, another orchestrator on the same data directory runs a Redis, or the
//     data directory remembers an address. The Redis is never stopped.
//   - child: redis-server is installed. It runs on the data directory with an append-only file, is restarted when it exits or
//     hangs, and is stopped last.
//   - embedded: redis-server is not installed. A Redis in this process keeps its data in the data directory; see package embedded.
//
// A data directory remembers the Redis that stores its jobs. Mode auto uses that Redis or fails. An explicit address or mode
// selects another one, with a warning.
//
// Other commands find the Redis of a running orchestrator with [Discover]. The files in the data directory:
//
//	redis.json           address, while it is in use
//	redis/               data and lock of a child or embedded Redis
//	redis/password       password of a child or embedded Redis, readable only by its owner
//	redis/external       address, without password, of the external Redis that stores the jobs
//	logs/redis.log       log of redis-server
package redisd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/orchestrator/supervise"
	"muster/tasks"
	"muster/tasks/embedded"
)

// Mode is the kind of a Redis.
type Mode string

// The modes. Auto uses the Redis that stores the jobs of the data directory. In a new directory it is Child if redis-server is
// installed, else Embedded.
const (
	Auto     Mode = "auto"
	External Mode = "external"
	Child    Mode = "child"
	Embedded Mode = "embedded"
)

var (
	// ErrNoServer means that no redis-server is installed.
	ErrNoServer = errors.New("redis-server is not installed")
	// ErrInUse means that another orchestrator runs a Redis on the data directory.
	ErrInUse = errors.New("data directory is in use")
	// ErrReplica means that the Redis is a read-only replica.
	ErrReplica = errors.New("read-only replica")
	// ErrGone means that the orchestrator that ran the Redis has exited.
	ErrGone = errors.New("the orchestrator that ran the Redis has exited")
)

// Config configures Start. Its mode, port, address and times are those of the settings, which are checked when they are loaded.
type Config struct {
	// URL is the address of an external Redis. If it is empty, see Mode.
	URL  string
	Mode Mode
	// Reuse uses the Redis of an orchestrator that runs on DataDir, even in the modes Child and Embedded.
	Reuse bool
	// Look leaves the address of an external Redis out of DataDir, so that the directory does not change the Redis of its jobs.
	Look bool
	// DataDir is the directory of the data and of the address for other commands.
	DataDir string
	// Port is the port of a child or embedded Redis on loopback. Default: its last port, or any free port.
	Port int
	// Server is the redis-server executable. Default: the one in PATH.
	Server string
	// LocalURL is the address at which Auto detects an unused local Redis, and logs how to use it. Default:
	// redis://127.0.0.1:6379/0.
	LocalURL string
	// PingTimeout is the timeout of a PING.
	PingTimeout time.Duration
	// Attempts and Interval are the number and interval of attempts to reach a Redis.
	Attempts int
	Interval time.Duration
	// Grace is the time that a child has to exit. Default: 15 s.
	Grace time.Duration
	// Logger is the logger. Default: no logging.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	c.LocalURL, c.Grace = cmp.Or(c.LocalURL, "redis://127.0.0.1:6379/0"), cmp.Or(c.Grace, 15*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		err = fmt.Errorf("data directory: %w", err)
	}
	return c, err
}

func (c Config) folder() folder { return folder(c.DataDir) }

// Server is the Redis in use. Its methods may be called concurrently.
type Server struct {
	cfg       Config
	id        string // unique ID of this Server in the address file
	mode      Mode
	url       string
	guarantee string
	warnings  []string
	shared    bool // run by another orchestrator on the data directory

	lock *lock              // lock on the data directory; nil for an external Redis
	proc *supervise.Process // in mode child
	mini *embedded.Server   // in mode embedded

	unwatch context.CancelFunc // stops watching; nil unless in mode child
	watched sync.WaitGroup

	stop sync.Once
	err  error // result of Stop
}

// Start finds or starts a Redis and returns when it responds. ctx bounds only the start. The caller must call Stop.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, id: rand.Text()}
	err = s.start(ctx)
	if err == nil {
		err = s.publish()
	}
	if err != nil {
		_ = s.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	return s, nil
}

// URL returns the address of the Redis. It may contain a password; see Redact.
func (s *Server) URL() string { return s.url }

// Mode returns the mode, which is never Auto.
func (s *Server) Mode() Mode { return s.mode }

// Owned reports whether Stop stops the Redis.
func (s *Server) Owned() bool { return s.mode != External }

// Guarantee describes the Redis and its durability in one or two sentences.
func (s *Server) Guarantee() string { return s.guarantee }

// Warnings returns recommendations for the operator.
func (s *Server) Warnings() []string { return s.warnings }

// Ping checks that the Redis responds.
func (s *Server) Ping(ctx context.Context) error { return Ping(ctx, s.url, s.cfg.PingTimeout) }

// PID returns the process ID of the child; 0 while it is down and in other modes.
func (s *Server) PID() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.Status().PID
}

// Restarts returns the number of restarts of the child.
func (s *Server) Restarts() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.Status().Restarts
}

// watchEvery is the interval at which Watch checks a Redis of another orchestrator.
const watchEvery = 500 * time.Millisecond

// Watch blocks until ctx is done and returns nil, or until the orchestrator that ran the Redis has exited with it, and returns
// ErrGone with advice. It makes Config.Attempts attempts first, because a restarted orchestrator runs the same Redis again.
func (s *Server) Watch(ctx context.Context) error {
	if !s.shared {
		<-ctx.Done()
		return nil
	}
	return s.cfg.Watch(ctx, s.url)
}

// Watch is like Server.Watch, for a process that starts no Redis. url is the result of Discover.
func (c Config) Watch(ctx context.Context, url string) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if a, err := readAddress(c.DataDir); err == nil && a.URL == url && a.Owner.Alive() {
			continue // the owner restarts its redis-server
		}
		if err := c.await(ctx, url, nil); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w; run the command again, or keep muster start running on data directory %s", ErrGone, err, c.DataDir)
		}
	}
}

// Stop removes the address and stops the Redis if Owned. A redis-server saves its data first; it is killed when ctx is done.
// Stop all clients first. Later calls return the result of the first one.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		errs := []error{s.unpublish()}
		if s.unwatch != nil {
			s.unwatch()
			s.watched.Wait()
		}
		if s.proc != nil {
			errs = append(errs, s.proc.Stop(ctx))
		}
		if s.mini != nil {
			errs = append(errs, s.mini.Close())
		}
		s.lock.release()
		s.err = errors.Join(errs...)
	})
	return s.err
}

func unwritable(dir string, err error) error {
	return fmt.Errorf("data directory %s is not writable: %w; choose another with --data-dir", dir, err)
}

// Redact returns the address with masked passwords, for logs and messages.
func Redact(address string) string { return mask(address, "xxxxx") }

// withoutPassword returns the address without passwords.
func withoutPassword(address string) string { return mask(address, "") }

// mask replaces the passwords in an address with password, or removes them if it is "".
func mask(address, password string) string {
	const unreadable = "(unreadable address)"
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return unreadable
	}
	cut := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		cut = i
	}
	hosts, tail := rest[:cut], rest[cut:]
	login := ""
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		login, hosts = hosts[:i], hosts[i+1:]
	}
	u, err := url.Parse("x:" + tail)
	if err != nil || strings.ContainsAny(hosts, " %") || strings.Contains(tail, "@") {
		return unreadable // it may contain part of a password
	}
	if user, _, ok := strings.Cut(login, ":"); ok {
		login = user
		if password != "" {
			login += ":" + password
		}
	}
	if login != "" {
		login += "@"
	}
	q := u.Query()
	for key := range q {
		if strings.Contains(strings.ToLower(key), "password") {
			if q.Del(key); password != "" {
				q.Set(key, password)
			}
		}
	}
	path, _, _ := strings.Cut(tail, "?")
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return scheme + "://" + login + hosts + path
}

// folder is the absolute path of a data directory.
type folder string

func (d folder) redisDir() string { return filepath.Join(string(d), "redis") }
func (d folder) pidDir() string   { return filepath.Join(d.redisDir(), "run") }
func (d folder) portFile() string { return filepath.Join(d.redisDir(), "port") }
func (d folder) lockFile() string { return filepath.Join(d.redisDir(), "lock") }
func (d folder) logFile() string  { return filepath.Join(string(d), "logs", "redis.log") }

// externalFile returns the path of the file with the address, without password, of the external Redis that stores the jobs.
// Without that file they are in a child Redis, if its files exist.
func (d folder) externalFile() string { return filepath.Join(d.redisDir(), "external") }

// external returns the address of the external Redis that stores the jobs of the directory, or "".
func (d folder) external() (string, error) {
	text, err := os.ReadFile(d.externalFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the Redis address of data directory %s: %w", string(d), err)
	}
	address := strings.TrimSpace(string(text))
	if _, err := tasks.ParseURL(address); address == "" || err != nil {
		return "", fmt.Errorf("%s does not contain the address of the Redis with the jobs of the data directory: write it there (redis://host:port/0), or remove the file to continue without those jobs", d.externalFile())
	}
	return address, nil
}

// hasAppendOnly reports whether the directory contains data of a redis-server.
func (d folder) hasAppendOnly() bool {
	found, _ := filepath.Glob(filepath.Join(d.redisDir(), "appendonly*")) // the pattern is valid
	return len(found) > 0
}

// hasEmbedded reports whether the directory contains data of an embedded Redis.
func (d folder) hasEmbedded() bool { return embedded.Exists(d.redisDir()) }

// isOwn reports whether the Redis at url is the child or embedded Redis of the data directory.
func (d folder) isOwn(url string) bool {
	port, err := d.lastPort()
	if err != nil {
		return false
	}
	opt, err := tasks.ParseURL(url)
	return err == nil && len(opt.Addrs) == 1 && opt.Addrs[0] == net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
