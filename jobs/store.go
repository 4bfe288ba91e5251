package jobs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Service keeps jobs. It may be used by many goroutines, and by any number of processes on one Redis.
type Service struct {
	cfg      Config
	rdb      redis.UniversalClient
	scripts  map[string]*redis.Script
	plans    cache[*pipeline.Pipeline] // by job
	contents cache[string]             // pipelines as JSON, by their SHA-256
	roles    memo[map[string]int]      // live agents by role
	runs     memo[bool]                // whether Run runs in a process
	running  atomic.Bool               // Run runs in this process
	wake     chan struct{}             // a job must be advanced soon
	limits   atomic.Pointer[Limits]    // in force
	tuned    chan struct{}             // CheckEvery may have changed
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
	if err != nil {
		return now, fmt.Errorf("read the time of Redis: %w", err)
	}
	return now, nil
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
