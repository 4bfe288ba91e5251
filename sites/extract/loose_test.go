package extract

import (
	"encoding/json"
	"testing"
)

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
		got := ""
		if err == nil {
			b, _ := json.Marshal(v)
			got = string(b)
		}
		if got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
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
		got := ""
		if err == nil {
			b, _ := json.Marshal(v)
			got = string(b)
		}
		if got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}
