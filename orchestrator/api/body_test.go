package api

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for body, want := range map[string]string{
		`{"a": [1, {"b": "ä\u00e4\ud83d\ude00\\u0000"}], "c": null}`: "",
		`"plain"`:                     "",
		nested(100):                   "",
		nested(101):                   "body[0][0]",
		`{"a": [1, {"b": "\u0000"}]}`: "body.a[1].b: the text has a NUL character",
		`{"a": 1, "\u0000": 2}`:       "body: the text has a NUL character",
		"{\"x\": {\"a\": \"\xff\"}}":  "body.x.a: the text is not valid UTF-8",
		`["a", "\ud800"]`:             "body[1]: the text has half of a surrogate pair",
		`["\ud800\u0041"]`:            "body[0]: the text has half of a surrogate pair",
		`["\udc00\ud800"]`:            "body[0]: the text has half of a surrogate pair",
		`{"a": {"b": 1}, "c": 1e999}`: "body.c: the number is out of range",
		`{"a": }`:                     "body: no JSON",
		`{} {}`:                       "body: no JSON",
		`{"a": 1, "b": {"a": 1, "A": 2}, "c": [{"a": 1}, {"a": 1}]}`: "",
		`{"a": {"b": 1, "c": 2, "b": 3}}`:                            "body.a.b: the object has this key twice",
		`[{"a": 1, "\u0061": 2}]`:                                    "body[0].\\u0061: the object has this key twice",
		``:                                                           "body: no JSON",
		"[" + strings.Repeat("0,", maxValues+1) + "0]": "body[",
		nested(20000): "body: no JSON",
	} {
		got := ""
		if p := checkJSON([]byte(body), "body"); p != nil {
			got = p.Detail
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%.60s: got %q, want %q", body, got, want)
		}
	}
}

// What is let through is decoded as it was sent.
func FuzzCheckJSON(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": "ä\u00e4\ud83d\ude00\\u0000"}], "c": -1.5e3}`))
	f.Add([]byte("[\"\\ud800\", \"\xff\"]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkJSON(data, "body") != nil {
			return
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatalf("%q is let through: %v", data, err)
		}
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case string:
				if strings.ContainsRune(v, 0) || !utf8.ValidString(v) {
					t.Errorf("%q lets %q through", data, v)
				}
			case []any:
				for _, one := range v {
					walk(one)
				}
			case map[string]any:
				for key, one := range v {
					walk(key)
					walk(one)
				}
			}
		}
		walk(v)
	})
}
