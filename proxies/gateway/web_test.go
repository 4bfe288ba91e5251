package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/proxies/proxytest"
)

// talk sends text verbatim and returns the connection and a reader of the response.
func (f *front) talk(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	testutil.Ok(t, err)
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func readResponse(t *testing.T, in *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	testutil.Ok(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testutil.Ok(t, err)
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
	if r, body := readResponse(t, in, "GET"); r.StatusCode != 200 || !strings.Contains(body, "Accept-Encoding") {
		t.Errorf("first: %s %q", r.Status, body)
	}
	if r, body := readResponse(t, in, "HEAD"); r.StatusCode != 200 || body != "" {
		t.Errorf("second: %s %q", r.Status, body)
	}
	if r, body := readResponse(t, in, "POST"); r.StatusCode != 200 || body != "abc" {
		t.Errorf("third: %s %q", r.Status, body)
	}
	if r, body := readResponse(t, in, "GET"); r.StatusCode != 400 || !strings.Contains(body, "this is a proxy") {
		t.Errorf("fourth: %s %q", r.Status, body)
	}
	if r, body := readResponse(t, in, "GET"); r.StatusCode != 200 || !strings.HasPrefix(body, "127.16.") {
		t.Errorf("fifth: %s %q", r.Status, body)
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

// A rejection before the body was read closes the connection, so that the body is not parsed as a request.
func TestUnreadBodyClosesConnection(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"open-sesame"}}, kinds(1, proxytest.Elite)...)
	hidden := "GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n"
	_, in := f.talk(t, fmt.Sprintf("POST http://shop.example/echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: %d\r\n\r\n%s", len(hidden), hidden))
	if r, _ := readResponse(t, in, "POST"); r.StatusCode != 407 || !r.Close {
		t.Errorf("got %s, close %t, want 407 and close", r.Status, r.Close)
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("unexpected second response")
	}
}

// An endless request head is rejected.
func TestEndlessHead(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	_, in := f.talk(t, "GET http://shop.example/ HTTP/1.1\r\nX: "+strings.Repeat("y", 2*headBytes))
	if r, body := readResponse(t, in, "GET"); r.StatusCode != 431 || !r.Close {
		t.Errorf("got %s %q, close %t, want 431 and close", r.Status, body, r.Close)
	}
}

// A client that disconnects cancels its request, which releases the proxy.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, proxytest.Options{Kind: proxytest.Slow, Delay: time.Minute})
	for _, text := range []string{"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"} {
		conn, _ := f.talk(t, text)
		testutil.Eventually(t, "the request is in progress", func() bool { s := f.gateway.Stats(); return s.Active == 1 && s.Requests+s.Tunnels > 0 })
		conn.Close()
		testutil.Eventually(t, "the request is canceled", func() bool { return f.gateway.Stats().Active == 0 })
	}
}

// A chunked request, with or without Content-Length, closes the connection (RFC 9112, section 6.1).
func TestChunkedRequestClosesConnection(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	const hidden = "GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n"
	for _, lengths := range []string{"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\ncontent-length: 3\r\n", "Transfer-Encoding: chunked\r\n"} {
		_, in := f.talk(t, "POST http://shop.example/echo HTTP/1.1\r\nHost: shop.example\r\n"+lengths+"\r\n3\r\nabc\r\n0\r\n\r\n"+hidden)
		if r, body := readResponse(t, in, "POST"); r.StatusCode != 200 || body != "abc" || !r.Close {
			t.Errorf("%q: got %s %q, close %t, want 200 and close", lengths, r.Status, body, r.Close)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Errorf("%q: unexpected second response", lengths)
		}
	}
}

// HTTP versions other than 1.x are rejected.
func TestOtherHTTPVersionsAreRejected(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	for version, want := range map[string]int{"HTTP/2.0": 505, "HTTP/3.7": 505, "HTTP/0.9": 505, "HTTP/1.2": 200, "HTTQ/1.1": 400} {
		_, in := f.talk(t, "GET http://shop.example/ "+version+"\r\nHost: shop.example\r\n\r\n")
		if r, body := readResponse(t, in, "GET"); r.StatusCode != want || want == 505 && !r.Close {
			t.Errorf("%s: got %s %q, want %d", version, r.Status, body, want)
		}
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

// A response before the end of the request body is forwarded and closes the connection.
func TestEarlyResponseIsForwarded(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.SOCKS5)...)
	_, in := f.talk(t, "POST http://shop.example/early HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100\r\n\r\nabc")
	if r, body := readResponse(t, in, "POST"); r.StatusCode != 200 || body != "enough" || !r.Close {
		t.Errorf("got %s %q, close %t, want 200 and close", r.Status, body, r.Close)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("got %v after the response, want EOF", err)
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
