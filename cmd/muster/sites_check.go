package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/catalog"
	"muster/internal/clip"
	"muster/orchestrator"
	"muster/sites/definition"
	"muster/sites/draft"
	"muster/sites/extract"
	"muster/sites/fetch"
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
			return checkSites(env, c, c.Args().Slice())
		},
	}
}

// checkSites loads definitions and prints which are valid; the error has the
// problems of the others.
func checkSites(env environment, c *cli.Context, paths []string) error {
	if len(paths) == 0 {
		loaded, err := loadConfig(env, c)
		if err != nil {
			return err
		}
		registry, err := orchestrator.LoadSites(loaded.Config)
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
		found := definition.NewSet()
		switch {
		case err == nil && filepath.Base(path) == definition.DefaultsFile:
			dir := filepath.Dir(path)
			if err = definition.LoadDefaults(os.DirFS(dir), ".", dir); err == nil {
				fmt.Fprintf(env.stdout, "ok: %s\n", path)
			}
		case err == nil && info.IsDir():
			err = definition.LoadDir(found, path)
			err = errors.Join(err, problemsOf(found.Broken))
		default:
			var def *definition.Definition
			if def, err = siteOf(env, c, path); err == nil {
				found.Valid[def.Site] = def
			}
		}
		errs = append(errs, err)
		for _, name := range found.Names() {
			fmt.Fprintf(env.stdout, "ok: %s (%s)\n", name, found.Valid[name].File())
		}
	}
	return errors.Join(errs...)
}

// problemsOf joins the problems of definitions.
func problemsOf(broken []*catalog.BrokenError) error {
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
		err = sample.Live(c.Context, client, def, func(v sample.View, err error) {
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
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", def.Site, err))
		}
	}
	if c.Bool("json") {
		errs = append(errs, printJSON(env.stdout, all))
	}
	return errors.Join(errs...)
}

func testSitesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "test",
		Usage:     "run definitions on the pages in a cache",
		ArgsUsage: "SITE-OR-FILE…",
		Description: `Extracts the pages that muster scrape --cache DIR stored, without network. Shows how
often each field was found, by which alternative of its chain, and the pages that
fail or have invalid records. Exits with 1 if there are such pages.`,
		Flags:        append(flagsOf(cacheSetting), jsonFlag()),
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			loaded, err := loadConfig(env, c, cacheSetting)
			if err != nil {
				return err
			}
			var errs []error
			all := []livePage{}
			for _, name := range c.Args().Slice() {
				pages, err := testSite(env, c, name, loaded.Sites.Cache)
				all, errs = append(all, pages...), append(errs, err)
			}
			if c.Bool("json") {
				errs = append(errs, printJSON(env.stdout, all))
			}
			return errors.Join(errs...)
		},
	}
}

