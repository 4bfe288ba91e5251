package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/proxies"
	"muster/proxies/tunnel"
)

const (
	headTimeout   = 20 * time.Second // for reading a request head
	headBytes     = 64 << 10         // approximate limit of a request head
	flushInterval = 5 * time.Millisecond
	// lingerTimeout limits how long the gateway reads from a client before it closes the connection. Closing it with
	// unread data sends a reset, and the client may lose the response.
	lingerTimeout = 500 * time.Millisecond
)

// webServer returns the server for HTTP clients. ctx is the base context of all requests.
func (g *Gateway) webServer(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:                      http.HandlerFunc(g.serveHTTP),
		ReadHeaderTimeout:            headTimeout,
		IdleTimeout:                  g.cfg.Idle,
		MaxHeaderBytes:               headBytes,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ErrorLog:                     slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateClosed { // not called for a connection hijacked by connect
				c.(*clientConn).end()
			}
		},
	}
}

func (g *Gateway) serveHTTP(w http.ResponseWriter, r *http.Request) {
	user, password := credentials(r)
	options, err := g.authorize(clientOf(r.RemoteAddr), user, password)
	blocked, isBlocked := errors.AsType[*blockedError](err)
	switch {
	case isBlocked:
		w.Header().Set("Retry-After", strconv.Itoa(int(blocked.after/time.Second)+1))
		respond(w, r, http.StatusTooManyRequests, err.Error())
	case err != nil:
		w.Header().Set("Proxy-Authenticate", `Basic realm="muster"`)
		respond(w, r, http.StatusProxyAuthRequired, err.Error())
	case r.Method == http.MethodConnect:
		g.connect(w, r, options)
	case !r.URL.IsAbs() || r.URL.Scheme != "http":
		respond(w, r, http.StatusBadRequest, "this is a proxy; send requests with an http:// URL or CONNECT")
	default:
		g.forward(w, r, options)
	}
}

// credentials returns the user name and password of a request, or empty strings.
func credentials(r *http.Request) (user, password string) {
	one := strings.Join(strings.Fields(r.Header.Get("Proxy-Authorization")), " ")
	user, password, _ = (&http.Request{Header: http.Header{"Authorization": {one}}}).BasicAuth()
	return user, password
}

// connect opens a tunnel for a client and hijacks its connection.
func (g *Gateway) connect(w http.ResponseWriter, r *http.Request, options proxies.PickOptions) {
	if err := tunnel.CheckTarget(r.Host); err != nil {
		respond(w, r, http.StatusBadRequest, err.Error())
		return
	}
	g.tunnels.Add(1)
	target, err := g.dial(r.Context(), r.Host, options)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	defer target.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		g.cfg.Logger.Error("cannot hijack a connection for a tunnel", "err", err)
		return
	}
	client := conn.(*clientConn)
	defer client.end()
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // clients may send data before the tunnel is open
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		g.relay(r.Context(), client, io.MultiReader(bytes.NewReader(early), client), target)
	}
}

// forward sends a request in absolute form through proxies of the pool.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, options proxies.PickOptions) {
	if err := tunnel.CheckTarget(tunnel.AddressOf(r.URL)); err != nil {
		respond(w, r, http.StatusBadRequest, err.Error())
		return
	}
	g.requests.Add(1)
	r.Header.Del("Upgrade") // clients use a tunnel for other protocols
	var sent *upload
	if r.ContentLength != 0 {
		sent = newUpload(w, r, g.cfg.Idle)
		r.Body = sent
		defer sent.linger()
	}
	proxy := httputil.ReverseProxy{
		Transport: g.cfg.Pool.Transport(siteOf(r.URL.Host), proxies.TransportOptions{PickOptions: options, Tries: g.cfg.Tries, Fallback: g.cfg.Fallback, Direct: g.direct, KeepEncoding: true}),
		Rewrite:   rewrite,
		ModifyResponse: func(response *http.Response) error {
			w.Header()["Content-Type"] = nil // prevents content sniffing by the server
			// The rest of an unfinished body would be parsed as the next request. A request with both Content-Length
			// and chunked encoding may be interpreted differently by an upstream server (RFC 9112, section 6.1).
			// net/http hides the length, so every chunked request closes the connection.
			if sent != nil && !sent.done.Load() || len(r.TransferEncoding) > 0 {
				w.Header().Set("Connection", "close")
			}
			return nil
		},
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { g.fail(w, r, err) },
		FlushInterval: flushInterval,
		BufferPool:    &buffers,
		ErrorLog:      slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
}

// rewrite restores the parts of a request that ReverseProxy modifies, except for hop-by-hop headers.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	r.Out.Header.Del("Expect") // the server sends 100 Continue when the body is read
}

// fail sends the error response for err.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, proxies.ErrNoProxy) {
		g.noProxy.Add(1)
		w.Header().Set("Proxy-Status", "muster; error=proxy_unavailable")
		respond(w, r, http.StatusServiceUnavailable, err.Error())
		return
	}
	g.failed.Add(1)
	w.Header().Set("Proxy-Status", "muster; error=destination_unavailable")
	respond(w, r, http.StatusBadGateway, err.Error())
}

// respond sends a response of the gateway itself. It closes a connection with a possibly unread body.
func respond(w http.ResponseWriter, r *http.Request, status int, text string) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "muster: "+text+"\n")
}

// upload is a request body. Reads time out if no data arrives for idle.
type upload struct {
	io.ReadCloser
	control *http.ResponseController
	idle    time.Duration
	done    atomic.Bool // the body has been read completely
}

func newUpload(w http.ResponseWriter, r *http.Request, idle time.Duration) *upload {
	u := &upload{ReadCloser: r.Body, control: http.NewResponseController(w), idle: idle}
	_ = u.control.EnableFullDuplex() // a response may precede the end of the body
	return u
}

func (u *upload) Read(b []byte) (int, error) {
	_ = u.control.SetReadDeadline(time.Now().Add(u.idle))
	n, err := u.ReadCloser.Read(b)
	if err == io.EOF {
		u.done.Store(true)
		_ = u.control.SetReadDeadline(time.Time{}) // from now on the server monitors the connection
	}
	return n, err
}

// linger flushes the response and drains an unread body with a timeout, which the server would do without one.
func (u *upload) linger() {
	if u.done.Load() {
		return
	}
	_ = u.control.Flush()
	_ = u.control.SetReadDeadline(time.Now().Add(lingerTimeout))
	_ = u.Close()
}

// buffers holds the copy buffers of ReverseProxy.
var buffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

type bufferPool struct{ sync.Pool }

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte { return p.Pool.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }
