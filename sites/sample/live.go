package sample

import (
	"context"
	"fmt"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

const (
	maxTries = 3  // attempts per kind and depth until a page succeeds
	maxLive  = 25 // maximum number of pages
)

// Live follows the definition from its start pages, through sitemaps and listing pages at any depth, until it has fetched the
// second page of a listing, and a record of each kind of page that has records. It calls show with each page or its error,
// continues after errors, and returns the first one.
func Live(ctx context.Context, client *fetch.Client, def *definition.Definition, show func(View, error)) error {
	l := live{client: client, def: def, show: show, tries: map[string]int{}, wanted: map[string]bool{}}
	for _, r := range def.Records {
		l.wanted[r.From] = true
	}
	for _, p := range def.StartPages() {
		l.visit(ctx, extract.Link{URL: p.URL, Kind: p.Kind, Post: p.Post, Start: p.Start}, p.Kind, 0)
	}
	return l.first
}

type live struct {
	client *fetch.Client
	def    *definition.Definition
	show   func(View, error)
	tries  map[string]int  // attempts by sort and depth; maxTries after a success
	wanted map[string]bool // kinds of page that still lack a record
	pages  int
	first  error
}

// visit fetches a page and its links, unless there were enough pages of its sort, which is its kind or "next".
func (l *live) visit(ctx context.Context, to extract.Link, sort string, depth int) {
	level := fmt.Sprint(sort, " ", depth)
	found := depth > 0 && sort != "next" && len(l.wanted) == 0
	if found || l.tries[level] >= maxTries || l.pages >= maxLive || ctx.Err() != nil {
		return
	}
	l.tries[level]++
	l.pages++
	v := View{URL: to.URL, Kind: to.Kind}
	page, err := l.client.Fetch(ctx, to.URL, to.Kind, to.Post)
	if err == nil {
		page.Start, page.Carry = to.Start, to.Carry
		if sort == "next" {
			page.N = 1 // the second numbered page
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
	if len(v.Records) > 0 {
		delete(l.wanted, to.Kind)
	}
	if len(v.Records) > 0 || to.Kind != definition.KindDetail {
		l.tries[level] = maxTries
	}
	if v.next != nil && sort != "next" {
		l.visit(ctx, *v.next, "next", 0)
	}
	for _, link := range v.to {
		link.Start = to.Start
		l.visit(ctx, link, link.Kind, depth+1)
	}
}
