package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/clip"
	"muster/sites/definition"
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
		Usage:     "run definitions on their saved pages and report differences, or save a page",
		ArgsUsage: "SITE-OR-FILE…",
		Description: `The pages of shop.yaml are in shop.pages next to it. Exits with 1 when the result of
a page differs from its JSON file.

--capture fetches a page directly, without a proxy, and saves it with a JSON file of
its records and links. Check the JSON: the test expects exactly these.`,
		Flags: append(flagsOf(sitesSetting), pagesFlag(),
			&cli.BoolFlag{Name: "accept", Usage: "save the current results as the expected ones"},
			&cli.StringFlag{Name: "capture", Usage: "save the page at `URL` with its records"},
			&cli.StringFlag{Name: "kind", Usage: "with --capture, the page is a `KIND`: listing or detail", DefaultText: "kind of the start page with this URL, else detail"},
			&cli.StringFlag{Name: "as", Usage: "with --capture, save it under `NAME`", DefaultText: "from kind and URL"},
			baseURLFlag(), jsonFlag()),
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, -1); err != nil {
				return err
			}
			if (c.String("pages") != "" || c.IsSet("capture")) && c.NArg() > 1 {
				return usageError{errors.New("sites test: --pages and --capture are for one site; name only one")}
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
		if c.IsSet("capture") {
			return capturePage(env, c, def, dir)
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

// capturePage saves a page of a site with its records in dir.
func capturePage(env environment, c *cli.Context, own *definition.Definition, dir string) error {
	def, err := own.WithBase(c.String("base-url"))
	if err != nil {
		return usageError{err}
	}
	u, err := def.Base().Parse(c.String("capture"))
	if err != nil {
		return usageError{fmt.Errorf("--capture: %q is not a URL", c.String("capture"))}
	}
	u = def.Move(u)
	if !def.InScope(u) {
		return usageError{fmt.Errorf("--capture: %s is outside the site's hosts and scope; see muster sites get %s", u, c.Args().First())}
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
