// Package extract extracts records and links from a fetched page according to a definition.
//
// Parse detects the charset and builds the document; Run extracts records and links from it. The package does no I/O.
package extract

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/html"

	"muster/sites/definition"
)

// Page is a fetched page. The JSON has what a cache keeps, without the body and the URL.
type Page struct {
	URL       *url.URL          `json:"-"` // after redirects
	Requested string            `json:"requested"`
	Kind      string            `json:"kind"`            // definition.KindListing or KindDetail
	Post      definition.Post   `json:"post,omitzero"`   // form of the request, after redirects
	N         int               `json:"n,omitempty"`     // number of a numbered listing page, from 0
	Start     int               `json:"start,omitempty"` // sitemap; see definition.InSitemap
	Carry     map[string]string `json:"carry,omitempty"` // values from the link; see definition.Link
	Status    int               `json:"status"`
	Header    http.Header       `json:"header"`
	Body      []byte            `json:"-"`
	FetchedAt time.Time         `json:"fetched_at"`
	Took      time.Duration     `json:"-"`                  // response time of the site, without waits before the request
	Via       string            `json:"-"`                  // proxy of the response, or ""
	Rendered  bool              `json:"rendered,omitempty"` // the page is the result of its scripts in a browser
	Extracted bool              `json:"-"`                  // the body is the JSON of the definition's extractor
	OnBlocked func()            `json:"-"`                  // reports to the proxy pool that the page is blocked; may be nil
	Parsed    *Doc              `json:"-"`                  // the result of Parse, if the page was parsed before; may be nil
	// Keep stores a page that is not blocked in the cache. Nil without a cache, and for a page of the cache.
	Keep func(Page) error `json:"-"`
}

// Doc is a parsed page.
type Doc struct {
	Page Page
	// Original is the canonical URL of the page, which identifies its records. Defaults to none.
	Original *url.URL
	Charset  Charset
	Root     *html.Node // nil for JSON without HTML
	JSON     any        // nil for HTML
	text     []byte     // body in UTF-8
	plain    *string    // Text, computed on first use
	base     *url.URL   // base of relative links
	ld       []any      // JSON-LD objects, computed on first use
	items    []any      // microdata, computed on first use
	lang     *string    // see Language; nil until first use
}

// Parse decodes and parses a page. XML other than XHTML becomes a document with its elements. Broken HTML is repaired as in
// browsers, and flattened if it is nested too deeply. Invalid JSON is an error.
func Parse(def *definition.Definition, p Page) (*Doc, error) {
	if d := p.Parsed; d != nil {
		d.Page = p
		return d, nil
	}
	d := &Doc{Page: p, base: p.URL}
	d.text, d.Charset = Decode(p.Body, p.Header.Get("Content-Type"), def)
	if p.Extracted || def.Page(p.Kind).Format == definition.FormatJSON {
		var err error
		if d.JSON, err = PageJSON(d.text); err != nil {
			return nil, fmt.Errorf("invalid JSON: %w", err)
		}
		at := def.Page(p.Kind).HTML
		if at.IsZero() || p.Extracted {
			return d, nil
		}
		var inside []byte
		for _, fd := range values(at.Eval(d.JSON)) {
			inside = append(inside, fd.text...)
		}
		return d, d.parseHTML(inside)
	}
	if isXML(p.Header.Get("Content-Type"), d.text) {
		if root, err := parseXML(d.text); err == nil {
			d.Root = root
			return d, nil
		}
	}
	return d, d.parseHTML(d.text)
}

// parseHTML builds the document of a page's HTML.
func (d *Doc) parseHTML(text []byte) error {
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		root, err = html.Parse(bytes.NewReader(flatten(text)))
	}
	if err != nil {
		return fmt.Errorf("parse page: %w", err)
	}
	d.Root = root
	if b := firstWith(root, "base", "href"); b != nil {
		href, _ := Attr(b, "href")
		if u, err := d.reference(href); err == nil {
			d.base = u
		}
	}
	return nil
}

// Source returns the body of the page in UTF-8.
func (d *Doc) Source() string { return string(d.text) }

// Text returns the visible text of an HTML page.
func (d *Doc) Text() string {
	if d.plain == nil {
		text := ""
		if d.Root != nil {
			text = Text(d.Body())
		}
		d.plain = &text
	}
	return *d.plain
}

// Body returns the body of an HTML page, or the whole document if it has none.
func (d *Doc) Body() *html.Node {
	if body := firstWith(d.Root, "body", ""); body != nil {
		return body
	}
	return d.Root
}

// Title returns the title of an HTML page.
func (d *Doc) Title() string {
	if d.Root == nil {
		return ""
	}
	if n := firstWith(d.Root, "title", ""); n != nil {
		return Text(n)
	}
	return ""
}

