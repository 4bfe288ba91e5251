package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/source"
)

// addProxies adds the named proxies to the pool: the working ones, or with --no-check all.
func addProxies(env environment, c *cli.Context, loaded *config.Loaded) error {
	if _, ok := flagValue(c, "log-level"); !ok {
		loaded.Log.Level = "warn"
	}
	candidates, err := candidatesOf(env, c, loaded.Config, loaded.Proxies.AllowLocal || judgedHere(loaded.Proxies.Judges) || len(loaded.Proxies.Judges) == 0)
	if err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		if !c.Bool("no-check") {
			return showResults(env, c, display, len(candidates), func(report func(probe.Result)) error {
				return o.CheckProxies(ctx, candidates, report)
			})
		}
		added, err := o.Pool.Add(ctx, uncheckedProxies(candidates)...)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, addedProxies{added, len(candidates) - added})
		}
		fmt.Fprintf(env.stdout, "%d added, %d were in the pool before\n", added, len(candidates)-added)
		return nil
	})
}

// addedProxies is the JSON result of proxies check --add --no-check.
type addedProxies struct {
	Added int `json:"added"`
	Known int `json:"known"` // were in the pool before
}

func uncheckedProxies(candidates []source.Candidate) []proxies.Proxy {
	list := make([]proxies.Proxy, len(candidates))
	for i, p := range candidates {
		p.Protocol = strings.TrimSuffix(cmp.Or(p.Protocol, "http"), "h") // socks5 resolves names at the proxy here, as socks5h does
		list[i] = proxies.Proxy{Protocol: p.Protocol, Host: p.Host, Port: p.Port, Username: p.Username, Password: p.Password, Country: p.Country, Sources: p.Sources}
	}
	return list
}
