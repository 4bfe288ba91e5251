package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"muster/proxies"
	"muster/proxies/tunnel"
)

const (
	headTimeout = 20 * time.Second // for the head of a request, from its first byte
	headBytes   = 64 << 10         // of it
	flushAfter  = 5 * time.Millisecond
	watchAfter  = 250 * time.Millisecond
)

// errHead is what reading a head ends with that has no end.
var errHead = errors.New("head of more than 64 KiB")

// headLimit ends a read of too long a head, when it is armed.
type headLimit struct {
	net.Conn
	armed bool
	left  int
}

func (l *headLimit) arm() { l.armed, l.left = true, headBytes }

func (l *headLimit) Read(b []byte) (int, error) {
	if l.armed && l.left <= 0 {
		return 0, errHead
	}
	n, err := l.Conn.Read(b)
	l.left -= n
	return n, err
}

// web serves a client that speaks HTTP/1, one request after the other. The parsing is that of net/http; its server is
// not used, for it costs three times as much here: it starts a goroutine for each request and writes bodies in pieces
// of 4 KiB.
func (g *Gateway) web(ctx context.Context, c *client) {
	out := writers.Get().(*bufio.Writer)
	defer writers.Put(out)
	idle := &idleTimer{after: g.cfg.Idle, conns: []net.Conn{c.Conn}}
	out.Reset(idle.writer(c.Conn))
	defer out.Reset(nil)
	for {
		_ = c.SetDeadline(time.Now().Add(g.cfg.Idle))
		if _, err := c.in.Peek(1); err != nil {
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(headTimeout))
		c.limit.arm()
		head, _ := c.in.Peek(c.in.Buffered())
		framedOnce := hasNoLength(head)
		r, err := http.ReadRequest(c.in)
		c.limit.armed = false
		if err != nil {
			switch timeout, badURL := net.Error(nil), (*url.Error)(nil); {
			case errors.Is(err, errHead):
				_ = answer(out, nil, http.StatusRequestHeaderFieldsTooLarge, nil, err.Error())
			case errors.As(err, &badURL): // which repeats the URL, with a password that may be in it
				_ = answer(out, nil, http.StatusBadRequest, nil, "the URL of the request cannot be read")
			case errors.As(err, &timeout), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			default:
				_ = answer(out, nil, http.StatusBadRequest, nil, err.Error())
			}
			c.linger()
			return
		}
		if r.ProtoMajor != 1 {
			_ = answer(out, nil, http.StatusHTTPVersionNotSupported, nil, "this speaks HTTP/1.1, not "+r.Proto)
			c.linger()
			return
		}
		// A request with both a length and chunks may be two to whoever passed it on; ReadRequest hides the length.
		r.Close = r.Close || len(r.TransferEncoding) > 0 && !framedOnce
		_ = c.SetReadDeadline(time.Time{})
		if !g.serve(ctx, c, out, r) {
			c.linger()
			return
		}
	}
}

// hasNoLength reports whether head holds the whole head of a request, and no Content-Length.
func hasNoLength(head []byte) bool {
	end := bytes.Index(head, []byte("\r\n\r\n"))
	return end >= 0 && !bytes.Contains(bytes.ToLower(head[:end]), []byte("\ncontent-length:"))
}

// linger takes what the client is still sending: a connection closed with bytes unread is reset, and the client may
// never see the answer.
func (c *client) linger() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	_, _ = io.CopyN(io.Discard, c, 256<<10)
}

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 32<<10) }}

// serve answers a request. It returns false when the connection is not to be used for another one.
func (g *Gateway) serve(ctx context.Context, c *client, out *bufio.Writer, r *http.Request) (again bool) {
	var user, password string
	if scheme, text, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " "); strings.EqualFold(scheme, "Basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil {
			user, password, _ = strings.Cut(string(plain), ":")
		}
	}
	options, err := g.authorized(user, password)
	switch {
	case err != nil:
		return answer(out, r, http.StatusProxyAuthRequired, http.Header{"Proxy-Authenticate": {`Basic realm="muster"`}}, err.Error())
	case r.Method == http.MethodConnect:
		return g.connect(ctx, c, out, r, options)
	case !r.URL.IsAbs() || r.URL.Scheme != "http":
		return answer(out, r, http.StatusBadRequest, nil, "this is a proxy; ask it for http://… or CONNECT")
	}
	return g.forward(ctx, c, out, r, options)
}

// answer is the gateway's own word on r, which is nil when it could not be read.
func answer(out *bufio.Writer, r *http.Request, status int, header http.Header, text string) (again bool) {
	text = "muster: " + text + "\n"
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	again = r != nil && !r.Close && r.Body == http.NoBody // a body that nobody has read is in the way
	response := &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Close: !again, Request: r,
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}
	return response.Write(out) == nil && out.Flush() == nil && again
}

// fail answers for the pool when no proxy did.
func (g *Gateway) fail(out *bufio.Writer, r *http.Request, err error) (again bool) {
	status, kind := http.StatusBadGateway, "destination_unavailable"
	if errors.Is(err, proxies.ErrNoProxy) {
		g.noProxy.Add(1)
		status, kind = http.StatusServiceUnavailable, "proxy_unavailable"
	} else {
		g.failed.Add(1)
	}
	return answer(out, r, status, http.Header{"Proxy-Status": {"muster; error=" + kind}}, err.Error())
}

