package proxies

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/internal/wrap"
	"muster/proxies/tunnel"
)

// ErrNoProxy means that no proxy of the pool is available. Its message contains remedies.
var ErrNoProxy = errors.New("no usable proxy; run muster proxies refresh, or set fallback: wait or direct")

// PoolConfig configures a Pool.
type PoolConfig struct {
	// Redis stores the pool. Required.
	Redis redis.UniversalClient
	// Name distinguishes pools on the same Redis. Defaults to "{muster:proxies}"; the braces keep it on one slot of a
	// cluster.
	Name string
	// MaxInFlight is the maximum number of concurrent requests of this process per proxy. Defaults to 32.
	MaxInFlight int
	// MaxTransports is the maximum number of proxies with open connections. Defaults to 256.
	MaxTransports int
	// SyncEvery is the maximum age of this process's view of the pool. Defaults to 1 s.
	SyncEvery time.Duration
	// FlushEvery is the interval at which Run writes reports. Defaults to 100 ms.
	FlushEvery time.Duration
	// ConnectTimeout limits the connection to a proxy, HandshakeTimeout the setup of a tunnel. Default to 8 s and 10
	// s.
	ConnectTimeout, HandshakeTimeout time.Duration
	// HeaderTimeout limits the wait for the response header. Defaults to 30 s.
	HeaderTimeout time.Duration
	// TLS is the configuration for targets. Defaults to the system's roots. Certificates are always verified.
	TLS *tls.Config
	// Filter selects the non-public addresses to which the names of proxies may resolve. It does not apply to literal
	// addresses and localhost. Defaults to none.
	Filter *addressfilter.Filter
	// Dial connects to proxies. Defaults to a net.Dialer with Filter.
	Dial tunnel.DialFunc
	// Logger defaults to none.
	Logger *slog.Logger
}

func (c PoolConfig) withDefaults() PoolConfig {
	c.Name = cmp.Or(c.Name, "{muster:proxies}")
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 32)
	c.MaxTransports = cmp.Or(c.MaxTransports, 256)
	c.SyncEvery = cmp.Or(c.SyncEvery, time.Second)
	c.FlushEvery = cmp.Or(c.FlushEvery, 100*time.Millisecond)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 8*time.Second)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 10*time.Second)
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, 30*time.Second)
	if c.Dial == nil {
		c.Dial = c.Filter.DialNames(&net.Dialer{})
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// A Pool is the set of live proxies. Their records and health are in Redis and shared by all processes. Each process
// picks from its own view, which is updated when it is too old, and queues reports, which Run writes. A Pool is safe
// for concurrent use. Stop it with Close.
type Pool struct {
	*store
	cfg        PoolConfig
	view       *view
	leases     *leases
	transports *transports
	stickies   map[string]*sticky // by key; guarded by view.mu
}

// NewPool returns a pool. It does no I/O.
func NewPool(cfg PoolConfig) *Pool {
	cfg = cfg.withDefaults()
	p := &Pool{cfg: cfg, store: &store{rdb: cfg.Redis, name: cfg.Name, random: rand.Float64}, transports: newTransports(cfg), stickies: map[string]*sticky{}}
	p.view = &view{pool: p, members: map[string]*member{}, scopes: map[string]*scope{}}
	p.leases = &leases{pool: p, pending: make(chan struct{}, 1), reports: map[string][]report{}}
	return p
}

// Run writes reports on proxies continuously until ctx is done. Without Run, reports are written when many are
// queued, and by Flush and Close.
func (p *Pool) Run(ctx context.Context) { p.leases.run(ctx) }

// Flush writes the queued reports.
func (p *Pool) Flush(ctx context.Context) error { return p.leases.flush(ctx) }

// Close writes the queued reports and closes idle connections. Run must have returned.
func (p *Pool) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := p.leases.flush(ctx)
	p.transports.close()
	return err
}

// Add adds proxies to the pool without a check and sets their IDs.
func (p *Pool) Add(ctx context.Context, proxies ...Proxy) (added int, err error) {
	for i := range proxies {
		proxies[i].ID = candidateID(proxies[i].Candidate)
	}
	return p.put(ctx, proxies)
}

func (p *Pool) put(ctx context.Context, proxies []Proxy) (added int, err error) {
	defer p.view.expire()
	return p.store.publish(ctx, proxies)
}

// Remove removes proxies by ID. It returns the number of removed proxies.
func (p *Pool) Remove(ctx context.Context, ids ...string) (removed int, err error) {
	defer p.view.expire()
	for chunk := range slices.Chunk(ids, 500) {
		var n *redis.IntCmd
		if _, err := p.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			n = pipe.HDel(ctx, recordsKey(p.name), chunk...)
			return pipe.HDel(ctx, healthKey(p.name, ""), chunk...).Err()
		}); err != nil {
			return removed, fmt.Errorf("remove proxies: %w", err)
		}
		removed += int(n.Val())
	}
	return removed, nil
}

// Count returns the number of proxies in the pool.
func (p *Pool) Count(ctx context.Context) (int, error) {
	n, err := p.rdb.HLen(ctx, recordsKey(p.name)).Result()
	return int(n), wrap.Err(err, "count proxies")
}
