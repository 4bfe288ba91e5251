package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"muster/internal/addressfilter"
)

// socks5 requests a connection according to RFC 1928, with the credentials, if any, according to RFC 1929. The proxy
// resolves names.
func (d *Dialer) socks5(conn *Conn, host string, port uint16) error {
	user, password, authorized := d.credentials()
	if len(user) > 255 || len(password) > 255 {
		return &Error{Reason: AuthRejected, Detail: "credentials exceed the SOCKS5 limit of 255 bytes"}
	}
	greeting := []byte{5, 1, 0}
	if authorized {
		greeting = []byte{5, 2, 0, 2}
	}
	if _, err := conn.Write(greeting); err != nil {
		return err
	}
	var choice [2]byte
	if _, err := io.ReadFull(conn, choice[:]); err != nil {
		return err
	}
	switch {
	case choice[0] != 5:
		return &Error{Reason: Garbage, Detail: fmt.Sprintf("unexpected version %#x in response to SOCKS5 greeting", choice[0])}
	case choice[1] == 0:
	case choice[1] == 2 && authorized:
		if err := socks5Login(conn, user, password); err != nil {
			return err
		}
	case choice[1] == 0xff && authorized:
		return &Error{Reason: AuthRejected, Detail: "no common SOCKS5 method"}
	case choice[1] == 0xff, choice[1] == 2:
		return &Error{Reason: AuthRequired, Detail: "no common SOCKS5 method"}
	default:
		return &Error{Reason: Garbage, Detail: fmt.Sprintf("SOCKS5 method %#x was not offered", choice[1])}
	}

	request := []byte{5, 1, 0}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		kind := byte(1)
		if ip.Is6() {
			kind = 4
		}
		request = append(append(request, kind), ip.AsSlice()...)
	} else {
		request = append(append(request, 3, byte(len(host))), host...) // CheckTarget limits its length
	}
	conn.targetSent = true
	if _, err := conn.Write(binary.BigEndian.AppendUint16(request, port)); err != nil {
		return err
	}

	var head [3]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if head[0] != 5 {
		return &Error{Reason: Garbage, Detail: fmt.Sprintf("unexpected version %#x in response to SOCKS5 request", head[0])}
	}
	if head[1] != 0 {
		return socks5Refusal(head[1])
	}
	_, err := readAddress(conn)
	return err
}

// readAddress reads a SOCKS5 address, its type first. The error of an unknown type has the reason Garbage.
func readAddress(r io.Reader) (hostport string, err error) {
	var kind [1]byte
	if _, err := io.ReadFull(r, kind[:]); err != nil {
		return "", err
	}
	var host string
	switch size := map[byte]int{1: 4, 4: 16}[kind[0]]; {
	case size > 0:
		raw := make([]byte, size)
		if _, err := io.ReadFull(r, raw); err != nil {
			return "", err
		}
		ip, _ := netip.AddrFromSlice(raw)
		host = ip.Unmap().String()
	case kind[0] == 3:
		if host, err = readShort(r); err != nil {
			return "", err
		}
	default:
		return "", &Error{Reason: Garbage, Detail: fmt.Sprintf("SOCKS5 address type %#x", kind[0])}
	}
	var port [2]byte
	_, err = io.ReadFull(r, port[:])
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), err
}

// readVersion reads a version and a string with a length prefix.
func readVersion(r io.Reader, want byte) (string, error) {
	var version [1]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return "", err
	}
	if version[0] != want {
		return "", &Error{Reason: Garbage, Detail: fmt.Sprintf("unexpected version %#x", version[0])}
	}
	return readShort(r)
}

// readShort reads a string with a length prefix of one byte.
func readShort(r io.Reader) (string, error) {
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", err
	}
	text := make([]byte, length[0])
	_, err := io.ReadFull(r, text)
	return string(text), err
}

// AcceptSOCKS5 negotiates with a SOCKS5 client (RFC 1928 and 1929) and returns the address of its CONNECT request, to which the
// caller must reply with ReplySOCKS5. login checks the user name and password, which are empty if the client offers none. Such a client
// is rejected with the reason AuthRequired if required is set.
func AcceptSOCKS5(conn io.ReadWriter, required bool, login func(user, password string) error) (addr string, err error) {
	methods, err := readVersion(conn, 5)
	if err != nil {
		return "", err
	}
	const none, byPassword, noMethod = "\x00", "\x02", "\xff"
	method := noMethod
	if strings.Contains(methods, byPassword) {
		method = byPassword
	} else if strings.Contains(methods, none) && !required {
		method = none
	}
	if _, err := io.WriteString(conn, "\x05"+method); err != nil {
		return "", err
	}
	switch method {
	case noMethod:
		return "", &Error{Reason: AuthRequired, Detail: "no common SOCKS5 method"}
	case none:
		err = login("", "")
	case byPassword:
		err = acceptLogin(conn, login)
	}
	if err != nil {
		return "", err
	}
	var head [3]byte // version, command, reserved
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return "", err
	}
	if head[0] != 5 || head[1] != 1 {
		err = &Error{Reason: Unsupported, Detail: "SOCKS5 command"}
		return "", errors.Join(err, ReplySOCKS5(conn, 7))
	}
	if addr, err = readAddress(conn); ReasonOf(err) == Garbage {
		err = errors.Join(err, ReplySOCKS5(conn, 8))
	}
	return addr, err
}

