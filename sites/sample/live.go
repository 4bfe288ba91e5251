package sample

import (
	"context"
	"fmt"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

// maxTries is how many pages of a sort are tried until one succeeds.
const maxTries = 3

// Live fetches one page of each sort, beginning with a start page: a sitemap, a listing page, the next listing page,
// a detail page. It calls show with each page or its error, and continues after an error. It returns the first error.
func Live(ctx context.Context, client *fetch.Client, def *definition.Definition, show func(View, error)) error {
	l := live{client: client, def: def, show: show, tries: map[string]int{}}
	for _, p := range def.StartPages() {
		l.visit(ctx, extract.Link{URL: p.URL, Kind: p.Kind, Post: p.Post, Start: p.Start}, p.Kind)
	}
	return l.first
}

type live struct {
	client *fetch.Client
	def    *definition.Definition
	show   func(View, error)
	tries  map[string]int // of each sort; maxTries after a success
	first  error
}

// visit fetches a page and the pages that it links to, unless there were enough pages of its sort.
func (l *live) visit(ctx context.Context, to extract.Link, sort string) {
	if l.tries[sort] >= maxTries || ctx.Err() != nil {
		return
	}
	l.tries[sort]++
	v := View{Sample: Sample{URL: to.URL, Kind: to.Kind}}
	page, err := l.client.Fetch(ctx, to.URL, to.Kind, to.Post)
	if err == nil {
		page.Start = to.Start
		if sort == "next" {
			page.N = 1 // the second page of a count
		}
		v, err = Of(l.def, page)
	}
	l.show(v, err)
	if err != nil {
		if l.first == nil {
			l.first = fmt.Errorf("%s page %s: %w", to.Kind, to.URL, err)
		}
		return
	}
	l.tries[sort] = maxTries
	if v.next != nil {
		l.visit(ctx, *v.next, "next")
	}
	for _, link := range v.Links {
		kind, at, _ := strings.Cut(link, " ")
		l.visit(ctx, extract.Link{URL: at, Kind: kind, Start: to.Start}, kind)
	}
}
