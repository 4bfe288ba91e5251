package extract

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/definition"
)

// links collects the distinct links within the site, in order.
func (x *run) links(links []definition.Link) {
	seen := map[string]bool{}
	for i := range links {
		l := &links[i]
		places, err := x.places(l.Each, l.EachJSON)
		if err != nil {
			continue // links have each or each_json, not both
		}
		for _, p := range places {
			x.linksAt(l, p, seen)
		}
	}
}

// linksAt collects the links of an element, with their carried fields.
func (x *run) linksAt(l *definition.Link, p at, seen map[string]bool) {
	var carry map[string]string
	for i := range l.Carry {
		f := &l.Carry[i]
		if v, _, err := x.field(f, p, "carry."+f.Name); err == nil && v != nil {
			if carry == nil {
				carry = map[string]string{}
			}
			carry[f.Name] = fmt.Sprint(v) // a string
		}
	}
	for _, ref := range refsAt(p, l.CSS, l.Attr, l.JSON) {
		if l.Template != "" {
			ref = strings.ReplaceAll(l.Template, "{value}", url.PathEscape(ref))
		}
		u := x.resolve(ref)
		if u == nil {
			continue
		}
		text := u.String()
		if seen[text] || (!l.Allow.IsZero() && !l.Allow.MatchString(text)) || (!l.Deny.IsZero() && l.Deny.MatchString(text)) {
			continue
		}
		seen[text] = true
		x.res.Links = append(x.res.Links, Link{URL: text, Kind: l.As, Carry: carry})
	}
}

// refsAt returns the raw references that a selector or a path finds.
func refsAt(p at, css definition.Selector, name string, path definition.Path) []string {
	var refs []string
	if !path.IsZero() {
		for _, fd := range values(path.Eval(p.json)) {
			refs = append(refs, fd.text)
		}
		return refs
	}
	if p.node == nil {
		return nil
	}
	byDefault := name == ""
	if byDefault {
		name = "href"
	}
	all := css.All(p.node)
	if css.Match(p.node) { // the element itself is the link
		all = append([]*html.Node{p.node}, all...)
	}
	for _, n := range all {
		if n.Type == html.TextNode {
			refs = append(refs, strings.TrimSpace(n.Data))
			continue
		}
		if v, ok := Attr(n, strings.ToLower(name)); ok && strings.TrimSpace(v) != "" {
			refs = append(refs, v)
		} else if byDefault && n.Namespace == inXML {
			refs = append(refs, Text(n)) // <link>http://…</link>
		}
	}
	return refs
}

// resolve returns the URL of a reference, or nil if it is outside the site.
func (x *run) resolve(ref string) *url.URL {
	u, err := x.doc.reference(ref)
	if err != nil {
		return nil
	}
	u = x.def.Move(u)
	u.Fragment, u.RawFragment = "", ""
	if !x.def.InScope(u) {
		return nil
	}
	return u
}

func (x *run) next(n *definition.Next) {
	if !n.While.IsZero() && !anyTrue(n.While.Eval(x.doc.JSON)) {
		return
	}
	page := x.doc.Page
	switch {
	case n.Rel != "":
		if ref := headerNext(page.Header.Values("Link")); ref != "" {
			x.to(ref, definition.Post{})
			return
		}
		if x.doc.Root == nil {
			return
		}
		for _, l := range relSelector.All(x.doc.Root) {
			if href, ok := Attr(l, "href"); ok {
				x.to(href, definition.Post{})
				return
			}
		}
	case !n.Cursor.IsZero():
		if vs := values(n.Cursor.Eval(x.doc.JSON)); len(vs) > 0 && vs[0].text != "" && vs[0].text != "false" {
			x.nextBy(n.Param, vs[0].text, vs[0].json)
		}
	case n.Template != "" || n.Param != "":
		count := nextNumber(n, page.N)
		if n.To > 0 && count > n.To {
			return
		}
		if n.Template != "" {
			x.to(n.PageURL(count), page.Post)
		} else {
			x.nextBy(n.Param, strconv.Itoa(count), count)
		}
		x.res.Counted = true
		if x.res.Next != nil {
			x.res.Next.N = page.N + 1
		}
	default:
		if refs := refsAt(x.root(), n.CSS, n.Attr, n.JSON); len(refs) > 0 {
			x.to(refs[0], definition.Post{})
		}
	}
}

// to sets the next page, if it is within the site.
func (x *run) to(ref string, post definition.Post) {
	if u := x.resolve(ref); u != nil {
		x.res.Next = &Link{URL: u.String(), Kind: definition.KindListing, Post: post}
	}
}

// nextBy sets the next page to this page with another value of a parameter: in the query, or in the body if the page was fetched
// by POST, where value replaces text in JSON.
func (x *run) nextBy(param, text string, value any) {
	page := x.doc.Page
	if page.Post.IsZero() {
		x.to(withParam(page.URL, param, text), page.Post)
	} else if post, err := page.Post.With(param, text, value); err == nil { // validated at load
		x.to(page.URL.String(), post)
	}
}

// nextNumber returns the number in the URL of the next page of numbered pages.
func nextNumber(x *definition.Next, n int) int {
	from := 2
	if x.From != nil {
		from = *x.From
	}
	return from + n*x.Step
}

func withParam(u *url.URL, name, value string) string {
	c := *u
	q := c.Query()
	q.Set(name, value)
	c.RawQuery = q.Encode()
	return c.String()
}

func anyTrue(vs []any) bool {
	return slices.ContainsFunc(vs, func(v any) bool {
		switch v := v.(type) {
		case nil:
			return false
		case bool:
			return v
		case string:
			return v != "" && v != "false"
		case json.Number:
			return v.String() != "0"
		}
		return true
	})
}

// linkForm matches a link in a Link header, and linkParam a parameter of it. Quoted values may contain any character.
var (
	linkForm  = regexp.MustCompile(`<([^>]*)>((?:` + linkParam.String() + `)*)`)
	linkParam = regexp.MustCompile(`\s*;\s*([^\s=;,]*)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^\s;,]*))?`)
)

// headerNext returns the target of rel=next in Link headers (RFC 8288), or "". It ignores links with an anchor, which belong to
// another page.
func headerNext(headers []string) string {
	for _, m := range linkForm.FindAllStringSubmatch(strings.Join(headers, ", "), -1) {
		params := map[string]string{}
		for _, p := range linkParam.FindAllStringSubmatch(m[2], -1) {
			if name := strings.ToLower(strings.TrimSuffix(p[1], "*")); params[name] == "" { // the first one applies
				params[name] = strings.Trim(p[2], `"' `)
			}
		}
		if target := strings.TrimSpace(m[1]); target != "" && params["anchor"] == "" && slices.Contains(strings.Fields(strings.ToLower(params["rel"])), "next") {
			return target
		}
	}
	return ""
}
