package fetch

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"muster/sites/definition"
	"muster/sites/extract"
)

// Some evidence counts only on pages with at most this many characters of visible text.
const (
	shortText   = 1000 // elements, markup and phrases
	nearlyEmpty = 200  // elements that good pages have next to their content
	noscriptMax = 50   // the content of noscript is included
)

// Inspect returns an *Error of class SoftBlock if a page is blocked although its status is a success, after it has called
// page.OnBlocked. The error names the evidence, which is the first of these: the definition's blocks, signatures of vendors, a
// redirect to a login, and on short pages a few English phrases. With blocks.off it always returns nil.
func Inspect(def *definition.Definition, d *extract.Doc) error {
	if def.Blocks.Off {
		return nil
	}
	why := blockedBy(def, d)
	if why == "" {
		return nil
	}
	if d.Page.OnBlocked != nil {
		d.Page.OnBlocked()
	}
	return &Error{Class: SoftBlock, URL: d.Page.Requested, Status: d.Page.Status, Via: d.Page.Via, Err: errors.New("the page looks blocked: " + why)}
}

// blockedBy returns the evidence that a page is blocked, or "".
func blockedBy(def *definition.Definition, d *extract.Doc) string {
	if why := byDefinition(def, d); why != "" {
		return why
	}
	seen := viewOf(d)
	for _, s := range builtinSignatures().Signatures {
		if why := s.in(seen); why != "" {
			return s.Vendor + ": " + why
		}
	}
	if isLogin(d) {
		return "redirect to a login at " + d.Page.URL.Path
	}
	if seen.form {
		return ""
	}
	for _, line := range seen.lines {
		has := func(phrase string) bool { return strings.Contains(line, phrase) }
		if slices.Contains(builtinSignatures().Headings, line) || slices.ContainsFunc(builtinSignatures().Phrases, has) {
			return fmt.Sprintf("%q on a page of %d characters", line, seen.chars)
		}
	}
	return ""
}

// byDefinition returns the entry of the definition's blocks that matches a page, or "".
func byDefinition(def *definition.Definition, d *extract.Doc) string {
	if d.Root == nil {
		return ""
	}
	for _, c := range def.Blocks.CSS {
		if c.First(d.Root) != nil {
			return c.Text + " of blocks.css matches"
		}
	}
	for _, p := range def.Blocks.Text {
		if p.MatchString(d.Text()) {
			return p.String() + " of blocks.text matches"
		}
	}
	if n := utf8.RuneCountInString(d.Text()); n < def.Blocks.MinText {
		return fmt.Sprintf("%d characters of text are less than blocks.min_text (%d)", n, def.Blocks.MinText)
	}
	return ""
}

// pageView is the part of a page that signatures and phrases are matched against.
type pageView struct {
	doc   *extract.Doc
	title string
	chars int      // of visible text
	lines []string // of title and text, in lower case; nil unless the page is short
	form  bool     // the page has a form to fill in
}

func viewOf(d *extract.Doc) pageView {
	s := pageView{doc: d, title: d.Title()}
	if d.Root == nil {
		body := string(d.Page.Body)
		s.chars = utf8.RuneCountInString(body)
		if s.chars <= shortText {
			s.lines = []string{normal(body)}
		}
		return s
	}
	s.chars = utf8.RuneCountInString(d.Text())
	if s.chars > shortText {
		return s
	}
	s.lines = []string{normal(s.title)}
	for _, line := range extract.Lines(d.Body(), s.chars < noscriptMax) {
		s.lines = append(s.lines, normal(line))
	}
	s.form = elements.form.First(d.Root) != nil
	return s
}

// normal converts a string to lower case with one kind of apostrophe.
func normal(s string) string { return strings.ReplaceAll(strings.ToLower(s), "’", "'") }

// elements selects elements of interest on every page.
var elements = struct{ app, script, password, form definition.Selector }{
	app:      definition.MustSelector(`#root, #app, #__next, #__nuxt, [ng-app], [data-reactroot], app-root, #main-app`),
	script:   definition.MustSelector("script[src]"),
	password: definition.MustSelector(`input[type="password" i]`),
	form:     definition.MustSelector(`textarea:not([name$="captcha-response"]), select, input[type="email" i], input[type="password" i], input[type="tel" i], input[type="search" i]`),
}

// isLogin reports whether a request was redirected to a page with a password field and with either a login path or a query that
// contains the path of the requested page.
func isLogin(d *extract.Doc) bool {
	requested, err := url.Parse(d.Page.Requested)
	if d.Root == nil || err != nil || requested.Path == d.Page.URL.Path || elements.password.First(d.Root) == nil {
		return false
	}
	path := strings.ToLower(d.Page.URL.Path)
	if slices.ContainsFunc([]string{"login", "log-in", "log_in", "signin", "sign-in", "sign_in"}, func(word string) bool {
		return strings.Contains(path, word) && !strings.Contains(strings.ToLower(requested.Path), word)
	}) {
		return true
	}
	values := slices.Concat(slices.Collect(maps.Values(d.Page.URL.Query()))...)
	return len(requested.Path) > 1 && slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, requested.Path) })
}

// isChallenge reports whether a URL belongs to a challenge.
func isChallenge(u *url.URL) bool {
	s := strings.ToLower(u.String())
	return strings.Contains(s, "captcha") || strings.Contains(s, "challenge")
}

// CheckMustHave returns an error for a page without the elements of must_have.
func CheckMustHave(def *definition.Definition, d *extract.Doc) error {
	switch {
	case extract.MustHave(def, d):
		return nil
	case NeedsScript(d):
		return errors.New("no element matches must_have; the page probably requires JavaScript; see render in the definition")
	}
	return errors.New("no element matches must_have")
}

// NeedsScript reports whether a page is an empty application shell that scripts fill in a browser.
func NeedsScript(d *extract.Doc) bool {
	return d.Root != nil && len(d.Text()) < 300 && elements.app.First(d.Root) != nil && elements.script.First(d.Root) != nil
}
