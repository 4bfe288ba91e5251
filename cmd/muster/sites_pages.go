package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/sample"
)

func testSitesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "test",
		Usage:     "run definitions on the pages saved beside them, and tell what they read otherwise",
		ArgsUsage: "SITE-OR-FILE…",
		Description: `The pages of shop.yaml are in shop.pages beside it; muster sites capture saves
them. Exits with 1 when a page yields anything else than its JSON file says.`,
		Flags: append(flagsOf(sitesSetting), pagesFlag(),
			&cli.BoolFlag{Name: "accept", Usage: "take what comes out now for right from now on"}, jsonFlag()),
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

func capturePageCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "capture",
		Usage:     "get a page and save it, with what it yields, for muster sites test",
		ArgsUsage: "SITE-OR-FILE URL",
		Description: `Gets the page directly, without a proxy, and writes it and a JSON file of what
the definition takes from it into the folder of the site's pages. Look the JSON
over: it is what sites test will hold for right.`,
		Flags: append(flagsOf(sitesSetting), pagesFlag(), baseURLFlag(),
			&cli.StringFlag{Name: "kind", Usage: "the page is a `KIND`: listing or detail", DefaultText: "that of the start page of this URL, else detail"},
			&cli.StringFlag{Name: "as", Usage: "save it under `NAME`", DefaultText: "made of kind and URL"}),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 2, 2); err != nil {
				return err
			}
			return capturePage(env, c)
		},
	}
}

func pagesFlag() cli.Flag {
	return &cli.StringFlag{Name: "pages", Usage: "the saved pages are in `DIR`", DefaultText: "the definition's file with .pages for .yaml"}
}

// pagesOf is where the saved pages of a definition are.
func pagesOf(c *cli.Context, def *definition.Definition) (string, error) {
	if dir := c.String("pages"); dir != "" {
		return dir, nil
	}
	if def.IsShipped() {
		return "", usageError{fmt.Errorf("%s is shipped with the program and has no folder for pages; name one with --pages, or make the site yours: muster sites show %s > FILE.yaml", def.Site, def.Site)}
	}
	return sample.Dir(def), nil
}

func testSites(env environment, c *cli.Context) error {
	type result struct {
		Site        string              `json:"site"`
		Pages       []string            `json:"pages"`
		Unparsed    map[string][]string `json:"unparsed,omitempty"` // by page
		Differences []sample.Difference `json:"differences"`
	}
	results := []result{}
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
			fmt.Fprintf(env.stdout, "accepted: %s, %s\n", def.Site, count(len(names), "page"))
			continue
		}
		names, unparsed, diffs, err := sample.Test(def, dir)
		errs = append(errs, err)
		wrong += len(diffs)
		results = append(results, result{def.Site, names, unparsed, append([]sample.Difference{}, diffs...)})
		if c.Bool("json") || err != nil {
			continue
		}
		printDifferences(env.stdout, def.Site, names, unparsed, diffs)
	}
	if c.Bool("json") {
		errs = append(errs, printJSON(env.stdout, results))
	}
	if wrong > 0 {
		errs = append(errs, fmt.Errorf("%s; mend the definition, or take them for right with --accept", count(wrong, "difference")))
	}
	return errors.Join(errs...)
}

// printDifferences prints page by page what is right and what is not.
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
			fmt.Fprintf(w, "  %s\n    want %s\n    got  %s\n", d.What, clip(d.Want, 300), clip(d.Got, 300))
		}
		if first {
			fmt.Fprintf(w, "ok: %s, %s\n", site, name)
		}
		printUnparsed(w, unparsed[name])
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
		return usageError{fmt.Errorf("sites capture: %s is outside the site's hosts and scope; see muster sites show %s", u, c.Args().First())}
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

// patientClient gets pages one by one, and waits for the site's pace.
func patientClient(env environment, c *cli.Context, def *definition.Definition) (*fetch.Client, error) {
	loaded, err := loadConfig(env, c)
	if err != nil {
		return nil, err
	}
	return fetch.NewClient(fetch.Config{Definition: def, Filter: loaded.Network.Filter(), Patience: time.Hour}), nil
}

func checkLive(env environment, c *cli.Context) error {
	type page struct {
		sample.View
		Error string `json:"error,omitempty"`
	}
	all := []page{}
	var errs []error
	for _, name := range c.Args().Slice() {
		def, err := siteOf(env, c, name)
		if err != nil {
			return err
		}
		if def, err = def.WithBase(c.String("base-url")); err != nil {
			return usageError{err}
		}
		client, err := patientClient(env, c, def)
		if err != nil {
			return err
		}
		records := 0
		err = sample.Live(c.Context, client, def, func(v sample.View, err error) {
			records += len(v.Records)
			all = append(all, page{v, oneLine(err)})
			if c.Bool("json") {
				return
			}
			printView(env.stdout, v)
			if err != nil {
				fmt.Fprintf(env.stdout, "  %s\n", oneLine(err))
			}
			fmt.Fprintln(env.stdout)
		})
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

// printView prints what a page yields.
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
		fmt.Fprintf(w, "  left out: %s\n", clip(why, 300))
	}
	if len(v.Fields) == 0 {
		return
	}
	t := newTable(w, "  FIELD", "FOUND", "BY", "FIRST VALUE")
	for _, f := range v.Fields {
		n, of := f.Found()
		t.row("  "+f.Name, fmt.Sprintf("%d of %d", n, of), alternatives(f.Hits), clip(string(f.First), 80))
	}
	_ = t.flush() // a broken stdout shows at the end of the command
	printUnparsed(w, v.Unparsed)
}

// printUnparsed prints which optional fields have a text that cannot be read.
func printUnparsed(w io.Writer, fields []string) {
	for _, f := range fields {
		fmt.Fprintf(w, "  not read: %s\n", clip(f, 300))
	}
}

// alternatives says which of a field's chain gave values, and how often.
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

// clip shortens a text to n characters on one line.
func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > n {
		return string(rs[:n]) + "…"
	}
	return s
}

// count says how many there are of a thing.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func showOrigins(env environment, def *definition.Definition, baseURL string, asJSON bool) error {
	settings := def.Settings()
	if baseURL != "" {
		if _, err := def.WithBase(baseURL); err != nil {
			return usageError{err}
		}
		for i := range settings {
			if settings[i].Key == "base_url" {
				settings[i].Value, settings[i].From = baseURL, "--base-url"
			}
		}
	}
	if asJSON {
		return printJSON(env.stdout, settings)
	}
	t := newTable(env.stdout, "KEY", "VALUE", "FROM")
	for _, s := range settings {
		t.row(s.Key, clip(s.Value, 100), s.From)
	}
	return t.flush()
}
