package extract

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

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
	page, err := url.Parse("http://shop.example/p")
	if err != nil {
		f.Fatal(err)
	}
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
