package proxies

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muster/proxies/tunnel"
)

// Dial opens a tunnel to addr ("host:port") through a proxy of the pool, and through up to tries of them until one
// stands. Closing the connection gives the proxy back: it counts as a success when anything came through.
func (p *Pool) Dial(ctx context.Context, addr string, o PickOptions, tries int) (net.Conn, Proxy, error) {
	o.Filter.Connect = true
	var suspects []suspect
	var last error
	for try := range max(tries, 1) {
		if try > 0 {
			o.Wait = 0
		}
		lease, err := p.Pick(ctx, o)
		if err != nil {
			if last == nil {
				last = err
			}
			break
		}
		o.Except = append(o.Except[:len(o.Except):len(o.Except)], lease.Proxy.ID)
		dialer := &tunnel.Dialer{Proxy: lease.Proxy.URL(), Dial: p.cfg.Dial, ConnectTimeout: p.cfg.ConnectTimeout, HandshakeTimeout: p.cfg.HandshakeTimeout}
		begun := time.Now()
		conn, err := dialer.Tunnel(ctx, addr)
		if err == nil {
			acquit(suspects, true)
			return &leasedConn{Conn: conn, lease: lease, latency: time.Since(begun)}, lease.Proxy, nil
		}
		last = err
		switch reason := tunnel.ReasonOf(err); {
		case ctx.Err() != nil, reason == tunnel.Local, reason == tunnel.Canceled:
			lease.Release()
			acquit(suspects, false)
			return nil, Proxy{}, err
		case reason == tunnel.Upstream, reason == tunnel.Denied, reason == tunnel.Unsupported:
			suspects = append(suspects, suspect{lease: lease})
		case reason == tunnel.ConnectTimeout, reason == tunnel.Timeout:
			lease.Report(TimedOut, 0)
		default:
			lease.Report(Failed, 0)
		}
	}
	acquit(suspects, false)
	if last == nil {
		last = errors.New("no try")
	}
	return nil, Proxy{}, last
}

// leasedConn gives its proxy back when it is closed.
type leasedConn struct {
	*tunnel.Conn
	lease   *Lease
	latency time.Duration
	got     atomic.Bool // something came through
	once    sync.Once
}

func (c *leasedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.got.Store(true)
	}
	return n, err
}

// CloseWrite ends our side of the conversation where the connection can.
func (c *leasedConn) CloseWrite() error {
	if half, ok := c.Conn.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *leasedConn) Close() error {
	c.once.Do(func() {
		if c.got.Load() {
			c.lease.Report(Succeeded, c.latency)
		} else {
			c.lease.Release()
		}
	})
	return c.Conn.Close()
}
