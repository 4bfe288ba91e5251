package jobs

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
	"muster/internal/wrap"
	"muster/jobs/pipeline"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Documents are where the documents of jobs are.
type Documents interface {
	// Open returns an error that wraps fs.ErrNotExist if there is none.
	Open(hash string) (io.ReadCloser, error)
	// Remove removes a document if unused, which it calls once the document cannot be opened any more, returns true.
	Remove(hash string, unused func() (bool, error)) error
}

// Config sets up a Service.
type Config struct {
	Client    *tasks.Client                                 // Required.
	Pipelines func(name string) (*pipeline.Pipeline, error) // Required to create jobs.
	Documents Documents                                     // Defaults to none.
	Roles     func(context.Context) (map[string]int, error) // the healthy agents of each role that agents have, "task:NAME" for a Go task. Defaults to unknown.
	Emit      Emit                                          // of the events of jobs. Defaults to no events.
	Took      func(what, state string, d time.Duration)     // called when a job ("job") ends, with the time since its start, or an item ("item"), with the time since its creation. Defaults to none.
	Reconcile func(context.Context) error                   // called by each sweep. Defaults to none.

	Lease time.Duration // of an assignment. Defaults to 30 seconds.
	Limits
	Backoff time.Duration // before the first retry of an item; it doubles. Defaults to 5 seconds.
	Logger  *slog.Logger  // Defaults to none.
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(max(c.Lease, 0), 30*time.Second)
	c.Backoff = cmp.Or(max(c.Backoff, 0), 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Limits are the settings that may change while a Service runs; see SetLimits.
type Limits struct {
	StuckAfter time.Duration // without progress. Defaults to an hour.
	Timeout    time.Duration // of a job. Defaults to 168 hours.
	MaxRetries int           // of an item or stage that failed, unless its pipeline sets them; 0 for none
	CheckEvery time.Duration // between sweeps. Defaults to 30 seconds.
	Keep       time.Duration // how long a job is kept after its end; below 0 forever. Defaults to 30 days.
	Dedupe     string        // of requests without one. Defaults to DedupeJoin.

	// KeepFor is Keep for jobs that ended in a state; 0 is forever. Defaults to Keep for all.
	KeepFor map[string]time.Duration
}

func (l Limits) withDefaults() Limits {
	l.StuckAfter = cmp.Or(max(l.StuckAfter, 0), time.Hour)
	l.Timeout = cmp.Or(max(l.Timeout, 0), 168*time.Hour)
	l.CheckEvery = cmp.Or(max(l.CheckEvery, 0), 30*time.Second)
	l.Keep = cmp.Or(l.Keep, 30*24*time.Hour)
	l.Dedupe = cmp.Or(l.Dedupe, DedupeJoin)
	return l
}

// SetLimits replaces the limits. Jobs that exist keep the times that they were created with.
func (s *Service) SetLimits(l Limits) {
	s.limits.Store(new(l.withDefaults()))
	select {
	case s.tuned <- struct{}{}:
	default:
	}
}

// New returns a Service. It does no I/O, and needs no Close.
func New(cfg Config) (*Service, error) {
	if cfg.Client == nil {
		return nil, errors.New("jobs: Config.Client is missing")
	}
	s := &Service{cfg: cfg.withDefaults(), rdb: cfg.Client.Redis(), wake: make(chan struct{}, 1), tuned: make(chan struct{}, 1), scripts: cfg.Emit.scripts()}
	s.limits.Store(new(cfg.Limits.withDefaults()))
	return s, nil
}

// StoreID returns the id of the store of jobs. It is made by the first call, and does not change.
func (s *Service) StoreID(ctx context.Context) (string, error) {
	if err := s.rdb.SetNX(ctx, storeKey, newID(), 0).Err(); err != nil {
		return "", fmt.Errorf("read the id of the store: %w", err)
	}
	id, err := s.rdb.Get(ctx, storeKey).Result()
	return id, wrap.Err(err, "read the id of the store")
}

// Service keeps jobs. It may be used by many goroutines, and by any number of processes on one Redis.
type Service struct {
	cfg     Config
	rdb     redis.UniversalClient
	scripts map[string]*redis.Script
	plans   cache[*pipeline.Pipeline] // by job, and by their SHA-256
	roles   memo[map[string]int]      // live agents by role
	runs    memo[bool]                // whether Run runs in a process
	running atomic.Bool               // Run runs in this process
	wake    chan struct{}             // a job must be advanced soon
	limits  atomic.Pointer[Limits]    // in force
	tuned   chan struct{}             // CheckEvery may have changed
}

// queue returns the work queue of a job.
func (s *Service) queue(id string) *workqueue.Queue { return s.queueWith(id, s.cfg.Lease) }

// queueWith returns the work queue of a job, with a time of leases.
func (s *Service) queueWith(id string, lease time.Duration) *workqueue.Queue {
	return workqueue.New(s.rdb, queueName(id), workqueue.Config{
		MaxAttempts: 1 + s.limits.Load().MaxRetries, LeaseTTL: lease, CountLanes: true, KeepEndings: true, MaxPayload: maxItem,
		Backoff: workqueue.Backoff{Base: s.cfg.Backoff, Jitter: s.cfg.Backoff / 5, Max: 10 * time.Minute},
		Logger:  s.cfg.Logger,
	})
}

// now returns the time of Redis, the only clock of jobs: clocks of processes differ, and are set.
func (s *Service) now(ctx context.Context) (time.Time, error) {
	now, err := s.rdb.Time(ctx).Result()
	return now, wrap.Err(err, "read the time of Redis")
}

// memo remembers a value for a second: lists and sweeps ask for it for each job.
type memo[T any] struct {
	mu    sync.Mutex // guards the fields below, and lets one caller read
	read  time.Time
	value T
}

func (m *memo[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.read.IsZero() && time.Since(m.read) < time.Second {
		return m.value, nil
	}
	value, err := read(ctx)
	if err == nil {
		m.value, m.read = value, time.Now()
	}
	return value, err
}

// maxCached bounds the values of a cache.
const maxCached = 1000

// A cache keeps values that do not change. The zero value is ready to use.
type cache[T any] struct {
	mu    sync.Mutex // guards known
	known map[string]T
}

// get returns the value of a key, or the zero value.
func (c *cache[T]) get(key string) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[key]
}

func (c *cache[T]) put(key string, value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCached {
		c.known = map[string]T{}
	}
	c.known[key] = value
}

//go:embed lua/*.lua
var sources embed.FS

// Emit adds events to streams in the scripts that change jobs: a change and its event are one step.
type Emit struct {
	// Lua declares the local function record(all, of_job, webhooks, type, job, at, data), which adds an event to the
	// streams that Keys names: at is in unix ms, and data is JSON or "".
	Lua  string
	Keys func(job string) []string // all, of_job, webhooks; in the slot of jobs. The stream of_job is deleted with its job.
}

// scripts returns the files of lua by name, each with the function record and common.lua in front of it.
func (e Emit) scripts() map[string]*redis.Script {
	if e.Lua == "" {
		e.Lua = "local function record() end\n"
	}
	return luascript.Read(sources, e.Lua)
}

// eventKeys returns the streams of the events of a job; without any, its record is used instead.
func (s *Service) eventKeys(id string) []string {
	if s.cfg.Emit.Keys == nil {
		return []string{recordKey(id), recordKey(id), recordKey(id)}
	}
	return s.cfg.Emit.Keys(id)
}

// run runs a script that returns a list.
func (s *Service) run(ctx context.Context, doing, script string, keys []string, args ...any) ([]any, error) {
	v, err := s.scripts[script].Run(ctx, s.rdb, keys, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	list, ok := v.([]any)
	if !ok {
		return []any{v}, nil
	}
	return list, nil
}

// pipelined returns n commands that were sent in one round trip.
func pipelined[C redis.Cmder](ctx context.Context, s *Service, doing string, n int, command func(redis.Pipeliner, int) C) ([]C, error) {
	got := make([]C, n)
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range got {
			got[i] = command(p, i)
		}
		return nil
	})
	return got, wrap.Err(err, "%s", doing)
}

func toInt(v any) int64 {
	n, _ := v.(int64)
	return n
}

func toString(v any) string {
	s, _ := v.(string)
	return s
}
