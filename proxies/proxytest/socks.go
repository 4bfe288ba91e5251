package proxytest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"

	"muster/proxies/tunnel"
)

func (p *Proxy) socks5(conn net.Conn) {
	in := bufio.NewReader(conn)
	if _, err := in.Peek(1); err != nil || !p.pause() {
		return
	}
	addr, err := tunnel.AcceptSOCKS5(&readFrom{conn, in}, p.User != "", func(user, password string) error {
		if p.User != "" && (user != p.User || password != p.Password) {
			return errors.New("wrong credentials")
		}
		return nil
	})
	if err != nil {
		return
	}
	target, err := p.dialTarget(p.ctx, "tcp", addr)
	if err != nil {
		_ = tunnel.ReplySOCKS5(conn, 5)
		return
	}
	p.connected(conn, in, target, []byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
}

// connected sends the success reply to the client and relays.
func (p *Proxy) connected(conn net.Conn, in *bufio.Reader, target net.Conn, reply []byte) {
	if !p.hold(target) {
		return
	}
	defer p.drop(target)
	if _, err := conn.Write(reply); err == nil {
		relay(conn, in, target)
	}
}

func (p *Proxy) socks4(conn net.Conn) {
	in := bufio.NewReader(conn)
	var head [8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || head[0] != 4 || head[1] != 1 {
		return
	}
	user, err := in.ReadString(0)
	if err != nil || len(user) > 256 || !p.pause() {
		return
	}
	host := netip.AddrFrom4([4]byte(head[4:8])).String()
	if head[4] == 0 && head[5] == 0 && head[6] == 0 && head[7] != 0 {
		name, err := in.ReadString(0)
		if err != nil || len(name) > 256 {
			return
		}
		if p.Kind == SOCKS4 { // does not support 4a and treats 0.0.0.x as an unreachable address
			_, _ = conn.Write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0})
			return
		}
		host = name[:len(name)-1]
	}
	port := strconv.Itoa(int(binary.BigEndian.Uint16(head[2:4])))
	target, err := p.dialTarget(p.ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		_, _ = conn.Write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0})
		return
	}
	p.connected(conn, in, target, []byte{0, 0x5a, 0, 0, 0, 0, 0, 0})
}
