package crawl

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

// twoProxies is a transport of two proxies. From its second item on, the site responds to the first proxy with block pages that
// only their missing fields reveal. The pool uses the first proxy that is not resting.
type twoProxies struct {
	mu      sync.Mutex // guards the fields below
	resting []string
	used    []string // for items, in turn
}

func (p *twoProxies) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	proxy := "http://first.example:1"
	if slices.Contains(p.resting, proxy) {
		proxy = "http://second.example:1"
	}
	if strings.HasPrefix(r.URL.Path, "/item/") {
		p.used = append(p.used, proxy)
	}
	p.mu.Unlock()
	r = r.Clone(r.Context())
	r.Header.Set("X-Proxy", proxy)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		res.Header.Set("X-Via", proxy)
	}
	return res, err
}

func (p *twoProxies) via(r *http.Response) string { return r.Header.Get("X-Via") }

func (p *twoProxies) blocked(r *http.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resting = append(p.resting, p.via(r))
}

// scrapePage fetches and extracts a page after a number of earlier attempts.
func scrapePage(t *testing.T, j *job, v visit, tries int) (*yield, [][]byte, error) {
	t.Helper()
	page, err := j.crawler.client.Get(t.Context(), v.URL, v.Kind)
	if err != nil {
		return nil, nil, err
	}
	return j.crawler.extractor.extract(t.Context(), v, page, tries)
}

func (p *twoProxies) service(t *testing.T) *Worker {
	t.Helper()
	return process(t, Config{Transport: func(*definition.Definition) http.RoundTripper { return p }, Fetch: fetch.Config{Via: p.via, OnBlocked: p.blocked}})
}

// fickle is a site of items. The last one never has fields. The text of the block page differs from item to item.
func fickle(t *testing.T, items int) *definition.Definition {
	t.Helper()
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		var n int
		switch {
		case r.URL.Path == "/":
			for i := range items {
				fmt.Fprintf(w, "<a href=/item/%d>item</a> ", i)
			}
		case !sitetest.Scan(r.URL.Path, "/item/%d", &n):
			http.NotFound(w, r)
		case n > 0 && r.Header.Get("X-Proxy") == "http://first.example:1", n == items-1:
			fmt.Fprintf(w, "<p>Back soon %d</p>", n)
		default:
			fmt.Fprintf(w, "<h1>Item %d</h1><p class=price>%d €</p>", n, n)
		}
	}))
	return sitetest.Parse(t, []byte("site: fickle\nbase_url: "+server.URL+"\nstart: [/]\nlisting: {links: a}\npoliteness: {delay: 0, robots: false, max_per_domain: 1}\nretries: {base: 10ms}\n"+
		"records: {item: {fields: {name: {css: h1, required: true}, price: {css: .price, required: true}}}}\n"))
}

func TestPageWithoutItsFieldsIsTriedByAnotherProxy(t *testing.T) {
	t.Parallel()
	const items = 6
	p := &twoProxies{}
	def := fickle(t, items)
	j := begin(t, p.service(t), "j", def, ScrapeOptions{})
	_, _, err := scrapePage(t, j, visit{Link: extract.Link{URL: def.Base().String() + "/item/0", Kind: definition.KindDetail}}, 0)
	testutil.Ok(t, err)
	sum := run(t, j)
	if got, want := sum.ByType["item"], items-1; got != want {
		t.Errorf("got %d items, want %d: %v", got, want, sum.ByClass)
	}
	if sum.ByClass[fetch.Validate] != 1 || sum.Errors != 1 || sum.Invalid != 1 {
		t.Errorf("got %d errors, %d invalid records, classes %v; want the last item as one of class %s", sum.Errors, sum.Invalid, sum.ByClass, fetch.Validate)
	}
	if sum.Health.Status == report.Healthy {
		t.Errorf("got health %+v, want worse", sum.Health)
	}
	if !slices.Contains(p.resting, "http://first.example:1") || p.used[len(p.used)-1] != "http://second.example:1" {
		t.Errorf("got proxies %v of which %v rest, want the second in the end", p.used, p.resting)
	}
}

// A page without fields is suspect if a sibling has them, and not at its last try. A site with such pages through every proxy does not
// exhaust the pool.
func TestSuspectNeedsASiblingWithFields(t *testing.T) {
	t.Parallel()
	type step struct {
		item, tries int
		want        fetch.Class
		rest        int // resting proxies after the step
	}
	last := fickle(t, 1).Retries.Attempts
	everywhere := []step{{0, 0, fetch.OK, 0}}
	for n := range maxWithout {
		everywhere = append(everywhere, step{1, 0, fetch.SoftBlock, n + 1}, step{1, last, fetch.Validate, n + 1})
	}
	for items, steps := range map[int][]step{
		5: {
			{1, 0, fetch.Validate, 0}, // no sibling was read yet
			{0, 0, fetch.OK, 0}, {1, last, fetch.Validate, 0}, {1, 0, fetch.SoftBlock, 1},
			{1, 1, fetch.OK, 1}, // by the second proxy
			{4, 0, fetch.SoftBlock, 2},
		},
		2: append(everywhere, step{1, 0, fetch.Validate, maxWithout}, step{0, 1, fetch.OK, maxWithout}, step{1, 0, fetch.SoftBlock, maxWithout + 1}),
	} {
		p := &twoProxies{}
		def := fickle(t, items)
		j := begin(t, p.service(t), "j", def, ScrapeOptions{})
		for i, step := range steps {
			_, _, err := scrapePage(t, j, visit{Link: extract.Link{URL: fmt.Sprintf("%s/item/%d", def.Base(), step.item), Kind: definition.KindDetail}}, step.tries)
			if got := fetch.ClassOf(err); got != step.want || len(p.resting) != step.rest {
				t.Fatalf("%d items, step %d: got %s and %v at rest, want %s and %d", items, i, got, p.resting, step.want, step.rest)
			}
		}
	}
}

func TestRequiredFields(t *testing.T) {
	t.Parallel()
	const must = "detail: {must_have: .item}\n"
	const both = "records: {item: {fields: {name: {css: h1, required: true}, price: {css: .price, required: true}}}}\n"
	for name, c := range map[string]struct {
		rest, body    string
		found, wanted bool
	}{
		"all":                             {both, "<h1>a</h1><p class=price>1", true, true},
		"some":                            {both, "<h1>a</h1>", true, true},
		"none":                            {both, "<p>a</p>", false, true},
		"nothing is required":             {"records: {item: {fields: {name: h1}}}\n", "<p>a</p>", false, false},
		"must_have":                       {must + "records: {item: {fields: {name: h1}}}\n", "<p class=item>a</p>", true, true},
		"must_have is missing":            {must + both, "<h1>a</h1>", false, true},
		"must_have, and no fields":        {must + both, "<p class=item>a</p>", false, true},
		"the page may have no such items": {"records: {item: {each: .item, fields: {name: {css: h1, required: true}}}}\n", "<p>a</p>", false, false},
	} {
		def := testutil.Must(definition.Parse("s.yaml", []byte("site: s\nbase_url: http://s.example\nstart: [/]\n"+c.rest)))(t)
		doc, err := extract.Parse(def, extract.Page{URL: def.Base(), Kind: definition.KindDetail, Header: http.Header{}, Body: []byte(c.body)})
		testutil.Ok(t, err)
		res := testutil.Must(extract.Run(def, doc))(t)
		if found, wanted := requiredFields(def, doc, &res); found != c.found || wanted != c.wanted {
			t.Errorf("%s: got found %v, wanted %v; want %v, %v", name, found, wanted, c.found, c.wanted)
		}
	}
}
