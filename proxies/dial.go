package proxies

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muster/proxies/tunnel"
)

// Dial opens a tunnel to addr ("host:port") through a proxy of the pool, with up to Tries attempts. Closing the
// connection ends the lease, as a success if data was received. The outcome is recorded for the proxy and addr. Site
// only affects which proxy is picked, by its health and bans. The returned Proxy is zero for a direct connection.
func (p *Pool) Dial(ctx context.Context, addr string, o TransportOptions) (net.Conn, Proxy, error) {
	if err := tunnel.CheckTarget(addr); err != nil {
		return nil, Proxy{}, err
	}
	a := newAttempts(o, cmp.Or(o.Tries, defaultTries))
	a.pick.Filter.Connect = true
	a.pick.tunnel = addr
	for a.triesLeft > 0 {
		lease, err := p.Pick(ctx, a.next())
		if err != nil {
			a.noProxy(err)
			break
		}
		begun := time.Now()
		conn, err := p.transports.dialer(lease.Proxy).Tunnel(ctx, addr)
		if err == nil {
			for _, s := range a.suspects { // they may still have failed: some proxies accept every tunnel
				s.lease.Release()
			}
			return &leasedConn{Conn: conn, lease: lease, latency: time.Since(begun), suspects: a.suspects}, lease.Proxy, nil
		}
		v := verdictLocal
		if ctx.Err() != nil {
			lease.Release()
		} else {
			v = blame(lease, err)
		}
		a.fail(lease, v, nil, err)
		if v == verdictLocal {
			break
		}
	}
	settle(a.suspects, false)
	if a.allowsDirect(a.lastErr) {
		p.transports.warnDirect(o.Site, a.lastErr)
		conn, err := o.Direct.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, Proxy{}, fmt.Errorf("connect directly to %s: %w", addr, err)
		}
		return conn, Proxy{}, nil
	}
	return nil, Proxy{}, a.lastErr
}

// leasedConn is a connection that ends its lease on Close.
type leasedConn struct {
	*tunnel.Conn
	lease    *Lease
	latency  time.Duration
	suspects []suspect   // proxies that failed to reach the target; their leases have ended
	got      atomic.Bool // data was received
	once     sync.Once
}

func (c *leasedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.got.CompareAndSwap(false, true) {
		for _, s := range c.suspects {
			s.lease.reportLate(s.outcome)
		}
	}
	return n, err
}

// CloseWrite closes the writing side if the connection supports it.
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
