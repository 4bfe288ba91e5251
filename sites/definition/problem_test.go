package definition

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

const good = `site: shop.example
base_url: https://shop.example
start: [/]
listing:
  next: li.next a
  links: .product a
records:
  product:
    key: [name]
    fields:
      name: h1
`

// problemCase breaks the good definition in one place. want has the position in the file and the remedy.
type problemCase struct{ name, from, to, want string }

func testProblems(t *testing.T, cases []problemCase) {
	t.Helper()
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(good, c.from, c.to, 1)
			if text == good {
				t.Fatalf("%q is not in the definition", c.from)
			}
			_, err := Parse("s.yaml", []byte(text))
			if err == nil {
				t.Fatalf("no error, want %q", c.want)
			}
			if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "s.yaml:") {
				t.Errorf("got  %v\nwant s.yaml:… %s", err, c.want)
			}
			if _, ok := errors.AsType[*Problem](err); !ok {
				t.Errorf("got a %T, want a *Problem to be found in it", err)
			}
		})
	}
}

func TestProblemsOfYAML(t *testing.T) {
	testProblems(t, []problemCase{
		{"unknown key", "listing:", "listings:", `4:1: unknown key "listings"; did you mean "listing"?`},
		{"unknown inner key", "  next: li.next a", "  nextt: li.next a", `5:3: listing: unknown key "nextt"; did you mean "next"?`},
		{"unknown field key", "name: h1", "name: {cs: h1}", `11:14: records.product.fields.name: unknown key "cs"; did you mean "css"?`},
		{"far off key", "start: [/]", "start: [/]\nzzzzzzzz: 1", `4:1: unknown key "zzzzzzzz"; known here: site, description`},
		{"extractor of both", "start: [/]", "start: [/]\nextractor: {url: 'http://x.example', command: a}", `4:12: extractor: set either url, or command`},
		{"refetch", "start: [/]", "start: [/]\nrefetch: 7 days", `4:10: refetch: want always, if-changed or a time from 1s to 3650d, such as 7d or 12h, got "7 days"`},
		{"refetch of nothing", "start: [/]", "start: [/]\nrefetch: 0d", `4:10: refetch: want always, if-changed`},
		{"empty value", "start: [/]", "start:", `3:1: start: has no value`},
		{"wrong kind", "start: [/]", "start: [/]\nlimits: 5", `4:9: limits: want a mapping with the keys max_pages`},
		{"twice", "start: [/]", "start: [/]\nstart: [/a]", `4:1: not valid YAML: mapping key "start" already defined`},
		{"tab", "start: [/]", "start:\n\t- a", `not valid YAML`},
		{"merge key", "start: [/]", "start: [/]\nlimits:\n  <<: {max_pages: 3}", `merge key << is not supported`},
		{"no such alias", "name: h1", "name: *h", `h`},
		{"second document", "      name: h1", "      name: h1\n---\nsite: b", `a second document in the file; write one per file`},
	})
}

