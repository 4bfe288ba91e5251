package tunnel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// responseConn is a connection that reads a scripted response and records the data sent.
type responseConn struct {
	io.Reader
	sent   bytes.Buffer
	closed bool
}

func (c *responseConn) Write(p []byte) (int, error)      { return c.sent.Write(p) }
func (c *responseConn) Close() error                     { c.closed = true; return nil }
func (c *responseConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *responseConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *responseConn) SetDeadline(time.Time) error      { return nil }
func (c *responseConn) SetReadDeadline(time.Time) error  { return nil }
func (c *responseConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzHandshake checks that each response of a proxy results in a tunnel or in an error with a reason and without the
// password, and that the data after the response is read through the tunnel.
func FuzzHandshake(f *testing.F) {
	f.Add(byte(0), []byte("HTTP/1.1 200 OK\r\n\r\nhello"))
	f.Add(byte(0), []byte("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 5\r\n\r\nhello"))
	f.Add(byte(0), []byte("HTTP/1.1 200 "+strings.Repeat("x", 20_000)))
	f.Add(byte(1), []byte("\x05\x02\x01\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50rest"))
	f.Add(byte(1), []byte("\x05\x00\x05\x00\x00\x03\x03abc\x00\x50rest"))
	f.Add(byte(1), []byte("\x05\xff"))
	f.Add(byte(2), []byte("\x00\x5a\x00\x50\x7f\x00\x00\x01rest"))
	f.Add(byte(3), []byte("\x04\x5d\x00\x00\x00\x00\x00\x00"))
	schemes := []string{"http", "socks5", "socks4", "socks4a"}
	f.Fuzz(func(t *testing.T, scheme byte, answer []byte) {
		conn := &responseConn{Reader: io.MultiReader(bytes.NewReader(answer))}
		d := Dialer{
			Proxy: &url.URL{Scheme: schemes[int(scheme)%len(schemes)], Host: "192.0.2.1:1080", User: url.UserPassword("me", "s3cr3t")},
			Dial:  func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		}
		got, err := d.Tunnel(t.Context(), "192.0.2.7:443")
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Reason == "" || !conn.closed || strings.Contains(err.Error(), "s3cr3t") {
				t.Fatalf("%q: got %v, closed %t", answer, err, conn.closed)
			}
			return
		}
		rest, err := io.ReadAll(got)
		if err != nil || !bytes.HasSuffix(answer, rest) || len(rest) == len(answer) {
			t.Fatalf("%q: read %q, %v after the response", answer, rest, err)
		}
	})
}

// FuzzTarget checks that an accepted address is the same for every protocol and contains no character that could
// terminate a request line.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"a.example:80", "[::1]:443", "1.2.3.4:0", "a..b:1", "a.:1", "[fe80::1%lo]:1", "a b:1", "a\r\nX: y:1", strings.Repeat("a", 254) + ":1", "ä.example:65536", ":1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		host, port, err := splitTarget(addr)
		if err != nil {
			return
		}
		if host == "" || len(host) > 255 || port == 0 || strings.ContainsAny(addr, " \r\n\t/@\x00") {
			t.Errorf("%q is accepted as %q and %d", addr, host, port)
		}
	})
}
