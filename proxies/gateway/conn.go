package gateway

import (
	"context"
	"net"
	"time"
)

// clientConn is the connection of a client. A write to it ends with a time-out when the client takes nothing for idle.
type clientConn struct {
	net.Conn
	idle  time.Duration
	first []byte // what was read to tell the protocol; the next Read returns it
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

// CloseWrite ends the sending side.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// end closes the connection and frees its place. The goroutine that serves the connection calls it once, at the end.
func (c *clientConn) end() {
	c.Close()
	c.ended()
}

// webListener hands connections that speak HTTP to an http.Server, until ctx is done.
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

// Close implements net.Listener. It does nothing: the end of ctx is the end of the listener.
func (l *webListener) Close() error { return nil }
