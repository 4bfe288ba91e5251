package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/render"
)

func sitesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "sites",
		Usage: "list, write, check and test site definitions",
		Subcommands: []*cli.Command{
			sitesListCommand(env),
			initSiteCommand(env),
			showSiteCommand(env),
			checkSitesCommand(env),
			testSitesCommand(env),
			tryCommand(env),
			historyCommand(env),
		},
	}
}

func sitesListCommand(env environment) *cli.Command {
	c := apiCommand(env, &cli.Command{
		Name:   "list",
		Usage:  "list the sites, or with --health compare the last scrape of each with the seven days before",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "health", Usage: "show the health of each site that was scraped"}, jsonFlag()},
		Before: requires("health", "server"),
	}, func(s scope, _ client.None) error { return listHealth(s) })
	health := c.Action
	c.Action = func(c *cli.Context) error {
		if c.Bool("health") {
			return health(c)
		}
		loaded, err := loadConfig(env, c)
		if err != nil {
			return err
		}
		return listSites(env, loaded.Config, c.Bool("json"))
	}
	return c
}

// siteOf is the definition of the site, or of the file, of this name.
func siteOf(env environment, c *cli.Context, name string) (*definition.Definition, error) {
	if isDefinitionFile(name) {
		return loadDefinition(name)
	}
	loaded, err := loadConfig(env, c)
	if err != nil {
		return nil, err
	}
	registry, err := orchestrator.LoadSites(loaded.Config)
	if err != nil {
		return nil, err
	}
	def, err := registry.Definition(name)
	if u := (*sites.UnknownError)(nil); errors.As(err, &u) && u.Nearest == "" {
		err = fmt.Errorf("%w, or name the file of its definition, as in shop.yaml", err)
	}
	return def, noSite(err)
}

// noSite turns an unknown site into a usage error.
func noSite(err error) error {
	if errors.As(err, new(*sites.UnknownError)) {
		return usageError{err}
	}
	return err
}

func baseURLFlag() cli.Flag {
	return &cli.StringFlag{Name: "base-url", Usage: "fetch the pages from `URL` instead of the site, for example from a local copy"}
}

// patientClient fetches pages one by one, and waits as long as the site's pace requires. The secrets of the definition
// are sent to the site itself only. The caller must call closeIt.
func patientClient(env environment, c *cli.Context, def *definition.Definition) (client *fetch.Client, closeIt func(), err error) {
	loaded, err := loadConfig(env, c)
	if err != nil {
		return nil, nil, err
	}
	if def.Refers() {
		if def.Rebased() != "" {
			return nil, nil, usageError{fmt.Errorf("site %s: its secrets are not sent to another base URL: take ${…} out of the definition, or leave out --base-url", def.Site)}
		}
		if def, err = def.WithSecrets(os.LookupEnv); err != nil {
			return nil, nil, err
		}
	}
	browser := render.New(render.Config{Browser: loaded.Sites.Browser})
	if def.NeedsBrowser() {
		if err := browser.Check(); err != nil {
			return nil, nil, err
		}
	}
	client = fetch.NewClient(fetch.Config{Definition: def, Filter: loaded.Network.Filter(), Patience: time.Hour, Browser: browser, Extractors: loaded.Sites.Extractors})
	return client, func() { client.Close(); browser.Close() }, nil
}
