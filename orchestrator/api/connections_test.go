package api

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"muster/internal/testutil"
)

// A client with many idle connections loses those, not the connections of others.
func TestAddressWithTheMostIdleConnectionsMakesRoom(t *testing.T) {
	t.Parallel()
	conns := newConnections(4, slog.New(slog.DiscardHandler))
	closed := map[string]int{}
	open := func(address string) {
		conn := &addressed{address: address, closed: closed}
		conns.track(conn, http.StateNew)
	}
	open("192.0.2.1:1")
	for range 20 {
		open("192.0.2.2:1")
	}
	open("192.0.2.3:1")
	if closed["192.0.2.1:1"] != 0 || closed["192.0.2.3:1"] != 0 || closed["192.0.2.2:1"] != 18 {
		t.Errorf("closed %v, want 18 connections of 192.0.2.2", closed)
	}
}

// addressed is a connection of an address. It counts its closing.
type addressed struct {
	net.Conn
	address string
	closed  map[string]int
}

func (a *addressed) Close() error { a.closed[a.address]++; return nil }
func (a *addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.address))
}

// Idle connections make room for new ones; connections with a running request stay open.
func TestWaitingConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 4
	conns := newConnections(most, slog.New(slog.DiscardHandler))
	busy, release := make(chan struct{}), make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			close(busy)
			<-release
		}
	}))
	tracked := func() int {
		conns.mu.Lock()
		defer conns.mu.Unlock()
		return len(conns.waiting)
	}
	srv.Config.ConnState = conns.track
	srv.Start()
	defer srv.Close()
	get := func(path string) error {
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+path, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	ended := make(chan error, 1)
	go func() { ended <- get("/busy") }()
	<-busy
	for range 3 * most {
		silent, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		if err := get("/"); err != nil {
			t.Errorf("request beside idle connections: %v", err)
		}
	}
	testutil.Eventually(t, "no more connections than allowed", func() bool { return tracked() <= most })
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("the request that was being served: %v", err)
	}
	if n := connectionLimit(); n < 1 || n > mostConnections {
		t.Errorf("connectionLimit = %d", n)
	}
}
