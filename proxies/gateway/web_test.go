package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/proxies"
	"muster/proxies/proxytest"
)

// talk sends text verbatim and returns the connection and a reader of the response.
func (f *front) talk(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := testutil.Must(net.Dial("tcp", f.addr))(t)
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	testutil.Must(io.WriteString(conn, text))(t)
	return conn, bufio.NewReader(conn)
}

func readResponse(t *testing.T, in *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	response := testutil.Must(http.ReadResponse(in, &http.Request{Method: method}))(t)
	defer response.Body.Close()
	body := testutil.Must(io.ReadAll(response.Body))(t)
	return response, string(body)
}

// Pipelined requests receive their responses in order. HEAD has no body; HTTP/1.0 closes the connection.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	const host = " HTTP/1.1\r\nHost: shop.example\r\n\r\n"
	_, in := f.talk(t, "GET http://shop.example/headers"+host+"HEAD http://shop.example/"+host+
		"POST http://shop.example/echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\nabc"+
		"GET /relative"+host+"GET http://shop.example/ HTTP/1.0\r\n\r\n")
	for i, want := range []struct {
		method string
		status int
		body   string // part of it
	}{{"GET", 200, "Accept-Encoding"}, {"HEAD", 200, ""}, {"POST", 200, "abc"}, {"GET", 400, "this is a proxy"}, {"GET", 200, "127.16."}} {
		if r, body := readResponse(t, in, want.method); r.StatusCode != want.status || !strings.Contains(body, want.body) {
			t.Errorf("response %d: got %s %q, want %d %q", i, r.Status, body, want.status, want.body)
		}
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after HTTP/1.0: %v", err)
	}
}

// A client that expects 100 Continue receives it before the body is forwarded.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	conn, in := f.talk(t, "POST http://shop.example/echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q %v, want 100 Continue", line, err)
	}
	_, _ = in.ReadString('\n')
	fmt.Fprint(conn, "hello")
	if r, body := readResponse(t, in, "POST"); r.StatusCode != 200 || body != "hello" {
		t.Errorf("got %s %q, want 200 and hello", r.Status, body)
	}
}

// Every request that a client sends has a response. It closes the connection if what follows may not be a request.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	open, socks := newFront(t, Config{}, kinds(1, proxytest.Elite)...), newFront(t, Config{}, kinds(1, proxytest.SOCKS5)...)
	locked := newFront(t, Config{Keys: []string{"open-sesame"}}, kinds(1, proxytest.Elite)...)
	const get, post, host = "GET http://shop.example/ HTTP/1.1\r\n", "POST http://shop.example/echo HTTP/1.1\r\nHost: shop.example\r\n", "Host: shop.example\r\n"
	const chunks, hidden = "\r\n3\r\nabc\r\n0\r\n\r\n", get + host + "\r\n"
	auth := base64.StdEncoding.EncodeToString([]byte("me:open-sesame")) + "\r\n\r\n"
	for name, c := range map[string]struct {
		to     *front
		text   string
		status int
		body   string // part of the response
		closed bool
	}{
		"a body after a rejection":    {locked, post + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(hidden)) + hidden, 407, "", true},
		"an endless head":             {open, get + "X: " + strings.Repeat("y", 2*headBytes), 431, "", true},
		"a length and chunks":         {open, post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n" + chunks + hidden, 200, "abc", true}, // RFC 9112, section 6.1
		"chunks and a length":         {open, post + "Transfer-Encoding: chunked\r\ncontent-length: 3\r\n" + chunks + hidden, 200, "abc", true},
		"chunks":                      {open, post + "Transfer-Encoding: chunked\r\n" + chunks + hidden, 200, "abc", true},
		"a response during the body":  {socks, "POST http://shop.example/early HTTP/1.1\r\n" + host + "Content-Length: 100\r\n\r\nabc", 200, "enough", true},
		"HTTP/2.0":                    {open, "GET http://shop.example/ HTTP/2.0\r\n" + host + "\r\n", 505, "", true},
		"HTTP/3.7":                    {open, "GET http://shop.example/ HTTP/3.7\r\n" + host + "\r\n", 505, "", true},
		"HTTP/0.9":                    {open, "GET http://shop.example/ HTTP/0.9\r\n" + host + "\r\n", 505, "", true},
		"HTTP/1.2":                    {open, "GET http://shop.example/ HTTP/1.2\r\n" + host + "\r\n", 200, "127.16.", false},
		"no HTTP":                     {open, "GET http://shop.example/ HTTQ/1.1\r\n" + host + "\r\n", 400, "", false},
		"an invalid URL":              {open, "GET http://me:topsecret@shop.example:port/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "", false},
		"the scheme of a login":       {locked, get + host + "Proxy-Authorization: Basic " + auth, 200, "127.16.", false},
		"in small letters":            {locked, get + host + "Proxy-Authorization: basic " + auth, 200, "127.16.", false},
		"in capitals with two spaces": {locked, get + host + "Proxy-Authorization: BASIC  " + auth, 200, "127.16.", false},
	} {
		_, in := c.to.talk(t, c.text)
		r, body := readResponse(t, in, http.MethodGet)
		if r.StatusCode != c.status || !strings.Contains(body, c.body) || strings.Contains(body, "topsecret") || c.closed && !r.Close {
			t.Errorf("%s: got %s %q, close %t, want %d %q and close %t", name, r.Status, body, r.Close, c.status, c.body, c.closed)
		}
		if c.closed {
			if _, err := in.ReadByte(); err == nil {
				t.Errorf("%s: unexpected second response", name)
			}
		}
	}
}

// A client that disconnects cancels its request, which releases the proxy.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, proxytest.Options{Kind: proxytest.Slow, Delay: time.Minute})
	for _, text := range []string{"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"} {
		conn, _ := f.talk(t, text)
		testutil.Eventually(t, "the request is in progress", func() bool { g := f.gateway; return g.active.Load() == 1 && g.requests.Load()+g.tunnels.Load() > 0 })
		conn.Close()
		testutil.Eventually(t, "the request is canceled", func() bool { return f.gateway.active.Load() == 0 })
	}
}

// Requests and responses are forwarded unmodified: X-Forwarded-For, a malformed query, a missing Content-Type.
func TestHeadsAreForwardedUnmodified(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.SOCKS5)...)
	_, in := f.talk(t, "GET http://shop.example/raw?a;b=%zz HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\nConnection: X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\r\n")
	r, body := readResponse(t, in, "GET")
	for _, want := range []string{"/raw?a;b=%zz\n", "X-Forwarded-For: 192.0.2.1\r\n", "Forwarded: for=192.0.2.1\r\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("the site received %q, want %q in it", body, want)
		}
	}
	for _, name := range []string{"X-Hop", "Upgrade", "User-Agent", "Via"} {
		if strings.Contains(body, name+":") {
			t.Errorf("the site received %q, want it without %s", body, name)
		}
	}
	if got, ok := r.Header["Content-Type"]; ok {
		t.Errorf("got Content-Type %q, want none", got)
	}
}

// A SOCKS4 client receives a SOCKS4 rejection.
func TestSOCKS4IsRejected(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	_, in := f.talk(t, "\x04\x01\x00\x50\x08\x08\x08\x08\x00")
	answer := make([]byte, 8)
	if _, err := io.ReadFull(in, answer); err != nil || string(answer[:2]) != "\x00\x5b" {
		t.Errorf("got %q %v, want a rejection", answer, err)
	}
}

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
