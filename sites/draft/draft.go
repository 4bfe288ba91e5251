// Package draft writes a first definition of a site from one of its pages.
//
// It guesses: which elements repeat and so are records, which links lead to
// detail pages and to the next listing page, where titles, prices, dates and
// images stand, and what structured data there is. The definition loads, and
// every field in it has a value on the pages it was made from; whether it
// means what its name says is for a person to see.
package draft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/sample"
)

// Get fetches a page of a kind; fetch.Client has it.
type Get func(ctx context.Context, rawURL, kind string) (extract.Page, error)

// Draft is a definition that was guessed.
type Draft struct {
	YAML  []byte
	Def   *definition.Definition
	Views []sample.View // what it yields on the pages it was made from
	Notes []string      // what a person should know
}

// Bare is the definition to get the first page with: the site of a URL, with
// nothing known of it.
func Bare(u *url.URL) (*definition.Definition, error) {
	d := &outline{site: siteName(u), base: u.Scheme + "://" + u.Host, start: pathOf(u)}
	return definition.Parse("draft.yaml", d.yaml())
}

// Write gets the page of a URL, and a page that it seems to lead to, and
// writes the definition. It gets at most two pages.
func Write(ctx context.Context, get Get, u *url.URL) (*Draft, error) {
	bare, err := Bare(u)
	if err != nil {
		return nil, err
	}
	page, err := get(ctx, u.String(), definition.KindListing)
	if err != nil {
		return nil, err
	}
	out := &outline{site: siteName(u), base: page.URL.Scheme + "://" + page.URL.Host, start: pathOf(page.URL)}
	pages := []extract.Page{page}
	text, _ := extract.Decode(page.Body, page.Header.Get("Content-Type"), nil)
	if looksLikeJSON(text) {
		if err := out.fromJSON(page, text); err != nil {
			return nil, err
		}
		return out.finish(pages)
	}
	doc, err := extract.Parse(bare, page)
	if err != nil {
		return nil, err
	}
	list := findList(doc)
	if list == nil {
		out.startAs = definition.KindDetail
		out.detail = detailFields(doc, nil)
		pages[0].Kind = definition.KindDetail
		return out.finish(pages)
	}
	out.list = list
	out.next = findNext(doc)
	if at := list.firstLink(doc); at != "" {
		detail, err := get(ctx, at, definition.KindDetail)
		if err != nil {
			out.note("the page behind the first link could not be had, so that detail pages are left out: %v", err)
			list.link = ""
		} else if ddoc, err := extract.Parse(bare, withKind(detail, definition.KindDetail)); err == nil {
			out.detail = detailFields(ddoc, doc)
			pages = append(pages, withKind(detail, definition.KindDetail))
		}
	}
	return out.finish(pages)
}

func withKind(p extract.Page, kind string) extract.Page {
	p.Kind = kind
	return p
}

// finish writes the definition, tries it on the pages, and takes out what
// yields nothing.
func (o *outline) finish(pages []extract.Page) (*Draft, error) {
	if o.list == nil && len(o.detail) == 0 && o.json == nil {
		return nil, errors.New("nothing on the page looks like records; if its data comes by script, look for the address that the script asks, and give that")
	}
	for range 2 {
		text := o.yaml()
		def, err := definition.Parse("draft.yaml", text)
		if err != nil {
			return nil, fmt.Errorf("the definition that was guessed does not load: %w", err)
		}
		d := &Draft{YAML: text, Def: def, Notes: o.notes}
		missing := map[string]bool{}
		for _, p := range pages {
			v, err := sample.Of(def, p)
			if err != nil {
				d.Notes = append(d.Notes, fmt.Sprintf("%s: %v", p.URL, err))
			}
			for _, f := range v.Fields {
				if n, _ := f.Found(); n == 0 || len(v.Records) == 0 && len(v.Invalid) > 0 {
					missing[f.Name] = true
				}
				o.comment(f.Name, string(f.First))
			}
			d.Views = append(d.Views, v)
		}
		d.YAML = o.yaml() // with comments
		if len(missing) == 0 || !o.drop(missing) {
			return d, nil
		}
	}
	return nil, errors.New("the fields that were guessed yield nothing on the page they come from")
}

var notSite = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

func siteName(u *url.URL) string {
	name := strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.")
	return strings.Trim(notSite.ReplaceAllString(name, "-"), "-.")
}

func pathOf(u *url.URL) string {
	p := u.EscapedPath()
	if p == "" {
		p = "/"
	}
	if u.RawQuery != "" {
		p += "?" + u.RawQuery
	}
	return p
}

func looksLikeJSON(text []byte) bool {
	t := bytes.TrimSpace(text)
	return len(t) > 0 && (t[0] == '{' || t[0] == '[')
}
