// Package proxytest runs working and faulty proxies of many kinds on loopback, and a judge for them.
//
// Each [Proxy] has its own exit address in 127.0.0.0/8, so that judges and sites can distinguish them like real
// proxies. [NewWorld] starts a mix of proxies with known expectations.
package proxytest

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the behavior of a proxy.
type Kind string

// Kinds of proxies. Working ones connect to any target that Hosts or the system resolves.
const (
	Elite        Kind = "elite"         // HTTP and CONNECT, adds nothing
	Anonymous    Kind = "anonymous"     // HTTP and CONNECT, adds Via
	Transparent  Kind = "transparent"   // HTTP and CONNECT, adds Via and the client's address
	ForwardOnly  Kind = "forward_only"  // HTTP without CONNECT
	ConnectOnly  Kind = "connect_only"  // CONNECT without HTTP
	OverTLS      Kind = "over_tls"      // Elite over TLS
	SOCKS5       Kind = "socks5"        //
	SOCKS4       Kind = "socks4"        // without 4a
	SOCKS4A      Kind = "socks4a"       //
	Slow         Kind = "slow"          // Elite, with a delay of Delay or 400 ms
	Rotating     Kind = "rotating"      // Elite, with a different exit address for each request
	OwnNetwork   Kind = "own_network"   // Elite, with exit address 127.0.0.1
	Injector     Kind = "injector"      // adds a script to forwarded HTML; its tunnels are unmodified
	MITM         Kind = "mitm"          // intercepts TLS with its own certificate
	Dead         Kind = "dead"          // the port is closed
	Silent       Kind = "silent"        // accepts connections and sends nothing
	HangsUp      Kind = "hangs_up"      // accepts connections and closes them on the first data
	Parking      Kind = "parking"       // a web server that returns 200 with its own page for each request
	Redirecting  Kind = "redirecting"   // a web server that redirects each request to itself
	Forbidding   Kind = "forbidding"    // returns 403
	WantsAuth    Kind = "wants_auth"    // returns 407, whatever the credentials
	BadGateway   Kind = "bad_gateway"   // returns 502
	HalfResponse Kind = "half_response" // truncates each response
	Noise        Kind = "noise"         // sends random bytes
	Endless      Kind = "endless"       // sends endless headers
	Huge         Kind = "huge"          // sends an endless body
	Dribble      Kind = "dribble"       // sends one byte per second
	Replays      Kind = "replays"       // returns its first response to every client
)

// Hosts maps names that the proxies resolve to addresses: "shop.example" or "shop.example:80" to "127.0.0.1:4567", or
// to an address without a port, which keeps the port. Other names are resolved by the system.
type Hosts map[string]string

func (h Hosts) resolve(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	to, ok := h[addr]
	if !ok {
		to, ok = h[host]
	}
	if !ok {
		return addr
	}
	if _, _, err := net.SplitHostPort(to); err == nil {
		return to
	}
	return net.JoinHostPort(to, port)
}

// Options configure a Proxy.
type Options struct {
	Kind           Kind
	Exit           netip.Addr    // the exit address. Defaults to the system's choice, 127.0.0.1
	User, Password string        // required from clients if set
	Delay          time.Duration // before each request
	Hosts          Hosts
	// Alter modifies a forwarded response. It is called concurrently. Defaults to none.
	Alter func(*http.Response)
	// ConnectPorts lists the ports that CONNECT may use. Defaults to all.
	ConnectPorts []string
}

// A Proxy is a running proxy. Stop it with Close.
type Proxy struct {
	Options
	URL *url.URL // the proxy URL, with credentials

	listener  net.Listener
	server    *http.Server // of the HTTP kinds
	transport *http.Transport
	ctx       context.Context // done after Close
	cancel    context.CancelFunc
	tasks     sync.WaitGroup
	requests  atomic.Int64
	rotation  atomic.Int64

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]struct{}
	closed bool
	replay []byte
}

