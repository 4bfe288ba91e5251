package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"muster/jobs/pipeline"
	"muster/tasks"
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
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&c.Lease, 30*time.Second)
	set(&c.Backoff, 5*time.Second)
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
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&l.StuckAfter, time.Hour)
	set(&l.Timeout, 168*time.Hour)
	set(&l.CheckEvery, 30*time.Second)
	if l.Keep == 0 {
		l.Keep = 30 * 24 * time.Hour
	}
	if l.Dedupe == "" {
		l.Dedupe = DedupeJoin
	}
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
	if err != nil {
		return "", fmt.Errorf("read the id of the store: %w", err)
	}
	return id, nil
}
