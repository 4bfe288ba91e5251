package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"golang.org/x/sync/errgroup"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/proxytest"
)

// BenchmarkGateway compares requests for 10 kB by 16 clients through the gateway and eight proxies with requests
// through the same proxies without the gateway.
func BenchmarkGateway(b *testing.B) {
	for name, secure := range map[string]bool{"http": false, "https": true} {
		b.Run(name, func(b *testing.B) { benchGateway(b, secure) })
	}
}

func benchGateway(b *testing.B, secure bool) {
	f := newFront(b, Config{}, kinds(8, proxytest.Elite)...)
	site := f.site
	if secure {
		site = f.secure
	}
	var upstream []*url.URL
	for _, p := range f.proxies {
		upstream = append(upstream, p.URL)
	}
	go f.pool.Run(b.Context())
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
						resp, err := client.Get(site.URL + "/big")
						if err != nil {
							return err
						}
						n, err := io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						if err != nil || n != int64(len(big)) {
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
	fetch(&url.URL{Scheme: "http", Host: f.addr})()
	b.StopTimer()
	redistest.Baseline(b, "direct", fetch(upstream...))
}
