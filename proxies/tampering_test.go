package proxies

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
)

// Kinds of tampering are stored with the member.
func TestTamperingIsStoredWithTheMember(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	want := []string{probe.TamperBody, probe.TamperCache}
	mustPublish(t, b.pool, result(1, func(r *probe.Result) { r.Tampering = want }))
	list, err := b.pool.List(t.Context(), Everything)
	if err != nil || len(list) != 1 || !slices.Equal(list[0].Tampering, want) {
		t.Errorf("got %+v %v, want tampering %v", list, err, want)
	}
}

// A proxy that tampers with forwarded responses and tunnels to port 443 only is used for https only.
func TestHTTPSOnlyProxyIsNotUsedForHTTP(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	p, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1), Hosts: b.hosts, ConnectPorts: []string{"443"},
		Alter: func(r *http.Response) {
			r.Body.Close()
			r.Header.Del("Content-Length")
			r.Body = io.NopCloser(strings.NewReader("an advertisement"))
		}})
	testutil.Ok(t, err)
	t.Cleanup(p.Close)
	pair := netip.MustParseAddrPort(p.URL.Host)
	c := Candidate{Protocol: "http", Host: pair.Addr().String(), Port: pair.Port()}
	mustPublish(t, b.pool, probe.Result{Candidate: c, Protocol: "http", Alive: true, Exit: p.Exit, Anonymity: probe.Elite, Tunnel: true,
		Tampering: []string{probe.TamperBody}, Can: probe.Capabilities{HTTPS: true}})
	rt := b.pool.Transport("shop", TransportOptions{})
	if status, body, err := get(t, rt, "https://example.com/"); status != 200 || body != "hello" || err != nil {
		t.Errorf("https: got %d %q %v, want 200 hello", status, body, err)
	}
	before := p.Requests()
	if status, body, err := get(t, rt, "http://shop.example/"); !errors.Is(err, ErrNoProxy) {
		t.Errorf("http: got %d %q %v, want %v", status, body, err, ErrNoProxy)
	}
	if n := p.Requests() - before; n != 0 {
		t.Errorf("http: got %d requests at the proxy, want 0", n)
	}
}
