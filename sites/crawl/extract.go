package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/report"
)

// maxSitemaps is the maximum nesting of sitemaps.
const maxSitemaps = 3

// extractor extracts records and links from the pages of a job. It is safe for concurrent use.
type extractor struct {
	*pages
	memory   *memory
	external func(context.Context, *extract.Doc) (*extract.Doc, error) // see fetch.Client.Extract

	mu    sync.Mutex          // guards kinds
	kinds map[string]fieldsOf // see suspect
}

// extract extracts records and links from a fetched page. tries is the number of earlier attempts. Every error except an error of
// ctx is a *fetch.Error.
func (x *extractor) extract(ctx context.Context, v visit, page extract.Page, tries int) (*yield, [][]byte, error) {
	leave, err := x.memory.enter(ctx, len(page.Body))
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	page.N, page.Carry, page.Start = v.N, v.Carry, v.Start
	fail := func(class fetch.Class, err error) (*yield, [][]byte, error) {
		return nil, nil, &fetch.Error{Class: class, URL: v.URL, Status: page.Status, Via: page.Via, Err: err}
	}
	if v.Kind == definition.KindFile {
		return downloaded(v, page)
	}
	if v.Kind == definition.KindSitemap {
		y, err := x.sitemap(v, page)
		if err != nil {
			return fail(fetch.Parse, err)
		}
		x.keep(ctx, page)
		return y, nil, nil
	}
	doc, err := extract.Parse(x.def, page)
	if err != nil {
		return fail(fetch.Parse, err)
	}
	if err := fetch.Inspect(x.def, doc); err != nil {
		return nil, nil, err
	}
	x.keep(ctx, page)
	original := x.original(ctx, v, doc)
	if x.def.Extractor.Handles(v.Kind) && extract.MustHave(x.def, doc) { // otherwise check fails
		if doc, err = x.external(ctx, doc); err != nil {
			return nil, nil, err
		}
	}
	doc.Original = original
	res, err := extract.Run(x.def, doc)
	if err := x.suspect(doc, &res, tries); err != nil {
		return nil, nil, err
	}
	if err != nil {
		return fail(fetch.Validate, invalidIn(res, err))
	}
	if class, err := x.check(doc, res); err != nil {
		return fail(class, err)
	}
	y, records, err := x.yield(v, doc, res)
	if err != nil {
		return fail(fetch.Validate, err)
	}
	y.Bytes = len(page.Body) // not of the extractor's JSON
	return y, records, nil
}

// downloaded returns the result of a file, an output for the writer of the job.
func downloaded(v visit, page extract.Page) (*yield, [][]byte, error) {
	line, err := json.Marshal(store.File{Type: store.FileType, Name: extract.FileName(v.URL), Data: page.Body})
	took := max(page.Took.Milliseconds(), 1)
	return &yield{Yield: report.Yield{Class: fetch.OK, Bytes: len(page.Body), Took: took}, via: page.Via, outputs: [][]byte{line}}, nil, err
}

// keep stores a page in the cache, if there is one.
func (x *extractor) keep(ctx context.Context, page extract.Page) {
	if page.Keep == nil {
		return
	}
	if err := page.Keep(page); err != nil {
		x.log.WarnContext(ctx, "cannot cache a page", "error", err)
	}
}

func (x *extractor) sitemap(v visit, page extract.Page) (*yield, error) {
	res, err := extract.Sitemap(x.def, page)
	if err != nil {
		return nil, err
	}
	y := &yield{Yield: report.Yield{Class: fetch.OK, Bytes: len(page.Body), Outside: res.Outside}, via: page.Via, Broken: res.Broken}
	for _, l := range res.Links {
		if l.Kind != definition.KindSitemap || v.Depth < maxSitemaps {
			y.links = append(y.links, visit{l, v.Depth + 1})
		}
	}
	return y, nil
}

// check returns an error if a page cannot be a page of the definition.
func (x *extractor) check(doc *extract.Doc, res extract.Result) (fetch.Class, error) {
	if err := fetch.CheckMustHave(x.def, doc); err != nil {
		return fetch.Validate, err
	}
	if len(res.Records)+len(res.Links) > 0 || res.Next != nil {
		return fetch.OK, nil
	}
	switch {
	case len(res.Invalid) > 0:
		return fetch.Validate, invalidIn(res, fmt.Errorf("all records of the page are invalid: %s", strings.Join(res.Invalid[0].Problems, "; ")))
	case fetch.NeedsScript(doc):
		return fetch.Validate, errors.New("the page is empty without JavaScript; see render in the definition")
	case doc.Root != nil && doc.JSON == nil && len(x.def.Page(doc.Page.Kind).MustHave) == 0 && doc.Text() == "":
		return fetch.Empty, errors.New("the page has no text")
	}
	return fetch.OK, nil
}

// yield returns the result of a page and its records as JSON.
func (x *extractor) yield(v visit, doc *extract.Doc, res extract.Result) (*yield, [][]byte, error) {
	y := &yield{via: doc.Page.Via, counted: res.Counted, Yield: report.Yield{
		Class: fetch.OK, Took: max(doc.Page.Took.Milliseconds(), 1),
		Invalid: len(res.Invalid), Hits: res.Hits, Faults: res.Faults, Records: map[string]int{},
	}}
	if doc.Original != nil {
		y.Duplicate = doc.Original.String()
	}
	var found []string
	records := make([][]byte, 0, len(res.Records))
	for i := range res.Records {
		r := &res.Records[i]
		line, err := r.JSON()
		if err != nil {
			return nil, nil, fmt.Errorf("encode record: %w", err)
		}
		found = append(found, r.Type+" "+r.Key)
		y.Records[r.Type]++
		y.types = append(y.types, r.Type)
		records = append(records, line)
	}
	for _, l := range res.Links {
		found = append(found, l.URL)
		y.links = append(y.links, visit{l, v.Depth + 1})
	}
	if res.Next != nil {
		y.next = &visit{*res.Next, v.Depth + 1}
		y.next.Kind = definition.KindListing
		y.print = printOf(found)
	}
	return y, records, nil
}
