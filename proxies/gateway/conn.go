package gateway

import (
	"context"
	"net"
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
