// Package gateway offers the pool as one rotating proxy to any other program: curl, a browser, another scraper.
//
// It speaks HTTP in absolute form, CONNECT and SOCKS5 on one port. Each request, or each tunnel, goes by a proxy of the
// pool, another one being tried as long as nothing has been passed on. Nothing that is encrypted is opened. The user
// name says what is wanted: user-session-abc-country-bg keeps one Bulgarian proxy for all of session abc.
package gateway

import (
	"bufio"
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
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
	// Keys are the passwords that are accepted, with any user name. Defaults to none: everyone on this machine may use it.
	Keys []string
	// Options are what every request asks of the pool, before its user name adds to it. Wait counts with FallbackWait
	// only. Defaults to the zero value.
	Options proxies.PickOptions
	// Fallback is what happens when the pool has no proxy. Defaults to FallbackFail.
	Fallback proxies.Fallback
	// Filter says which addresses that are not public FallbackDirect reaches. Defaults to none: who may use proxies
	// elsewhere is not let in here.
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
	addr, err := netip.ParseAddr(host)
	if local := host == "localhost" || err == nil && addr.IsLoopback(); !local && len(cfg.Keys) == 0 {
		return nil, fmt.Errorf("gateway: %s is open to other machines; give it keys, or listen on 127.0.0.1", cfg.Listen)
	}
	if slices.Contains(cfg.Keys, "") {
		return nil, errors.New("gateway: a key is empty")
	}
	direct := &http.Transport{DialContext: cfg.Filter.Dial(&net.Dialer{Timeout: 10 * time.Second}), DisableCompression: true, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 256 << 10}
	return &Gateway{cfg: cfg, direct: direct}, nil
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
	var group sync.WaitGroup
	defer context.AfterFunc(ctx, func() { l.Close() })()

	places := make(chan struct{}, g.cfg.MaxConns)
	var failure error
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				if isTemporary(err) {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				failure = fmt.Errorf("gateway: accept: %w", err)
			}
			break
		}
		select {
		case places <- struct{}{}:
		default:
			conn.Close() // full: better than to keep everyone waiting
			continue
		}
		g.active.Add(1)
		group.Add(1)
		counted := &client{Conn: conn}
		// Whoever has the connection by then, an exchange, a tunnel or greet: the end of ctx is its end.
		unhook := context.AfterFunc(ctx, func() { counted.Close() })
		counted.gone = func() {
			unhook()
			g.active.Add(-1)
			<-places
			group.Done()
		}
		group.Go(func() { g.greet(ctx, counted) })
	}
	cancel()
	l.Close()
	group.Wait()
	g.direct.CloseIdleConnections()
	return failure
}

func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// client is a connection that frees its place when it is closed.
type client struct {
	net.Conn
	limit *headLimit    // under in
	in    *bufio.Reader // from which all is read
	once  sync.Once
	gone  func()
}

func (c *client) Read(b []byte) (int, error) {
	if c.in.Buffered() > 0 {
		return c.in.Read(b)
	}
	return c.Conn.Read(b)
}

func (c *client) Close() error {
	c.once.Do(c.gone)
	return c.Conn.Close()
}

// greet looks at the first byte to tell SOCKS5 from HTTP.
func (g *Gateway) greet(ctx context.Context, c *client) {
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(headTimeout))
	c.limit = &headLimit{Conn: c.Conn}
	c.in = bufio.NewReaderSize(c.limit, 4<<10)
	first, err := c.in.Peek(1)
	switch {
	case err != nil:
	case first[0] == 5:
		g.socks5(ctx, c)
	default:
		g.web(ctx, c)
	}
}

// authorized checks credentials and returns what the user name asks for.
func (g *Gateway) authorized(user, password string) (proxies.PickOptions, error) {
	ok := len(g.cfg.Keys) == 0
	for _, key := range g.cfg.Keys {
		if subtle.ConstantTimeCompare([]byte(key), []byte(password)) == 1 {
			ok = true
		}
	}
	if !ok {
		g.refused.Add(1)
		return proxies.PickOptions{}, errors.New("a key is needed: give it as the proxy password")
	}
	return wishes(g.cfg.Options, user)
}

// wishes reads what a user name asks for: name-key-value-key-value.
func wishes(o proxies.PickOptions, user string) (proxies.PickOptions, error) {
	parts := strings.Split(user, "-")
	for i := 1; i < len(parts); i += 2 {
		if i+1 >= len(parts) {
			return o, fmt.Errorf("user name: %q has no value; write user-session-abc-country-bg", parts[i])
		}
		value := parts[i+1]
		switch parts[i] {
		case "session":
			o.Sticky = "gateway:" + value
		case "ttl":
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 || d > 24*time.Hour {
				return o, fmt.Errorf("user name: ttl %q is no duration up to 24h", value)
			}
			o.StickyFor = d
		case "country":
			o.Filter.Countries = []string{strings.ToUpper(value)}
		case "protocol":
			o.Filter.Protocols = []string{value}
		case "anonymity":
			o.Filter.Anonymity = value
		case "strategy":
			o.Strategy = proxies.Strategy(value)
		default:
			return o, fmt.Errorf("user name: no wish %q; there are session, ttl, country, protocol, anonymity, strategy", parts[i])
		}
	}
	return o, nil
}

// siteOf is whose health a request counts for.
func siteOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return strings.ToLower(host)
	}
	return strings.ToLower(hostport)
}

// relay copies both ways until both are done or nothing has moved for Config.Idle.
func (g *Gateway) relay(conn net.Conn, from io.Reader, target net.Conn) {
	idle := &idleTimer{after: g.cfg.Idle, conns: []net.Conn{conn, target}}
	idle.touch()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(idle.writer(target), from)
		if half, ok := target.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	_, _ = io.Copy(idle.writer(conn), target)
	if c, ok := conn.(*client); ok {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	// A target that is done has nothing to hear any more in all protocols that go through proxies.
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	group.Wait()
}

// idleTimer moves the deadlines of a relay on whenever something moves, at most once a second.
type idleTimer struct {
	after time.Duration
	conns []net.Conn
	last  atomic.Int64 // unix nanoseconds of the last touch
}

func (t *idleTimer) touch() {
	now := time.Now()
	if last := t.last.Load(); now.UnixNano()-last < int64(time.Second) || !t.last.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	for _, c := range t.conns {
		_ = c.SetDeadline(now.Add(t.after))
	}
}

func (t *idleTimer) writer(w io.Writer) io.Writer { return &touchingWriter{w, t} }

type touchingWriter struct {
	io.Writer
	timer *idleTimer
}

func (w *touchingWriter) Write(b []byte) (int, error) {
	w.timer.touch()
	return w.Writer.Write(b)
}
