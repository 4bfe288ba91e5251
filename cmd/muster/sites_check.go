package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/sample"
)

func checkSitesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check site definitions: sites, files, directories, or all known definitions",
		ArgsUsage: "[SITE-OR-FILE-OR-DIR…]",
		Description: `An invalid definition affects only its site: a scrape of that site fails with the
error that this command prints.

With --live the arguments are sites or files. It follows the definition from its
start pages, through sitemaps and listing pages at any depth, until a page has a
record, directly and without a proxy. For each page it shows how often each field
was found, by which alternative of its chain, and its first value.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "live", Usage: "follow the definition until a record is found, and show records and links"}, baseURLFlag(), jsonFlag(),
		},
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			if c.Bool("live") {
				return checkLive(env, c)
			}
			if c.Bool("json") || c.String("base-url") != "" {
				return usageError{errors.New("sites check: --json and --base-url belong to --live")}
			}
			loaded, err := loadConfig(env, c)
			if err != nil {
				return err
			}
			return checkSites(env, loaded.Config, c.Args().Slice())
		},
	}
}

// checkSites loads definitions and prints which are valid; the error has the
// problems of the others.
func checkSites(env environment, cfg config.Config, paths []string) error {
	if len(paths) == 0 {
		registry, err := orchestrator.LoadSites(cfg)
		if err != nil {
			return err
		}
		for _, name := range registry.Names() {
			fmt.Fprintf(env.stdout, "ok: %s\n", name)
		}
		return problemsOf(registry.Broken())
	}
	var errs []error
	for _, path := range paths {
		info, err := os.Stat(path)
		var defs []*definition.Definition
		switch {
		case errors.Is(err, fs.ErrNotExist) && !isDefinitionFile(path):
			var registry *sites.Registry
			if registry, err = orchestrator.LoadSites(cfg); err != nil {
				break
			}
			var def *definition.Definition
			if def, err = registry.Definition(path); err == nil {
				defs = append(defs, def)
			}
			err = noSite(err)
		case err != nil:
		case filepath.Base(path) == definition.DefaultsFile:
			dir := filepath.Dir(path)
			if err = definition.LoadDefaults(os.DirFS(dir), ".", dir); err == nil {
				fmt.Fprintf(env.stdout, "ok: %s\n", path)
			}
		case info.IsDir():
			var broken []*definition.BrokenError
			defs, broken, err = definition.LoadDir(path)
			err = errors.Join(err, problemsOf(broken))
		default:
			var def *definition.Definition
			if def, err = definition.Load(path); err == nil {
				defs = append(defs, def)
			}
		}
		errs = append(errs, err)
		for _, def := range defs {
			fmt.Fprintf(env.stdout, "ok: %s (%s)\n", def.Site, def.File())
		}
	}
	return errors.Join(errs...)
}

// problemsOf joins the problems of definitions.
func problemsOf(broken []*definition.BrokenError) error {
	var errs []error
	for _, b := range broken {
		errs = append(errs, b.Err)
	}
	return errors.Join(errs...)
}

// livePage is the result of a page of a site, in JSON.
type livePage struct {
	sample.View
	Error string `json:"error,omitempty"`
}

func checkLive(env environment, c *cli.Context) error {
	all := []livePage{}
	var errs []error
	for _, name := range c.Args().Slice() {
		def, err := siteOf(env, c, name)
		if err != nil {
			return err
		}
		if def, err = def.WithBase(c.String("base-url")); err != nil {
			return usageError{err}
		}
		client, closeIt, err := patientClient(env, c, def)
		if err != nil {
			return err
		}
		records := 0
		err = sample.Live(c.Context, client, def, func(v sample.View, err error) {
			records += len(v.Records)
			all = append(all, livePage{v, oneLine(err)})
			if c.Bool("json") {
				return
			}
			printView(env.stdout, v)
			if err != nil {
				fmt.Fprintf(env.stdout, "  %s\n", oneLine(err))
			}
			fmt.Fprintln(env.stdout)
		})
		closeIt()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", def.Site, err))
		case records == 0:
			errs = append(errs, fmt.Errorf("%s: no page yielded a record; look at its links and fields", def.Site))
		}
	}
	if c.Bool("json") {
		errs = append(errs, printJSON(env.stdout, all))
	}
	return errors.Join(errs...)
}
