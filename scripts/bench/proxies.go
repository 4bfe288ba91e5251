package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/proxies"
	"muster/proxies/gateway"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
	"muster/tasks"
)

func proxyRows() []row {
	check := sync.OnceValues(func() (checked, error) { return checkTenThousand(context.Background()) })
	once := func(value func(checked) float64) func(context.Context, *lab) (float64, error) {
		return func(context.Context, *lab) (float64, error) {
			c, err := check()
			return value(c), err
		}
	}
	return []row{
		{name: "proxies.check_10000", unit: "s", rounds: 1, bar: atMost(1.15),
			measure: once(func(c checked) float64 { return c.took.Seconds() }), yardstick: once(func(c checked) float64 { return c.ideal.Seconds() })},
		{name: "proxies.check_10000_memory", unit: "MB", rounds: 1, bar: atMost(300), measure: once(func(c checked) float64 { return c.megabytes })},
		{name: "proxies.check_10000_wrong", unit: "results", rounds: 1, bar: atMost(0), measure: once(func(c checked) float64 { return float64(c.wrong) })},
		{name: "proxies.chord_40_chunks", unit: "s", rounds: 1, bar: atMost(1.02), measure: chordOfChunks,
			yardstick: func(context.Context, *lab) (float64, error) { return (chunkTime * 40 / 8).Seconds(), nil }},
		{name: "proxies.pick_and_report_100000", unit: "picks/s", rounds: 3, bar: atLeast(20_000), measure: pickAndReport},
		{name: "proxies.gateway_https", unit: "requests/s", rounds: 5, bar: atLeast(0.5), measure: fullSpeed(true, throughGateway), yardstick: fullSpeed(true, directly)},
		{name: "proxies.gateway_http", unit: "requests/s", rounds: 5, bar: atLeast(0.5), measure: fullSpeed(false, throughGateway), yardstick: fullSpeed(false, throughProxies)},
		{name: "proxies.gateway_added_p99", unit: "ms", rounds: 5, bar: atMost(5), measure: addedLatency},
	}
}

// checked is what became of a large check.
type checked struct {
	took, ideal time.Duration
	megabytes   float64
	wrong       int
}

// checkTenThousand checks 10,000 candidates: 2 % alive after 50 to 800 ms, 30 % refused, 68 % that never answer the
// TCP handshake, a thousand at once.
func checkTenThousand(ctx context.Context) (checked, error) {
	const concurrency, connectTimeout = 1000, 2 * time.Second
	judge, err := probe.StartJudge(probe.JudgeConfig{Key: "bench"})
	if err != nil {
		return checked{}, err
	}
	defer judge.Close()
	silent, err := listenDeaf()
	if err != nil {
		return checked{}, err
	}
	defer silent.close()

	random := rand.New(rand.NewPCG(1, 2))
	var candidates []source.Candidate
	alive := map[string]netip.Addr{}
	var work time.Duration
	for i := range 200 {
		delay := 50*time.Millisecond + time.Duration(random.IntN(750))*time.Millisecond
		p, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(i), Delay: delay})
		if err != nil {
			return checked{}, err
		}
		defer p.Close()
		pair := netip.MustParseAddrPort(p.URL.Host)
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: pair.Addr().String(), Port: pair.Port()})
		alive[p.URL.Host] = p.Exit
		work += 2 * delay // the first answer, and then everything else side by side
	}
	for i := range 3000 { // nobody listens there
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: proxytest.ExitAddress(i).String(), Port: 9})
	}
	for i := range 6800 {
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: proxytest.ExitAddress(i).String(), Port: silent.port})
		work += connectTimeout
	}
	random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })

	prober, err := probe.New(probe.Config{Judges: judge.URLs, Key: "bench", Concurrency: concurrency, ConnectTimeout: connectTimeout})
	if err != nil {
		return checked{}, err
	}
	out := checked{ideal: work / concurrency}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			out.megabytes = max(out.megabytes, float64(sample[0].Value.Uint64())/(1<<20))
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	begun := time.Now()
	seen := 0
	err = prober.Each(ctx, slices.Values(candidates), func(r probe.Result) {
		seen++
		exit, good := alive[r.Candidate.Address()]
		if r.Alive != good || good && r.Exit != exit {
			out.wrong++
		}
	})
	out.took = time.Since(begun)
	close(stop)
	watch.Wait()
	if err == nil && seen != len(candidates) {
		err = fmt.Errorf("%d of %d candidates were reported", seen, len(candidates))
	}
	return out, err
}

