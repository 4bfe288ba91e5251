package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"muster/internal/clip"
	"muster/sites/sample"
)

// testedSite is the result of sites test for a site, in JSON.
type testedSite struct {
	Site        string              `json:"site"`
	Pages       []string            `json:"pages"`
	Unparsed    map[string][]string `json:"unparsed,omitempty"` // by page
	Differences []sample.Difference `json:"differences"`
}

func testSitesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "test",
		Usage:     "run definitions on their saved pages, and report differences",
		ArgsUsage: "SITE-OR-FILE…",
		Description: `The pages of shop.yaml are in shop.pages next to it; muster sites capture saves
them. Exits with 1 when the result of a page differs from its JSON file.`,
		Flags: append(flagsOf(sitesSetting), pagesFlag(),
			&cli.BoolFlag{Name: "accept", Usage: "save the results of now as the expected ones"}, jsonFlag()),
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, -1); err != nil {
				return err
			}
			if c.String("pages") != "" && c.NArg() > 1 {
				return usageError{errors.New("sites test: --pages is the folder of one site; name only one")}
			}
			return testSites(env, c)
		},
	}
}

func testSites(env environment, c *cli.Context) error {
	results := []testedSite{}
	var errs []error
	wrong := 0
	for _, name := range c.Args().Slice() {
		def, err := siteOf(env, c, name)
		if err != nil {
			return err
		}
		dir, err := pagesOf(c, def)
		if err != nil {
			return err
		}
		if c.Bool("accept") {
			names, err := sample.Accept(def, dir)
			if err != nil {
				return err
			}
			results = append(results, testedSite{Site: def.Site, Pages: names, Differences: []sample.Difference{}})
			if !c.Bool("json") {
				fmt.Fprintf(env.stdout, "accepted: %s, %s\n", def.Site, count(len(names), "page"))
			}
			continue
		}
		names, unparsed, diffs, err := sample.Test(def, dir)
		errs = append(errs, err)
		wrong += len(diffs)
		results = append(results, testedSite{def.Site, names, unparsed, append([]sample.Difference{}, diffs...)})
		if c.Bool("json") || err != nil {
			continue
		}
		printDifferences(env.stdout, def.Site, names, unparsed, diffs)
	}
	if c.Bool("json") {
		errs = append(errs, printJSON(env.stdout, results))
	}
	if wrong > 0 {
		errs = append(errs, fmt.Errorf("%s; correct the definition, or accept them with --accept", count(wrong, "difference")))
	}
	return errors.Join(errs...)
}

// printDifferences prints the expected and actual values of each page.
func printDifferences(w io.Writer, site string, names []string, unparsed map[string][]string, diffs []sample.Difference) {
	for _, name := range names {
		first := true
		for _, d := range diffs {
			if d.Sample != name {
				continue
			}
			if first {
				fmt.Fprintf(w, "FAIL: %s, %s\n", site, name)
			}
			first = false
			fmt.Fprintf(w, "  %s\n    want %s\n    got  %s\n", d.What, clip.Line(d.Want, 300), clip.Line(d.Got, 300))
		}
		if first {
			fmt.Fprintf(w, "ok: %s, %s\n", site, name)
		}
		printUnparsed(w, unparsed[name])
	}
}
