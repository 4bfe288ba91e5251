// Package redisd brings a Redis to an orchestrator, and takes away only what
// it brought.
//
// [Start] settles on one of three modes:
//
//   - external: an address was given, or a Redis answers already, at the usual
//     address or where another orchestrator on the same data folder has its
//     own. It is used and never stopped. When that orchestrator goes, one of
//     those that use its Redis runs it on, at the same port.
//   - child: a redis-server is installed. One is run on the data folder with an
//     append-only file, restarted when it dies, and stopped last.
//   - embedded: neither. A miniredis runs in this process; what it holds is
//     saved every few seconds and when it stops, and is there again at the
//     next start. A later child takes over its contents.
//
// A data folder remembers which Redis holds its jobs. Mode auto uses that one,
// or fails when it cannot; another is used only when its address or its mode is
// given, with a warning.
//
// Other commands find the Redis of a running orchestrator with [Discover],
// through the data folder:
//
//	redis.json           where it answers; there as long as it is in use
//	redis/               what a Redis of ours keeps, and the lock on it
//	redis/password       the password of a Redis of ours; only its owner can read it
//	redis/external       the address of one that is not ours and holds the jobs, without its password
//	logs/redis.log       what redis-server says
package redisd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"muster/orchestrator/supervise"
)

// Mode is a way to come by a Redis.
type Mode string

// The modes. Auto takes the one that holds the data folder's jobs, or else the
// first that there is.
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
)