// deaf is a listening port on all of 127.0.0.0/8 whose queue is full: SYNs to it get no answer.
type deaf struct {
	fd    int
	port  uint16
	conns []net.Conn
}

func listenDeaf() (*deaf, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("make a deaf port: %w", err)
	}
	d := &deaf{fd: fd}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{}); err == nil {
		err = syscall.Listen(fd, 0)
	}
	address, err1 := syscall.Getsockname(fd)
	if err := errors.Join(err, err1); err != nil {
		d.close()
		return nil, fmt.Errorf("make a deaf port: %w", err)
	}
	d.port = uint16(address.(*syscall.SockaddrInet4).Port)
	for range 8 {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", d.port), 300*time.Millisecond)
		if err != nil {
			return d, nil
		}
		d.conns = append(d.conns, conn)
	}
	d.close()
	return nil, errors.New("make a deaf port: it still answers")
}

func (d *deaf) close() {
	for _, c := range d.conns {
		c.Close()
	}
	_ = syscall.Close(d.fd)
}

// chunkTime is what the check of one chunk takes in chordOfChunks.
const chunkTime = 2 * time.Second

// chordOfChunks runs a refresh of 40 chunks of 100 on 8 workers, whose checks take chunkTime each.
func chordOfChunks(ctx context.Context, l *lab) (float64, error) {
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var list strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&list, "http://%s:9\n", proxytest.ExitAddress(i))
	}
	file := filepath.Join(dir, "list.txt")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		return 0, err
	}

	client := tasks.NewClient(l.rdb)
	defer client.Close()
	pool := proxies.NewPool(proxies.PoolConfig{Redis: l.rdb})
	defer pool.Close()
	service, err := proxies.NewService(proxies.Config{Pool: pool})
	if err != nil {
		return 0, err
	}
	mux := tasks.NewMux()
	service.RegisterAround(mux, func(ctx context.Context, chunk []proxies.Candidate) (proxies.Tally, error) {
		if len(chunk) != proxies.ChunkSize {
			return proxies.Tally{}, fmt.Errorf("a chunk of %d", len(chunk))
		}
		select {
		case <-time.After(chunkTime):
			return proxies.Tally{Checked: len(chunk), Alive: 2, Accepted: 2, Usable: 2}, nil
		case <-ctx.Done():
			return proxies.Tally{}, ctx.Err()
		}
	})
	ready := make(chan struct{})
	worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{"probe": 1}, Concurrency: 8, Ready: func() { close(ready) }})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	select {
	case <-ready:
	case err := <-done:
		return 0, err
	}
	begun := time.Now()
	run, err := service.Refresh(ctx, source.Source{URL: file, AllowLocal: true}).Send(ctx, client, tasks.ProgressKeys(proxies.ProgressPrefix))
	if err != nil {
		return 0, err
	}
	report, err := run.Wait(ctx)
	took := time.Since(begun)
	cancel()
	if stopped := <-done; err == nil {
		err = stopped
	}
	if err == nil && report.Checked != 4000 {
		err = fmt.Errorf("%d of 4000 were checked", report.Checked)
	}
	return took.Seconds(), err
}

// pickAndReport has 8 goroutines pick from a pool of 100,000 and report, until 100,000 are done and written.
func pickAndReport(ctx context.Context, l *lab) (float64, error) {
	const members, picks, goroutines = 100_000, 100_000, 8
	pool := proxies.NewPool(proxies.PoolConfig{Redis: l.rdb})
	defer pool.Close()
	for chunk := range slices.Chunk(slices.Collect(numbers(members)), 5000) {
		var list []proxies.Proxy
		for _, i := range chunk {
			list = append(list, proxies.Proxy{Protocol: "http", Host: fmt.Sprintf("8.%d.%d.%d", i>>16, i>>8&255, i&255), Port: 8080, LatencyMS: float64(50 + i%2000), Anonymity: probe.Elite})
		}
		if _, err := pool.Add(ctx, list...); err != nil {
			return 0, err
		}
	}
	lease, err := pool.Pick(ctx, proxies.PickOptions{Site: "shop"}) // reads the pool
	if err != nil {
		return 0, err
	}
	lease.Release()

	begun := time.Now()
	var group sync.WaitGroup
	failures := make([]error, goroutines)
	for g := range goroutines {
		group.Go(func() {
			for i := range picks / goroutines {
				lease, err := pool.Pick(ctx, proxies.PickOptions{Site: "shop"})
				if err != nil {
					failures[g] = err
					return
				}
				outcome := proxies.Succeeded
				if i%50 == 0 {
					outcome = proxies.Banned
				}
				lease.Report(outcome, 120*time.Millisecond)
			}
		})
	}
	group.Wait()
	err = errors.Join(errors.Join(failures...), pool.Flush(ctx))
	return picks / time.Since(begun).Seconds(), err
}

