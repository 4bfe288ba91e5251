package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"encoding/pem"

	"muster/internal/testutil"
	"muster/proxies/proxytest"
)

// curl works through the gateway.
func TestCurlWorksThroughGateway(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	f := newFront(t, Config{Keys: []string{"open-sesame"}}, kinds(2, proxytest.Elite, proxytest.SOCKS5)...)
	roots := filepath.Join(t.TempDir(), "ca.pem")
	testutil.Ok(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.secure.Certificate().Raw}), 0o600))
	for _, args := range [][]string{
		{"-x", "http://me:open-sesame@" + f.addr, "http://shop.example/"},
		{"-x", "http://me-session-1:open-sesame@" + f.addr, "--cacert", roots, "https://example.com/"},
		{"-x", "socks5h://me:open-sesame@" + f.addr, "http://shop.example/"},
		{"-x", "socks5h://me:open-sesame@" + f.addr, "--cacert", roots, "https://example.com/"},
	} {
		out, err := exec.CommandContext(t.Context(), curl, append([]string{"-sS", "--fail", "--max-time", "20", "--noproxy", ""}, args...)...).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "127.16.") {
			t.Errorf("curl %v: got %q %v", args, out, err)
		}
	}
}

// Truncated greetings, noise and endless headers do no harm.
func TestBadClients(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	var group sync.WaitGroup
	for _, text := range []string{"", "\x05", "\x05\x01", "\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x01\x00\x05\x01\x00\x09", "\x04\x01", "GET / HTTP/1.1\r\n\r\n",
		"\xff\xfe\xfd\r\n\r\n", "CONNECT nowhere HTTP/1.1\r\nHost: nowhere\r\n\r\n", "GET http://shop.example/ HTTP/1.1\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", 5000)} {
		group.Go(func() {
			conn, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, text)
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	group.Wait()
	if status, _ := fetch(t, f.client(t, "http", nil), "http://shop.example/"); status != 200 {
		t.Errorf("got %d afterwards", status)
	}
}

// A client that has closed its writing side receives a late response of the target.
func TestHalfClosedTunnelReceivesResponse(t *testing.T) {
	t.Parallel()
	for _, kind := range []proxytest.Kind{proxytest.Elite, proxytest.SOCKS5, proxytest.OverTLS} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, Config{}, kinds(1, kind)...)
			l := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				all, _ := io.ReadAll(conn) // until the client closes its side
				fmt.Fprintf(conn, "got %s", all)
			}()
			conn, in := f.talk(t, fmt.Sprintf("CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", l.Addr()))
			if r, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect}); err != nil || r.StatusCode != 200 {
				t.Fatalf("got %v %v, want a tunnel", r, err)
			}
			_, _ = io.WriteString(conn, "all of it")
			_ = conn.(*net.TCPConn).CloseWrite()
			if answer, err := io.ReadAll(in); err != nil || string(answer) != "got all of it" {
				t.Errorf("got %q %v, want the response", answer, err)
			}
		})
	}
}

// Invalid targets are rejected without a request to a proxy, and cannot inject headers.
func TestInvalidTargets(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	for _, host := range []string{"a..b", ".", strings.Repeat("a.", 127) + "a"} {
		for _, text := range []string{"CONNECT " + host + ":443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
			_, in := f.talk(t, text)
			if r, body := readResponse(t, in, http.MethodGet); r.StatusCode != http.StatusBadRequest || !strings.Contains(body, "target address") {
				t.Errorf("%.40q: got %s %q, want 400", text, r.Status, body)
			}
		}
	}
	for _, text := range []string{"CONNECT shop.example:0 HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT shop.example HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://shop.example:0/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		_, in := f.talk(t, text)
		if r, _ := readResponse(t, in, http.MethodGet); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%.40q: got %s, want 400", text, r.Status)
		}
	}
	for _, host := range []string{"a b", "a..b", "x:80\r\nX-Injected: yes\r\n\r\n", "a\x00b", "a\tb"} {
		_, in := f.talk(t, "\x05\x01\x00\x05\x01\x00\x03"+string(rune(len(host)))+host+"\x00\x50")
		answer := make([]byte, 4)
		if _, err := io.ReadFull(in, answer); err != nil || string(answer) != "\x05\x00\x05\x04" {
			t.Errorf("SOCKS5 %q: got %q %v, want host unreachable", host, answer, err)
		}
	}
	if n := f.proxies[0].Requests(); n != 0 {
		t.Errorf("got %d requests at the proxy, want none", n)
	}
}
