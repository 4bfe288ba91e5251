package webhook

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/internal/limit"
	"muster/internal/luascript"
	"muster/internal/webhook"
	"muster/orchestrator/event"
	"muster/tasks"
	"muster/tasks/workqueue"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the files of lua by name.
var scripts = luascript.Read(sources)

// Errors for callers to compare.
var (
	ErrNoEndpoint = errors.New("no such webhook")
	ErrNoDelivery = errors.New("no such delivery; it may be too old")
	ErrTooMany    = errors.New("too many webhooks; remove one")
	ErrStatic     = errors.New("the webhook is in the configuration; change it there")
	ErrDisabled   = errors.New("the webhook is disabled; enable it first")
	ErrOpen       = errors.New("the delivery has not ended; it is retried automatically")
	ErrChanged    = errors.New("the webhook was changed concurrently; retry")
)

// Config configures a Service.
type Config struct {
	Redis  redis.UniversalClient // Required.
	Events *event.Stream         // of Redis. Defaults to a new one; share it, because it waits with one connection.
	// Job returns the state of a job for messages, encodable as JSON, or nil if the job does not exist. Defaults to no states.
	Job func(ctx context.Context, id string) (any, error)
	// Workflows is the client whose events of workflows are sent. Defaults to none.
	Workflows *tasks.Client
	// StuckAfter returns the time without a change after which a workflow can be stuck. Defaults to an hour.
	StuckAfter func() time.Duration
	Static     []Static              // endpoints of the configuration. Defaults to none.
	Filter     *addressfilter.Filter // allows non-public addresses, in addition to the addresses of Static. Defaults to none.
	Timeout    time.Duration         // of a response. Defaults to 15 seconds.
	Keep       time.Duration         // retention of completed deliveries. Defaults to 72 hours.

	MaxPending int           // open deliveries with which an endpoint is disabled. Defaults to 200,000.
	Max        int           // endpoints. Defaults to 100.
	Retry      time.Duration // before the second attempt; it doubles. Defaults to 5 seconds.
	MaxRetry   time.Duration // between two attempts. Defaults to 3 hours.
	Attempts   int           // of a delivery. Defaults to 19, with which the last is about a day after the first.
	Tick       time.Duration // between two batches of events. Defaults to 200 milliseconds.
	Logger     *slog.Logger  // Defaults to none.
}

