package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"muster/proxies"
	"muster/proxies/tunnel"
)

// Constants of RFC 1928.
const (
	socksOK              = 0
	socksFailure         = 1
	socksUnreachable     = 4
	socksNoSuchCommand   = 7
	socksNoSuchAddress   = 8
	socksNoAuth          = 0x00 // authentication methods
	socksUserAndPassword = 0x02
	socksNoMethod        = 0xff
)

// errSOCKS aborts the handshake with a client that violates the protocol or disconnects.
var errSOCKS = errors.New("bad SOCKS5 client")

// socks serves one SOCKS5 client (RFC 1928). Only CONNECT is supported, with a user name and password if the client
// offers them. SOCKS4 clients are rejected, because the protocol has no field for a key.
func (g *Gateway) socks(ctx context.Context, c *clientConn) {
	var version [1]byte
	if _, err := io.ReadFull(c, version[:]); err != nil {
		return
	}
	if version[0] == 4 {
		_, _ = c.Write([]byte{0, 91, 0, 0, 0, 0, 0, 0}) // request rejected
		return
	}
	options, err := g.socksAuth(c, clientOf(c.RemoteAddr().String()))
	if err != nil {
		return
	}
	addr, code := readTarget(c)
	if code == socksOK && tunnel.CheckTarget(addr) != nil {
		code = socksUnreachable // by any proxy
	}
	if code != socksOK {
		_ = reply(c, code)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	g.tunnels.Add(1)
	target, err := g.dial(ctx, addr, options)
	if err != nil {
		_ = reply(c, g.socksFailed(err))
		return
	}
	defer target.Close()
	if reply(c, socksOK) == nil {
		g.relay(ctx, c, c, target)
	}
}

// socksAuth negotiates the authentication method and reads the user name and password.
func (g *Gateway) socksAuth(c net.Conn, client string) (proxies.PickOptions, error) {
	methods, err := tunnel.ReadShort(c)
	if err != nil {
		return proxies.PickOptions{}, err
	}
	method := byte(socksNoMethod)
	switch {
	case strings.IndexByte(methods, socksUserAndPassword) >= 0:
		method = socksUserAndPassword
	case strings.IndexByte(methods, socksNoAuth) >= 0 && !g.logins.required():
		method = socksNoAuth
	default:
		g.refused.Add(1)
	}
	if _, err := c.Write([]byte{5, method}); err != nil || method == socksNoMethod {
		return proxies.PickOptions{}, errSOCKS
	}
	if method == socksNoAuth {
		return g.authorize(client, "", "")
	}
	var version [1]byte // of RFC 1929
	if _, err := io.ReadFull(c, version[:]); err != nil || version[0] != 1 {
		return proxies.PickOptions{}, errSOCKS
	}
	user, err := tunnel.ReadShort(c)
	if err != nil {
		return proxies.PickOptions{}, err
	}
	password, err := tunnel.ReadShort(c)
	if err != nil {
		return proxies.PickOptions{}, err
	}
	options, err := g.authorize(client, user, password)
	status := byte(0)
	if err != nil {
		status = 1
	}
	_, werr := c.Write([]byte{1, status})
	return options, errors.Join(err, werr)
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

func reply(c net.Conn, code byte) error {
	_, err := c.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
	return err
}

// readTarget reads a request. code is the reply for an unsupported request.
func readTarget(c net.Conn) (addr string, code byte) {
	var head [3]byte // version, command, reserved
	if _, err := io.ReadFull(c, head[:]); err != nil || head[0] != 5 {
		return "", socksFailure
	}
	if head[1] != 1 {
		return "", socksNoSuchCommand
	}
	addr, err := tunnel.ReadAddress(c)
	switch {
	case tunnel.ReasonOf(err) == tunnel.Garbage:
		return "", socksNoSuchAddress
	case err != nil:
		return "", socksFailure
	}
	return addr, socksOK
}
