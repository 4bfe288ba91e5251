package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/clip"
	"muster/sites/definition"
	"muster/sites/draft"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/sample"
)

func tryCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "try",
		Usage:     "try selectors and fields on a page",
		ArgsUsage: "URL-OR-FILE [SELECTOR-OR-FIELD…]",
		Description: `Fetches the page as a scrape would, but without a proxy, or reads it from a file.
A selector is CSS or XPath, or a path on a page that is JSON. A field is in
braces, as in a definition.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "each", Usage: "search inside each match of `SELECTOR`, like each of a record", DefaultText: "the whole page"},
			&cli.StringFlag{Name: "site", Usage: "fetch and read the page by the definition of `SITE-OR-FILE`", DefaultText: "none but the defaults"},
			&cli.StringFlag{Name: "kind", Usage: "the page is of `KIND` listing or detail", DefaultText: "by the start pages"},
			&cli.StringFlag{Name: "url", Usage: "the file is the page at `URL`", DefaultText: "http://localhost/FILE"},
		},
		Action: func(c *cli.Context) error {
			t := &siteTry{env: env, c: c}
			if err := t.begin(c.Args().First()); err != nil {
				return err
			}
			var errs []error
			for _, arg := range c.Args().Tail() {
				if err := t.try(arg); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", arg, err))
				}
			}
			return errors.Join(errs...)
		},
	}
}

// siteTry tries selectors and fields on one page.
type siteTry struct {
	env environment
	c   *cli.Context
	def *definition.Definition
	doc *extract.Doc
}

// begin fetches or reads the page.
func (s *siteTry) begin(ref string) error {
	if k := s.c.String("kind"); k != "" && k != definition.KindListing && k != definition.KindDetail {
		return usageError{fmt.Errorf("--kind %s: use listing or detail", k)}
	}
	u, err := url.Parse(ref)
	remote := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
	if remote && s.c.IsSet("url") {
		return usageError{errors.New("--url is for a page in a file")}
	}
	file := strings.TrimPrefix(ref, "file://")
	if !remote {
		if u, err = url.Parse(s.c.String("url")); err != nil || s.c.IsSet("url") && u.Host == "" {
			return usageError{fmt.Errorf("--url %s: not an http or https URL", s.c.String("url"))}
		}
		if !s.c.IsSet("url") {
			u = &url.URL{Scheme: "http", Host: "localhost", Path: "/" + filepath.Base(file)}
		}
	}
	if name := s.c.String("site"); name != "" {
		s.def, err = siteOf(s.env, s.c, name)
	} else {
		s.def, err = draft.Bare(u)
	}
	if err != nil {
		return err
	}
	if remote {
		return s.open(s.c.Context, u)
	}
	return s.read(file, u)
}

// read reads the page in a file.
func (s *siteTry) read(file string, u *url.URL) error {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return usageError{fmt.Errorf("%s: no such file, and no http or https URL", file)}
	}
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	defer f.Close()
	limit := int64(s.def.Limits.MaxBytes)
	body, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	if int64(len(body)) > limit {
		return fmt.Errorf("%s is longer than limits.max_bytes, %d bytes", file, limit)
	}
	page := extract.Page{URL: u, Requested: u.String(), Kind: s.kind(u), Status: http.StatusOK, Header: http.Header{}, Body: body, FetchedAt: time.Now()}
	if t, _, err := mime.ParseMediaType(mime.TypeByExtension(filepath.Ext(file))); err == nil {
		page.Header.Set("Content-Type", t) // keeps the charset of the file
	}
	return s.use(page)
}

// kind returns the kind of the page at a URL.
func (s *siteTry) kind(u *url.URL) string {
	if k := s.c.String("kind"); k != "" {
		return k
	}
	return sample.KindOf(s.def, u)
}

// open fetches the page at a URL.
func (s *siteTry) open(ctx context.Context, u *url.URL) error {
	client, closeIt, err := patientClient(s.env, s.c, s.def)
	if err != nil {
		return err
	}
	defer closeIt()
	kind := s.kind(u)
	page, err := client.Fetch(ctx, u.String(), kind, sample.PostOf(s.def, u.String(), kind))
	if err == nil && client.CanRender(page) {
		page, err = client.Render(ctx, page)
	}
	if err != nil {
		return fmt.Errorf("fetch %s: %w", u.Redacted(), err)
	}
	return s.use(page)
}

// use parses a page and continues with it.
func (s *siteTry) use(page extract.Page) error {
	def := s.def
	if !s.c.IsSet("site") {
		def = def.WithFormat(formatOf(def, page))
	}
	doc, err := extract.Parse(def, page)
	if err != nil {
		return fmt.Errorf("read %s: %w", page.URL, err)
	}
	s.def, s.doc = def, doc
	s.about()
	return nil
}

// formatOf returns the format of a page that no definition describes: JSON if its body is an object or a list.
func formatOf(def *definition.Definition, page extract.Page) string {
	doc, err := extract.Parse(def.WithFormat(definition.FormatJSON), page)
	if err != nil {
		return definition.FormatHTML
	}
	switch doc.JSON.(type) {
	case map[string]any, []any:
		return definition.FormatJSON
	}
	return definition.FormatHTML
}

// about prints the properties of the page.
func (s *siteTry) about() {
	p, w := s.doc.Page, s.env.stdout
	fmt.Fprintf(w, "%s %s\n  status %d, %s", p.Kind, p.URL.Redacted(), p.Status, count(len(p.Body), "byte"))
	if s.doc.Charset.Name != "" {
		fmt.Fprintf(w, " of %s (by %s)", s.doc.Charset.Name, s.doc.Charset.From)
	}
	switch {
	case s.doc.JSON != nil:
		fmt.Fprint(w, ", JSON")
	case s.doc.Title() != "":
		fmt.Fprintf(w, ", title %q", clip.Line(s.doc.Title(), 80))
	}
	fmt.Fprintln(w)
	if err := fetch.Inspect(s.def, s.doc); err != nil {
		fmt.Fprintf(w, "  %s\n", oneLine(err))
	} else if fetch.NeedsScript(s.doc) {
		fmt.Fprintln(w, "  the page seems to need JavaScript, which is not run")
	}
}

// The maximum number of values that are printed, and of characters of each.
const (
	maxShown = 10
	maxWidth = 160
)

// try tries a selector or a field.
func (s *siteTry) try(arg string) error {
	w, each := s.env.stdout, s.c.String("each")
	if !strings.HasPrefix(arg, "{") {
		m, err := sample.Match(s.doc, each, arg)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %d found", arg, len(m.Found))
		if each != "" {
			fmt.Fprintf(w, " in %d of %d", m.With, m.Places)
		}
		fmt.Fprintln(w)
		s.show(m.Found)
		return nil
	}
	f, err := definition.ParseField(s.def, arg, s.def.Page(s.doc.Page.Kind).Format)
	if err != nil {
		return err
	}
	t, err := sample.Try(s.def, s.doc, each, f)
	if err != nil {
		return err
	}
	n, of := t.Found()
	fmt.Fprintf(w, "%s: found in %d of %d", arg, n, of)
	if n > 0 {
		fmt.Fprintf(w, ", by %s", alternatives(t.Hits))
	}
	fmt.Fprintln(w)
	for _, p := range t.Problems {
		fmt.Fprintf(w, "  problem: %s\n", clip.Line(p, maxWidth))
	}
	values := make([]string, len(t.Values))
	for i, v := range t.Values {
		values[i] = string(v)
	}
	s.show(values)
	return nil
}

// show prints the first of a list of values.
func (s *siteTry) show(values []string) {
	for i, v := range values {
		if i == maxShown {
			fmt.Fprintf(s.env.stdout, "  … and %d more\n", len(values)-i)
			return
		}
		fmt.Fprintf(s.env.stdout, "  %s\n", clip.Line(v, maxWidth))
	}
}
