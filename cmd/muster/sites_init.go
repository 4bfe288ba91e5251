package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/urfave/cli/v2"

	"muster/sites/draft"
)

func initSiteCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "draft a definition of a site from one of its pages",
		ArgsUsage: "URL",
		Description: `Fetches the page and the first page that its list links to, directly, without a
proxy, and guesses a definition: the list whose items share a class, their links,
the next page, titles, prices, dates, images, structured data. A JSON API works
as well. Fields present in every record become required, so that a block page
yields no record. Prints the definition to standard output, and the records of both
pages to standard error. Review the definition before you use it.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "write the definition to `FILE`, which must not exist"},
		},
		Action: func(c *cli.Context) error {
			return initSite(env, c)
		},
	}
}

func initSite(env environment, c *cli.Context) error {
	u, err := url.Parse(c.Args().First())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usageError{fmt.Errorf("sites init: %q is not an http or https URL", c.Args().First())}
	}
	file := c.String("out")
	if file != "" {
		if _, err := os.Stat(file); err == nil {
			return usageError{fmt.Errorf("--out %s: the file exists; name another one, or move it away", file)}
		}
	}
	bare, err := draft.Bare(u)
	if err != nil {
		return err
	}
	client, closeIt, err := patientClient(env, c, bare)
	if err != nil {
		return err
	}
	defer closeIt()
	d, err := draft.Write(c.Context, client.Get, u)
	if err != nil {
		return fmt.Errorf("guess a definition from %s: %w", u, err)
	}
	for _, v := range d.Views {
		printView(env.stderr, v)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(env.stderr, "note: %s\n", n)
	}
	if file == "" {
		_, err = env.stdout.Write(d.YAML)
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write definition: %w", err)
	}
	_, err = f.Write(d.YAML)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write definition: %w", err)
	}
	fmt.Fprintf(env.stdout, "wrote %s; try it with muster sites check --live %s\n", file, file)
	return nil
}
