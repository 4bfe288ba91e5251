package tunnel_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/testutil"
	"muster/proxies/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted serves a single connection with script and returns a Dialer for it.
func scripted(t *testing.T, proxy string, script func(in *bufio.Reader, out io.Writer)) *tunnel.Dialer {
	t.Helper()
	l := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		script(bufio.NewReader(conn), conn)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	u := testutil.Must(url.Parse(fmt.Sprintf(proxy, l.Addr())))(t)
	return &tunnel.Dialer{Proxy: u, HandshakeTimeout: time.Minute}
}

func head(in *bufio.Reader) string {
	var all strings.Builder
	for {
		line, err := in.ReadString('\n')
		all.WriteString(line)
		if err != nil || line == "\r\n" {
			return all.String()
		}
	}
}

// Data of the target in the same packet as the proxy's response is not lost.
func TestConnectKeepsDataAfterHead(t *testing.T) {
	t.Parallel()
	var asked string
	d := scripted(t, "http://u:p%%40w@%s", func(in *bufio.Reader, out io.Writer) {
		asked = head(in)
		_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\nX: y\r\n\r\n220 mail.example")
		_, _ = io.WriteString(out, " ready\r\n")
	})
	conn := testutil.Must(d.DialContext(t.Context(), "tcp", "mail.example:25"))(t)
	defer conn.Close()
	greeting, err := io.ReadAll(conn)
	if err != nil || string(greeting) != "220 mail.example ready\r\n" {
		t.Errorf("got %q %v", greeting, err)
	}
	if want := "CONNECT mail.example:25 HTTP/1.1\r\nHost: mail.example:25\r\nProxy-Authorization: Basic dTpwQHc=\r\n\r\n"; asked != want {
		t.Errorf("request %q\nwant  %q", asked, want)
	}
}

