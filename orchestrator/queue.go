package orchestrator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"muster/internal/limit"
	"muster/orchestrator/artifact"
	"muster/orchestrator/config"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/metrics"
	"muster/tasks/workqueue"
)

// ArtifactQueue returns the artifact queue name with the current settings.
func (s *System) ArtifactQueue(name string) *workqueue.Queue {
	q := s.cfg().Queue
	return workqueue.New(s.Client.Redis(), name, workqueue.Config{
		MaxAttempts: q.MaxJobAttempts,
		Backoff:     workqueue.Backoff{Base: q.RetryBackoff(), Jitter: q.Jitter(), Max: time.Hour},
		LeaseTTL:    q.LeaseTTL(),
		Keep:        q.Keep,
		Logger:      s.logger,
	})
}

// QueuePool fetches the artifacts of a queue.
type QueuePool struct {
	*workqueue.Pool
	metrics *metrics.Queue
	limits  queueLimits
}

// NewQueuePool returns a pool that fetches the artifacts of a queue into the directory content in the data directory. With drain, the pool stops when the queue is empty. The limits follow a reload of the settings.
func (o *Orchestrator) NewQueuePool(name string, drain bool) (*QueuePool, error) {
	cfg := o.Config()
	limits := o.newQueueLimits(cfg.Queue)
	fetcher, err := artifact.NewFetcher(artifact.FetcherConfig{
		Dir: filepath.Join(cfg.DataDir, "content"), UserAgent: cfg.Queue.UserAgent, Filter: cfg.Network.Filter(), Logger: o.opts.Logger,
		Robots: cfg.Queue.Robots, Pacer: limits.pacer, Breaker: limits.breaker, Slots: limits.hosts, Resolvers: limits.resolvers,
	})
	if err != nil {
		return nil, err
	}
	queue := o.ArtifactQueue(name)
	measured := metrics.NewQueue(queue)
	pool, err := workqueue.NewPool(queue, workqueue.Handlers{artifact.FetchKind: fetcher.Handle}, workqueue.PoolConfig{
		Workers: cfg.Queue.MaxWorkers, Heartbeat: cfg.Queue.Heartbeat(), Grace: cfg.Shutdown.Drain,
		Hard: o.opts.Hard, Drain: drain, MaxPerKey: limits.most, Observe: measured.Observe, Logger: o.opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	o.OnReload(func(cfg config.Config) { limits.reload(cfg.Queue) })
	measured.Watch(pool)
	return &QueuePool{pool, measured, limits}, nil
}

// Collectors returns the metrics of the queue, the pool and its limits.
func (p *QueuePool) Collectors() []prometheus.Collector {
	l := p.limits
	return []prometheus.Collector{
		p.metrics, &limitUse{map[string]*limit.KeyedLimiter{"host": l.hosts, "resolver": l.resolvers}, l.breaker},
	}
}

// queuePools returns a pool for each queue of the setting queue.run.
func (o *Orchestrator) queuePools() ([]*QueuePool, error) {
	var pools []*QueuePool
	for _, name := range o.Config().Queue.Run {
		pool, err := o.NewQueuePool(name, false)
		if err != nil {
			return nil, fmt.Errorf("queue.run: %s: %w", name, err)
		}
		pools = append(pools, pool)
		o.queues = append(o.queues, pool.metrics)
	}
	return pools, nil
}

// queueLimits are the limits per host and resolver, shared by all processes.
type queueLimits struct {
	hosts, resolvers *limit.KeyedLimiter
	pacer            *limit.Pacer
	breaker          *limit.Breaker
	cfg              *atomic.Pointer[config.Queue]
}

// slotTTL is the time after which the slots of a killed process expire.
const slotTTL = 10 * time.Second

func (s *System) newQueueLimits(cfg config.Queue) queueLimits {
	rdb := s.Client.Redis()
	slots := func(n int, perKey map[string]int) *limit.KeyedLimiter {
		return limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: n, PerKey: perKey, TTL: slotTTL, FailOpen: true, Logger: s.logger})
	}
	now := &atomic.Pointer[config.Queue]{}
	now.Store(&cfg)
	return queueLimits{
		cfg:       now,
		hosts:     slots(cfg.MaxPerHost, nil),
		resolvers: slots(cfg.MaxWorkers, perResolver(cfg)),
		pacer:     limit.NewPacer(rdb, limit.PacerConfig{Interval: cfg.HostInterval(), FailOpen: true, Logger: s.logger}),
		breaker:   limit.NewBreaker(rdb, limit.BreakerConfig{FailOpen: true, Changed: s.BreakerChanged, Logger: s.logger}),
	}
}

func perResolver(cfg config.Queue) map[string]int {
	out := make(map[string]int, len(cfg.MaxPerResolver))
	for name, n := range cfg.MaxPerResolver {
		out[artifact.ResolverKey+name] = n
	}
	return out
}

// most returns how many items of a resource key a process fetches at a time.
func (l queueLimits) most(key string) int {
	cfg := l.cfg.Load()
	if resolver, ok := strings.CutPrefix(key, artifact.ResolverKey); ok {
		return cmp.Or(cfg.MaxPerResolver[resolver], cfg.MaxWorkers)
	}
	return cfg.MaxPerHost
}

// reload applies settings.
func (l queueLimits) reload(cfg config.Queue) {
	l.cfg.Store(&cfg)
	l.hosts.Configure(cfg.MaxPerHost, nil)
	l.resolvers.Configure(cfg.MaxWorkers, perResolver(cfg))
	l.pacer.SetInterval(cfg.HostInterval())
}

// asynqTasks returns the handler of the tasks that a program with only asynq's client can send to the queue "default":
//
//	muster:scrape   {"site": "shop.example", "limit": 0, "direct": false} starts a scrape; so does asynq's scheduler
//	muster:refresh  starts a refresh of the pool of proxies; the payload is empty
//
// A task succeeds when the work is sent or is running already. Its result is the ID of the workflow. A payload that
// cannot be used and an unknown site are not retried.
func (s *System) asynqTasks() asynq.Handler {
	mux := asynq.NewServeMux()
	mux.HandleFunc("muster:scrape", func(ctx context.Context, t *asynq.Task) error {
		var in struct {
			Site   string `json:"site"`
			Limit  int    `json:"limit"`
			Direct bool   `json:"direct"`
		}
		decoder := json.NewDecoder(bytes.NewReader(t.Payload()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&in); err != nil {
			return fmt.Errorf(`payload of muster:scrape: %w; it is {"site": NAME, "limit": N, "direct": BOOL}: %w`, err, asynq.SkipRetry)
		}
		if in.Limit < 0 {
			return fmt.Errorf("payload of muster:scrape: limit: must not be negative: %w", asynq.SkipRetry)
		}
		if _, err := s.Sites.Registry().Definition(in.Site); err != nil {
			return fmt.Errorf("payload of muster:scrape: site: %w: %w", err, asynq.SkipRetry)
		}
		run, err := s.Sites.Send(ctx, in.Site, sites.ScrapeOptions{Limit: in.Limit, Direct: in.Direct})
		if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
			return err
		}
		return writeID(t, run.ID())
	})
	mux.HandleFunc("muster:refresh", func(ctx context.Context, t *asynq.Task) error {
		id, err := s.proxies.StartRefresh(ctx)
		if err != nil {
			return err
		}
		return writeID(t, id)
	})
	return mux
}

func writeID(t *asynq.Task, id string) error {
	_, err := t.ResultWriter().Write([]byte(id))
	return err
}
