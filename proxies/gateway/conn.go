package gateway

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// clientConn is a client connection. A write times out if the client does not read for idle.
type clientConn struct {
	net.Conn
	idle  time.Duration
	first []byte // bytes read to detect the protocol; the next Read returns them
	ended func() // called once, by end
}

func (c *clientConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *clientConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.idle))
	return c.Conn.Write(b)
}

// CloseWrite closes the writing side.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// end closes the connection and releases its slot. It is called once, by the goroutine that serves the connection.
func (c *clientConn) end() {
	c.Close()
	c.ended()
}

// webListener passes HTTP connections to an http.Server until ctx is done.
type webListener struct {
	ctx   context.Context
	addr  net.Addr
	conns chan net.Conn
}

// Accept implements net.Listener.
func (l *webListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (l *webListener) Addr() net.Addr { return l.addr }

// Close implements net.Listener. It does nothing: ctx stops the listener.
func (l *webListener) Close() error { return nil }

// relay copies data between a client and a target until both sides are closed, no data has been copied for
// Config.Idle, or ctx is done. from is the reader of the client's data.
func (g *Gateway) relay(ctx context.Context, client *clientConn, from io.Reader, target net.Conn) {
	stop := context.AfterFunc(ctx, func() { target.Close() })
	defer stop()
	idle := &idleTimer{after: g.cfg.Idle, conns: []net.Conn{client.Conn, target}}
	idle.touch()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(idle.writer(target), from)
		if half, ok := target.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	_, _ = io.Copy(idle.writer(client.Conn), target)
	_ = client.CloseWrite()
	// Targets that have closed their side ignore further data in all protocols used through proxies.
	_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
	group.Wait()
}

// idleTimer extends the deadlines of a relay on each transfer, at most once per second.
type idleTimer struct {
	after time.Duration
	conns []net.Conn
	last  atomic.Int64 // Unix time of the last touch in nanoseconds
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

func (t *idleTimer) writer(w io.Writer) io.Writer { return &idleWriter{w, t} }

// idleWriter touches its timer on each write.
type idleWriter struct {
	io.Writer
	timer *idleTimer
}

func (w *idleWriter) Write(b []byte) (int, error) {
	w.timer.touch()
	return w.Writer.Write(b)
}
