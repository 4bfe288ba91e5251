package definition

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// FuzzSelector checks that a selector is rejected or applies to any page: CSS, XPath and JSON paths.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{"div > a:has(b)::attr(href)", "//div[@class='x']/text()", "xpath:count(//a)", "a:contains('x'):nth-child(2n+1)", "data.items[*].price", "$['a\\'b'][0]", "(//a)[last()]", "..", "a::text", "[", "//a[", ":not("} {
		f.Add(s, `<div class=x><a href="/1">1<b></b></a></div>`, `{"data":{"items":[{"price":1}]}}`)
	}
	f.Fuzz(func(t *testing.T, text, page, document string) {
		if len(text) > 200 || len(page) > 2000 {
			return // pages and definitions are limited in size
		}
		if s, err := ParseSelector(text); err == nil {
			if n, err := html.Parse(strings.NewReader(page)); err == nil {
				_ = s.All(n)
				_ = s.First(n)
			}
		} else if !strings.HasPrefix(err.Error(), "bad ") {
			t.Errorf("%q: the error is %v", text, err)
		}
		var v any
		if p, err := ParsePath(text); err == nil && json.Unmarshal([]byte(document), &v) == nil {
			if got := p.Eval(v); len(got) > len(document) {
				t.Errorf("%q finds %d values in %q", text, len(got), document)
			}
		}
	})
}

// FuzzField checks that the field of a trial is parsed, or has problems with positions.
func FuzzField(f *testing.F) {
	for _, s := range []string{"h1", "{css: a, type: number, pattern: '[0-9]+'}", "{json: 'a.b'}", "{xpath: '//a', type: date, format: '%d'}", "[a, b]", "{", "{css: a, unknown: 1}", "{type: price}"} {
		f.Add(s, "html")
	}
	f.Fuzz(func(t *testing.T, text, format string) {
		_, err := ParseField(&Definition{}, text, format)
		var problems Problems
		if err != nil && !errors.As(err, &problems) {
			t.Errorf("%q: the error is %v", text, err)
		}
	})
}