func (g *Gateway) connect(ctx context.Context, c *client, out *bufio.Writer, r *http.Request, options proxies.PickOptions) (again bool) {
	if err := tunnel.CheckTarget(r.Host); err != nil {
		return answer(out, r, http.StatusBadRequest, nil, err.Error())
	}
	g.tunnels.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := c.watch(cancel)
	target, err := g.dial(ctx, r.Host, options)
	enough()
	if err != nil {
		return g.fail(out, r, err)
	}
	defer target.Close()
	defer context.AfterFunc(ctx, func() { target.Close() })()
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		g.relay(c, c, target)
	}
	return false
}

// hopHeaders are for the next hop alone.
var hopHeaders = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func dropHops(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopHeaders {
		delete(h, name)
	}
}

func (g *Gateway) forward(ctx context.Context, c *client, out *bufio.Writer, r *http.Request, options proxies.PickOptions) (again bool) {
	if err := tunnel.CheckTarget(net.JoinHostPort(r.URL.Hostname(), cmp.Or(r.URL.Port(), "80"))); err != nil {
		return answer(out, r, http.StatusBadRequest, nil, err.Error())
	}
	g.requests.Add(1)
	again = !r.Close && r.ProtoAtLeast(1, 1)
	expects := strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	dropHops(r.Header)
	r.Header.Del("Expect")
	r.RequestURI, r.Close = "", false
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // or the transport would add its own
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	upload, enough := (*upload)(nil), func() {}
	if r.Body == http.NoBody || r.ContentLength == 0 {
		r.Body = http.NoBody
		enough = c.watch(cancel)
	} else {
		upload = newUpload(c, r, expects, g.cfg.Idle)
		r.Body = upload
	}
	transport := g.cfg.Pool.Transport(siteOf(r.URL.Host), proxies.TransportOptions{PickOptions: options, Tries: g.cfg.Tries, Fallback: g.cfg.Fallback, Direct: g.direct, KeepEncoding: true})
	response, err := transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		enough()
		again = g.fail(out, r, err)
		return again && upload == nil
	}
	defer response.Body.Close()
	dropHops(response.Header)
	if g.cfg.ShowProxy {
		if used, ok := proxies.Used(response); ok {
			response.Header.Set("X-Proxy-Id", used.ID)
		}
	}
	response.ProtoMajor, response.ProtoMinor, response.Request = 1, 1, r
	response.TransferEncoding = nil
	switch {
	case response.ContentLength >= 0:
	case r.ProtoAtLeast(1, 1):
		response.TransferEncoding = []string{"chunked"}
	default:
		again = false // the end of the connection is the end of the body
	}
	// The rest of a body that is still coming would be taken for the next request.
	again = again && (upload == nil || upload.ended())
	response.Close = !again
	soon := &lateWriter{out: out}
	err = response.Write(soon) // a body that breaks off breaks the connection off: none takes half of it for the whole
	enough()
	return soon.stop() == nil && err == nil && again
}

// watch calls gone when the client goes away before enough is called. Nothing else may read from the client meanwhile.
func (c *client) watch(gone func()) (enough func()) {
	ended := make(chan struct{})
	timer := time.AfterFunc(watchAfter, func() { // most are answered by then
		defer close(ended)
		_, err := c.in.Peek(1)
		if timeout := net.Error(nil); err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
			gone()
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		select {
		case <-ended: // or called for the second time
			return
		default:
		}
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-ended
		_ = c.SetReadDeadline(time.Time{})
	}
}

// upload is the body of a request on its way from the client.
type upload struct {
	io.ReadCloser
	client  *client
	idle    time.Duration
	expects bool // 100 Continue, before the first byte

	mu   sync.Mutex // guards done
	done bool
}

func newUpload(c *client, r *http.Request, expects bool, idle time.Duration) *upload {
	return &upload{ReadCloser: r.Body, client: c, idle: idle, expects: expects}
}

func (u *upload) Read(b []byte) (int, error) {
	if u.expects {
		u.expects = false
		if _, err := io.WriteString(u.client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	_ = u.client.SetReadDeadline(time.Now().Add(u.idle))
	n, err := u.ReadCloser.Read(b)
	if err == io.EOF {
		u.mu.Lock()
		u.done = true
		u.mu.Unlock()
	}
	return n, err
}

// Close does not read the rest, as that of net/http would.
func (u *upload) Close() error { return nil }

// ended tells whether all of it has been read.
func (u *upload) ended() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.done
}

// lateWriter writes to out and flushes it flushAfter later: an answer goes out in as few packets as it can, and a
// stream of events does not wait for a buffer to fill.
type lateWriter struct {
	mu      sync.Mutex // guards the fields below
	out     *bufio.Writer
	timer   *time.Timer
	pending bool
	done    bool
}

func (w *lateWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arm()
	return w.out.Write(b)
}

// WriteString spares net/http a copy of each header.
func (w *lateWriter) WriteString(s string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arm()
	return w.out.WriteString(s)
}

func (w *lateWriter) arm() {
	switch {
	case w.pending:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(flushAfter, w.flush)
	default:
		w.timer.Reset(flushAfter)
	}
	w.pending = true
}

func (w *lateWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending && !w.done {
		w.pending = false
		_ = w.out.Flush() // the writer keeps its error
	}
}

// stop flushes what is left. The writer below is the caller's again after it.
func (w *lateWriter) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.out.Flush()
}
