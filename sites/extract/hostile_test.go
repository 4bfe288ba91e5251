package extract

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
)

// everyWay is a definition with every kind of source.
const everyWay = `listing: {next: {rel: next}, links: [a, {css: '//a'}]}
records:
  r:
    fields:
      a: {label: Price}
      b: {microdata: '*.name'}
      c: {jsonld: '*.name'}
      d: {meta: name}
      e: {css: div p a, take: image}
      f: //div/p/a
      g: {regex: 'x(.*)y'}
      h: {css: tr, type: list, of: object, fields: {p: {column: X}}}
      i: {css: script, json: a}
      j: {css: b, type: price}
      k: {css: b, type: date}
      m: {css: div, type: html}
      n: {css: i, type: list, of: number}
`

// hostile are pages that are expensive to extract. Each part is repeated until the page is large.
var hostile = map[string][2]string{
	"plain": {"", "<div><p>Price: <a href=x>5</a></p></div>\n"}, "deep": {"", "<div>"}, "deep words": {strings.Repeat("<div>", 500), "word Price: 7 "}, "formatting": {"", "<b><i>"},
	"fonts": {"", "<font color=red>x<p>"}, "rows": {"<table><tr><th>X<th>Y", "<tr><td>x</td><td>y</td></tr>"}, "tables": {"", "<table><tr><td>x"}, "attributes": {"<a ", "x=1 "}, "options": {"", "<option>a"},
	"binary": {"", "\x00\x01\x02\xff\xfe"}, "comment": {"<!--", "x"}, "entities": {"", "&amp;&nbsp;&#x41;"}, "script": {"<script>", "xyz"}, "angles": {"", "<"}, "svg": {"", "<svg><g>"}, "spans": {"<table>", "<tr><td colspan=99999 rowspan=99999>X"},
	"items": {"", "<div itemscope itemprop=name>"}, "labels": {"", "<b>Price</b>"}, "links": {"", "<a href=/x?a=1>x</a>"}, "numbers": {"<b>", "1 234,"}, "words": {"<b>", "may 3 "}, "brackets": {`<script type="application/ld+json">`, "["}, "spaces": {"", " \n"},
}

func TestHostilePagesTakeLittleTime(t *testing.T) {
	t.Parallel()
	def := define(t, everyWay)
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := h[0] + strings.Repeat(h[1], hostileSize/len(h[1]))
			began := time.Now()
			for _, b := range []string{body, body[:len(body)/2]} {
				for _, kind := range []string{definition.KindDetail, definition.KindListing} {
					runAny(t, def, kind, []byte(b))
				}
			}
			// Quadratic time would be minutes, and many minutes on a busy machine.
			if took := time.Since(began); took > 90*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// runAny extracts a page and ignores errors.
func runAny(t testing.TB, def *definition.Definition, kind string, body []byte) {
	t.Helper()
	u := testutil.Must(url.Parse("http://shop.example/p"))(t)
	d, err := Parse(def, Page{URL: u, Kind: kind, Header: http.Header{}, Body: body, FetchedAt: fetchedAt})
	if err == nil {
		_, _ = Run(def, d)
		MustHave(def, d)
	}
}

// A page that is nested too deeply for the parser is flattened.
func TestDeepPagesAreFlattened(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ open, shut string }{"divs": {"<div class=x>", "</div>"}, "fonts": {"<b><font size=1>", ""}, "lists": {"<ul><li>", "</li></ul>"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := "<title>T</title>" + strings.Repeat(c.open, 20_000) + "<dl><dt>Price<dd>5</dl><p><a href=/x>a</a><script>if (a<b) x()</script></p>" + strings.Repeat(c.shut, 20_000) + "<h1>end</h1>"
			for field, want := range map[string]string{"{label: Price}": `"5"`, "h1": `"end"`, "{page: title}": `"T"`} {
				if got, _ := fieldValue(t, field, body); got != want {
					t.Errorf("%s: got %s, want %s", field, got, want)
				}
			}
		})
	}
}

func FuzzPage(f *testing.F) {
	for _, h := range hostile {
		f.Add([]byte(h[0] + h[1] + h[1]))
	}
	def := define(f, everyWay)
	f.Fuzz(func(t *testing.T, body []byte) {
		runAny(t, def, definition.KindDetail, body)
		runAny(t, def, definition.KindListing, body)
	})
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"1.234,56 €", "12€50", "3万5000円", "1 ½", "2,3 млн", "-.,'5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, locale := range []string{"auto", "en", "de", "in", "fr"} {
			_, _ = Number(s, locale)
			_, _ = Integer(s, locale)
			_, _ = ParsePrice(s, locale, "")
		}
		largest(s)
	})
}

// FuzzLooseJSON checks that JSON and JavaScript literals are parsed or rejected, and that strict JSON is parsed like in
// encoding/json.
func FuzzLooseJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{a: 'b', /* c */ d: undefined, e: [1,2,],}`, `)]}',{"a":1}`, `callback({"a":[1]});`, "{\"a\":\"x\ny\"}", "{\"a\":1}\n{\"a\":2}", `{a:'\u{1F600}\x41\'',b:!0}`, `[[[[`, `{'a':`, "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := looseJSON(text)
		if strict := json.Valid([]byte(text)); strict && err != nil {
			t.Errorf("%q: %v", text, err)
		} else if err == nil {
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("%q is read as %v: %v", text, v, err)
			}
		}
		if v, err := PageJSON([]byte(text)); err == nil {
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("%q is read as %v: %v", text, v, err)
			}
		}
	})
}

// FuzzLinks checks that the next page of a header or of a meta refresh is a target in the text.
func FuzzLinks(f *testing.F) {
	f.Add(`</p?page=2>; rel="next", </p>; rel=prev`, `<meta http-equiv="refresh" content="0; url=/next">`)
	f.Add(`<a>; rel=next; anchor="#x", ,,<b>;rel="x next"`, `<base href="//evil.example/"><meta http-equiv=REFRESH content="0;URL='x'">`)
	f.Add(`<`, `<meta http-equiv=refresh content=javascript:x>`)
	page := testutil.Must(url.Parse("http://shop.example/p"))(f)
	f.Fuzz(func(t *testing.T, header, body string) {
		if next := headerNext([]string{header}); !strings.Contains(header, next) {
			t.Errorf("%q: got %q", header, next)
		}
		p := Page{URL: page, Header: http.Header{"Content-Type": {"text/html"}}, Body: []byte(body)}
		if u := p.Refresh(); u != nil && (u.Scheme != "http" && u.Scheme != "https" || u.Fragment != "" || u.User != nil || u.String() == page.String()) {
			t.Errorf("%q: got %s", body, u)
		}
	})
}
