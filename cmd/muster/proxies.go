package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/counts"
	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/proxies/gateway"
	"muster/tasks/metrics"
)

var sourceSetting = settingFlag{"source", "proxies.sources", "read candidates from `FILE-OR-URL`; separate several with commas"}

const proxyArguments = `PROXY is a name from the list, without a password, or host:port, or a host for all
of its ports.`

func proxiesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "proxies",
		Usage: "check proxies, list the pool, serve it as one proxy",
		Subcommands: []*cli.Command{
			{
				Name:  "refresh",
				Usage: "collect candidates from the sources, check them, and publish working proxies",
				Description: `Working proxies are in the pool as soon as they are found. After Ctrl-C they stay
there, and the next refresh continues where this one stopped.`,
				Flags:  append(flagsOf(sourceSetting), jsonFlag()),
				Action: func(c *cli.Context) error { return refreshProxies(env, c) },
			},
			listCommand(env),
			countCommand(env),
			checkCommand(env),
			act(env, &cli.Command{
				Name: "delete", Usage: "remove proxies from the pool", ArgsUsage: "PROXY…",
				Description: proxyArguments + ` A working proxy that a source still lists returns with
the next refresh; use ban to exclude it.`,
			}, client.DeleteProxies, func(_ client.With[client.ProxySelection], out client.ChangedProxies) string {
				return fmt.Sprintf("%d deleted", out.Changed)
			}),
			act(env, &cli.Command{
				Name: "ban", Usage: "exclude proxies from a site, or from all sites", ArgsUsage: "PROXY…",
				Description: proxyArguments + ` muster proxies list --site SITE --banned
lists the bans from a site.`,
			}, client.BanProxies, func(_ client.With[client.ProxyBan], out client.ChangedProxies) string {
				return fmt.Sprintf("%d banned", out.Changed)
			}),
			act(env, &cli.Command{Name: "unban", Usage: "lift bans of proxies", ArgsUsage: "PROXY…", Description: proxyArguments},
				client.UnbanProxies, func(_ client.With[client.ProxyUnban], out client.ChangedProxies) string {
					return fmt.Sprintf("%d no longer banned", out.Changed)
				}),
			exportCommand(env),
			serveCommand(env),
		},
	}
}

// withPool runs fn with the pool, on the Redis of a running orchestrator or one
// that is started for it.
func withPool(env environment, c *cli.Context, fn func(context.Context, *proxies.Pool) error) error {
	loaded, err := loadSources(env, c, config.Sources{Default: quietly})
	if err != nil {
		return err
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		return fn(ctx, o.Pool)
	})
}

// stateOf is the state of a proxy, and when it can be used again.
func stateOf(m proxies.Member, now time.Time) string {
	until := m.Health.Until
	if there := m.ShownHealth().Until; there.After(until) {
		until = there
	}
	left := func(until time.Time) string { return until.Sub(now).Round(time.Second).String() }
	switch {
	case m.Banned && m.BannedUntil.IsZero():
		return "banned until lifted"
	case m.Banned:
		return "banned " + left(m.BannedUntil)
	case now.Before(until):
		return "rests " + left(until)
	}
	return "ready"
}

func listCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name:  "list",
		Usage: "list the pool, fastest first, or print statistics of the pool or of its sources",
		Description: `With --sources, UNIQUE counts the candidates that no other source has. A source
without a usable proxy for three refreshes is DRY: it costs probes and finds nothing.`,
		Flags: []cli.Flag{
			programFlag("limit"), // without it, all
			&cli.BoolFlag{Name: "stats", Usage: "print statistics of the pool instead"},
			&cli.BoolFlag{Name: "sources", Usage: "list the sources and their yield instead"}, jsonFlag(),
		},
	}, func(s scope, f client.ProxyFilter) error {
		switch {
		case s.Bool("stats"):
			return showPool(s, client.None{})
		case s.Bool("sources"):
			return listSources(s)
		}
		now := time.Now()
		return printAll(s, client.ListProxies, f, "No proxies found", proxyColumns, func(m proxies.Member) []any { return proxyRow(m, now) })
	})
}

const proxyColumns = "PROXY ANONYMITY COUNTRY HTTPS LATENCY OK STATE CHECKED REQUESTS SCORE EXIT"

func isComma(r rune) bool { return r == ',' || r == ' ' }

func proxyRow(m proxies.Member, now time.Time) []any {
	exit := ""
	if m.Exit.IsValid() {
		exit = m.Exit.String()
	}
	health := m.ShownHealth()
	return []any{m.String(), m.Anonymity, m.Country, httpsWord(m.Can), fmt.Sprintf("%.0f ms", m.LatencyMS), fmt.Sprintf("%.0f%%", 100*health.OK),
		stateOf(m, now), m.CheckedAt, health.Requests, fmt.Sprintf("%.2f", m.Score), exit}
}

