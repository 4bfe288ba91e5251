// Package tunnel opens connections through a proxy, by CONNECT, SOCKS4, SOCKS4a or SOCKS5. Each error has a
// machine-readable [Reason].
//
// A [Dialer] connects through one proxy. It has no state and no connection pool: each Dial opens a new connection, so
// that a failure is attributable to one proxy.
package tunnel

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DialFunc opens a direct connection, like [net.Dialer.DialContext].
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A Dialer opens connections through one proxy. It is safe for concurrent use.
type Dialer struct {
	// Proxy is a URL scheme://[user:password@]host:port with scheme http, https, socks4, socks4a, socks5 or socks5h.
	Proxy *url.URL
	// Dial connects to the proxy. Defaults to a net.Dialer.
	Dial DialFunc
	// ConnectTimeout limits the TCP connection to the proxy. Defaults to 4 s.
	ConnectTimeout time.Duration
	// HandshakeTimeout limits the setup of the tunnel: TLS with the proxy and its response. Defaults to 8 s.
	HandshakeTimeout time.Duration
}

// Timing holds the durations of the phases of a connection.
type Timing struct {
	Connect   time.Duration // TCP connection to the proxy
	Handshake time.Duration // TLS with the proxy and its response
}

// A Conn is a connection to a proxy or through it to a target.
type Conn struct {
	net.Conn
	Timing Timing

	buffered   *bufio.Reader // data received after the proxy's response, or nil
	targetSent bool          // the target was sent to the proxy, at least in part
}

func (c *Conn) Read(p []byte) (int, error) {
	if c.buffered != nil {
		if c.buffered.Buffered() > 0 {
			return c.buffered.Read(p)
		}
		c.buffered = nil
	}
	return c.Conn.Read(p)
}

// DialProxy connects to the proxy, with TLS if its scheme is https. It sends no request.
func (d *Dialer) DialProxy(ctx context.Context) (*Conn, error) {
	host, port := d.Proxy.Hostname(), d.Proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[d.Proxy.Scheme]
		port = cmp.Or(port, "1080")
	}
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}

	begin := time.Now()
	connectCtx, cancel := context.WithTimeout(ctx, cmp.Or(d.ConnectTimeout, 4*time.Second))
	raw, err := dial(connectCtx, "tcp", net.JoinHostPort(host, port))
	cancel()
	if err != nil {
		return nil, dialError(ctx, err)
	}
	conn := &Conn{Conn: raw, Timing: Timing{Connect: time.Since(begin)}}
	if d.Proxy.Scheme != "https" {
		return conn, nil
	}

	begin = time.Now()
	tlsCtx, cancel := context.WithTimeout(ctx, d.handshakeTimeout())
	defer cancel()
	// Proxies of public lists have no valid certificates, and data sent to them is no more confidential than over http.
	secure := tls.Client(raw, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err := secure.HandshakeContext(tlsCtx); err != nil {
		raw.Close()
		err = Classify(ctx, "TLS with the proxy", err)
		if reason := ReasonOf(err); reason == Garbage || reason == Closed {
			err = &Error{Reason: TLS, Detail: "with the proxy", Err: err}
		}
		return nil, err
	}
	conn.Conn, conn.Timing.Handshake = secure, time.Since(begin)
	return conn, nil
}

// DialContext opens a tunnel to addr ("host:port") through the proxy. The proxy resolves names, except for socks4:
// names are resolved to IPv4 locally, because the protocol does not support them.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d.Tunnel(ctx, addr)
}

// Tunnel is like DialContext, but returns a *Conn, which has the Timing.
func (d *Dialer) Tunnel(ctx context.Context, addr string) (*Conn, error) {
	host, port, err := splitTarget(addr)
	if err != nil {
		return nil, &Error{Reason: Unsupported, Err: err}
	}
	var ip netip.Addr
	if d.Proxy.Scheme == "socks4" {
		if ip, err = d.resolve4(ctx, host); err != nil {
			return nil, err
		}
	}
	conn, err := d.DialProxy(ctx)
	if err != nil {
		return nil, err
	}

	begin := time.Now()
	deadline := begin.Add(d.handshakeTimeout())
	if until, ok := ctx.Deadline(); ok && until.Before(deadline) {
		deadline = until
	}
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })

	switch d.Proxy.Scheme {
	case "http", "https":
		err = d.connect(conn, addr)
	case "socks5", "socks5h":
		err = d.socks5(conn, host, port)
	case "socks4", "socks4a":
		err = d.socks4(conn, ip, host, port)
	default:
		err = &Error{Reason: Unsupported, Detail: fmt.Sprintf("proxy protocol %q", d.Proxy.Scheme)}
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		err = Classify(ctx, d.Proxy.Scheme+" handshake", err)
		if e, ok := errors.AsType[*Error](err); ok {
			switch e.Reason {
			case Denied, Upstream, Timeout, Closed:
				e.TargetSent = conn.targetSent
			}
		}
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	conn.Timing.Handshake += time.Since(begin)
	return conn, nil
}

