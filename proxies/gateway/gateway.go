// Package gateway provides the pool as a rotating proxy for other programs, such as curl, browsers and scrapers.
//
// It supports HTTP requests in absolute form, CONNECT and SOCKS5 on the same port. Each request or tunnel uses a
// proxy of the pool; after a failure it is retried with other proxies, until data has been sent to the client. TLS is
// not intercepted. The user name may contain options: user-session-abc-country-bg selects a Bulgarian proxy, the same
// one for all requests of session abc.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/internal/addressfilter"
	"muster/proxies"
)

// Config configures a Gateway.
type Config struct {
	// Pool provides the proxies. Required.
	Pool *proxies.Pool
	// Listen is the listen address. Defaults to 127.0.0.1:8089. An address other than loopback requires Keys.
	Listen string
	// Keys are the accepted passwords, each of at least eight bytes. Defaults to none: every user of this machine has
	// access. After 20 failed logins within a minute, the logins of a client address are rejected for the rest of
	// that minute.
	Keys []string
	// Options are the pick options of all requests; user names may add more. Wait applies with FallbackWait only.
	// Defaults to the zero value.
	Options proxies.PickOptions
	// Fallback selects the behavior if the pool has no proxy. Defaults to FallbackFail.
	Fallback proxies.Fallback
	// Filter selects the non-public addresses that FallbackDirect may reach. Defaults to none: clients of the gateway
	// have no access to this network.
	Filter *addressfilter.Filter
	// Tries is the maximum number of proxies per request. Defaults to 3.
	Tries int
	// Idle is the timeout of tunnels and client connections without traffic. Defaults to 2 minutes.
	Idle time.Duration
	// Logger defaults to none.
	Logger *slog.Logger
}

// maxConns is the maximum number of client connections.
const maxConns = 4096

// A Gateway is a rotating proxy server. Start it with Run or Serve.
type Gateway struct {
	cfg    Config
	direct *http.Transport // without a proxy
	logins logins

	requests, tunnels, refused, noProxy, failed, active atomic.Int64 // see Collect
}

// New validates cfg and returns a Gateway.
func New(cfg Config) (*Gateway, error) {
	if cfg.Pool == nil {
		return nil, errors.New("gateway: Config.Pool is required")
	}
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:8089")
	cfg.Tries = cmp.Or(cfg.Tries, 3)
	cfg.Idle = cmp.Or(cfg.Idle, 2*time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("gateway: listen address %q: %w", cfg.Listen, err)
	}
	if !addressfilter.IsLoopback(host) && len(cfg.Keys) == 0 {
		return nil, fmt.Errorf("gateway: %s is reachable from other machines; configure keys or listen on 127.0.0.1", cfg.Listen)
	}
	direct := &http.Transport{DialContext: cfg.Filter.Dial(&net.Dialer{Timeout: 10 * time.Second}), DisableCompression: true, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 256 << 10}
	g := &Gateway{cfg: cfg, direct: direct}
	g.logins.logger = cfg.Logger
	g.logins.setKeys(nil)
	if len(cfg.Keys) == 0 {
		return g, nil
	}
	return g, g.SetKeys(cfg.Keys)
}

// SetKeys replaces the keys. Open connections remain open, whatever their key.
func (g *Gateway) SetKeys(keys []string) error {
	if len(keys) == 0 {
		return errors.New("gateway: no keys; at least one is required")
	}
	for i, key := range keys {
		if len(key) < minKey {
			return fmt.Errorf("gateway: key %d is too short; use at least %d characters", i+1, minKey)
		}
	}
	g.logins.setKeys(keys)
	return nil
}

// dial opens a tunnel for a client.
func (g *Gateway) dial(ctx context.Context, addr string, o proxies.PickOptions) (net.Conn, error) {
	o.Site = siteOf(addr)
	conn, _, err := g.cfg.Pool.Dial(ctx, addr, proxies.TransportOptions{PickOptions: o, Fallback: g.cfg.Fallback, Tries: g.cfg.Tries, Direct: g.direct})
	return conn, err
}

