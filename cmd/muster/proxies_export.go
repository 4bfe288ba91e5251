package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/proxies"
)

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
