package crawl

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/polite"
	"muster/sites/report"
	"muster/tasks"
)

// Kinds of outages.
const (
	closes   = "it closes connections"
	resets   = "it resets connections"
	refuses  = "it refuses connections"
	answers5 = "it answers 503"
	cuts     = "it cuts bodies"
)

// outage is a site that is down from some page on until up is called.
type outage struct {
	site http.Handler
	from int // this many pages are given before
	how  string
	addr string

	server http.Server
	down   atomic.Bool
	failed atomic.Int64 // requests while it is down

	mu       sync.Mutex // guards the fields below
	pages    int
	listener net.Listener
}

func newOutage(t *testing.T, site http.Handler, from int, how string) *outage {
	t.Helper()
	o := &outage{site: site, from: from, how: how, addr: testutil.FreeAddr(t)}
	o.server.Handler = o
	o.listen(t)
	t.Cleanup(func() { _ = o.server.Close() })
	return o
}

func (o *outage) listen(t *testing.T) {
	l, err := net.Listen("tcp", o.addr)
	if err != nil {
		t.Error(err)
		return
	}
	o.mu.Lock()
	o.listener = l
	o.mu.Unlock()
	go func() { _ = o.server.Serve(l) }()
}

// up ends the outage.
func (o *outage) up(t *testing.T) {
	if o.how == refuses {
		o.listen(t)
	}
	o.down.Store(false)
}

func (o *outage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	if r.URL.Path != "/robots.txt" {
		o.pages++
	}
	if o.pages == o.from+1 && !o.down.Load() {
		o.pages++
		o.down.Store(true)
		if o.how == refuses {
			_ = o.listener.Close()
		}
	}
	o.mu.Unlock()
	if !o.down.Load() {
		o.site.ServeHTTP(w, r)
		return
	}
	o.failed.Add(1)
	switch o.how {
	case answers5:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case cuts:
		w.Header().Set("Content-Length", "5000")
		fmt.Fprint(w, "<html><h1>It be")
		_ = http.NewResponseController(w).Flush()
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if o.how == resets {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	_ = conn.Close()
}

// transport sends requests without a proxy and counts refused connections.
func (o *outage) transport() http.RoundTripper {
	var d net.Dialer
	return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil && o.down.Load() {
			o.failed.Add(1)
		}
		return conn, err
	}}
}

// process returns a worker with a separate transport, like a separate process. Client and OutDir default to new ones.
func process(t *testing.T, cfg Config) *Worker {
	t.Helper()
	if cfg.Client == nil {
		cfg.Client = tasks.NewClient(redistest.New(t))
		t.Cleanup(func() { _ = cfg.Client.Close() })
	}
	if cfg.OutDir == "" {
		cfg.OutDir = t.TempDir()
	}
	s := testutil.Must(New(cfg))(t)
	t.Cleanup(func() { testutil.Ok(t, s.Close()) })
	return s
}

// While a site is down its pages wait: few requests are sent, no page uses up its attempts, and all are fetched afterwards.
func TestSiteIsDownForAWhile(t *testing.T) {
	t.Parallel()
	const lists, perList = 4, 40
	for name, from := range map[string]int{"between details": 60, "between listing pages": 2} {
		for _, how := range []string{closes, resets, refuses, answers5, cuts} {
			t.Run(how+" "+name, func(t *testing.T) {
				t.Parallel()
				site := sitetest.NewShop(t, lists, perList)
				down := newOutage(t, site, from, how)
				rdb := redistest.New(t)
				client := tasks.NewClient(rdb)
				t.Cleanup(func() { _ = client.Close() })
				def, dir := site.Definition(t, ""), t.TempDir()
				jobs := make([]*job, 2)
				for i := range jobs {
					s := process(t, Config{Client: client, OutDir: dir, Transport: func(*definition.Definition) http.RoundTripper { return down.transport() }})
					jobs[i] = begin(t, s, "j1", def, ScrapeOptions{BaseURL: "http://" + down.addr})
					breaker := polite.NewSiteBreaker(rdb, SiteKey(jobs[i].def), def.Retries.StallMax, time.Now(), limit.BreakerConfig{Cooldown: 20 * time.Millisecond, MaxCooldown: 100 * time.Millisecond, Logger: noLog})
					jobs[i].crawler.breaker, jobs[i].crawler.admission.breaker = breaker, breaker
				}

				// The site comes up again after three trials of the breaker.
				over, watched := make(chan struct{}), make(chan struct{})
				var trials int64
				go func() {
					defer close(watched)
					if testutil.Becomes(func() bool {
						select {
						case <-over:
							return true
						default:
						}
						state, err := jobs[0].crawler.breaker.State(context.Background())
						return err == nil && state.Allowed >= 3
					}) {
						down.up(t)
						if state, err := jobs[0].crawler.breaker.State(context.Background()); err == nil {
							trials = max(state.Allowed, 3)
						}
					}
				}()
				sum, err := runOn(t.Context(), jobs)
				close(over)
				<-watched
				testutil.Ok(t, err)
				if want := lists + lists*perList; sum.Pages != want || sum.Errors != 0 || sum.Status != report.StatusComplete {
					t.Errorf("got %s with %d pages and %d errors, want %d pages and none: %+v", sum.Status, sum.Pages, sum.Errors, want, sum.Samples)
				} else {
					site.IsWhole(t, sum)
				}
				if n := down.failed.Load() - trials; trials < 3 || n > 16 {
					t.Errorf("%d requests and %d trials went out while the site was down, want at most 16 and at least 3", n, trials)
				}
			})
		}
	}
}

// runOn runs the steps of a job in several processes with a crawler each.
func runOn(ctx context.Context, jobs []*job) (report.Summary, error) {
	if err := jobs[0].collect(ctx); err != nil {
		return report.Summary{}, err
	}
	var g errgroup.Group
	for p, j := range jobs {
		g.Go(func() error { return crawlAs(ctx, j, fmt.Sprint("crawler ", p)) })
	}
	if err := g.Wait(); err != nil {
		return report.Summary{}, err
	}
	return until(ctx, func() (report.Summary, error) { return jobs[0].aggregate(ctx, nil) })
}