// Run listens and serves until ctx is done. If ready is not nil, it is called with the address when the listener is
// open.
func (g *Gateway) Run(ctx context.Context, ready func(net.Addr)) error {
	l, err := net.Listen("tcp", g.cfg.Listen)
	if err != nil {
		return fmt.Errorf("gateway: %w; choose another address, or port 0 for any free port", err)
	}
	if ready != nil {
		ready(l.Addr())
	}
	return g.Serve(ctx, l)
}

// Serve serves clients of l until ctx is done, then closes all connections and l.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()

	web := &webListener{ctx: ctx, addr: l.Addr(), conns: make(chan net.Conn)}
	var group sync.WaitGroup
	group.Go(func() { _ = g.webServer(ctx).Serve(web) }) // always the error of web: ctx is done
	err := g.accept(ctx, l, web, &group)
	cancel()
	l.Close()
	group.Wait()
	g.direct.CloseIdleConnections()
	return err
}

// accept accepts connections from l until ctx is done and serves them in group.
func (g *Gateway) accept(ctx context.Context, l net.Listener, web *webListener, group *sync.WaitGroup) error {
	free := make(chan struct{}, maxConns)
	for {
		accepted, err := l.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case isTemporary(err):
			time.Sleep(10 * time.Millisecond)
			continue
		default:
			return fmt.Errorf("gateway: accept: %w", err)
		}
		select {
		case free <- struct{}{}:
		default:
			accepted.Close() // full: new clients are rejected so that the others do not wait
			continue
		}
		g.active.Add(1)
		group.Add(1)
		c := &clientConn{Conn: accepted, idle: g.cfg.Idle}
		stop := context.AfterFunc(ctx, func() { accepted.Close() })
		c.ended = func() {
			stop()
			g.active.Add(-1)
			<-free
			group.Done()
		}
		go g.greet(ctx, c, web)
	}
}

func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// greet reads the first byte of a connection, which distinguishes SOCKS from HTTP.
func (g *Gateway) greet(ctx context.Context, c *clientConn, web *webListener) {
	_ = c.SetReadDeadline(time.Now().Add(headTimeout))
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		c.end()
		return
	}
	c.first = first
	switch first[0] {
	case 4: // SOCKS4 has no field for a key
		defer c.end()
		_, _ = c.Write([]byte{0, 91, 0, 0, 0, 0, 0, 0}) // request rejected
		return
	case 5:
		defer c.end()
		g.socks(ctx, c)
		return
	}
	select {
	case web.conns <- c:
	case <-ctx.Done():
		c.end()
	}
}

// siteOf returns the site under which the health of a request is recorded.
func siteOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return strings.ToLower(host)
	}
	return strings.ToLower(hostport)
}

var (
	requestsTotal = prometheus.NewDesc("muster_gateway_requests_total", "Plain HTTP requests of authorized clients.", nil, nil)
	tunnelsTotal  = prometheus.NewDesc("muster_gateway_tunnels_total", "Tunnels requested by CONNECT or SOCKS5.", nil, nil)
	failuresTotal = prometheus.NewDesc("muster_gateway_failures_total", "Failed requests and tunnels: refused (wrong credentials), no_proxy (no usable proxy) or failed (all attempted proxies failed).", []string{"reason"}, nil)
	clientsNow    = prometheus.NewDesc("muster_gateway_clients", "Open client connections.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g *Gateway) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsTotal, tunnelsTotal, failuresTotal, clientsNow} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gateway) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n *atomic.Int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	count(requestsTotal, &g.requests)
	count(tunnelsTotal, &g.tunnels)
	count(failuresTotal, &g.refused, "refused")
	count(failuresTotal, &g.noProxy, "no_proxy")
	count(failuresTotal, &g.failed, "failed")
	ch <- prometheus.MustNewConstMetric(clientsNow, prometheus.GaugeValue, float64(g.active.Load()))
}