// countCommand is proxies list --stats by another name.
func countCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{Name: "count", Hidden: true, Usage: "print statistics of the pool", Flags: []cli.Flag{jsonFlag()}}, showPool)
}

// showPool prints statistics of the pool.
func showPool(s scope, _ client.None) error {
	stats, err := client.GetProxyStats.Call(s.ctx, s.api, client.None{})
	if err != nil {
		return err
	}
	return s.showFields(stats)
}

// listSources prints the sources and their yield.
func listSources(s scope) error {
	list, err := client.All(s.ctx, s.api, client.ListProxySources, client.None{}, 0)
	if err != nil {
		return err
	}
	return showPage(s, list, "No sources; name some in proxies.sources", "SOURCE STATE CANDIDATES ALIVE USABLE READ LEFT_OUT UNIQUE ELITE", func(y client.ProxySource) []any {
		return []any{y.Name, y.State(), y.Last.Candidates, y.Last.Alive, y.Last.Usable, y.LastAt, counts.Text(y.Rejects), y.Last.Unique, y.Last.Elite, note(y.Error)}
	})
}

func refreshProxies(env environment, c *cli.Context) error {
	loaded, err := loadConfig(env, c, sourceSetting)
	if err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		report, err := o.Proxies.Refresh(ctx)
		if err != nil && ctx.Err() != nil {
			return withState(ctx, errors.Join(err, printKept(env, o)), "continue with muster proxies refresh")
		}
		if err != nil {
			return err
		}
		display.Close()
		if c.Bool("json") {
			return printJSON(env.stdout, report)
		}
		fmt.Fprintf(env.stdout, "%d candidates, %d alive, %d usable; %d in the pool\n", report.Candidates, report.Alive, report.Usable, report.Live)
		printReasons(env, report.Reasons)
		return nil
	})
}

// printKept prints the proxies that an interrupted refresh added to the pool.
func printKept(env environment, o *orchestrator.Orchestrator) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	usable, err := o.Pool.Usable(ctx)
	if err != nil {
		return err
	}
	if _, err = o.Pool.Export(ctx, o.Config().DataDir); err == nil {
		fmt.Fprintf(env.stderr, "%d usable proxies are in the pool; the next refresh continues\n", usable)
	}
	return err
}

func exportCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write the usable proxies to files in DIR, or to standard output with -",
		ArgsUsage: "[DIR|-]",
		Description: `Without --format it writes a file of each format to DIR, which defaults to the
current directory, and URLs to standard output. The files contain the passwords
of the proxies.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "only in the formats `F,…`: " + strings.Join(proxies.FormatNames(), ", ")},
		},
		Action: func(c *cli.Context) error { return exportProxies(env, c) },
	}
}

func exportProxies(env environment, c *cli.Context) error {
	formats := strings.FieldsFunc(c.String("format"), isComma)
	if _, err := proxies.FormatsOf(formats); err != nil {
		return usageError{err}
	}
	dir := cmp.Or(c.Args().First(), ".")
	if dir == "-" && len(formats) > 1 {
		return usageError{errors.New("proxies export: standard output takes one format")}
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		if dir == "-" {
			return pool.ExportTo(ctx, env.stdout, cmp.Or(strings.Join(formats, ""), "text"))
		}
		n, err := pool.Export(ctx, dir, formats...)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.stdout, "%d proxies written to %s\n", n, dir)
		return nil
	})
}

// withoutPassword returns an argument for a message: *** for one that may contain a password, unless it is the password of a URL.
func withoutPassword(word string) string {
	if u, err := url.Parse(word); err == nil && u.Host != "" {
		return u.Redacted()
	}
	if _, err := netip.ParseAddr(word); err == nil || !strings.Contains(word, "@") && strings.Count(word, ":") < 2 {
		return word
	}
	return "***"
}

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
			programFlag("metrics-listen"),
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
	err := readKey(c.String("key-file"), func(text string) error {
		if keys = keyLines(text); len(keys) == 0 {
			return errors.New("it has none; write one key per line")
		}
		return nil
	})
	if err != nil {
		return err
	}
	loaded, err := loadSources(env, c, config.Sources{Default: quietly, Check: config.Config.MissingForSources}, metricsListen)
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
		if c.IsSet("metrics-listen") {
			url, stop, err := o.ServeMetrics(ctx, "gateway", metrics.Handler(front, proxies.NewMetrics(pool), orchestrator.RuntimeMetrics()))
			if err != nil {
				return err
			}
			defer stop()
			fmt.Fprintf(env.stderr, "metrics are at %s\n", url)
		}
		return front.Run(ctx, func(addr net.Addr) { fmt.Fprintf(env.stderr, "proxy: %s\n", addr) })
	})
}