// Canonical returns the URL in rel=canonical, or nil if there is none on the host of the page.
func (d *Doc) Canonical(def *definition.Definition) *url.URL {
	if d.Root == nil {
		return nil
	}
	n := canonicalSelector.First(d.Root)
	if n == nil {
		return nil
	}
	href, _ := Attr(n, "href")
	u, err := d.reference(href)
	if err != nil {
		return nil
	}
	if u = def.Move(u); u.Host != d.Page.URL.Host || !def.InScope(u) {
		return nil
	}
	return u
}

// Language returns the lang attribute of an HTML page, or "".
func (d *Doc) Language() string {
	if d.lang == nil {
		lang := ""
		if d.Root != nil {
			if n := firstWith(d.Root, "html", "lang"); n != nil {
				lang, _ = Attr(n, "lang")
			}
		}
		d.lang = &lang
	}
	return *d.lang
}

// firstWith returns the first element of a name that has an attribute, or any attributes if key is "", or nil.
func firstWith(root *html.Node, name, key string) *html.Node {
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != name || definition.Aside(n, root) {
			continue
		}
		if _, ok := Attr(n, key); ok || key == "" {
			return n
		}
	}
	return nil
}

var (
	canonicalSelector = definition.MustSelector(`link[rel~="canonical"][href]`)

	ldSelector  = definition.MustSelector(`script[type*="ld+json"]`)
	relSelector = definition.MustSelector(`link[rel~="next"], a[rel~="next"]`)
)

// Linked returns the JSON-LD objects of the page, including nested ones. It skips scripts with invalid JSON, so that one broken
// script does not hide the others.
func (d *Doc) Linked() []any {
	if d.ld != nil || d.Root == nil {
		return d.ld
	}
	d.ld = []any{}
	for _, n := range ldSelector.All(d.Root) {
		if n.FirstChild == nil {
			continue
		}
		text := strings.TrimSpace(n.FirstChild.Data)
		for _, wrap := range []string{"<!--", "//<![CDATA[", "<![CDATA["} {
			text = strings.TrimSpace(strings.TrimPrefix(text, wrap))
		}
		for _, wrap := range []string{";", "//]]>", "]]>", "-->"} {
			text = strings.TrimSpace(strings.TrimSuffix(text, wrap))
		}
		if v, err := looseJSON(text); err == nil {
			d.collect(v, 0)
		}
	}
	return d.ld
}

func (d *Doc) collect(v any, depth int) {
	if depth > 50 {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		d.ld = append(d.ld, v)
		for _, k := range sortedKeys(v) {
			d.collect(v[k], depth+1)
		}
	case []any:
		for _, m := range v {
			d.collect(m, depth+1)
		}
	}
}

// hasType reports whether a JSON-LD object is of a schema.org type.
func hasType(obj map[string]any, typ string) bool {
	if typ == "*" {
		return true
	}
	is := func(v any) bool {
		s, _ := v.(string)
		return s == typ || strings.HasSuffix(s, "/"+typ) || strings.HasSuffix(s, ":"+typ)
	}
	switch t := obj["@type"].(type) {
	case []any:
		return slices.ContainsFunc(t, is)
	default:
		return is(t)
	}
}

// Maximum nesting of elements in a page that is too deep for the parser, per name and in total.
const (
	maxAlike   = 60
	maxNesting = 400
)

// flatten removes the tags of elements that are nested too deeply and keeps their content.
func flatten(text []byte) []byte {
	var out bytes.Buffer
	z := html.NewTokenizer(bytes.NewReader(text))
	depth := 0
	open := map[string]int{} // by name
	left := map[string]int{} // open elements whose tags were removed
	for {
		switch tt := z.Next(); tt {
		case html.ErrorToken:
			return out.Bytes()
		case html.StartTagToken:
			raw := bytes.Clone(z.Raw())
			name, _ := z.TagName()
			if isVoid(string(name)) {
				out.Write(raw)
				continue
			}
			if (depth >= maxNesting || open[string(name)] >= maxAlike) && !isRawText(string(name)) {
				left[string(name)]++
				continue
			}
			depth++
			open[string(name)]++
			out.Write(raw)
		case html.EndTagToken:
			raw := bytes.Clone(z.Raw())
			name, _ := z.TagName()
			if left[string(name)] > 0 {
				left[string(name)]--
				continue
			}
			if open[string(name)] > 0 {
				open[string(name)]--
				depth--
			}
			out.Write(raw)
		default:
			out.Write(z.Raw())
		}
	}
}

// isVoid reports whether an element has no end tag.
func isVoid(name string) bool {
	switch name {
	case "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr":
		return true
	}
	return false
}

// isRawText reports whether an element contains only text.
func isRawText(name string) bool {
	return name == "script" || name == "style" || name == "textarea" || name == "title"
}
