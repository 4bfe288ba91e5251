package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/proxies"
)

func sourcesCommand(env environment) *cli.Command {
	settings := []settingFlag{sourceSetting, publicSetting}
	return &cli.Command{
		Name:  "sources",
		Usage: "list the sources of proxies and their yield",
		Description: `UNIQUE counts the candidates that no other source has. A source without a usable
proxy for three refreshes is DRY: it costs probes and brings nothing.`,
		Flags:  append(flagsOf(settings...), progressFlag(), watchFlag(), jsonFlag()),
		Action: func(c *cli.Context) error { return listSources(env, c, settings) },
	}
}

func listSources(env environment, c *cli.Context, settings []settingFlag) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	loaded, err := loadConfig(env, c, settings...)
	if err != nil {
		return err
	}
	if _, ok := flagValue(c, "log-level"); !ok {
		loaded.Log = config.Log{Level: "warn", Format: loaded.Log.Format}
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		yields, err := o.Pool.Yields(ctx)
		if err != nil {
			return err
		}
		for _, from := range o.Sources() {
			if _, ok := yields[from.Label()]; !ok {
				yields[from.Label()] = proxies.SourceYield{}
			}
		}
		if c.Bool("json") {
			return printJSON(env.stdout, yields)
		}
		if len(yields) == 0 {
			fmt.Fprintln(env.stderr, "no sources; name some in proxies.sources")
			return nil
		}
		t := newTable(env.stdout, "SOURCE", "STATE", "CANDIDATES", "UNIQUE", "ALIVE", "USABLE", "ELITE", "IN ALL", "REFRESHES", "READ", "LEFT OUT")
		t.less = []string{"UNIQUE", "ELITE", "IN ALL", "REFRESHES", "LEFT OUT"}
		for _, name := range slices.Sorted(maps.Keys(yields)) {
			y := yields[name]
			t.row(name, y.State(), fmt.Sprint(y.Last.Candidates), fmt.Sprint(y.Last.Unique), fmt.Sprint(y.Last.Alive), fmt.Sprint(y.Last.Usable), fmt.Sprint(y.Last.Elite),
				fmt.Sprintf("%d of %d", y.Total.Usable, y.Total.Candidates), fmt.Sprint(y.Refreshes), age(y.LastAt), counts(y.Rejects))
		}
		if err := t.flush(); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(yields)) {
			if y := yields[name]; y.Error != "" {
				fmt.Fprintln(env.stdout, strings.ReplaceAll(y.Error, "\n", " "))
			}
		}
		return nil
	})
}
