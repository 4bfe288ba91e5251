package main

import (
	"bufio"
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
	"golang.org/x/term"

	"muster/internal/clip"
	"muster/sites/definition"
	"muster/sites/draft"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/sample"
)

func shellCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "shell",
		Usage:     "try selectors and fields on a page",
		ArgsUsage: "URL-OR-FILE",
		Description: `Fetches the page once, as a scrape would and directly, without a proxy, or reads
it from a file. Then each line of standard input is tried on it:

   h3 a              a selector, CSS or XPath; on a page that is JSON, a path
   {css: .price, type: price}
                     a field, as in a definition
   :help             lists the commands

In a pipe, lines that fail are reported to standard error, and the exit code is 1.`,
		Flags: append(flagsOf(sitesSetting),
			&cli.StringFlag{Name: "site", Usage: "fetch and read the page by the definition of `SITE-OR-FILE`", DefaultText: "none but the defaults"},
			&cli.StringFlag{Name: "kind", Usage: "the page is of `KIND` listing or detail", DefaultText: "by the start pages"},
			&cli.StringFlag{Name: "url", Usage: "the file is the page at `URL`", DefaultText: "http://localhost/FILE"}),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1); err != nil {
				return err
			}
			s := &siteShell{env: env, c: c}
			if err := s.begin(c.Args().First()); err != nil {
				return err
			}
			return s.loop(c.Context)
		},
	}
}

// siteShell tries selectors and fields on one page.
type siteShell struct {
	env    environment
	c      *cli.Context
	def    *definition.Definition
	client *fetch.Client // nil: no page was fetched yet
	doc    *extract.Doc

	each string // a selector; "": the page
	last string // the selector or field that was tried last
	kept []keptField
}

// keptField is a field that :keep has named.
type keptField struct{ name, text string }

// begin fetches or reads the first page.
func (s *siteShell) begin(ref string) error {
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
func (s *siteShell) read(file string, u *url.URL) error {
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
func (s *siteShell) kind(u *url.URL) string {
	if k := s.c.String("kind"); k != "" {
		return k
	}
	return sample.KindOf(s.def, u)
}

// open fetches the page at a URL.
func (s *siteShell) open(ctx context.Context, u *url.URL) (err error) {
	if s.client == nil {
		if s.client, err = patientClient(s.env, s.c, s.def); err != nil {
			return err
		}
	}
	kind := s.kind(u)
	page, err := s.client.Fetch(ctx, u.String(), kind, sample.PostOf(s.def, u.String(), kind))
	if err != nil {
		return fmt.Errorf("fetch %s: %w", u.Redacted(), err)
	}
	return s.use(page)
}

// use parses a page and continues with it.
func (s *siteShell) use(page extract.Page) error {
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
func (s *siteShell) about() {
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

// loop tries lines until they end.
func (s *siteShell) loop(ctx context.Context) error {
	if in, ok := s.env.stdin.(*os.File); ok {
		if before, err := term.GetState(int(in.Fd())); err == nil {
			defer term.Restore(int(in.Fd()), before) // a signal leaves the editor in the middle of a line
		}
	}
	next, prompted := s.reader()
	failed := 0
	for n := 1; ; n++ {
		line, err := readLine(ctx, next)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read line %d: %w", n, err)
		}
		line = strings.TrimSpace(line)
		if line == ":quit" {
			break
		}
		if err := s.try(ctx, line); err != nil {
			failed++
			where := ""
			if !prompted {
				where = fmt.Sprintf("line %d: ", n)
			}
			fmt.Fprintf(s.env.stderr, "%s%v\n", where, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if failed > 0 && !prompted {
		return fmt.Errorf("%s failed", count(failed, "line"))
	}
	return nil
}

// reader returns a function that reads a line, and whether that is of a terminal: with a prompt, a line editor and the
// lines before.
func (s *siteShell) reader() (next func() (string, error), prompted bool) {
	in, ok := s.env.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !isTerminal(s.env.stdout) {
		lines := bufio.NewReader(s.env.stdin)
		return func() (string, error) {
			line, err := lines.ReadString('\n')
			if errors.Is(err, io.EOF) && line != "" {
				err = nil
			}
			return line, err
		}, false
	}
	fmt.Fprintln(s.env.stdout, "A selector, or a field in braces; :help lists the commands, Ctrl-D ends.")
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, s.env.stdout}, "> ")
	return func() (string, error) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", err
		}
		defer term.Restore(int(in.Fd()), before)
		if width, height, err := term.GetSize(int(in.Fd())); err == nil && width > 0 {
			_ = editor.SetSize(width, height) // only the display suffers
		}
		return editor.ReadLine()
	}, true
}

// readLine calls next, and stops waiting for it when ctx ends.
func readLine(ctx context.Context, next func() (string, error)) (string, error) {
	type read struct {
		line string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		line, err := next()
		done <- read{line, err}
	}()
	select {
	case r := <-done:
		return r.line, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