func TestProblemsOfTheSite(t *testing.T) {
	testProblems(t, []problemCase{
		{"bad link selector", ".product a", "'.product >'", `6:10: listing.links[0]: bad CSS selector`},
		{"two ways on", "next: li.next a", "next: {css: a, rel: next}", `5:9: listing.next: has css and rel; give only one`},
		{"no number", "next: li.next a", "next: {template: /p/}", `"/p/" does not contain {n}`},
		{"missing site", "site: shop.example\n", "", `site: is missing`},
		{"colon in site", "site: shop.example", "site: 'a:b'", `invalid name "a:b"`},
		{"missing base", "base_url: https://shop.example\n", "", `base_url: is missing`},
		{"ftp base", "https://shop.example", "ftp://shop.example", `not an http or https URL`},
		{"login in the base", "https://shop.example", "https://u:p@shop.example", `2:11: base_url: must not contain a login; send it as the header Authorization; see headers`},
		{"login in a start page", "start: [/]", "start: ['https://u:p@shop.example/']", `3:9: start: must not contain a login`},
		{"login in the start of a session", "start: [/]", "start: [/]\nsession: {start: '//u@shop.example/'}", `4:18: session.start: must not contain a login`},
		{"start elsewhere", "start: [/]", "start: ['https://other.example/']", `3:9: start: https://other.example/ is outside the site's scope; add "other.example" to hosts`},
		{"schedule", "start: [/]", "start: [/]\nschedule: daily", `4:11: schedule: `},
		{"no start", "start: [/]\n", "", `start: is missing`},
		{"sitemap and url", "start: [/]", "start: [{url: /, sitemap: /s.xml}]", `give one of url, template and sitemap`},
		{"allow without sitemap", "start: [/]", "start: [{url: /, allow: x}]", `belongs to a sitemap`},
		{"itself", "start: [/]", "start: [/]\ndepends_on: [shop.example]", `cannot depend on itself`},
		{"html without JSON", "start: [/]", "start: [/]\ndetail: {html: data}", `detail.html: is for HTML inside JSON`},
		{"host with a bad port", "start: [/]", "start: [/]\nhosts: ['a.example:x', 'a.example:0']", `"a.example:0" is not a host name`},
		{"address with path", "start: [/]", "start: [/]\nallow_addresses: [10.0.0.0/99]", `allow_addresses: invalid address, network or host "10.0.0.0/99"`},
		{"host with path", "start: [/]", "start: [/]\nhosts: [a.example/b]", `"a.example/b" is not a host name`},
		{"bad scope", "start: [/]", "start: [/]\nscope: {allow: '(', deny: [{a: b}]}", `4:16: scope.allow`},
		{"invalid host", "start: [/]", "start: [/]\nhosts: ['-1', 'a b']", `"a b" is not a host name`},
	})
}

func TestProblemsOfFields(t *testing.T) {
	testProblems(t, []problemCase{
		{"bad selector", "name: h1", "name: 'h1:foo('", `11:13: records.product.fields.name: bad CSS selector "h1:foo("`},
		{"bad regex", "name: h1", "name: {css: h1, regex: '(a'}", `11:30: records.product.fields.name.regex: bad regular expression "(a"`},
		{"look-ahead", "name: h1", "name: {css: h1, regex: '(?=a)'}", `RE2, which has no look-around`},
		{"unknown type", "name: h1", "name: {css: h1, type: numbr}", `records.product.fields.name.type: "numbr" is unknown; did you mean "number"?`},
		{"min of a text", "name: h1", "name: {css: h1, min: 3}", `11:28: records.product.fields.name.min: requires numbers, but the field is a text`},
		{"max of truths", "name: h1", "name: {css: h1, type: list, of: bool, max: 3}", `name.max: requires numbers, but the field is a bool`},
		{"currency of a number", "name: h1", "name: {css: h1, type: number, currency: EUR}", `name.currency: requires type: price, but the field is a number`},
		{"layout of a text", "name: h1", "name: {css: h1, layout: 2006-01-02}", `name.layout: requires type: date, but the field is a text`},
		{"default of wrong type", "name: h1", "name: {css: h1, type: integer, default: none}", `11:47: records.product.fields.name.default: "none" is not of type integer`},
		{"choice of wrong type", "name: h1", "name: {css: h1, type: integer, one_of: [1, two]}", `name.one_of: "two" is not of type integer`},
		{"two sources", "name: h1", "name: {css: h1, meta: title}", `has css and meta in one source`},
		{"no source", "name: h1", "name: {type: number}", `has no selector`},
		{"key of no field", "key: [name]", "key: [nme]", `9:10: records.product.key: no field "nme"; did you mean "name"?`},
		{"from nowhere", "key: [name]", "from: lisitng", `"lisitng" is unknown; did you mean "listing"?`},
		{"json on html", "name: h1", "name: {json: a.b}", `needs format: json`},
		{"place within a field", "name: h1", "name:\n        css: h1\n        locale: klingon", `13:17: records.product.fields.name.locale: "klingon" is unknown`},
		{"layout of letters", "name: h1", "name: {css: h1, type: date, layout: yyyy-mm-dd}", `"yyyy-mm-dd" has no day, month or year; write the layout as it would write 2 January 2006, such as 2006-01-02`},
		{"empty step", "name: h1", "name: {jsonld: Product..price}", `write it like Product.offers.price`},
	})
}

