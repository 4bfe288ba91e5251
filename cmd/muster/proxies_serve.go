package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"muster/internal/secret"
	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/proxies/gateway"
	"muster/tasks/metrics"
)

func serveCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve the pool as one rotating proxy, until interrupted",
		Description: `Supports HTTP, CONNECT and SOCKS5. Options are part of the user name:
user-session-abc keeps one proxy for a session, user-country-bg selects a country.
Sessions exist in this process only, and end with it.
If the settings name sources, the pool is refilled when few proxies are left.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "listen at `ADDR`; beyond loopback it needs --key-file", Value: "127.0.0.1:8089"},
			&cli.StringFlag{Name: "metrics-listen", Usage: "serve metrics for Prometheus at `ADDR`, as in 127.0.0.1:9090; beyond loopback it needs a key"},
			&cli.StringFlag{Name: "key-file", Usage: "require a line of `FILE` as the password; a line is one key of at least 8 characters"},
		},
		Action: server(func(c *cli.Context) error { return serveProxies(env, c) }),
	}
}

// keyLines returns the keys in the text of a key file: its lines, without empty ones and white space around them.
func keyLines(text string) []string {
	var keys []string
	for line := range strings.Lines(text) {
		if key := strings.TrimSpace(line); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func serveProxies(env environment, c *cli.Context) error {
	var keys []string
	if path := c.String("key-file"); path != "" {
		text, err := secret.Read(path)
		if err != nil {
			return usageError{fmt.Errorf("read the keys: %w", err)}
		}
		if keys = keyLines(text); len(keys) == 0 {
			return usageError{fmt.Errorf("read the keys: %s has none; write one key per line", path)}
		}
	}
	loaded, err := loadSources(env, c, config.Sources{Default: quietly, Check: config.Config.MissingForSources})
	if err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		ctx, cancel := context.WithCancelCause(ctx)
		var running sync.WaitGroup
		running.Go(func() { o.Proxies.Keep(ctx) })
		logger := newLogger(env, env.stderr, loaded.Log)
		cfg := loaded.Proxies
		pool := proxies.NewPool(proxies.PoolConfig{
			Redis: o.Client.Redis(), MaxInFlight: cfg.MaxInFlight, Filter: loaded.ProxyFilter(), Logger: logger,
			ConnectTimeout: cfg.Serve.ConnectTimeout, HandshakeTimeout: cfg.Serve.HandshakeTimeout, HeaderTimeout: cfg.Serve.FirstByteTimeout,
		})
		defer pool.Close()
		running.Go(func() { pool.Run(ctx) })
		defer running.Wait()
		defer cancel(nil)
		front, err := gateway.New(gateway.Config{
			Pool: pool, Listen: c.String("listen"), Keys: keys, Tries: cfg.Serve.Tries, Logger: logger,
			Fallback: proxies.Fallback(config.PoolFallback(cfg.Fallback)), Options: proxies.PickOptions{Wait: cfg.Serve.Wait}, Filter: loaded.ProxyFilter(),
		})
		if err != nil {
			return err
		}
		defer env.watchKey(ctx, c.String("key-file"), func(text string) error { return front.SetKeys(keyLines(text)) })()
		if address := c.String("metrics-listen"); address != "" {
			stop, err := serveMetrics(address, "gateway", o.System, env.stderr, metrics.Handler(front, proxies.NewMetrics(pool), orchestrator.RuntimeMetrics()))
			if err != nil {
				return err
			}
			defer stop()
		}
		return front.Run(ctx, func(addr net.Addr) { fmt.Fprintf(env.stderr, "proxy: %s\n", addr) })
	})
}
