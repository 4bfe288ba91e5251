// Package gateway offers the pool as one rotating proxy to any other program: curl, a browser, another scraper.
//
// It speaks HTTP in absolute form, CONNECT and SOCKS5 on one port. Each request, or each tunnel, goes by a proxy of the
// pool, another one being tried as long as nothing has been passed on. Nothing that is encrypted is opened. The user
// name has the options of a client: user-session-abc-country-bg keeps one Bulgarian proxy for all of session abc.
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

	"muster/internal/addressfilter"
	"muster/proxies"
)

// Config says how a gateway works.
type Config struct {
	// Pool lends the proxies. Needed.
	Pool *proxies.Pool
	// Listen is the address. Defaults to 127.0.0.1:8089. An address that is not loopback needs Keys.
	Listen string
	// Keys are the accepted passwords, each of at least eight bytes. Defaults to none: every user of this machine may use
	// the gateway. A client address may fail 20 times in a minute; then its logins are rejected for the rest of it.
	Keys []string
	// Options are what every request asks of the pool, before its user name adds to it. Wait counts with FallbackWait
	// only. Defaults to the zero value.
	Options proxies.PickOptions
	// Fallback is what happens when the pool has no proxy. Defaults to FallbackFail.
	Fallback proxies.Fallback
	// Filter says which addresses that are not public FallbackDirect reaches. Defaults to none: clients of the
	// gateway do not get access to this network.
	Filter *addressfilter.Filter
	// Tries is how many proxies a request is tried with. Defaults to 3.
	Tries int
	// Idle ends a tunnel or a client connection on which nothing moves. Defaults to 2 minutes.
	Idle time.Duration
	// MaxConns is how many clients may be connected. Defaults to 4096.
	MaxConns int
	// ShowProxy adds X-Proxy-Id to answers of plain HTTP. Defaults to false.
	ShowProxy bool
	// Logger defaults to none.
	Logger *slog.Logger
}

// Stats are counts since the start.
type Stats struct {
	Requests int64 `json:"requests"` // plain HTTP
	Tunnels  int64 `json:"tunnels"`  // CONNECT and SOCKS5
	Refused  int64 `json:"refused"`  // wrong or missing credentials
	NoProxy  int64 `json:"no_proxy"` // the pool had none
	Failed   int64 `json:"failed"`   // no proxy that was tried got through
	Active   int64 `json:"active"`   // connections of clients, now
}

// Gateway is a proxy that rotates. Use Listen, then Serve.
type Gateway struct {
	cfg    Config
	direct *http.Transport // without a proxy
	logins logins

	requests, tunnels, refused, noProxy, failed, active atomic.Int64
}

// New checks cfg.
func New(cfg Config) (*Gateway, error) {
	if cfg.Pool == nil {
		return nil, errors.New("gateway: Config.Pool is needed")
	}
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:8089")
	cfg.Tries = cmp.Or(cfg.Tries, 3)
	cfg.Idle = cmp.Or(cfg.Idle, 2*time.Minute)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 4096)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("gateway: listen address %q: %w", cfg.Listen, err)
	}
	if !addressfilter.IsLoopback(host) && len(cfg.Keys) == 0 {
		return nil, fmt.Errorf("gateway: %s is open to other machines; give it keys, or listen on 127.0.0.1", cfg.Listen)
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

// SetKeys replaces the keys. Connections that were accepted with others stay open.
func (g *Gateway) SetKeys(keys []string) error {
	if len(keys) == 0 {
		return errors.New("gateway: no keys; give at least one")
	}
	for i, key := range keys {
		if len(key) < minKey {
			return fmt.Errorf("gateway: key %d is too short; use at least %d characters", i+1, minKey)
		}
	}
	g.logins.setKeys(keys)
	return nil
}

// dial opens the tunnel that a client asks for.
func (g *Gateway) dial(ctx context.Context, addr string, o proxies.PickOptions) (net.Conn, error) {
	o.Site = siteOf(addr)
	conn, _, err := g.cfg.Pool.Dial(ctx, addr, proxies.DialOptions{PickOptions: o, Fallback: g.cfg.Fallback, Tries: g.cfg.Tries, Direct: g.direct.DialContext})
	return conn, err
}

// Stats returns the counts.
func (g *Gateway) Stats() Stats {
	return Stats{Requests: g.requests.Load(), Tunnels: g.tunnels.Load(), Refused: g.refused.Load(), NoProxy: g.noProxy.Load(), Failed: g.failed.Load(), Active: g.active.Load()}
}

// Run listens and serves until ctx is done. ready, if not nil, is called with the address once it listens.
func (g *Gateway) Run(ctx context.Context, ready func(net.Addr)) error {
	l, err := net.Listen("tcp", g.cfg.Listen)
	if err != nil {
		return fmt.Errorf("gateway: %w; choose another address, or port 0 for any", err)
	}
	if ready != nil {
		ready(l.Addr())
	}
	return g.Serve(ctx, l)
}

// Serve serves clients of l until ctx is done, and then breaks off what is under way. It closes l.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()

	web := &webListener{ctx: ctx, addr: l.Addr(), conns: make(chan net.Conn)}
	var group sync.WaitGroup
	group.Go(func() { _ = g.webServer(ctx).Serve(web) }) // its error is that of web: ctx is done
	err := g.accept(ctx, l, web, &group)
	cancel()
	l.Close()
	group.Wait()
	g.direct.CloseIdleConnections()
	return err
}

// accept takes connections from l until ctx is done. It adds each to the group until it has ended.
func (g *Gateway) accept(ctx context.Context, l net.Listener, web *webListener, group *sync.WaitGroup) error {
	free := make(chan struct{}, g.cfg.MaxConns)
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
			accepted.Close() // full: better than to keep everyone waiting
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
	if first[0] == 4 || first[0] == 5 {
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

// siteOf returns the site whose health a request counts for.
func siteOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return strings.ToLower(host)
	}
	return strings.ToLower(hostport)
}
