package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"muster/internal/testutil"
	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/tasks/redistest"
)

// BenchmarkGateway compares requests for 10 kB by 16 clients through the gateway and eight proxies with requests
// through the same proxies without the gateway.
func BenchmarkGateway(b *testing.B) {
	for name, secure := range map[string]bool{"http": false, "https": true} {
		b.Run(name, func(b *testing.B) { benchGateway(b, secure) })
	}
}

func benchGateway(b *testing.B, secure bool) {
	body := strings.Repeat("0123456789", 1000)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
	if secure {
		site.StartTLS()
	} else {
		site.Start()
	}
	defer site.Close()
	pool := proxies.NewPool(proxies.PoolConfig{Redis: redistest.Server(b).Client(), MaxInFlight: 64})
	defer pool.Close()
	var upstream []*url.URL
	for i := range 8 {
		p, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(i)})
		testutil.Ok(b, err)
		defer p.Close()
		upstream = append(upstream, p.URL)
		at := netip.MustParseAddrPort(p.URL.Host)
		if _, err := pool.Add(b.Context(), proxies.Proxy{Protocol: "http", Host: at.Addr().String(), Port: at.Port(), Anonymity: probe.Elite, LatencyMS: 1,
			Can: probe.Capabilities{Forward: true, Connect: true}}); err != nil {
			b.Fatal(err)
		}
	}
	g, err := New(Config{Pool: pool, Listen: "127.0.0.1:0"})
	testutil.Ok(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	listening, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- g.Run(ctx, func(a net.Addr) { listening <- a }) }()
	go pool.Run(ctx)
	defer func() { cancel(); <-done }()
	front := &url.URL{Scheme: "http", Host: (<-listening).String()}

	fetch := func(via ...*url.URL) func() {
		return func() {
			var clients errgroup.Group
			for c := range 16 {
				clients.Go(func() error {
					transport := site.Client().Transport.(*http.Transport).Clone()
					transport.Proxy = http.ProxyURL(via[c%len(via)])
					defer transport.CloseIdleConnections()
					client := &http.Client{Transport: transport}
					for range (b.N + c) / 16 {
						resp, err := client.Get(site.URL)
						if err != nil {
							return err
						}
						n, err := io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						if err != nil || n != int64(len(body)) {
							return fmt.Errorf("got %d bytes, error %w", n, err)
						}
					}
					return nil
				})
			}
			testutil.Ok(b, clients.Wait())
		}
	}
	b.ResetTimer()
	fetch(front)()
	b.StopTimer()
	redistest.Baseline(b, "direct", fetch(upstream...))
}
