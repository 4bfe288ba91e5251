package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"muster/proxies"
	"muster/proxies/tunnel"
)

// socks5 serves one client of RFC 1928: CONNECT alone, with user and password whenever the client offers them.
func (g *Gateway) socks5(ctx context.Context, c *client) {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return
	}
	method := byte(0xff)
	for _, m := range methods {
		if m == 2 || m == 0 && method == 0xff && len(g.cfg.Keys) == 0 {
			method = m
		}
	}
	if _, err := c.Write([]byte{5, method}); err != nil || method == 0xff {
		if method == 0xff {
			g.refused.Add(1)
		}
		return
	}
	var user, password string
	if method == 2 {
		var version [1]byte
		if _, err := io.ReadFull(c, version[:]); err != nil || version[0] != 1 {
			return
		}
		var err error
		if user, err = readShort(c); err != nil {
			return
		}
		if password, err = readShort(c); err != nil {
			return
		}
	}
	options, err := g.authorized(user, password)
	if method == 2 {
		status := byte(0)
		if err != nil {
			status = 1
		}
		if _, werr := c.Write([]byte{1, status}); werr != nil {
			return
		}
	}
	if err != nil {
		return
	}

	addr, code := readTarget(c)
	if code == 0 && tunnel.CheckTarget(addr) != nil {
		code = 4 // host unreachable: by any proxy
	}
	if code != 0 {
		reply(c, code)
		return
	}
	g.tunnels.Add(1)
	target, err := g.dial(ctx, addr, options)
	if err != nil {
		switch {
		case errors.Is(err, proxies.ErrNoProxy):
			g.noProxy.Add(1)
			reply(c, 1)
		case tunnel.ReasonOf(err) == tunnel.Upstream:
			g.failed.Add(1)
			reply(c, 4)
		default:
			g.failed.Add(1)
			reply(c, 1)
		}
		return
	}
	defer target.Close()
	stop := context.AfterFunc(ctx, func() { target.Close() })
	defer stop()
	_ = c.SetReadDeadline(time.Time{})
	if !reply(c, 0) {
		return
	}
	g.relay(c, c, target)
}

func reply(c net.Conn, code byte) bool {
	_, err := c.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
	return err == nil
}

func readShort(r io.Reader) (string, error) {
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", err
	}
	text := make([]byte, length[0])
	_, err := io.ReadFull(r, text)
	return string(text), err
}

// readTarget reads a request; code is what to answer when it cannot be served.
func readTarget(c net.Conn) (addr string, code byte) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil || head[0] != 5 {
		return "", 1
	}
	if head[1] != 1 {
		return "", 7
	}
	var host string
	switch head[3] {
	case 1, 4:
		raw := make([]byte, 4)
		if head[3] == 4 {
			raw = make([]byte, 16)
		}
		if _, err := io.ReadFull(c, raw); err != nil {
			return "", 1
		}
		ip, _ := netip.AddrFromSlice(raw)
		host = ip.Unmap().String()
	case 3:
		name, err := readShort(c)
		if err != nil || name == "" {
			return "", 1
		}
		host = name
	default:
		return "", 8
	}
	var port [2]byte
	if _, err := io.ReadFull(c, port[:]); err != nil {
		return "", 1
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), 0
}