// The defaults of Retry, MaxRetry and Attempts double from 5 s to 3 h and stop after 23.7 h: the first hour has as
// many attempts as the three days of the schedule that Standard Webhooks proposes.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#deliverability-and-reliability
func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(max(c.Timeout, 0), 15*time.Second)
	c.Keep = cmp.Or(max(c.Keep, 0), 72*time.Hour)
	c.Retry = cmp.Or(c.Retry, 5*time.Second)
	c.MaxRetry = cmp.Or(c.MaxRetry, 3*time.Hour)
	c.Tick = cmp.Or(c.Tick, 200*time.Millisecond)
	c.MaxPending = cmp.Or(c.MaxPending, 200_000)
	c.Max = cmp.Or(c.Max, 100)
	c.Attempts = cmp.Or(c.Attempts, 19)
	if c.Events == nil {
		c.Events = event.New(c.Redis)
	}
	if c.Job == nil {
		c.Job = func(context.Context, string) (any, error) { return nil, nil }
	}
	if c.StuckAfter == nil {
		c.StuckAfter = func() time.Duration { return time.Hour }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

const (
	workers     = 128 // requests at a time in a process
	perEndpoint = 8   // of them to one endpoint
	lease       = 2 * time.Minute
	grace       = 5 * time.Second // for requests that run when the process stops
)

// Service keeps endpoints and sends events to them. It may be used by many goroutines, and by any number of processes on
// one Redis.
type Service struct {
	cfg    Config
	rdb    redis.UniversalClient
	log    *slog.Logger
	queue  *workqueue.Queue
	static map[string]record // endpoints of the configuration, by ID
	counts counts

	known sync.Mutex // guards the fields below, and lets one caller read
	read  time.Time
	cache map[string]record // of all endpoints, by ID
}

// New returns a Service. It does no I/O and starts nothing.
func New(cfg Config) (*Service, error) {
	if cfg.Redis == nil {
		return nil, errors.New("webhooks: Config.Redis is missing")
	}
	cfg = cfg.withDefaults()
	s := &Service{cfg: cfg, rdb: cfg.Redis, log: cfg.Logger, static: map[string]record{}, counts: newCounts(), queue: workqueue.New(cfg.Redis, queueName, workqueue.Config{
		MaxAttempts: cfg.Attempts, LeaseTTL: lease, MaxPayload: maxBody, CountLanes: true, Logger: cfg.Logger,
	})}
	if errs := CheckStatic(cfg.Static); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, st := range cfg.Static {
		s.static[staticID(st.Name)] = record{NewEndpoint: st.NewEndpoint, Secrets: st.Secrets}
	}
	return s, nil
}

// Run, which is called once, relays events and sends deliveries until ctx is done. Requests in progress then have a few seconds to complete, and are
// repeated otherwise.
func (s *Service) Run(ctx context.Context) error {
	// Without endpoints this is all that webhooks cost.
	for first := true; ; first = false {
		some, err := s.needed(ctx)
		if first && !some && err == nil {
			err = s.endWorkflows(ctx)
		}
		s.warn(ctx, "read the webhooks", err)
		if some {
			break
		}
		if !sleep(ctx, 10*s.cfg.Tick) {
			return nil
		}
	}
	urls := make([]string, len(s.cfg.Static))
	for i, st := range s.cfg.Static {
		urls[i] = st.URL
	}
	sender := webhook.NewSender(s.cfg.Filter.WithURLs(urls...), s.cfg.Timeout)
	defer sender.Close()
	d := &deliverer{Service: s, sender: sender, silent: map[string]int{}}
	pool, err := workqueue.NewPool(s.queue, workqueue.Handlers{itemKind: d.deliver}, workqueue.PoolConfig{
		Workers: workers, MaxPerKey: func(string) int { return perEndpoint }, Timeout: s.cfg.Timeout + time.Minute/2, Grace: grace, Logger: s.log,
	})
	if err != nil {
		return err
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { (&relay{Service: s, turn: limit.NewTurn(s.rdb, relayKey)}).run(sending) })
	err = pool.Run(ctx)
	stop()
	wg.Wait()
	return err
}

// needed reports whether there are endpoints, or deliveries to removed ones. Otherwise it ends the relay that endpoints of an
// earlier configuration began.
func (s *Service) needed(ctx context.Context) (bool, error) {
	known, err := s.records(ctx)
	if err != nil || len(known) > 0 {
		return err == nil, err
	}
	stats, err := s.queue.Stats(ctx)
	if err != nil || stats.Open() > 0 {
		return err == nil, err
	}
	return false, scripts["drop"].Run(ctx, s.rdb, endpointKeys(), "", "").Err()
}

// sleep waits. It returns false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// warn logs that something could not be done, unless ctx has ended.
func (s *Service) warn(ctx context.Context, doing string, err error, args ...any) {
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "webhooks: cannot "+doing+"; trying again", append(args, "err", err)...)
	}
}

// now returns the time of Redis: the clocks of processes differ.
func (s *Service) now(ctx context.Context) (time.Time, error) { return s.rdb.Time(ctx).Result() }

// delay returns the delay after the n-th attempt, n from 1. A tenth of it is random, so that simultaneous failures
// are not retried simultaneously.
func (c Config) delay(n int) time.Duration {
	d := c.MaxRetry
	if n < 30 { // no overflow
		d = min(d, c.Retry<<(n-1))
	}
	return d - d/20 + rand.N(d/10+1)
}
