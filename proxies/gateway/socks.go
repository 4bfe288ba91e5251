package gateway

import (
	"context"
	"errors"
	"time"

	"muster/proxies"
	"muster/proxies/tunnel"
)

// Replies of RFC 1928.
const (
	socksOK          = 0
	socksFailure     = 1
	socksUnreachable = 4
)

// socks serves one SOCKS5 client.
func (g *Gateway) socks(ctx context.Context, c *clientConn) {
	var options proxies.PickOptions
	addr, err := tunnel.AcceptSOCKS5(c, g.logins.required(), func(user, password string) (err error) {
		options, err = g.authorize(clientOf(c.RemoteAddr().String()), user, password)
		return err
	})
	if err != nil {
		if tunnel.ReasonOf(err) == tunnel.AuthRequired {
			g.refused.Add(1)
		}
		return
	}
	if tunnel.CheckTarget(addr) != nil { // by any proxy
		_ = tunnel.ReplySOCKS5(c, socksUnreachable)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	g.tunnels.Add(1)
	target, err := g.dial(ctx, addr, options)
	if err != nil {
		_ = tunnel.ReplySOCKS5(c, g.socksFailed(err))
		return
	}
	defer target.Close()
	if tunnel.ReplySOCKS5(c, socksOK) == nil {
		g.relay(ctx, c, c, target)
	}
}

// socksFailed counts a failed tunnel and returns the reply code for err.
func (g *Gateway) socksFailed(err error) byte {
	if errors.Is(err, proxies.ErrNoProxy) {
		g.noProxy.Add(1)
		return socksFailure
	}
	g.failed.Add(1)
	if tunnel.ReasonOf(err) == tunnel.Upstream {
		return socksUnreachable
	}
	return socksFailure
}
