package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/sites/definition"
	"muster/sites/sample"
)

func capturePageCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "capture",
		Usage:     "fetch a page and save it, with its records, for muster sites test",
		ArgsUsage: "SITE-OR-FILE URL",
		Description: `Fetches the page directly, without a proxy, and writes it and a JSON file of its
records and links into the directory of the site's pages. Check the JSON: sites test
expects exactly these records and links.`,
		Flags: append(flagsOf(sitesSetting), pagesFlag(), baseURLFlag(),
			&cli.StringFlag{Name: "kind", Usage: "the page is a `KIND`: listing or detail", DefaultText: "kind of the start page with this URL, else detail"},
			&cli.StringFlag{Name: "as", Usage: "save it under `NAME`", DefaultText: "from kind and URL"}),
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 2, 2); err != nil {
				return err
			}
			return capturePage(env, c)
		},
	}
}

func capturePage(env environment, c *cli.Context) error {
	own, err := siteOf(env, c, c.Args().First())
	if err != nil {
		return err
	}
	dir, err := pagesOf(c, own)
	if err != nil {
		return err
	}
	def, err := own.WithBase(c.String("base-url"))
	if err != nil {
		return usageError{err}
	}
	u, err := def.Base().Parse(c.Args().Get(1))
	if err != nil {
		return usageError{fmt.Errorf("sites capture: %q is not a URL", c.Args().Get(1))}
	}
	u = def.Move(u)
	if !def.InScope(u) {
		return usageError{fmt.Errorf("sites capture: %s is outside the site's hosts and scope; see muster sites get %s", u, c.Args().First())}
	}
	kind := c.String("kind")
	switch kind {
	case "":
		kind = sample.KindOf(def, u)
	case definition.KindListing, definition.KindDetail:
	default:
		return usageError{fmt.Errorf("--kind %s: must be %s or %s", kind, definition.KindListing, definition.KindDetail)}
	}
	name := c.String("as")
	if name == "" {
		name = sample.NameFor(kind, u)
	}
	if strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return usageError{fmt.Errorf("--as %s: must be the name of a file, without folders", name)}
	}
	client, err := patientClient(env, c, def)
	if err != nil {
		return err
	}
	v, err := sample.Capture(c.Context, client, def, u.String(), kind, dir, name)
	if err != nil {
		return err
	}
	printView(env.stdout, v)
	fmt.Fprintf(env.stdout, "saved as %s in %s\n", name, dir)
	return nil
}
