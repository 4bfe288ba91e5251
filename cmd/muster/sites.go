package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/sites"
	"muster/sites/definition"
)

// sitesSetting says where definitions are, beside those that are shipped.
var sitesSetting = settingFlag{name: "sites-dir", path: "sites.dir", usage: "read site definitions from `DIR` too"}

func sitesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "sites",
		Usage: "write, show, check and test site definitions",
		Subcommands: []*cli.Command{
			{
				Name:  "list",
				Usage: "list the sites",
				Flags: append(flagsOf(sitesSetting), jsonFlag()),
				Action: func(c *cli.Context) error {
					if err := arguments(c, 0, 0); err != nil {
						return err
					}
					loaded, err := loadConfig(env, c, sitesSetting)
					if err != nil {
						return err
					}
					return listSites(env, loaded.Config, c.Bool("json"))
				},
			},
			initSiteCommand(env),
			showSiteCommand(env),
			checkSitesCommand(env),
			testSitesCommand(env),
			capturePageCommand(env),
		},
	}
}

func showSiteCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "print the definition of a site",
		ArgsUsage: "SITE-OR-FILE",
		Flags: append(flagsOf(sitesSetting),
			&cli.BoolFlag{Name: "origins", Usage: "every setting that holds, and where it comes from: default, the file's line, or a flag"},
			&cli.StringFlag{Name: "base-url", Usage: "as with scrape: what --origins shows then"}, jsonFlag()),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1); err != nil {
				return err
			}
			if !c.Bool("origins") && (c.Bool("json") || c.String("base-url") != "") {
				return usageError{errors.New("sites show: --json and --base-url belong to --origins")}
			}
			def, err := siteOf(env, c, c.Args().First())
			if err != nil {
				return err
			}
			if c.Bool("origins") {
				return showOrigins(env, def, c.String("base-url"), c.Bool("json"))
			}
			_, err = env.stdout.Write(def.YAML())
			return err
		},
	}
}

func checkSitesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "tell what is wrong with definitions: files, folders, or without any all that are known",
		ArgsUsage: "[FILE-OR-DIR…]",
		Description: `A definition that is wrong stops its own site and no other: the rest is
scraped, and scraping that one fails with what is said here.

With --live it takes sites or files, gets one page of each kind (a sitemap, a
listing page and the one after it, a detail page) directly, without a proxy,
and shows what each yields: which field was found how often, by which
alternative of its chain, and the first value.`,
		Flags: append(flagsOf(sitesSetting),
			&cli.BoolFlag{Name: "live", Usage: "get a page of each kind and show what comes out"}, baseURLFlag(), jsonFlag()),
		Action: func(c *cli.Context) error {
			if c.Bool("live") {
				if err := arguments(c, 1, -1); err != nil {
					return err
				}
				return checkLive(env, c)
			}
			if c.Bool("json") || c.String("base-url") != "" {
				return usageError{errors.New("sites check: --json and --base-url belong to --live")}
			}
			loaded, err := loadConfig(env, c, sitesSetting)
			if err != nil {
				return err
			}
			return checkSites(env, loaded.Config, c.Args().Slice())
		},
	}
}

// siteOf is the definition of a site, or the one in a file.
func siteOf(env environment, c *cli.Context, name string) (*definition.Definition, error) {
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		if _, err := os.Stat(name); err != nil {
			return nil, usageError{fmt.Errorf("read site definition: %w", err)}
		}
		return definition.Load(name)
	}
	loaded, err := loadConfig(env, c, sitesSetting)
	if err != nil {
		return nil, err
	}
	registry, err := orchestrator.LoadSites(loaded.Config)
	if err != nil {
		return nil, err
	}
	def, err := registry.Definition(name)
	return def, noSite(err)
}

// noSite makes wrong usage of a site that is not there.
func noSite(err error) error {
	if errors.As(err, new(*sites.UnknownError)) {
		return usageError{err}
	}
	return err
}

func baseURLFlag() cli.Flag {
	return &cli.StringFlag{Name: "base-url", Usage: "get the pages from `URL` in place of the site's own, as a local copy"}
}

func listSites(env environment, cfg config.Config, asJSON bool) error {
	registry, err := orchestrator.LoadSites(cfg)
	if err != nil {
		return err
	}
	type row struct {
		Site        string   `json:"site"`
		BaseURL     string   `json:"base_url"`
		File        string   `json:"file,omitempty"` // empty for a shipped one
		Schedule    string   `json:"schedule,omitempty"`
		Description string   `json:"description,omitempty"`
		Problems    []string `json:"problems,omitempty"` // of one that cannot be scraped
	}
	rows := []row{}
	for _, name := range registry.Names() {
		def, err := registry.Definition(name)
		if err != nil {
			return err
		}
		rows = append(rows, row{def.Site, def.BaseURL, def.File(), cfg.Sites.Schedule[name], def.Description, nil})
	}
	for _, b := range registry.Broken() {
		rows = append(rows, row{b.Site, "", b.File, cfg.Sites.Schedule[b.Site], "", strings.Split(b.Err.Error(), "\n")})
	}
	if asJSON {
		return printJSON(env.stdout, rows)
	}
	t := newTable(env.stdout, "SITE", "START", "SCHEDULE", "FROM", "DESCRIPTION")
	var problems []string
	for _, r := range rows {
		if len(r.Problems) > 0 {
			r.BaseURL, r.Description = "-", "cannot be scraped, see below"
			problems = append(problems, r.Problems...)
		}
		t.row(r.Site, r.BaseURL, cmp.Or(r.Schedule, "-"), cmp.Or(r.File, "shipped"), strings.TrimSpace(r.Description))
	}
	if err := t.flush(); err != nil || len(problems) == 0 {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "\n%s\n", strings.Join(problems, "\n"))
	return err
}

// problemsOf joins what is wrong with definitions.
func problemsOf(broken []*definition.BrokenError) error {
	var errs []error
	for _, b := range broken {
		errs = append(errs, b.Err)
	}
	return errors.Join(errs...)
}

// checkSites loads definitions and says of each that it is right, or what is
// wrong with it.
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
		case err != nil:
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
