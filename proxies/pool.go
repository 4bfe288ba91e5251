package proxies

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/proxies/tunnel"
)

// ErrNoProxy says that no proxy of the pool can be used now. Its text says what to do.
var ErrNoProxy = errors.New("no usable proxy; run muster proxies refresh, or set fallback: wait or direct")

// PoolConfig says how a pool lends its proxies.
type PoolConfig struct {
	// Redis holds the pool. Needed.
	Redis redis.UniversalClient
	// Name distinguishes pools on one Redis. Defaults to "{muster:proxies}"; the braces keep it on one slot of a cluster.
	Name string
	// MaxFails is how many failures in a row remove a proxy; a timeout is half of one. Defaults to 3.
	MaxFails float64
	// MaxInFlight is how many requests of this process one proxy carries at once. Defaults to 32.
	MaxInFlight int
	// MaxTransports is how many proxies keep connections open. Defaults to 256.
	MaxTransports int
	// SyncEvery is how old this process's view of the pool may be. Defaults to 1 s.
	SyncEvery time.Duration
	// FlushEvery is how long Run collects reports before it writes them. Defaults to 100 ms.
	FlushEvery time.Duration
	// ConnectTimeout and HandshakeTimeout bound connecting to a proxy, and opening a tunnel through it. Default to 8 s and 10 s.
	ConnectTimeout, HandshakeTimeout time.Duration
	// HeaderTimeout bounds the wait for the header of a response. Defaults to 30 s.
	HeaderTimeout time.Duration
	// TLS is used towards targets. Defaults to the system's roots, always verified.
	TLS *tls.Config
	// Filter says to which addresses that are not public the names of proxies may resolve. A proxy that is written as an
	// address or localhost is connected to in any case. Defaults to none.
	Filter *addressfilter.Filter
	// Dial reaches proxies. Defaults to a net.Dialer with Filter.
	Dial tunnel.DialFunc
	// Logger defaults to none.
	Logger *slog.Logger
}

func (c PoolConfig) withDefaults() PoolConfig {
	c.Name = cmp.Or(c.Name, "{muster:proxies}")
	c.MaxFails = cmp.Or(c.MaxFails, 3)
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Pool is the live proxies. Their records and their health are in Redis, where all processes share them; each process
// picks from a view of its own, which it reads again when it is too old, and collects reports, which Run writes. All
// methods may be called by many goroutines. Close it.
type Pool struct {
	cfg        PoolConfig
	store      *store
	view       *view
	picker     *picker
	leases     *leases
	transports *transports
	yields     yields
}

// NewPool returns a pool; it does no I/O.
func NewPool(cfg PoolConfig) *Pool {
	cfg = cfg.withDefaults()
	p := &Pool{cfg: cfg, store: &store{rdb: cfg.Redis, name: cfg.Name}, transports: newTransports(cfg)}
	p.yields = yields{p.store, cfg.Logger}
	p.view = newView(p.store, cfg, p.transports.evict)
	p.leases = newLeases(p.view, p.store, cfg)
	p.view.flush = p.leases.flush
	p.picker = newPicker(p.view, p.leases, cfg.MaxInFlight)
	return p
}

// Run writes the reports on proxies as they are made, until ctx is done. Without it they are written when there are many,
// and by Flush and Close.
func (p *Pool) Run(ctx context.Context) { p.leases.run(ctx) }

// Flush writes the reports collected so far.
func (p *Pool) Flush(ctx context.Context) error { return p.leases.flush(ctx) }

// Close writes what has been reported and closes idle connections. Run must have ended.
func (p *Pool) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := p.leases.flush(ctx)
	p.transports.close()
	return err
}

// Add puts proxies into the pool without a check; their ids are set.
func (p *Pool) Add(ctx context.Context, proxies ...Proxy) (added int, err error) {
	for i := range proxies {
		proxies[i].ID = proxyID(proxies[i])
	}
	return p.put(ctx, proxies)
}

func (p *Pool) put(ctx context.Context, proxies []Proxy) (added int, err error) {
	defer p.view.expire()
	return p.store.publish(ctx, proxies)
}

// Remove removes proxies by id. It returns how many were in the pool.
func (p *Pool) Remove(ctx context.Context, ids ...string) (removed int, err error) {
	defer p.view.expire()
	return p.store.remove(ctx, ids)
}

// Count returns how many proxies are in the pool.
func (p *Pool) Count(ctx context.Context) (int, error) { return p.store.count(ctx) }

// Status returns the state of the pool as a whole.
func (p *Pool) Status(ctx context.Context) (Status, error) { return p.store.status(ctx) }

// Report returns the report of a refresh, and false when Redis does not have it: Redis keeps it for a day.
func (p *Pool) Report(ctx context.Context, job string) (report Report, ok bool, err error) {
	return p.store.refreshReport(ctx, job)
}