// Start starts a proxy on a free port of 127.0.0.1.
func Start(o Options) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a %s proxy: %w", o.Kind, err)
	}
	p := &Proxy{Options: o, listener: l, conns: map[net.Conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.URL = &url.URL{Scheme: "http", Host: l.Addr().String()}
	switch o.Kind {
	case SOCKS5, SOCKS4, SOCKS4A:
		p.URL.Scheme = string(o.Kind)
	case OverTLS:
		p.URL.Scheme = "https"
	case Slow:
		p.Delay = cmp.Or(p.Delay, 400*time.Millisecond)
	case OwnNetwork:
		p.Exit = netip.MustParseAddr("127.0.0.1")
	case Dead: // the listener reserves the port on 127.0.0.1 only, so that it is closed on 127.0.0.2
		p.URL.Host = strings.Replace(p.URL.Host, "127.0.0.1", "127.0.0.2", 1)
	}
	if o.User != "" {
		p.URL.User = url.UserPassword(o.User, o.Password)
	}

	var serve func(net.Conn)
	switch o.Kind {
	case SOCKS5:
		serve = p.socks5
	case SOCKS4, SOCKS4A:
		serve = p.socks4
	case Silent:
		serve = func(net.Conn) { <-p.ctx.Done() }
	case Dead:
		serve = func(net.Conn) {}
	case HangsUp, HalfResponse, Noise, Endless, Huge, Dribble, Replays:
		serve = p.misbehave
	}
	if serve != nil {
		p.tasks.Go(func() { p.accept(serve) })
		return p, nil
	}

	p.transport = &http.Transport{DialContext: p.dialTarget, DisableCompression: true, MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 1 << 20, DisableKeepAlives: o.Kind == Rotating}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serveHTTP), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	if o.Kind == OverTLS {
		cert, err := certificate()
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("generate certificate: %w", err)
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	p.tasks.Go(func() { _ = p.server.Serve(l) })
	return p, nil
}

// Requests returns the number of requests and tunnels received.
func (p *Proxy) Requests() int64 { return p.requests.Load() }

// Close stops the proxy, closes its connections and waits for its goroutines.
func (p *Proxy) Close() {
	p.cancel()
	p.listener.Close()
	if p.server != nil {
		p.server.Close()
		p.transport.CloseIdleConnections()
	}
	p.mu.Lock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

func (p *Proxy) accept(serve func(net.Conn)) {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(5 * time.Millisecond) // out of file descriptors; wait until some are released
			continue
		}
		if !p.hold(conn) {
			return
		}
		p.tasks.Go(func() {
			defer p.drop(conn)
			serve(conn)
		})
	}
}

// hold registers conn to be closed by Close. It returns false after Close.
func (p *Proxy) hold(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Proxy) drop(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// dialTarget connects to addr from the exit address of the proxy.
func (p *Proxy) dialTarget(ctx context.Context, _, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: time.Minute}
	exit := p.Exit
	if p.Kind == Rotating {
		exit = netip.AddrFrom4([4]byte{127, 200, byte(1 + p.rotation.Add(1)%250), 1})
	}
	addr = p.Hosts.resolve(addr)
	if host, _, _ := net.SplitHostPort(addr); exit.IsValid() && !strings.Contains(host, ":") {
		dialer.LocalAddr = &net.TCPAddr{IP: exit.AsSlice()}
	}
	return dialer.DialContext(ctx, "tcp", addr)
}

