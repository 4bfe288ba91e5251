package draft

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
)

// web maps paths to pages.
type web map[string]string

func (w web) get(_ context.Context, rawURL, kind string) (extract.Page, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return extract.Page{}, err
	}
	body, ok := w[u.RequestURI()]
	if !ok {
		return extract.Page{}, fmt.Errorf("no page %s", u)
	}
	return extract.Page{URL: u, Requested: rawURL, Kind: kind, Status: http.StatusOK, Header: http.Header{}, Body: []byte(body), FetchedAt: time.Now()}, nil
}

// repeat repeats part of a page for a few numbers.
func repeat(format string) string {
	var b strings.Builder
	for i := 1; i <= 6; i++ {
		b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
	}
	return b.String()
}

const menu = `<header><h1>The shop</h1></header><nav><ul><li><a href="/a">A long entry of the menu</a></li><li><a href="/b">Another long entry of the menu</a></li><li><a href="/c">Third entry of the menu</a></li><li><a href="/d">Fourth entry</a></li></ul></nav>`

// writes are pages and lines of their drafts.
var writes = []struct {
	name  string
	pages web
	at    string
	want  []string // lines
	not   []string
}{
	{"a shop", web{
		"/shop": menu + `<ol class="row">` + repeat(`<li class="col-xs-6"><article class="product"><h3><a href="/product/#.html">Lamp number #</a></h3><img src="/img/#.jpg"><p class="price_color">£#1.77</p><a href="/cart?add=#">Add to basket</a></article></li>`) + `</ol><ul class=pager><li class="next"><a href="/shop?page=2">next</a></li></ul>`,
		"/product/1.html": menu + `<main><h1>Lamp number 1</h1><script type="application/ld+json">{"@type":"Product","name":"Lamp number 1","sku":"L-1","offers":{"price":"11.77","priceCurrency":"GBP"}}</script>
				<p class="description">A lamp of blue glass, made by hand in a small workshop.</p><table><tr><th>UPC</th><td>a897</td></tr><tr><th>Tax</th><td>none</td></tr></table></main>`,
	}, "/shop", []string{
		"  must_have: article.product", "  next: {css: .next a}", "  links: article.product h3 a", "    each: article.product",
		`      title: {css: h3, required: true}  # "Lamp number 1"`, `      price_color: {css: p.price_color, type: price, required: true}  # {"amount":11.77,"currency":"GBP"}`, `      image: {css: img, take: image, type: url}  # "http://s.example/img/1.jpg"`,
		"    key: [sku]", `      title: {jsonld: Product.name, required: true}  # "Lamp number 1"`, `      price: {jsonld: Product.offers.price, type: price, required: true}  # {"amount":11.77,"currency":"GBP"}`, `      sku: {jsonld: Product.sku}  # "L-1"`, `      upc: {label: UPC}  # "a897"`,
		`      description: {css: p.description}  # "A lamp of blue glass, made by hand in a small workshop."`,
	}, []string{"nav", "menu"}},
	{"quotes", web{
		"/":         menu + `<div>` + repeat(`<div class="quote"><span class="text">Wise words, number # of many that were written</span><small class="author">Author #</small><a href="/author/#">about</a> <a class="tag" href="/tag/x">x# is a long tag</a><a class="tag" href="/tag/y">y#</a></div>`) + `</div><a href="/page/2"> Next <span>→</span></a>`,
		"/author/1": menu + `<div class=author-details><h3 class="author-title">Author 1</h3><span class="author-born-date">March 14, 1879</span></div>`,
	}, "/", []string{
		"    each: div.quote", `  next: {css: 'a:contains("Next")'}`, "  links: div.quote a:not([class])", `      tag: {css: a.tag}  # "x1 is a long tag"`,
		`      author_born_date: {css: span.author-born-date, type: date, required: true}  # "1879-03-14"`,
	}, []string{"The shop"}},
	{"an API with a cursor", web{"/api": `{"paging":{"next":20},"items":[{"id":1,"posted":"2026-11-01","rating":"2020"},{"id":2,"posted":"2026-11-02","rating":"2021"}]}`}, "/api", []string{
		"  next: {param: cursor, cursor: paging.next}  # cursor is a guess: name the parameter of the API", "    key: [id]", `      posted: {json: posted, type: date, required: true}  # "2026-11-01"`,
	}, nil},
	{"an API", web{"/api": `{"paging":{"next":"/api?page=2"},"items":[{"id":1,"name":"Lamp","tags":["a"],"price":{"value":1.5}},{"id":2,"name":"Chair"}]}`}, "/api", []string{
		"  format: json", "  next: {json: paging.next}", "    each_json: 'items[*]'", "      id: {json: id, type: number, required: true}  # 1", "      price_value: {json: price.value, type: number}  # 1.5", `      tags: {json: tags, type: list}  # ["a"]`,
	}, nil},
	{"one thing", web{"/p": menu + `<html><head></head><main><h1>Lamp</h1><p>Just a lamp on a separate page, with some words about it.</p></main>`}, "/p", []string{
		"  - {url: /p, as: detail}", `      title: {css: main h1, required: true}  # "Lamp"`,
	}, nil},
}

func TestDraftHasTheExpectedLines(t *testing.T) {
	t.Parallel()
	for _, c := range writes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := testutil.Must(url.Parse("http://s.example" + c.at))(t)
			d := testutil.Must(Write(t.Context(), c.pages.get, u))(t)
			lines := strings.Split(string(d.YAML), "\n")
			has := func(want string) bool {
				return slices.ContainsFunc(lines, func(l string) bool {
					return strings.ReplaceAll(l, "'", "") == strings.ReplaceAll(want, "'", "")
				})
			}
			for _, want := range c.want {
				if !has(want) {
					t.Errorf("no line %s", want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(string(d.YAML), not) {
					t.Errorf("got %q in it, want none", not)
				}
			}
			if t.Failed() {
				t.Logf("in\n%s", d.YAML)
			}
			if _, err := definition.Parse("again.yaml", d.YAML); err != nil {
				t.Errorf("got %v, want a definition that loads", err)
			}
			records := 0
			for _, v := range d.Views {
				records += len(v.Records)
			}
			if records == 0 {
				t.Error("got no record, want some")
			}
		})
	}
}

// A page without records is an error with a remedy.
func TestPageWithoutRecordsIsAnError(t *testing.T) {
	t.Parallel()
	u := testutil.Must(url.Parse("http://s.example/"))(t)
	for name, body := range map[string]string{"numbers": `[1,2,3]`, "broken": `{"a":`, "no fields": `[{"a":null}]`} {
		if _, err := Write(t.Context(), web{"/": body}.get, u); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

// The draft of any page loads.
func FuzzWrite(f *testing.F) {
	f.Add([]byte(menu + repeat("<p class=x><a href=/#>a #</a>5 €")))
	f.Add([]byte("<a!0 class=A>0"))
	f.Add([]byte(`{"a":[{"b":1,"c d'":"x: #"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		u, _ := url.Parse("http://s.example/")
		_, err := Write(t.Context(), web{"/": string(body)}.get, u)
		if err != nil && strings.Contains(err.Error(), "does not load") {
			t.Error(err)
		}
	})
}
