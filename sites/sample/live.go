package sample

import (
	"context"
	"fmt"
	"strings"

	"muster/sites/definition"
	"muster/sites/fetch"
)

// maxTries is how many pages of a sort are tried until one is good.
const maxTries = 3

// Live fetches one page of each sort, from a start page on: a sitemap, a
// listing page, the listing page after it, a detail page. It calls show with
// each, or with what went wrong with it, and goes on with the others. Its
// error is that of the first page that went wrong.
func Live(ctx context.Context, client *fetch.Client, def *definition.Definition, show func(View, error)) error {
	l := live{client: client, def: def, show: show, tries: map[string]int{}}
	for _, p := range def.StartPages() {
		l.visit(ctx, p.URL, p.Kind, p.Kind)
	}
	return l.first
}

type live struct {
	client *fetch.Client
	def    *definition.Definition
	show   func(View, error)
	tries  map[string]int // of each sort; maxTries when one was good
	first  error
}

// visit looks at a page, unless there were enough of its sort, and at those
// that it leads to.
func (l *live) visit(ctx context.Context, rawURL, kind, sort string) {
	if l.tries[sort] >= maxTries || ctx.Err() != nil {
		return
	}
	l.tries[sort]++
	v := View{Sample: Sample{URL: rawURL, Kind: kind}}
	page, err := l.client.Get(ctx, rawURL, kind)
	if err == nil {
		if sort == "next" {
			page.N = 1 // the second of a count
		}
		v, err = Of(l.def, page)
	}
	l.show(v, err)
	if err != nil {
		if l.first == nil {
			l.first = fmt.Errorf("%s page %s: %w", kind, rawURL, err)
		}
		return
	}
	l.tries[sort] = maxTries
	if v.Next != "" {
		l.visit(ctx, v.Next, definition.KindListing, "next")
	}
	for _, link := range v.Links {
		kind, at, _ := strings.Cut(link, " ")
		l.visit(ctx, at, kind, kind)
	}
}