func TestProblemsOfRequests(t *testing.T) {
	testProblems(t, []problemCase{
		{"bad cookie", "start: [/]", "start: [/]\ncookies: {a: 'x;y'}", `4:14: cookies.a: invalid cookie`},
		{"wrong number", "start: [/]", "start: [/]\nlimits: {max_pages: many}", `4:21: limits.max_pages: want a whole number, got "many"`},
		{"out of bounds", "start: [/]", "start: [/]\npoliteness: {max_per_domain: 0}", `politeness.max_per_domain: is 0; must be from 1 to 1000`},
		{"wrong duration", "start: [/]", "start: [/]\npoliteness: {delay: soon}", `4:21: politeness.delay: want a duration such as 1.5s`},
		{"yes instead of true", "start: [/]", "start: [/]\npoliteness: {robots: yes}", `4:22: politeness.robots: want true or false, got "yes"`},
		{"when to render", "start: [/]", "start: [/]\nrender: sometimes", `4:9: render.when: "sometimes" is unknown; use one of never, always, auto`},
		{"renderer", "start: [/]", "start: [/]\nrender: {url: render.example}", `render.url: must be an http or https URL`},
		{"key of a renderer", "start: [/]", "start: [/]\nrender: {when: auto, key: k}", `render.key: needs render.url`},
		{"charset", "start: [/]", "start: [/]\nencoding: utf-99", `unknown charset "utf-99"`},
		{"fallback", "start: [/]", "start: [/]\nproxy: {fallback: dirct}", `did you mean "direct"?`},
		{"position of a later check", "start: [/]", "start: [/]\ntimezone: Mars/One", `4:11: timezone: unknown time zone "Mars/One"`},
		{"header", "start: [/]", "start: [/]\nheaders: {'A B': x}", `headers.A B: is not a valid HTTP header`},
		{"header of the transport", "start: [/]", "start: [/]\nheaders: {accept-encoding: gzip}", `headers.accept-encoding: cannot be set`},
		{"size out of bounds", "start: [/]", "start: [/]\nlimits: {max_bytes: 1}", `limits.max_bytes: is 1; must be from 1KiB to 1GiB`},
		{"time out of bounds", "start: [/]", "start: [/]\nlimits: {page_timeout: 61m}", `limits.page_timeout: is 1h1m0s; must be from 100ms to 1h`},
		{"extractor for too long", "start: [/]", "start: [/]\nextractor: {command: get, timeout: 61m}", `extractor.timeout: is 1h1m0s; must be from 100ms to 1h`},
		{"removed key of a record", "key: [name]", "if: a", `9:5: records.product: the key if was removed: select the elements in each`},
		{"removed key of a field", "name: h1", "name: {xpath: //h1}", `11:14: records.product.fields.name: the key xpath was removed: give the expression to css`},
		{"removed key of politeness", "start: [/]", "start: [/]\npoliteness: {retry_after_max: 1m}", `4:14: politeness: the key retry_after_max was removed: a Retry-After counts up to ten minutes`},
		{"removed value", "key: [name]", "on_invalid: keep", `9:17: records.product.on_invalid: "keep" is unknown; use one of drop, fail`},
		{"removed key", "start: [/]", "start: [/]\nsession:\n  max_uses: 5", `5:3: session: the key max_uses was removed: a visitor ends when the site blocks it`},
		{"start of a session", "start: [/]", "start: [/]\nsession: {start: 'https://other.example/'}", `is outside the site's scope`},
	})
}

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
