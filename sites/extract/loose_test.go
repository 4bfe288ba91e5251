package extract

import (
	"encoding/json"
	"fmt"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

// wantJSON compares a decoded value. If want is "", it expects an error.
func wantJSON(t *testing.T, text string, v any, err error, want string) {
	t.Helper()
	got := ""
	if err == nil {
		b, _ := json.Marshal(v)
		got = string(b)
	}
	if got != want {
		t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
	}
}

func TestLooseJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": 1} ; more`: `{"a":1}`,
		`{a: 1, 'b': "x", $c_1: [1,2,], d: {},}; x`:                                  `{"$c_1":[1,2],"a":1,"b":"x","d":{}}`,
		"{\"a\": \"two\nlines\tand a tab\"}":                                         `{"a":"two\nlines\tand a tab"}`,
		`{a: undefined, b: NaN, c: !0, d: !1, e: f}`:                                 `{"a":null,"b":null,"c":true,"d":false,"e":null}`,
		`{a: .5, b: 0x1f, c: -1.5e3, d: +7}`:                                         `{"a":0.5,"b":31,"c":-1500,"d":7}`,
		"{// one\n a: 1, /* two, */ b: 'it\\'s \\u00e9 \\x41 \\ud83d\\ude00 \"q\"'}": `{"a":1,"b":"it's é A 😀 \"q\""}`,
		"<!--\n{\"a\": [1,],}\n-->":                                                  `{"a":[1]}`,
		"`a ${b}`":                                                                   `"a ${b}"`,
		`[1, 2`:                                                                      ``,
		`{a: "x`:                                                                     ``,
		`function() {}`:                                                              ``,
		`{a: b(1)}`:                                                                  ``,
		``:                                                                           ``,
	} {
		v, err := looseJSON(text)
		wantJSON(t, text, v, err, want)
	}
}

func TestPageJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		` {"a": 1} `:                 `{"a":1}`,
		"{\"a\":1}\n{\"a\":2}\r\n\n": `[{"a":1},{"a":2}]`,
		")]}',\n[1]":                 `[1]`,
		")]}'\n[1]":                  `[1]`,
		"while(1);[1]":               `[1]`,
		"for(;;); [1]":               `[1]`,
		`cb({"a": 1});`:              `{"a":1}`,
		`/**/ jQuery1.cb_2( [1] )`:   `[1]`,
		`{"a": 1} {"a": 2}`:          ``,
		`{"a": 1}x`:                  ``,
		"{\"a\":1}\n{\"a\":":         ``,
		"{\"a\":1}\nNotice: x":       ``,
		`cb({"a": 1}); more()`:       ``,
		`{a: 1}`:                     ``,
		``:                           ``,
	} {
		v, err := PageJSON([]byte(text))
		wantJSON(t, text, v, err, want)
	}
}

// For HTML in a JSON response, links and records come from the HTML, and the next page from the JSON.
func TestHTMLInJSON(t *testing.T) {
	t.Parallel()
	def := define(t, `
listing: {format: json, html: 'data[*].html', next: {param: page, while: more}, links: a}
records:
  r:
    from: listing
    each: li
    fields: {v: b, n: {scope: page, json: count, type: integer}}
`)
	for body, want := range map[string]string{
		`{"data": [{"html": "<li><b>1</b><a href=/1>x</a>"}, {"html": "<li><b>2"}], "more": true, "count": 7}`: `[[{"Name":"v","Value":"1"},{"Name":"n","Value":7}],[{"Name":"v","Value":"2"},{"Name":"n","Value":7}]] [{http://shop.example/1 detail 0 0 { } map[] 0001-01-01 00:00:00 +0000 UTC}] &{http://shop.example/p?page=2 listing 1 0 { } map[] 0001-01-01 00:00:00 +0000 UTC}`,
		`{"data": [], "more": false}`: `[] [] <nil>`,
	} {
		res := testutil.Must(Run(def, page(t, def, definition.KindListing, "http://shop.example/p", body)))(t)
		values := make([][]Value, 0, len(res.Records))
		for _, r := range res.Records {
			values = append(values, r.Fields)
		}
		b := testutil.Must(json.Marshal(values))(t)
		if got := fmt.Sprint(string(b), " ", res.Links, " ", res.Next); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}
