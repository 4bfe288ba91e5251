package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/proxies"
	"muster/proxies/tunnel"
)

// client is a client connection with a fixed input.
type client struct {
	*bytes.Reader
	got bytes.Buffer
}

func (c *client) Write(p []byte) (int, error)      { return c.got.Write(p) }
func (c *client) Close() error                     { return nil }
func (c *client) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *client) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *client) SetDeadline(time.Time) error      { return nil }
func (c *client) SetReadDeadline(time.Time) error  { return nil }
func (c *client) SetWriteDeadline(time.Time) error { return nil }

// FuzzSOCKS checks that no client without the key passes authentication. There is no pool: a request for a tunnel
// would panic.
func FuzzSOCKS(f *testing.F) {
	const key = "k3y-of-the-gateway"
	f.Add([]byte("\x05\x01\x00"))
	f.Add([]byte("\x04\x01\x00\x50\x01\x02\x03\x04me\x00"))
	f.Add([]byte("\x05\x01\x02\x01\x02me\x05wrong\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50"))
	f.Add([]byte("\x05\x02\x00\x02\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if bytes.Contains(sent, []byte(key)) {
			return
		}
		g := &Gateway{logins: logins{logger: slog.New(slog.DiscardHandler)}}
		g.logins.setKeys([]string{key})
		c := &client{Reader: bytes.NewReader(sent)}
		g.socks(context.Background(), &clientConn{Conn: c, idle: time.Minute})
		if g.tunnels.Load() != 0 || c.got.Len() > 16 || bytes.Contains(c.got.Bytes(), []byte(key)) {
			t.Errorf("%q: got reply %q and %d tunnels", sent, c.got.Bytes(), g.tunnels.Load())
		}
	})
}

// FuzzSOCKSTarget checks that a request results in a valid target or in a reply with an error.
func FuzzSOCKSTarget(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x03\x09a.example\x01\xbb"))
	f.Add([]byte("\x05\x01\x00\x04" + strings.Repeat("\x00", 16) + "\x00\x00"))
	f.Add([]byte("\x05\x02\x00\x01"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		addr, code := readTarget(&client{Reader: bytes.NewReader(sent)})
		if code != socksOK {
			if addr != "" {
				t.Errorf("%q: got %q and the reply %d", sent, addr, code)
			}
			return
		}
		if tunnel.CheckTarget(addr) == nil && strings.ContainsAny(addr, " \r\n\x00") {
			t.Errorf("%q: got the target %q", sent, addr)
		}
	})
}

// FuzzUser checks that a user name sets options of the gateway only.
func FuzzUser(f *testing.F) {
	for _, s := range []string{"me-session-abc-country-bg", "me-ttl-90m", "me-ttl--1s", "-", "me-session", "me-protocol-http-anonymity-elite", "me-session-1b9d6bcd-bbfd-country", "me-session-a-session-b", "me-ttl-9999999h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, user string) {
		o, err := withUser(proxies.PickOptions{Site: "a.example"}, user)
		if err != nil {
			return
		}
		if o.Site != "a.example" || o.StickyFor < 0 || o.StickyFor > 24*time.Hour || o.Sticky != "" && !strings.HasPrefix(o.Sticky, "gateway:") || strings.Count(user, "-") > 0 && reflect.DeepEqual(o, proxies.PickOptions{Site: "a.example"}) {
			t.Errorf("%q gives %+v", user, o)
		}
	})
}