func acceptLogin(conn io.ReadWriter, login func(user, password string) error) error {
	user, err := readVersion(conn, 1)
	if err != nil {
		return err
	}
	password, err := readShort(conn)
	if err != nil {
		return err
	}
	status := []byte{1, 0}
	if err = login(user, password); err != nil {
		status[1] = 1
	}
	_, werr := conn.Write(status)
	return errors.Join(err, werr)
}

// ReplySOCKS5 sends the reply to a request.
func ReplySOCKS5(conn io.Writer, code byte) error {
	_, err := conn.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
	return err
}

func socks5Login(conn *Conn, user, password string) error {
	request := append([]byte{1, byte(len(user))}, user...)
	request = append(append(request, byte(len(password))), password...)
	if _, err := conn.Write(request); err != nil {
		return err
	}
	var answer [2]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if answer[1] != 0 {
		return &Error{Reason: AuthRejected, Detail: "SOCKS5 user name and password"}
	}
	return nil
}

func socks5Refusal(code byte) error {
	detail := fmt.Sprintf("SOCKS5 reply %d", code)
	switch code {
	case 1, 3, 4, 5, 6:
		return &Error{Reason: Upstream, Detail: detail}
	case 2:
		return &Error{Reason: Denied, Detail: detail}
	case 7, 8:
		return &Error{Reason: Unsupported, Detail: detail}
	}
	return &Error{Reason: Garbage, Detail: detail}
}

// resolve4 returns the IPv4 address of host, as SOCKS4 requires. A failure is not caused by the proxy.
func (d *Dialer) resolve4(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip = ip.Unmap(); !ip.Is4() {
			return ip, &Error{Reason: Unsupported, Detail: "SOCKS4 supports IPv4 only"}
		}
		return ip, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.handshakeTimeout())
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	switch {
	case context.Cause(ctx) == context.Canceled:
		return netip.Addr{}, &Error{Reason: Canceled, Err: err}
	case err != nil || len(found) == 0:
		return netip.Addr{}, &Error{Reason: Unsupported, Detail: "SOCKS4 requires an IPv4 address; local lookup found none for " + host, Err: addressfilter.Redact(err, host)}
	}
	return found[0].Unmap(), nil
}

// socks4 requests a connection to ip by SOCKS4, or to host by SOCKS4a, an extension with host names.
func (d *Dialer) socks4(conn *Conn, ip netip.Addr, host string, port uint16) error {
	user, _, _ := d.credentials()
	if strings.ContainsRune(user, 0) || len(user) > 255 {
		return &Error{Reason: AuthRejected, Detail: "SOCKS4 does not support this user name"}
	}
	byName := d.Proxy.Scheme == "socks4a" // this includes literal addresses, which the proxy parses
	if byName {
		ip = netip.AddrFrom4([4]byte{0, 0, 0, 1})
	}
	request := binary.BigEndian.AppendUint16([]byte{4, 1}, port)
	request = append(append(append(request, ip.AsSlice()...), user...), 0)
	if byName {
		request = append(append(request, host...), 0)
	}
	conn.targetSent = true
	if _, err := conn.Write(request); err != nil {
		return err
	}
	var answer [8]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	switch {
	case answer[0] != 0 && answer[0] != 4:
		return &Error{Reason: Garbage, Detail: fmt.Sprintf("unexpected version %#x in response to SOCKS4 request", answer[0])}
	case answer[1] == 0x5a:
		return nil
	case answer[1] == 0x5b:
		return &Error{Reason: Upstream, Detail: "SOCKS4 reply 91"}
	case answer[1] == 0x5c, answer[1] == 0x5d:
		return &Error{Reason: AuthRequired, Detail: fmt.Sprintf("SOCKS4 reply %d", answer[1])}
	}
	return &Error{Reason: Garbage, Detail: fmt.Sprintf("SOCKS4 reply %d", answer[1])}
}
