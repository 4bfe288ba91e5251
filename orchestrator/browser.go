package orchestrator

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"sync"

	"muster/internal/addressfilter"
	"muster/orchestrator/config"
	"muster/proxies"
	"muster/proxies/gateway"
	"muster/sites/definition"
)

// browserProxies serves the pool to the browser of this process: a gateway on loopback for each fallback.
type browserProxies struct {
	mu       sync.Mutex // guards the fields below
	gateways map[proxies.Fallback]url.URL
	stop     []context.CancelFunc
	running  sync.WaitGroup
}

// browserProxy returns the URL of a gateway to the pool for a visitor of a site, whose pages use one proxy. It returns "" if the
// browser is on another machine and cannot reach the gateway.
func (s *System) browserProxy(def *definition.Definition, visitor string) (string, error) {
	if u, err := url.Parse(s.cfg().Sites.Browser); err == nil && u.Host != "" && !addressfilter.IsLoopback(u.Hostname()) {
		return "", nil
	}
	fallback := proxies.Fallback(config.PoolFallback(cmp.Or(def.Proxy.Fallback, s.cfg().Proxies.Fallback)))
	b := &s.through
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.gateways[fallback]
	if !ok {
		key := rand.Text()
		g, err := gateway.New(gateway.Config{Pool: s.Pool, Keys: []string{key}, Fallback: fallback, Filter: s.cfg().Network.Filter(), Logger: s.logger})
		if err != nil {
			return "", err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("serve proxies to the browser: %w", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		b.running.Go(func() { _ = g.Serve(ctx, l) }) // until close; afterwards the browser has no proxies
		b.stop = append(b.stop, cancel)
		at = url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword("", key)}
		b.gateways[fallback] = at
	}
	key, _ := at.User.Password()
	at.User = url.UserPassword("muster-session-"+visitor, key)
	return at.String(), nil
}

func (b *browserProxies) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, stop := range b.stop {
		stop()
	}
	b.running.Wait()
}