// pause counts a request and waits for the delay. It returns false if the proxy is closed meanwhile.
func (p *Proxy) pause() bool {
	p.requests.Add(1)
	if p.Delay == 0 {
		return true
	}
	select {
	case <-time.After(p.Delay):
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *Proxy) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.pause() {
		return
	}
	if p.User != "" || p.Kind == WantsAuth {
		want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.User+":"+p.Password))
		if r.Header.Get("Proxy-Authorization") != want || p.Kind == WantsAuth {
			w.Header().Set("Proxy-Authenticate", `Basic realm="proxytest"`)
			http.Error(w, "authentication required", http.StatusProxyAuthRequired)
			return
		}
	}
	switch p.Kind {
	case Parking:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><title>Welcome to nginx!</title>This domain is for sale.</html>")
	case Redirecting:
		http.Redirect(w, r, "http://"+p.URL.Host+"/again", http.StatusFound)
	case Forbidding:
		http.Error(w, "forbidden", http.StatusForbidden)
	case BadGateway:
		w.Header().Set("Via", "1.1 proxytest")
		http.Error(w, "bad gateway", http.StatusBadGateway)
	default:
		if r.Method == http.MethodConnect {
			p.connect(w, r)
		} else {
			p.forward(w, r)
		}
	}
}

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	if !r.URL.IsAbs() || p.Kind == ConnectOnly {
		http.Error(w, "use CONNECT", http.StatusBadRequest)
		return
	}
	proxy := httputil.ReverseProxy{Transport: p.transport, Rewrite: p.addHeaders, ModifyResponse: p.alter, ErrorLog: p.server.ErrorLog,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Proxy-Status", "proxytest; error=connection_refused")
			http.Error(w, "target unreachable", http.StatusBadGateway)
		}}
	proxy.ServeHTTP(w, r)
}

func (p *Proxy) addHeaders(r *httputil.ProxyRequest) {
	if p.Kind == Transparent {
		client, _, _ := net.SplitHostPort(r.In.RemoteAddr)
		r.Out.Header.Set("X-Forwarded-For", client)
	}
	if p.Kind == Transparent || p.Kind == Anonymous {
		r.Out.Header.Add("Via", "1.1 proxytest")
	}
}

func (p *Proxy) alter(response *http.Response) error {
	if p.Alter != nil {
		p.Alter(response)
	}
	if p.Kind != Injector || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(strings.NewReader(strings.Replace(string(body), "</body>", `<script src="//ads.example/a.js"></script></body>`, 1)))
	response.Header.Del("Content-Length")
	return err
}

func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	if p.Kind == ForwardOnly {
		http.Error(w, "CONNECT is not supported", http.StatusMethodNotAllowed)
		return
	}
	if _, port, _ := net.SplitHostPort(r.Host); p.ConnectPorts != nil && !slices.Contains(p.ConnectPorts, port) {
		http.Error(w, "port not allowed", http.StatusForbidden)
		return
	}
	target, err := p.dialTarget(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, "target unreachable", http.StatusBadGateway)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		target.Close()
		return
	}
	if !p.hold(client) || !p.hold(target) {
		client.Close()
		target.Close()
		return
	}
	p.tasks.Go(func() {
		defer p.drop(client)
		defer p.drop(target)
		if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			return
		}
		if p.Kind == MITM {
			p.intercept(client, buffered.Reader, target)
			return
		}
		relay(client, buffered.Reader, target)
	})
}

// intercept relays TLS connections with TLS on both sides and the plain text in between.
func (p *Proxy) intercept(client net.Conn, from *bufio.Reader, target net.Conn) {
	first, err := from.Peek(1)
	if err != nil {
		return
	}
	if first[0] != 0x16 {
		relay(client, from, target)
		return
	}
	cert, err := certificate()
	if err != nil {
		return
	}
	inner := tls.Server(&readFrom{client, from}, &tls.Config{Certificates: []tls.Certificate{cert}})
	outer := tls.Client(target, &tls.Config{InsecureSkipVerify: true})
	if inner.HandshakeContext(p.ctx) == nil && outer.HandshakeContext(p.ctx) == nil {
		relay(inner, inner, outer)
	}
}

// readFrom is a connection with buffered initial bytes.
type readFrom struct {
	net.Conn
	from io.Reader
}

func (c *readFrom) Read(b []byte) (int, error) { return c.from.Read(b) }

// relay copies data in both directions until one side is closed.
func relay(client net.Conn, from io.Reader, target net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(target, from)
		if half, ok := target.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, _ = io.Copy(client, target)
	client.Close()
	target.Close()
	<-done
}
