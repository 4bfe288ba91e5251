package definition

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/andybalholm/cascadia"
	"github.com/dustin/go-humanize"
	"github.com/goccy/go-yaml/ast"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"muster/internal/yamlstrict"
)

// Selector is a CSS selector or an XPath expression, compiled when the
// definition is loaded. The zero Selector matches nothing.
type Selector struct {
	Text  string // as written
	Attr  string // from a trailing ::attr(name)
	At    Pos
	sel   cascadia.Matcher
	xpath *xpathQuery
	aside bool // names template or noscript, so it also searches inside them
}

// IsZero reports whether the selector is unset.
func (s Selector) IsZero() bool { return s.sel == nil && s.xpath == nil }

// Match reports whether the selector matches n itself. XPath never does.
func (s Selector) Match(n *html.Node) bool { return s.sel != nil && s.sel.Match(n) }

// First returns the first selected node below n in document order, or nil.
func (s Selector) First(n *html.Node) *html.Node {
	if s.sel != nil {
		if first := cascadia.Query(n, s.sel); first == nil || s.aside || !Aside(first, n) {
			return first
		}
	}
	if all := s.All(n); len(all) > 0 {
		return all[0]
	}
	return nil
}

// All returns the selected nodes below n in document order. It skips the contents of template and noscript elements unless the
// selector names them. XPath results that are not elements, such as attributes, are returned as text nodes.
func (s Selector) All(n *html.Node) []*html.Node {
	var all []*html.Node
	switch {
	case s.xpath != nil:
		return s.xpath.all(n, s.aside)
	case s.sel != nil:
		all = cascadia.QueryAll(n, s.sel)
	}
	if s.aside {
		return all
	}
	return slices.DeleteFunc(all, func(m *html.Node) bool { return Aside(m, n) })
}

// Aside reports whether n, below root, is inside a template or a noscript, and so invisible with JavaScript.
func Aside(n, root *html.Node) bool {
	for n != root && n.Parent != nil {
		if n = n.Parent; n != root && IsAside(n) {
			return true
		}
	}
	return false
}

// IsAside reports whether n is a template or a noscript. The template of a shadow tree is visible and does not count.
func IsAside(n *html.Node) bool {
	if n.Type != html.ElementNode {
		return false
	}
	shown := func(a html.Attribute) bool { return a.Key == "shadowrootmode" }
	return n.DataAtom == atom.Noscript || n.DataAtom == atom.Template && !slices.ContainsFunc(n.Attr, shown)
}

var asideName = regexp.MustCompile(`(?i)\b(template|noscript)\b`)

var attrSuffix = regexp.MustCompile(`::attr\(\s*["']?([\w:.-]+)["']?\s*\)\s*$`)

// ParseSelector compiles a CSS selector, or an XPath expression, which begins with /, ./, ( or xpath:. CSS may end in Scrapy's
// ::text or ::attr(name).
func ParseSelector(text string) (Selector, error) {
	s := Selector{Text: text, aside: asideName.MatchString(text)}
	css := strings.TrimSpace(text)
	if isXPath(css) {
		q, err := parseXPath(css)
		s.xpath = q
		return s, err
	}
	if m := attrSuffix.FindStringSubmatchIndex(css); m != nil {
		s.Attr = css[m[2]:m[3]]
		css = css[:m[0]]
	}
	css = strings.TrimSuffix(css, "::text")
	if strings.TrimSpace(css) == "" {
		return s, &selectorError{text, "is empty"}
	}
	group, err := cascadia.ParseGroup(css)
	if err != nil {
		return s, &selectorError{text, err.Error()}
	}
	s.sel = group
	if len(group) == 1 {
		s.sel = group[0]
	}
	return s, nil
}

// MustSelector is like ParseSelector but panics on an error.
func MustSelector(text string) Selector {
	s, err := ParseSelector(text)
	if err != nil {
		panic(err)
	}
	return s
}

// UnmarshalText parses a selector.
func (s *Selector) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSelector(string(text))
	return err
}

type selectorError struct{ text, why string }

func (e *selectorError) Error() string {
	return "bad CSS selector " + strconv.Quote(e.text) + ": " + e.why +
		"; CSS 3, :has(), :contains(text), :matches(regex) and a final ::attr(name) are supported; an expression that begins with / is XPath"
}

func (s *Selector) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if sel, ok := parsed(d, n, key, "a CSS selector or an XPath expression", ParseSelector); ok {
		*s = sel
		s.At = yamlstrict.At(n)
	}
}

// parsed decodes a scalar with a parse function.
func parsed[T any](d *yamlstrict.Decoder, n ast.Node, key, want string, parse func(string) (T, error)) (v T, ok bool) {
	text, ok := d.Scalar(n, key, want)
	if !ok {
		return v, false
	}
	v, err := parse(text)
	if err != nil {
		d.Fail(n, key, "%s", err)
	}
	return v, err == nil
}

// Pattern is a regular expression, compiled when the definition is loaded.
type Pattern struct {
	*regexp.Regexp
	At Pos
}

// IsZero reports whether the pattern is unset.
func (p Pattern) IsZero() bool { return p.Regexp == nil }

// MatchString reports whether s matches. The zero Pattern matches nothing.
func (p Pattern) MatchString(s string) bool { return p.Regexp != nil && p.Regexp.MatchString(s) }

// Find returns the first group of the first match, or the whole match if the pattern has no group.
func (p Pattern) Find(s string) (string, bool) {
	return group(s, p.FindStringSubmatchIndex(s))
}

// FindAll returns the value of Find for every match.
func (p Pattern) FindAll(s string) []string {
	var out []string
	for _, m := range p.FindAllStringSubmatchIndex(s, -1) {
		if t, ok := group(s, m); ok {
			out = append(out, t)
		}
	}
	return out
}

func group(s string, m []int) (string, bool) {
	if m == nil {
		return "", false
	}
	if len(m) > 2 {
		for i := 2; i+1 < len(m); i += 2 {
			if m[i] >= 0 {
				return s[m[i]:m[i+1]], true
			}
		}
		return "", false
	}
	return s[m[0]:m[1]], true
}

func (p *Pattern) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if re, ok := parsed(d, n, key, "a regular expression", compile); ok {
		p.Regexp, p.At = re, yamlstrict.At(n)
	}
}

func compile(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("bad regular expression %q: %w; the syntax is RE2, which has no look-around and no back-references", text, err)
	}
	return re, nil
}

// Size is a number of bytes, written as 500kB, 16MiB or a bare number.
type Size int64

func (s *Size) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if size, ok := parsed(d, n, key, "a size such as 16MiB", parseSize); ok {
		*s = size
	}
}

func parseSize(text string) (Size, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<53 {
		return 0, fmt.Errorf("want a size such as 500kB or 16MiB, got %q", text)
	}
	return Size(n), nil
}