func (d *Dialer) handshakeTimeout() time.Duration {
	return cmp.Or(d.HandshakeTimeout, 8*time.Second)
}

// credentials returns the user name and password; ok is false if there are none.
func (d *Dialer) credentials() (user, password string, ok bool) {
	if d.Proxy.User == nil {
		return "", "", false
	}
	password, _ = d.Proxy.User.Password()
	return d.Proxy.User.Username(), password, d.Proxy.User.Username() != "" || password != ""
}

// maxConnectResponse limits the size of the head of the proxy's response to CONNECT.
const maxConnectResponse = 16 << 10

// BasicAuth returns the Proxy-Authorization header for the proxy, or "" if it has no credentials.
func (d *Dialer) BasicAuth() string {
	user, password, ok := d.credentials()
	if !ok {
		return ""
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func (d *Dialer) connect(conn *Conn, addr string) error {
	var request strings.Builder
	fmt.Fprintf(&request, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", addr, addr)
	if auth := d.BasicAuth(); auth != "" {
		fmt.Fprintf(&request, "Proxy-Authorization: %s\r\n", auth)
	}
	request.WriteString("\r\n")
	conn.targetSent = true
	if _, err := io.WriteString(conn.Conn, request.String()); err != nil {
		return err
	}

	// The limit applies to the head only; the subsequent bytes come from the target.
	limited := &io.LimitedReader{R: conn.Conn, N: maxConnectResponse}
	reader := bufio.NewReaderSize(limited, 1<<10)
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		if limited.N <= 0 {
			return &Error{Reason: Garbage, Detail: "response to CONNECT is too large"}
		}
		return err
	}
	if err := StatusError(answer.StatusCode, d.BasicAuth() != ""); answer.StatusCode/100 != 2 {
		return err
	}
	conn.buffered = reader
	return nil
}

// StatusError returns the error for a status other than 2xx from a proxy. authorized means that the request had
// credentials.
func StatusError(status int, authorized bool) error {
	err := &Error{Detail: fmt.Sprintf("status %d", status), Status: status}
	switch {
	case status == http.StatusProxyAuthRequired && authorized:
		err.Reason = AuthRejected
	case status == http.StatusProxyAuthRequired:
		err.Reason = AuthRequired
	case status == http.StatusForbidden, status == http.StatusUnauthorized, status == http.StatusMethodNotAllowed,
		status == http.StatusTooManyRequests:
		err.Reason = Denied
	case status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		err.Reason = Upstream
	default:
		err.Reason, err.TargetSent = Garbage, true // like 400, which some proxies return for any unreachable target
	}
	return err
}

// CheckTarget returns an error if addr is not a valid "host:port": the port must be from 1 to 65535, the host an IP
// address or a valid DNS name.
func CheckTarget(addr string) error {
	_, _, err := splitTarget(addr)
	return err
}

// AddressOf returns the host:port of an http or https URL.
func AddressOf(u *url.URL) string {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

func splitTarget(addr string) (host string, port uint16, err error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("invalid target address %q: must be host:port", addr)
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("invalid target address %q: port must be from 1 to 65535", addr)
	}
	if err := checkHost(host); err != nil {
		return "", 0, fmt.Errorf("invalid target address %q: %w", addr, err)
	}
	return host, uint16(n), nil
}

// checkHost accepts IP addresses without a zone, and names whose labels contain letters, digits, - and _. Non-ASCII
// letters are left to the proxy.
func checkHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return errors.New("addresses with a zone are local to this machine")
		}
		return nil
	}
	if name := strings.TrimSuffix(host, "."); len(name) > 253 || !hostName.MatchString(name) {
		return errors.New("host name is invalid or longer than 253 bytes")
	}
	return nil
}

var hostName = regexp.MustCompile(`^[0-9A-Za-z_\x{80}-\x{10ffff}-]+(?:\.[0-9A-Za-z_\x{80}-\x{10ffff}-]+)*$`)
