package extract

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/html"

	"muster/sites/definition"
)

// found is a match of a source: a string and its element.
type found struct {
	at
	text  string
	given bool  // found, even if the text is empty
	err   error // error of the match
	whole bool  // text is final, including its white space

	currency string // currency of a price without one
}

// find evaluates a source, with its regex, replacements and split.
func (x *run) find(s *definition.Source, f *definition.Field, p at) []found {
	if s.Scope == "page" {
		p = x.root()
	}
	finds := x.raw(s, p)
	boolean := f.Type == definition.TypeBool
	var out []found
	for _, fd := range finds {
		if boolean && !s.Regex.IsZero() {
			out = append(out, found{text: strconv.FormatBool(s.Regex.MatchString(fd.text)), given: true})
			continue
		}
		if !s.Regex.IsZero() && !s.Embedded() {
			if f.Type == definition.TypeList && s.Split == "" {
				for _, t := range s.Regex.FindAll(fd.text) {
					out = append(out, replaceText(s, found{at: at{node: fd.node}, text: t, given: true}))
				}
				continue
			}
			t, ok := s.Regex.Find(fd.text)
			if !ok {
				continue
			}
			fd.text = t
			fd.json = nil // the text replaces it
		}
		fd = replaceText(s, fd)
		if s.Split != "" {
			for part := range strings.SplitSeq(fd.text, s.Split) {
				if part = strings.TrimSpace(part); part != "" {
					out = append(out, found{at: at{node: fd.node}, text: part, given: true})
				}
			}
			continue
		}
		out = append(out, fd)
	}
	for i := range out {
		out[i].org = out[i].org || s.JSONLD != "" || s.Microdata != ""
		out[i].coded = out[i].coded || s.JSONLD != ""
	}
	if s.Join != nil && len(out) > 0 {
		var parts []string
		for _, fd := range out {
			if t := Fold(fd.text); t != "" {
				parts = append(parts, t)
			}
		}
		return []found{{at: out[0].at, text: strings.Join(parts, *s.Join), given: true, whole: true}}
	}
	return out
}

func replaceText(s *definition.Source, fd found) found {
	for _, w := range s.Replace {
		fd.text = w.Pattern.ReplaceAllString(fd.text, w.With)
		fd.json = nil
	}
	return fd
}

// raw evaluates a source without its regex, replacements and split.
func (x *run) raw(s *definition.Source, p at) []found {
	text := func(t string) []found { return []found{{text: t, given: true}} }
	switch {
	case !s.CSS.IsZero():
		if p.node == nil {
			return nil
		}
		if s.Embedded() {
			return parseEmbedded(s, s.CSS.All(p.node))
		}
		return x.takeParts(s, s.CSS.All(p.node))
	case !s.JSON.IsZero():
		finds := values(s.JSON.Eval(p.json))
		for i := range finds {
			finds[i].org, finds[i].coded = p.org, p.coded
		}
		return finds
	case s.JSONLD != "":
		return findInObjects(s, x.doc.Linked())
	case s.Microdata != "":
		items := x.doc.Microdata()
		if p.node != nil && p.node != x.doc.Root {
			items = microdataIn(p.node)
		}
		return findInObjects(s, items)
	case s.Meta != "":
		return x.meta(s.Meta)
	case s.Label != "":
		if p.node == nil {
			return nil
		}
		return findLabelValue(p.node, s.Label)
	case s.Column != "":
		return inColumn(p.node, s.Column)
	case s.Page != "":
		return text(x.fact(s.Page))
	case s.Carry != "":
		v, ok := x.doc.Page.Carry[s.Carry]
		if !ok {
			return nil
		}
		return text(v)
	case s.Value != nil:
		return text(*s.Value)
	case !s.Exists.IsZero():
		return text(strconv.FormatBool(p.node != nil && s.Exists.First(p.node) != nil))
	case s.Attr != "" || s.Take != "":
		if p.node == nil {
			return nil
		}
		return x.takeParts(s, []*html.Node{p.node})
	}
	if p.node != nil && p.node != x.doc.Root {
		return text(render(p.node, false))
	}
	return text(string(x.doc.text))
}

