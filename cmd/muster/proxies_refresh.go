package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
)

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
