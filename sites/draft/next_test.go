package draft

import (
	"net/url"
	"testing"

	"muster/sites/definition"
	"muster/sites/extract"
)

// The next page is also found by page numbers, in any form of URL.
func TestNextIsFoundByPageNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ at, body, want string }{
		{"/a", `<b>1</b> <a href="/a?page=2">2</a> <a href="/a?page=3">3</a>`, "param: page"},
		{"/a", `<b>1</b> <a href="/a?page=1">2</a>`, "param: page, from: 1"},
		{"/a", `<b>1</b> <a href="/a?start=25">2</a>`, "param: start, from: 25, step: 25"},
		{"/a?p=4", `<a href="/a?p=1">1</a> … <a href="/a?p=3">3</a> 4 <a href="/a?p=5">5</a>`, "param: p, from: 5"},
		{"/a/", `1 <a href="/a/page/2/">2</a>`, "template: '/a/page/{n}/'"},
		{"/a/2", `<a href="/a/1">1</a> 2 <a href="/a/3">3</a>`, "template: '/a/{n}', from: 3"},
		{"/a", `<a href="/a?page=2" class=next>›</a>`, "css: a.next"},
		{"/a", `<a href="/a?page=2" aria-label="Next page"></a>`, `css: 'a[aria-label="Next page"]'`},
		{"/a?p=3", `<a href="/a?p=1">1</a> <a href="/a?p=2">2</a> 3`, ""},
		{"/a", `<a href="#" class=next>Next</a> <a href="/a/b">2</a> <a href="//x.example/2">Next</a>`, ""},
		{"/a/page/2/", `<a class=nav-next href="/a/">Newer posts</a>`, ""},
		{"/a/page/5/", `<a class=nav-next href="/a/page/4/">Neuere Beiträge</a>`, ""},
	} {
		u, err := url.Parse("http://s.example" + c.at)
		if err != nil {
			t.Fatal(err)
		}
		bare, err := Bare(u)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := extract.Parse(bare, extract.Page{URL: u, Kind: definition.KindListing, Status: 200, Body: []byte(c.body)})
		if err != nil {
			t.Fatal(err)
		}
		if got := readContent(doc).findNext(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.at, c.body, got, c.want)
		}
	}
}