// Failures after the target was sent may be caused by the target; earlier failures and requests for credentials are not.
func TestTunnelErrorsHaveReasons(t *testing.T) {
	t.Parallel()
	answer := func(text string) func(*bufio.Reader, io.Writer) {
		return func(in *bufio.Reader, out io.Writer) {
			_, _ = in.Peek(1)
			_, _ = io.WriteString(out, text)
			_, _ = io.Copy(io.Discard, in)
		}
	}
	for name, test := range map[string]struct {
		proxy  string
		script func(*bufio.Reader, io.Writer)
		want   tunnel.Reason
		target bool // it may have caused the failure
	}{
		"407 without credentials": {"http://%s", answer("HTTP/1.1 407 No\r\n\r\n"), tunnel.AuthRequired, false},
		"407 with credentials":    {"http://u:p@%s", answer("HTTP/1.1 407 No\r\n\r\n"), tunnel.AuthRejected, false},
		"403":                     {"http://%s", answer("HTTP/1.1 403 No\r\n\r\n"), tunnel.Denied, true},
		"502":                     {"http://%s", answer("HTTP/1.1 502 No\r\n\r\n"), tunnel.Upstream, true},
		"200 of another protocol": {"http://%s", answer("SSH-2.0-OpenSSH\r\n"), tunnel.Garbage, false},
		"endless head":            {"http://%s", answer("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 10_000)), tunnel.Garbage, false},
		"no response":             {"http://%s", answer(""), tunnel.Timeout, true},
		"connection closed":       {"socks5://%s", func(in *bufio.Reader, _ io.Writer) { _, _ = in.ReadByte() }, tunnel.Closed, false},
		"SOCKS5 requires auth":    {"socks5://%s", answer("\x05\xff"), tunnel.AuthRequired, false},
		"SOCKS5 rejects auth":     {"socks5://u:p@%s", answer("\x05\x02\x01\x01"), tunnel.AuthRejected, false},
		"SOCKS5 long password":    {"socks5://u:" + strings.Repeat("p", 256) + "@%s", answer("\x05\xff"), tunnel.AuthRejected, false},
		"SOCKS4 long user":        {"socks4://" + strings.Repeat("u", 256) + "@%s", answer(""), tunnel.AuthRejected, false},
		"SOCKS5 not allowed":      {"socks5://%s", answer("\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"), tunnel.Denied, true},
		"SOCKS5 refused target":   {"socks5://%s", answer("\x05\x00\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"), tunnel.Upstream, true},
		"SOCKS4 rejected":         {"socks4a://%s", answer("\x00\x5b\x00\x00\x00\x00\x00\x00"), tunnel.Upstream, true},
		"SOCKS4 requires identd":  {"socks4a://%s", answer("\x00\x5c\x00\x00\x00\x00\x00\x00"), tunnel.AuthRequired, false},
		"no TLS":                  {"https://%s", answer("HTTP/1.1 400 Bad Request\r\n\r\n"), tunnel.TLS, false},
		"unknown protocol":        {"gopher://%s", answer(""), tunnel.Unsupported, false},
		"400":                     {"http://%s", answer("HTTP/1.1 400 No\r\n\r\n"), tunnel.Garbage, true},
		"CONNECT and close":       {"http://%s", func(in *bufio.Reader, _ io.Writer) { head(in) }, tunnel.Closed, true},
		"SOCKS5 without greeting": {"socks5://%s", answer(""), tunnel.Timeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := scripted(t, test.proxy, test.script)
			if test.want == tunnel.Timeout {
				d.HandshakeTimeout = 100 * time.Millisecond
			}
			conn, err := d.DialContext(t.Context(), "tcp", "8.8.8.8:80")
			if got := tunnel.ReasonOf(err); got != test.want || tunnel.MayBeTargets(err) != test.target {
				t.Errorf("got %q (%v), of the target %t; want %q, %t", got, err, tunnel.MayBeTargets(err), test.want, test.target)
			}
			if err == nil {
				conn.Close()
			} else if strings.Contains(err.Error(), "u:p") {
				t.Errorf("error contains credentials: %v", err)
			}
		})
	}
}

// A truncated or unknown reply of a SOCKS proxy does not open a tunnel.
func TestTruncatedSOCKSRepliesOpenNoTunnel(t *testing.T) {
	t.Parallel()
	for scheme, replies := range map[string][]string{
		"socks5": {"\x05", "\x05\x00\x05", "\x05\x00\x05\x00\x00\x01\x7f", "\x05\x02", "\x05\x77", "\x05\x00\x05\x00\x00\x09xxxx", "\x05\x00\x05\x00\x00\x03\xffaa"},
		"socks4": {"\x00", "\x00\x5a\x00", "\x00\x77\x00\x00\x00\x00\x00\x00", "\x09\x5a\x00\x00\x00\x00\x00\x00"},
	} {
		for _, reply := range replies {
			d := scripted(t, scheme+"://%s", func(in *bufio.Reader, out io.Writer) {
				_, _ = in.Peek(1)
				_, _ = io.WriteString(out, reply)
			})
			if _, err := d.DialContext(t.Context(), "tcp", "8.8.8.8:80"); tunnel.ReasonOf(err) == "" {
				t.Errorf("%s %q: got %v, want an error with a reason", scheme, reply, err)
			}
		}
	}
}

func TestDialReasons(t *testing.T) {
	t.Parallel()
	refused := &tunnel.Dialer{Proxy: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
	if _, err := refused.DialContext(t.Context(), "tcp", "a:1"); tunnel.ReasonOf(err) != tunnel.Refused {
		t.Errorf("got %v, want refused", err)
	}
	slow := &tunnel.Dialer{Proxy: refused.Proxy, ConnectTimeout: 20 * time.Millisecond, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	if _, err := slow.DialContext(t.Context(), "tcp", "a:1"); tunnel.ReasonOf(err) != tunnel.ConnectTimeout {
		t.Errorf("got %v, want connect_timeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := slow.DialContext(ctx, "tcp", "a:1"); tunnel.ReasonOf(err) != tunnel.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

// Invalid targets are rejected without a connection to the proxy.
func TestInvalidTargetsAreRejected(t *testing.T) {
	t.Parallel()
	d := &tunnel.Dialer{Proxy: &url.URL{Scheme: "http", Host: "proxy.example:1"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("unexpected connection to the proxy")
		return nil, errors.New("unexpected")
	}}
	for _, target := range []string{"", "nohost", ":80", "a:70000", "a:x", "a:0", "a:-1", "a b:80", "a..b:80", ".a:80", ".:80", "a\r\nX-Y: z:80", "a\x00:80", "a/b:80", "a@b:80",
		strings.Repeat("a.", 127) + "a:80", "[fe80::1%eth0]:80", "[a]b:80"} {
		if err := tunnel.CheckTarget(target); err == nil {
			t.Errorf("%q: got no error, want one", target)
		}
		if _, err := d.DialContext(t.Context(), "tcp", target); tunnel.ReasonOf(err) != tunnel.Unsupported {
			t.Errorf("%q: got %v, want %s", target, err, tunnel.Unsupported)
		}
	}
	for _, target := range []string{"a:1", "shop.example:443", "shop.example.:443", "_dmarc.foo_bar.example:80", "127.0.0.1:80", "[::1]:80", "xn--bcher-kva.example:80", "bücher.example:80"} {
		if err := tunnel.CheckTarget(target); err != nil {
			t.Errorf("%q: got %v, want no error", target, err)
		}
	}
}

// Cancellation of the context aborts a handshake immediately.
func TestHandshakeIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d := scripted(t, "socks5://%s", func(in *bufio.Reader, _ io.Writer) {
		_, _ = in.Peek(1)
		cancel()
		_, _ = io.Copy(io.Discard, in)
	})
	d.HandshakeTimeout = time.Minute
	if _, err := d.DialContext(ctx, "tcp", "a:1"); tunnel.ReasonOf(err) != tunnel.Canceled {
		t.Errorf("got %v", err)
	}
}
