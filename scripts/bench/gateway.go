package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/proxies"
	"muster/proxies/gateway"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
)

// traffic is the speed and latency of 64 clients that fetch 10 kB again and again.
type traffic struct {
	perSecond float64
	p99       time.Duration
}

const clients, requestsEach = 64, 100

// load fetches target by all clients at once, each on connections that it keeps, through each of via in turn or, with
// none, directly. Each client sends a request at each interval or, for 0, as fast as it can. Connections are made before
// the time is taken, and paced clients do not all send at the same instant.
func load(ctx context.Context, target site, via []*url.URL, every time.Duration) (traffic, error) {
	var turn atomic.Int64
	transport := &http.Transport{MaxIdleConnsPerHost: clients, TLSClientConfig: target.trust, Proxy: func(*http.Request) (*url.URL, error) {
		if len(via) == 0 {
			return nil, nil
		}
		return via[int(turn.Add(1))%len(via)], nil
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	took := make([][]time.Duration, clients)
	all := func(requests int) error {
		var group errgroup.Group
		for c := range clients {
			took[c] = nil
			group.Go(func() error {
				time.Sleep(every * time.Duration(c) / clients)
				tick := time.NewTicker(max(every, 1))
				defer tick.Stop()
				for range requests {
					if every > 0 {
						<-tick.C
					}
					began := time.Now()
					if err := get(ctx, client, target.url); err != nil {
						return err
					}
					took[c] = append(took[c], time.Since(began))
				}
				return nil
			})
		}
		return group.Wait()
	}
	if err := all(5); err != nil {
		return traffic{}, err
	}
	began := time.Now()
	if err := all(requestsEach); err != nil {
		return traffic{}, err
	}
	perSecond := clients * requestsEach / time.Since(began).Seconds()
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	return traffic{perSecond: perSecond, p99: sorted[len(sorted)*99/100]}, nil
}

// get fetches the body of bodySite.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (n != 10_000 || response.StatusCode != http.StatusOK) {
		err = fmt.Errorf("got %s and %d bytes, want 200 and 10000", response.Status, n)
	}
	return err
}

// site is a site that clients fetch, and the certificate they trust.
type site struct {
	url   string
	trust *tls.Config
}

// bodySite starts a site that answers with 10 kB.
func bodySite(https bool) (site, func()) {
	body := []byte(strings.Repeat("0123456789", 1000))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	if !https {
		server.Start()
		return site{url: server.URL}, server.Close
	}
	server.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return site{server.URL, &tls.Config{RootCAs: roots}}, server.Close
}

// route is how the clients reach the site.
type route int

const (
	directly route = iota
	throughProxies
	throughGateway
)

// fullSpeed is the requests a second of all clients by a route.
func fullSpeed(https bool, by route) measureFunc {
	return func(ctx context.Context, l *lab) (perSecond float64, err error) {
		err = withGateway(ctx, l, https, func(to site, front, upstream []*url.URL) error {
			t, err := load(ctx, to, map[route][]*url.URL{throughProxies: upstream, throughGateway: front}[by], 0)
			perSecond = t.perSecond
			return err
		})
		return perSecond, err
	}
}

// addedLatency is the 99th percentile through the gateway less that of its proxies alone, in ms, at 640 requests a second.
func addedLatency(ctx context.Context, l *lab) (float64, error) {
	var with, without traffic
	err := withGateway(ctx, l, false, func(to site, front, upstream []*url.URL) (err error) {
		if without, err = load(ctx, to, upstream, 100*time.Millisecond); err != nil {
			return err
		}
		with, err = load(ctx, to, front, 100*time.Millisecond)
		return err
	})
	return ms(with.p99 - without.p99), err
}

// withGateway runs fn with a gateway over 16 proxies, which all reach a site.
func withGateway(ctx context.Context, l *lab, https bool, fn func(to site, front, upstream []*url.URL) error) error {
	to, closeSite := bodySite(https)
	defer closeSite()
	pool := proxies.NewPool(proxies.PoolConfig{Redis: l.rdb, MaxInFlight: clients})
	defer pool.Close()
	var upstream []*url.URL
	for i := range 16 {
		p, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(i)})
		if err != nil {
			return err
		}
		defer p.Close()
		upstream = append(upstream, p.URL)
		pair := netip.MustParseAddrPort(p.URL.Host)
		if _, err := pool.Add(ctx, proxies.Proxy{Protocol: "http", Host: pair.Addr().String(), Port: pair.Port(), Anonymity: probe.Elite, LatencyMS: 1,
			Can: probe.Capabilities{Forward: true, Connect: true}}); err != nil {
			return err
		}
	}
	g, err := gateway.New(gateway.Config{Pool: pool, Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	addr, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- g.Run(ctx, func(a net.Addr) { addr <- a }) }()
	go pool.Run(ctx)
	defer func() { cancel(); <-done }()
	front := &url.URL{Scheme: "http", Host: (<-addr).String()}
	return fn(to, []*url.URL{front}, upstream)
}