// testSite extracts the pages of a site in a cache.
func testSite(env environment, c *cli.Context, name, cache string) (pages []livePage, err error) {
	def, err := siteOf(env, c, name)
	if err == nil && cache == "" {
		err = usageError{errors.New("sites test: name the cache with --cache DIR")}
	}
	if err != nil {
		return nil, err
	}
	client := &fetch.Client{}
	if def.Extractor.IsSet() {
		var closeIt func()
		if client, closeIt, err = patientClient(env, c, def); err != nil {
			return nil, err
		}
		defer closeIt()
	}
	total, at, failed := sample.View{Kind: def.Site, URL: cache}, map[string]int{}, 0
	err = fetch.CachedPages(cache, def.Site, func(page extract.Page) error {
		v, err := sample.Of(c.Context, def, page, client.Extract)
		pages = append(pages, livePage{v, oneLine(err)})
		if err != nil || len(v.Invalid) > 0 {
			failed++
		}
		if !c.Bool("json") && (err != nil || len(v.Invalid)+len(v.Unparsed) > 0) {
			printView(env.stdout, v)
			if err != nil {
				fmt.Fprintf(env.stdout, "  %s\n", oneLine(err))
			}
		}
		total.Bytes, total.Records = total.Bytes+v.Bytes, append(total.Records, v.Records...)
		for _, f := range v.Fields {
			i, ok := at[f.Name]
			if !ok {
				at[f.Name] = len(total.Fields)
				f.Hits = maps.Clone(f.Hits)
				total.Fields = append(total.Fields, f)
				continue
			}
			for by, n := range f.Hits {
				total.Fields[i].Hits[by] += n
			}
		}
		return nil
	})
	if err == nil && !c.Bool("json") {
		printView(env.stdout, total)
	}
	if failed > 0 {
		err = fmt.Errorf("%s: %s of %d failed or have invalid records", def.Site, count(failed, "page"), len(pages))
	}
	return pages, err
}

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
pages to standard error. Review the definition before you use it, and try it with
muster sites check --live.`,
		Action: func(c *cli.Context) error { return initSite(env, c) },
	}
}

func initSite(env environment, c *cli.Context) error {
	u, err := url.Parse(c.Args().First())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usageError{fmt.Errorf("sites init: %q is not an http or https URL", c.Args().First())}
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
		return fmt.Errorf("guess a definition from %s: %w", u.Redacted(), err)
	}
	for _, v := range d.Views {
		printView(env.stderr, v)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(env.stderr, "note: %s\n", n)
	}
	_, err = env.stdout.Write(d.YAML)
	return err
}

// printView prints the records and links of a page.
func printView(w io.Writer, v sample.View) {
	fmt.Fprintf(w, "%s %s\n", v.Kind, v.URL)
	if v.Bytes == 0 {
		return
	}
	fmt.Fprintf(w, "  %s", count(v.Bytes, "byte"))
	if v.Charset != "" {
		fmt.Fprintf(w, " of %s (by %s)", v.Charset, v.CharsetFrom)
	}
	fmt.Fprintf(w, ", %s", count(len(v.Records), "record"))
	kinds := map[string]int{}
	for _, l := range v.Links {
		kind, _, _ := strings.Cut(l, " ")
		kinds[kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(w, ", %s to %s pages", count(kinds[kind], "link"), kind)
	}
	if v.Next != "" {
		fmt.Fprintf(w, ", next %s", v.Next)
	}
	fmt.Fprintln(w)
	for i, why := range v.Invalid {
		if i == 3 {
			fmt.Fprintf(w, "  … and %d more\n", len(v.Invalid)-i)
			break
		}
		fmt.Fprintf(w, "  skipped: %s\n", clip.Line(why, 300))
	}
	if len(v.Fields) == 0 {
		return
	}
	t := newTable(w, "__FIELD FOUND BY FIRST_VALUE")
	for _, f := range v.Fields {
		n, of := f.Found()
		t.row("  "+f.Name, fmt.Sprintf("%d of %d", n, of), alternatives(f.Hits), string(f.First))
	}
	_ = t.flush() // a broken stdout shows at the end of the command
	printUnparsed(w, v.Unparsed)
}

// printUnparsed prints the optional fields whose text could not be parsed.
func printUnparsed(w io.Writer, fields []string) {
	for _, f := range fields {
		fmt.Fprintf(w, "  not parsed: %s\n", clip.Line(f, 300))
	}
}

// alternatives lists which selectors of a field's chain found values, and how often.
func alternatives(hits map[string]int) string {
	var parts []string
	for _, by := range slices.Sorted(maps.Keys(hits)) {
		switch by {
		case "none":
			continue
		case "default":
			parts = append(parts, fmt.Sprintf("default ×%d", hits[by]))
		default:
			var n int
			_, _ = fmt.Sscan(by, &n) // it counts from 0
			parts = append(parts, fmt.Sprintf("no. %d ×%d", n+1, hits[by]))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// count formats a number with its noun.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
