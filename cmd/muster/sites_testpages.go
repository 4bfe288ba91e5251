package main

import (
	"errors"
	"fmt"
	"maps"

	"github.com/urfave/cli/v2"

	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/sample"
)

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