// Config says which Redis is wanted.
type Config struct {
	// URL is the address of a Redis to use. Defaults to none: see Mode.
	URL string
	// Mode defaults to Auto.
	Mode Mode
	// DataDir is where a Redis of ours keeps its data, and where the address is
	// left for other commands. Defaults to "data".
	DataDir string
	// Port is the port of a Redis of ours, on loopback. Defaults to the one it
	// had last, or else to any that is free.
	Port int
	// Server is the redis-server executable. Defaults to the one on the PATH.
	Server string
	// UsualURL is where Auto looks for a Redis that runs already. Defaults to
	// redis://127.0.0.1:6379/0.
	UsualURL string
	// PingTimeout is how long one PING may take. Defaults to 2 s.
	PingTimeout time.Duration
	// Attempts and Interval say how often to try a Redis that does not answer.
	// Default to 10 and 500 ms.
	Attempts int
	Interval time.Duration
	// SaveEvery is how often a built-in Redis is saved. Defaults to 3 s.
	SaveEvery time.Duration
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
	if c.UsualURL == "" {
		c.UsualURL = "redis://127.0.0.1:6379/0"
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
	if c.SaveEvery <= 0 {
		c.SaveEvery = 3 * time.Second
	}
	if c.Grace <= 0 {
		c.Grace = 15 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func (c Config) redisDir() string     { return filepath.Join(c.DataDir, "redis") }
func (c Config) pidDir() string       { return filepath.Join(c.redisDir(), "run") }
func (c Config) portFile() string     { return filepath.Join(c.redisDir(), "port") }
func (c Config) snapshotFile() string { return filepath.Join(c.redisDir(), "embedded.snapshot") }

// Server is the Redis in use. Its methods may be called concurrently.
type Server struct {
	cfg       Config
	id        string // of this very Server, in the address file
	mode      Mode
	url       string
	password  string // of a Redis of ours
	guarantee string
	warnings  []string

	lock *lock              // of the data folder; nil if the Redis is not ours
	proc *supervise.Process // in mode child
	mini *embedded          // in mode embedded

	neighbour Mode                   // of the orchestrator on the data folder whose Redis it is; "" if not
	heir      atomic.Pointer[Server] // what we run since that one has gone
	waiting   sync.WaitGroup         // for that
	giveUp    context.CancelFunc

	stop sync.Once
	done chan struct{} // closed when Stop has done its work
	err  error         // of Stop; read after done is closed
}

// Start finds or starts a Redis and returns when it answers. Ctx bounds only
// the start. The caller must call Stop.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, id: rand.Text(), done: make(chan struct{})}
	err = s.start(ctx)
	if err == nil {
		err = s.publish()
	}
	if err != nil {
		_ = s.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	if s.neighbour != "" && s.cfg.Mode == Auto {
		var waits context.Context
		waits, s.giveUp = context.WithCancel(context.WithoutCancel(ctx))
		s.waiting.Go(func() { s.awaitHeritage(waits) })
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.DataDir, 0o755); err != nil {
		return unwritable(s.cfg.DataDir, err)
	}
	if err := os.MkdirAll(s.cfg.redisDir(), 0o700); err != nil {
		return unwritable(s.cfg.DataDir, err)
	}
	if s.cfg.URL != "" {
		if err := s.useExternal(ctx, s.cfg.URL); err != nil {
			return fmt.Errorf("%w; start that Redis, correct the address, or give none: then Muster runs a Redis of its own", err)
		}
		return nil
	}
	finds := s.cfg.Mode == Auto || s.cfg.Mode == External
	if finds {
		// One that somebody else's orchestrator uses too.
		if a, err := readAddress(s.cfg.DataDir); err == nil && (a.Mode == External || a.Owner.Alive()) {
			if Ping(ctx, a.URL, s.cfg.PingTimeout) == nil {
				if a.Mode != External {
					s.neighbour = a.Mode
				}
				return s.useExternal(ctx, a.URL)
			}
		}
		if url, err := s.cfg.external(); err != nil || url != "" {
			if err != nil {
				return err
			}
			return s.useRemembered(ctx, url)
		}
	}
	if err := s.lockData(ctx); err != nil || s.url != "" {
		return err
	}
	if finds {
		err := Ping(ctx, s.cfg.UsualURL, s.cfg.PingTimeout)
		var asked *pingError
		answers := err == nil || errors.As(err, &asked) && asked.loading()
		if answers && s.cfg.Mode == Auto && s.cfg.hasOwn() {
			s.cfg.Logger.Info("the Redis that runs already is not used: the jobs of this data folder are in its own; to use it, give its address with --redis", "redis", s.cfg.UsualURL, "data", s.cfg.DataDir)
			return s.startOwn(ctx)
		}
		if answers {
			s.lock.release()
			s.lock = nil
			return s.useExternal(ctx, s.cfg.UsualURL)
		}
		if s.cfg.Mode == External {
			return fmt.Errorf("%w; start one, or give its address with --redis", err)
		}
		if asked != nil && asked.hopeless() {
			s.cfg.Logger.Info("what answers at the usual address is left alone", "err", err)
		}
	}
	return s.startOwn(ctx)
}

// lockData takes the data folder for a Redis of our own and ends what a
// crashed run has left there. In mode auto it is content with the Redis of the
// one who has the folder: then s.url is set.
func (s *Server) lockData(ctx context.Context) error {
	var err error
	s.lock, err = tryLock(s.cfg.lockFile())
	switch {
	case errors.Is(err, errLocked):
		return s.useNeighbour(ctx)
	case errors.Is(err, errors.ErrUnsupported):
		s.cfg.Logger.Warn("the data folder cannot be locked here; see that only one orchestrator uses it", "err", err)
	case err != nil:
		return unwritable(s.cfg.DataDir, err)
	}
	return s.clearData(ctx)
}

// clearData ends what a crashed run has left on the data folder, which is locked.
func (s *Server) clearData(ctx context.Context) error {
	if err := tryWrite(s.cfg.redisDir()); err != nil {
		return unwritable(s.cfg.DataDir, err)
	}
	stale, err := supervise.CleanStale(ctx, s.cfg.pidDir(), s.cfg.Grace, s.cfg.Logger)
	for _, p := range stale {
		if p.Running {
			s.cfg.Logger.Info("stopped the redis-server that a crashed run had left", "pid", p.PID)
		}
	}
	if err != nil {
		return fmt.Errorf("end what a crashed run has left: %w", err)
	}
	return s.shutDownLeftover(ctx)
}

// useNeighbour uses the Redis of the orchestrator that has the data folder,
// which may only just be starting.
func (s *Server) useNeighbour(ctx context.Context) error {
	if s.cfg.Mode != Auto {
		return fmt.Errorf("%w: another orchestrator runs a Redis on %s; stop it, or choose another folder with --data-dir", ErrInUse, s.cfg.DataDir)
	}
	for try := 1; ; try++ {
		url, err := Discover(ctx, s.cfg.DataDir)
		if err == nil {
			if a, err := readAddress(s.cfg.DataDir); err == nil && a.Mode != External {
				s.neighbour = a.Mode
			}
			return s.useExternal(ctx, url)
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

func (s *Server) useExternal(ctx context.Context, url string) error {
	if err := s.cfg.await(ctx, url, nil); err != nil {
		return err
	}
	t, err := inspect(ctx, url, s.cfg.PingTimeout)
	if err != nil {
		return err
	}
	if t.replica {
		return fmt.Errorf("use the Redis at %s: %w; give the address of its master", Redact(url), ErrReplica)
	}
	s.mode, s.url, s.warnings = External, url, t.warnings()
	s.guarantee = fmt.Sprintf("A Redis that was running already, at %s; it is never stopped, and %s.", Redact(url), t.guarantee())
	return nil
}

// startOwn runs a Redis on the data folder, which is locked.
func (s *Server) startOwn(ctx context.Context) error {
	var err error
	if s.password, err = s.cfg.ownPassword(); err != nil {
		return err
	}
	if s.cfg.Mode != Embedded {
		path, err := findServer(s.cfg.Server)
		if err == nil {
			s.mode = Child
			if err := s.atPort(func(port int) error { return s.startChild(ctx, path, port) }); err != nil {
				return err
			}
			s.guarantee = fmt.Sprintf("A redis-server of our own, at %s, with an append-only file in %s: a crash of Muster loses nothing, a crash of the machine at most the last second.", withoutPassword(s.url), s.cfg.redisDir())
			return s.adopt(ctx)
		}
		if s.cfg.Mode == Child || s.cfg.Server != "" {
			return err
		}
		if s.cfg.hasAppendOnly() {
			return fmt.Errorf("the jobs of data folder %s are in the files of a redis-server: %w, which starts without those jobs", s.cfg.DataDir, err)
		}
	}
	return s.atPort(func(port int) error { return s.startEmbedded(ctx, port) })
}

func (s *Server) startEmbedded(ctx context.Context, port int) error {
	s.mode = Embedded
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	mini, err := startEmbedded(ctx, addr, s.password, s.cfg.snapshotFile(), s.cfg.SaveEvery, s.cfg.Logger)
	if err != nil {
		return fmt.Errorf("start the built-in Redis: %w", err)
	}
	s.mini = mini
	if s.cfg.hasAppendOnly() {
		s.warnings = append(s.warnings, "the data folder has contents of a redis-server, which is not wanted now: they stay unused")
	}
	s.url = ownURL(port, s.password)
	s.guarantee = fmt.Sprintf("The Redis built into Muster, at %s, saved to %s every %v and at the end: a crash loses what came after the last save. Install redis-server for more speed and safety.",
		withoutPassword(s.url), s.cfg.snapshotFile(), s.cfg.SaveEvery)
	return os.WriteFile(s.cfg.portFile(), []byte(strconv.Itoa(port)), 0o600)
}

// URL is the address of the Redis, all the time. It holds a password if the
// Redis is ours, and may hold one if not: see Redact.
func (s *Server) URL() string { return s.url }

// Mode tells how we came by the Redis. It is never Auto.
func (s *Server) Mode() Mode { return s.now().mode }

// Owned reports whether the Redis is ours, to be stopped by Stop.
func (s *Server) Owned() bool { return s.now().mode != External }

// Guarantee says in a sentence or two which Redis it is and what a crash costs.
func (s *Server) Guarantee() string { return s.now().guarantee }

// Warnings are what an operator should change about the Redis.
func (s *Server) Warnings() []string { return s.warnings }

// Ping asks the Redis whether it is there.
func (s *Server) Ping(ctx context.Context) error { return Ping(ctx, s.url, s.cfg.PingTimeout) }

// PID is the process of the redis-server that we run; 0 while it is down and
// in the other modes.
func (s *Server) PID() int {
	if s = s.now(); s.proc == nil {
		return 0
	}
	return s.proc.Status().PID
}

// Restarts is how often the redis-server that we run has died.
func (s *Server) Restarts() int {
	if s = s.now(); s.proc == nil {
		return 0
	}
	return s.proc.Status().Restarts
}

// Done is closed when Stop has done its work. A child that dies is restarted
// meanwhile, as often as it takes.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop takes back the address and stops the Redis if it is ours, after it has
// put everything on disk; when ctx is done it is killed. Stop what uses it
// first. Stop may be called again; it does its work once.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		defer close(s.done)
		if s.giveUp != nil {
			s.giveUp()
			s.waiting.Wait()
		}
		errs := []error{s.unpublish()}
		if heir := s.heir.Load(); heir != nil {
			errs = append(errs, heir.Stop(ctx))
		}
		if s.proc != nil {
			errs = append(errs, s.proc.Stop(ctx))
		}
		if s.mini != nil {
			errs = append(errs, s.mini.Stop(ctx))
		}
		s.lock.release()
		s.err = errors.Join(errs...)
	})
	<-s.done
	return s.err
}

func unwritable(dir string, err error) error {
	return fmt.Errorf("data folder %s cannot be written: %w; choose another with --data-dir", dir, err)
}

// tryWrite makes sure that files can be made in dir.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".write-*")
	if err != nil {
		return err
	}
	_ = f.Close()
	return os.Remove(f.Name())
}
