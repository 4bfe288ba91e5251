// Package redisd provides the Redis of an orchestrator, and stops only one that
// it has started.
//
// [Start] decides on one of three modes:
//
//   - external: the configuration has an address, or another orchestrator on the
//     same data directory runs a Redis, or the directory remembers one. It is used
//     and never stopped.
//   - child: redis-server is installed. One runs on the data folder with an
//     append-only file, is restarted when it dies or hangs, and is stopped last.
//   - embedded: neither. A miniredis runs in this process. It keeps its data in
//     memory only.
//
// A data folder remembers which Redis holds its jobs. Mode auto uses that one,
// or fails when it cannot; another is used only when its address or its mode is
// given, with a warning.
//
// Other commands find the Redis of a running orchestrator with [Discover],
// through the data folder:
//
//	redis.json           its address, as long as it is in use
//	redis/               the data of a redis-server of ours, and the lock on it
//	redis/password       the password of a Redis of ours; only its owner can read it
//	redis/external       the address, without password, of the Redis of others that holds the jobs
//	logs/redis.log       the log of redis-server
package redisd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"muster/orchestrator/supervise"
)

// Mode says where a Redis comes from.
type Mode string

// The modes. Auto uses the Redis that holds the jobs of the data directory. In a new
// directory it is Child if redis-server is installed, else Embedded.
const (
	Auto     Mode = "auto"
	External Mode = "external"
	Child    Mode = "child"
	Embedded Mode = "embedded"
)

var (
	// ErrNoServer says that no redis-server is installed.
	ErrNoServer = errors.New("redis-server is not installed")
	// ErrInUse says that another orchestrator runs a Redis on the data folder.
	ErrInUse = errors.New("data folder is in use")
	// ErrReplica says that the Redis is a copy of another and takes no writes.
	ErrReplica = errors.New("it is a read-only replica")
	// ErrGone says that the Redis was another orchestrator's and has ended with it.
	ErrGone = errors.New("the orchestrator whose Redis was used has ended")
)

// Config says which Redis to use.
type Config struct {
	// URL is the address of a Redis to use. Defaults to none: see Mode.
	URL string
	// Mode defaults to Auto.
	Mode Mode
	// Reuse uses the Redis of an orchestrator that runs on DataDir in the modes Child and Embedded, too. Defaults to false.
	Reuse bool
	// DataDir is where a Redis of ours keeps its data, and where the address is
	// left for other commands. Defaults to "data".
	DataDir string
	// Port is the port of a Redis of ours, on loopback. Defaults to the one it
	// had last, or else to any that is free.
	Port int
	// Server is the redis-server executable. Defaults to the one on the PATH.
	Server string
	// LocalURL is where Auto looks for a Redis that could be used on purpose, and
	// logs how. Defaults to redis://127.0.0.1:6379/0.
	LocalURL string
	// PingTimeout is how long one PING may take. Defaults to 2 s.
	PingTimeout time.Duration
	// Attempts and Interval say how often to try a Redis that does not answer.
	// Default to 10 and 500 ms.
	Attempts int
	Interval time.Duration
	// Grace is how long a child may take to end. Defaults to 15 s.
	Grace time.Duration
	// Logger defaults to none.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Mode == "" {
		c.Mode = Auto
	}
	switch c.Mode {
	case Auto, External:
	case Child, Embedded:
		if c.URL != "" {
			return c, fmt.Errorf("an address of a Redis was given, and mode %s, which runs one: leave one of them out", c.Mode)
		}
	default:
		return c, fmt.Errorf("redis mode %q: use auto, external, child or embedded", c.Mode)
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, fmt.Errorf("redis port %d: use 1 to 65535, or 0 for any", c.Port)
	}
	if c.DataDir == "" {
		c.DataDir = "data"
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("data folder %s: %w", c.DataDir, err)
	}
	c.DataDir = dir
	if c.LocalURL == "" {
		c.LocalURL = "redis://127.0.0.1:6379/0"
	}
	if c.PingTimeout <= 0 {
		c.PingTimeout = 2 * time.Second
	}
	if c.Attempts <= 0 {
		c.Attempts = 10
	}
	if c.Interval <= 0 {
		c.Interval = 500 * time.Millisecond
	}
	if c.Grace <= 0 {
		c.Grace = 15 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func (c Config) folder() folder { return folder(c.DataDir) }

// Server is the Redis in use. Its methods may be called concurrently.
type Server struct {
	cfg       Config
	id        string // of this very Server, in the address file
	mode      Mode
	url       string
	guarantee string
	warnings  []string
	shared    bool // it belongs to another orchestrator on the data folder

	lock *lock              // on the data folder; nil if the Redis is not ours
	proc *supervise.Process // in mode child
	mini *embedded          // in mode embedded

	unwatch context.CancelFunc // ends watching; nil unless in mode child
	watched sync.WaitGroup

	stop sync.Once
	err  error // of Stop; set by stop
}

// Start finds or starts a Redis and returns when it answers. Ctx bounds only
// the start. The caller must call Stop.
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

// URL is the address of the Redis. It holds a password if the Redis is ours,
// and may hold one if not: see Redact.
func (s *Server) URL() string { return s.url }

// Mode returns where the Redis comes from. It is never Auto.
func (s *Server) Mode() Mode { return s.mode }

// Owned reports whether the Redis is ours and Stop stops it.
func (s *Server) Owned() bool { return s.mode != External }

// Guarantee says in a sentence or two which Redis it is and what a crash costs.
func (s *Server) Guarantee() string { return s.guarantee }

// Warnings are what an operator should change about the Redis.
func (s *Server) Warnings() []string { return s.warnings }

// Ping returns an error unless the Redis answers.
func (s *Server) Ping(ctx context.Context) error { return Ping(ctx, s.url, s.cfg.PingTimeout) }

// PID is the process of the redis-server that we run; 0 while it is down and
// in the other modes.
func (s *Server) PID() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.Status().PID
}

// Restarts is how often the redis-server that we run has died or was hung.
func (s *Server) Restarts() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.Status().Restarts
}

// watchEvery is how often Watch looks at a Redis of another orchestrator.
const watchEvery = 500 * time.Millisecond

// Watch blocks until ctx is done, and returns nil then; or until the Redis has
// ended together with the other orchestrator that ran it, and returns ErrGone
// with what to do. That takes Config.Attempts tries: an orchestrator that is
// only restarted runs the same Redis again.
func (s *Server) Watch(ctx context.Context) error {
	if !s.shared {
		<-ctx.Done()
		return nil
	}
	return s.cfg.Watch(ctx, s.url)
}

// Watch is the same for the Redis at a url that Discover has returned for the data folder, in a process that starts none.
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
			continue // which starts its redis-server again when that dies
		}
		if err := c.await(ctx, url, nil); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w; run the command again, or keep muster start running on data folder %s", ErrGone, err, c.DataDir)
		}
	}
}

// Stop removes the address and stops the Redis if it is ours. A redis-server
// has its data on disk then; it is killed when ctx is done. Stop what uses it
// first. Later calls return what the first one did.
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
			s.mini.Stop()
		}
		s.lock.release()
		s.err = errors.Join(errs...)
	})
	return s.err
}

func unwritable(dir string, err error) error {
	return fmt.Errorf("data folder %s cannot be written: %w; choose another with --data-dir", dir, err)
}