// findInObjects evaluates the path of a source in the objects of its type. Some pages have brand: "X" where others have brand: {name:
// "X"}, so the name and the url of a string are the string.
func findInObjects(s *definition.Source, objects []any) []found {
	typ, path := s.TypePath()
	up, last := path.Up()
	var out []found
	for _, v := range objects {
		obj, ok := v.(map[string]any)
		if !ok || !hasType(obj, typ) {
			continue
		}
		if last == "" {
			out = append(out, values(path.Eval(obj))...)
			continue
		}
		for _, owner := range definition.Spread(up.Eval(obj)) {
			switch owner := owner.(type) {
			case map[string]any:
				finds := values([]any{owner[last]})
				for i := range finds {
					finds[i].currency = currencyOf(owner)
				}
				out = append(out, finds...)
			case string:
				if last == "name" || last == "url" {
					out = append(out, values([]any{owner})...)
				}
			}
		}
	}
	return out
}

// currencyOf returns the currency of an offer of schema.org, or "".
func currencyOf(offer map[string]any) string {
	for _, k := range []string{"priceCurrency", "currency"} {
		if finds := values([]any{offer[k]}); len(finds) > 0 {
			return currencyCode(finds[0].text)
		}
	}
	return ""
}

// textOf returns the name or URL of a schema.org object.
func textOf(obj map[string]any, typ string) string {
	names := []string{"@value", "name"}
	if typ == definition.TypeURL {
		names = []string{"url", "contentUrl", "@id"}
	}
	for _, k := range names {
		if finds := values([]any{obj[k]}); len(finds) > 0 {
			return finds[0].text
		}
	}
	return ""
}

// parseEmbedded reads JSON in elements: in a script, in the text of another element, or in an attribute. A regex may extract it, for
// example from window.state = {…};
func parseEmbedded(s *definition.Source, nodes []*html.Node) []found {
	var out []found
	for _, n := range nodes {
		text := jsonIn(n, s.Attr)
		if !s.Regex.IsZero() {
			var ok bool
			if text, ok = s.Regex.Find(text); !ok {
				continue
			}
		}
		v, err := looseJSON(text)
		if err != nil {
			out = append(out, found{err: fmt.Errorf("the content of %s is not JSON: %w", s.CSS.Text, err)})
			continue
		}
		out = append(out, values(s.JSON.Eval(v))...)
	}
	return out
}

// jsonIn returns the text of an element with JSON, or its attribute if name is set.
func jsonIn(n *html.Node, name string) string {
	switch {
	case name != "":
		text, _ := Attr(n, strings.ToLower(name))
		return text
	case n.Type == html.ElementNode && n.FirstChild != nil && n.FirstChild == n.LastChild && n.FirstChild.Type == html.TextNode:
		return n.FirstChild.Data // also of a script
	}
	return Text(n)
}

// takeParts returns the part of each element that the source selects with take.
func (x *run) takeParts(s *definition.Source, nodes []*html.Node) []found {
	var out []found
	for _, n := range nodes {
		fd := found{at: at{node: n}, given: true}
		switch {
		case s.Attr != "":
			v, ok := Attr(n, strings.ToLower(s.Attr))
			if !ok {
				continue
			}
			fd.text = strings.TrimSpace(v)
		case s.Take == definition.TakeHTML:
			fd.text = render(n, false)
		case s.Take == definition.TakeInnerHTML:
			fd.text = render(n, true)
		case s.Take == definition.TakeOwnText:
			fd.text = ownText(n)
		case s.Take == definition.TakeImage:
			fd.text = imageOf(n)
		default:
			fd.text = Text(n)
		}
		out = append(out, fd)
	}
	return out
}

// values converts JSON values to matches; a list becomes its members.
func values(vs []any) []found {
	var out []found
	for _, v := range vs {
		if list, ok := v.([]any); ok {
			out = append(out, values(list)...)
			continue
		}
		if v == nil {
			continue
		}
		out = append(out, found{at: at{json: v}, text: jsonText(v), given: true})
	}
	return out
}

func jsonText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	b, _ := json.Marshal(v) // v was decoded from JSON
	return string(b)
}

func (x *run) fact(name string) string {
	p := &x.doc.Page
	switch name {
	case "url":
		return p.URL.String()
	case "requested_url":
		return p.Requested
	case "title":
		return x.doc.Title()
	case "status":
		return strconv.Itoa(p.Status)
	case "fetched_at":
		return p.FetchedAt.UTC().Format(time.RFC3339)
	case "html":
		return string(x.doc.text)
	case "site":
		return x.def.Site
	}
	return ""
}