func numbers(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// traffic is what 64 clients measured who fetched 10 kB again and again.
type traffic struct {
	perSecond float64
	p99       time.Duration
}

const clients, requestsEach = 64, 100

// load fetches target by all clients at once, each on connections that it keeps, by one of via after the other or, where
// there is none, directly, and each client a request every so often, or as fast as it can. Connections are made before
// the time is taken, and paced clients do not all ask in the same instant.
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
	get := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err == nil && (n != 10_000 || response.StatusCode != http.StatusOK) {
			err = fmt.Errorf("got %s and %d bytes", response.Status, n)
		}
		return err
	}
	var mu sync.Mutex // guards took
	var took []time.Duration
	failures := make([]error, clients)
	all := func(do func() error) {
		var group sync.WaitGroup
		for c := range clients {
			group.Go(func() {
				if every > 0 {
					time.Sleep(every * time.Duration(c) / clients)
				}
				failures[c] = errors.Join(failures[c], do())
			})
		}
		group.Wait()
	}
	all(func() error {
		for range 5 {
			if err := get(); err != nil {
				return err
			}
		}
		return nil
	})
	begun := time.Now()
	all(func() error {
		tick := time.NewTicker(max(every, 1))
		defer tick.Stop()
		for range requestsEach {
			if every > 0 {
				<-tick.C
			}
			at := time.Now()
			if err := get(); err != nil {
				return err
			}
			mu.Lock()
			took = append(took, time.Since(at))
			mu.Unlock()
		}
		return nil
	})
	if err := errors.Join(failures...); err != nil {
		return traffic{}, err
	}
	slices.Sort(took)
	return traffic{perSecond: float64(len(took)) / time.Since(begun).Seconds(), p99: took[len(took)*99/100]}, nil
}

// site is where the clients go, and how they trust it.
type site struct {
	url   string
	trust *tls.Config
}

// bodySite answers with 10 kB.
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

// way is how the clients reach the site.
type way int

const (
	directly way = iota
	throughProxies
	throughGateway
)

// fullSpeed is the requests a second of all clients on a way. All of it, the clients, the proxies and the site too,
// shares this machine: a hop more costs what it costs. Of HTTPS the yardstick is no proxy at all; plain HTTP, which
// proxies have to read, is compared with the same proxies without the gateway.
func fullSpeed(https bool, by way) func(context.Context, *lab) (float64, error) {
	return func(ctx context.Context, l *lab) (perSecond float64, err error) {
		err = withGateway(ctx, l, https, func(to site, front, upstream []*url.URL) error {
			t, err := load(ctx, to, map[way][]*url.URL{throughProxies: upstream, throughGateway: front}[by], 0)
			perSecond = t.perSecond
			return err
		})
		return perSecond, err
	}
}

// addedLatency is what the gateway adds to the 99th percentile of the same proxies without it, at 640 requests a second.
func addedLatency(ctx context.Context, l *lab) (float64, error) {
	var with, without traffic
	err := withGateway(ctx, l, false, func(to site, front, upstream []*url.URL) (err error) {
		if without, err = load(ctx, to, upstream, 100*time.Millisecond); err != nil {
			return err
		}
		with, err = load(ctx, to, front, 100*time.Millisecond)
		return err
	})
	return float64((with.p99 - without.p99).Microseconds()) / 1000, err
}

// withGateway runs fn with a gateway over 16 proxies, which all lead to a site.
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
