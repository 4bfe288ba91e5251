package proxies

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/addressfilter"
	"muster/proxies/tunnel"
)

// DialOptions say how Dial uses the pool.
type DialOptions struct {
	PickOptions // Wait counts with FallbackWait only and defaults to 30 s there
	// Fallback defaults to FallbackFail.
	Fallback Fallback
	// Tries is how many proxies are tried. Defaults to 3.
	Tries int
	// Direct reaches the target with FallbackDirect. Defaults to a net.Dialer that connects to public addresses alone.
	Direct tunnel.DialFunc
}

// Dial opens a tunnel to addr ("host:port") through a proxy of the pool, and tries up to Tries of them. Closing the
// connection ends the lease, as a success when anything was received. The outcome counts for the proxy and addr, not for
// Site, whose health and bans only decide which proxy is picked. The proxy is the zero Proxy when the connection is direct.
func (p *Pool) Dial(ctx context.Context, addr string, o DialOptions) (net.Conn, Proxy, error) {
	if err := tunnel.CheckTarget(addr); err != nil {
		return nil, Proxy{}, err
	}
	a := newAttempts(o.PickOptions, o.Fallback, cmp.Or(o.Tries, defaultTries))
	a.pick.Filter.Connect = true
	a.pick.tunnel = addr
	for a.left > 0 {
		lease, err := p.Pick(ctx, a.next())
		if err != nil {
			a.noProxy(err)
			break
		}
		begun := time.Now()
		conn, err := p.transports.dialer(lease.Proxy).Tunnel(ctx, addr)
		if err == nil {
			for _, s := range a.suspects { // they may still be at fault: some proxies report any tunnel as open
				s.lease.Release()
			}
			return &leasedConn{Conn: conn, lease: lease, latency: time.Since(begun), suspects: a.suspects}, lease.Proxy, nil
		}
		v := ours
		if ctx.Err() != nil {
			lease.Release()
		} else {
			v = blame(lease, err)
		}
		a.fail(lease, v, nil, err)
		if v == ours {
			break
		}
	}
	settle(a.suspects, false)
	if a.goDirectly(a.last) {
		p.transports.warnDirect(o.Site, a.last)
		dial := o.Direct
		if dial == nil {
			dial = (*addressfilter.Filter)(nil).Dial(&net.Dialer{})
		}
		conn, err := dial(ctx, "tcp", addr)
		if err != nil {
			return nil, Proxy{}, fmt.Errorf("connect directly to %s: %w", addr, err)
		}
		return conn, Proxy{}, nil
	}
	return nil, Proxy{}, a.last
}

// leasedConn ends its lease when it is closed.
type leasedConn struct {
	*tunnel.Conn
	lease    *Lease
	latency  time.Duration
	suspects []suspect   // proxies that did not reach the target; their leases have ended
	got      atomic.Bool // something was received
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

// CloseWrite closes the sending side where the connection can.
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
