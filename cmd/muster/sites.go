package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/render"
	"muster/sites/report"
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

func showSiteCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:         "get",
		Usage:        "print the definition of a site",
		ArgsUsage:    "SITE-OR-FILE",
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			def, err := siteOf(env, c, c.Args().First())
			if err != nil {
				return err
			}
			_, err = env.stdout.Write(def.YAML())
			return err
		},
	}
}

// listedSite is a row of sites list.
type listedSite struct {
	Site        string   `json:"site"`
	BaseURL     string   `json:"base_url"`
	File        string   `json:"file,omitempty"` // empty for a shipped one
	Schedule    string   `json:"schedule,omitempty"`
	Description string   `json:"description,omitempty"`
	Problems    []string `json:"problems,omitempty"` // of one that cannot be scraped
}

func listSites(env environment, cfg config.Config, asJSON bool) error {
	registry, err := orchestrator.LoadSites(cfg)
	if err != nil {
		return err
	}
	rows, schedules := []listedSite{}, registry.Schedules(cfg.Sites.Schedule)
	for _, name := range registry.Names() {
		def, err := registry.Definition(name)
		if err != nil {
			return err
		}
		file := def.File()
		if def.IsShipped() {
			file = ""
		}
		rows = append(rows, listedSite{def.Site, def.BaseURL, file, schedules[name], def.Description, nil})
	}
	slices.SortStableFunc(rows, func(a, b listedSite) int { return cmp.Compare(min(len(b.File), 1), min(len(a.File), 1)) }) // shipped ones last
	for _, b := range registry.Broken() {
		rows = append(rows, listedSite{b.Name, "", b.File, schedules[b.Name], "", strings.Split(b.Err.Error(), "\n")})
	}
	if asJSON {
		return printJSON(env.stdout, rows)
	}
	t := newTable(env.stdout, "SITE START SCHEDULE FROM DESCRIPTION")
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

// listHealth prints the last scrape of each site, compared with its scrapes of the seven days before.
func listHealth(s scope) error {
	states, err := client.All(s.ctx, s.api, client.ListSites, client.None{}, 0)
	if err != nil {
		return err
	}
	return showPage(s, healthOf(states), "No site has a finished scrape", "SITE HEALTH SUCCESS ERRORS RECORDS AT WHY BLOCKED RESPONSE", func(h report.Health) []any {
		share := func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }
		return []any{h.Site, h.Status, share(h.Success), share(h.Errors), h.Records, h.At.Format("01-02 15:04"),
			strings.Join(slices.Concat(h.Alerts, h.Notices), "; "), share(h.Blocks), fmt.Sprintf("%.0f ms", h.Mean)}
	})
}

// healthOf is the health of the sites that have one: the numbers of the last job that ended, the status and alerts of
// a later job too.
func healthOf(states []sites.State) []report.Health {
	list := []report.Health{}
	for _, st := range states {
		if st.Health == "" {
			continue
		}
		h := report.Health{Site: st.Site, JobID: st.Job.ID, At: st.Job.Began}
		if st.Last != nil {
			h = *st.Last
		}
		h.Status, h.Alerts = st.Health, st.Alerts
		list = append(list, h)
	}
	return list
}

func historyCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name:        "history",
		Usage:       "show when a record was first and last seen, its last ten changes, and whether it is gone",
		ArgsUsage:   "SITE KEY",
		Description: `KEY is the _key or the _url of a record in the files of a scrape.`,
		Flags:       []cli.Flag{jsonFlag()},
	}, func(s scope, in client.HistoryFilter) error {
		page, err := client.GetHistory.Call(s.ctx, s.api, in)
		if err != nil {
			return err
		}
		if s.Bool("json") {
			return printJSON(env.stdout, page)
		}
		return printFields(env.stdout, page.Data)
	})
}
