package extract

import (
	"strings"
	"testing"

	"golang.org/x/text/encoding/htmlindex"

	"muster/internal/testutil"
	"muster/sites/definition"
)

const (
	russian = "Съешь же ещё этих мягких французских булок, да выпей чаю. Объявление о продаже квартиры в центре города."
	german  = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich"
	chinese = "我们的网站有一个新的产品，这是他们说的，你可以在这里看到。"
)

func encode(t *testing.T, charset, text string) []byte {
	t.Helper()
	enc := testutil.Must(htmlindex.Get(charset))(t)
	b := testutil.Must(enc.NewEncoder().Bytes([]byte(text)))(t)
	return b
}

func TestDecodeFindsTheCharset(t *testing.T) {
	t.Parallel()
	far := strings.Repeat(" ", 5000)
	meta := func(c string) string { return `<html><head><meta charset="` + c + `">` }
	for _, c := range []struct {
		name, prefix, text, charset, header, site string
		from                                      string
	}{
		{"header", "", russian, "windows-1251", "text/html; charset=windows-1251", "", "header"},
		{"meta", meta("windows-1251"), russian, "windows-1251", "text/html", "", "meta"},
		{"old meta", `<META http-equiv="Content-Type" content="text/html; charset=koi8-r">`, russian, "koi8-r", "text/html", "", "meta"},
		{"a description with a charset", `<meta name=description content="what charset=latin5 means"><meta property="og:title" content="charset=koi8-r">` + meta("windows-1251"), russian, "windows-1251", "text/html", "", "meta"},
		{"header before meta", meta("koi8-r"), russian, "windows-1251", "text/html; charset=cp1251", "", "header"},
		{"commented meta", "<!-- " + meta("koi8-r") + " -->" + meta("windows-1251"), russian, "windows-1251", "", "", "meta"},
		{"definition", meta("koi8-r"), russian, "windows-1251", "", "windows-1251", "definition"},
		{"UTF-8 with lying meta", meta("windows-1251"), russian, "utf-8", "", "", "utf-8 body"},
		{"UTF-8 with lying header", "", russian, "utf-8", "text/html; charset=iso-8859-1", "", "utf-8 body"},
		{"UTF-8, meta too far", far + meta("utf-8"), german, "utf-8", "", "", "utf-8 body"},
		{"header lies about UTF-8", meta("windows-1251"), russian, "windows-1251", "text/html; charset=utf-8", "", "meta"},
		{"no charset declared", "", german, "windows-1252", "", "", "default"},
		{"latin1 is windows-1252", "", "a “quote” costs 5 €", "windows-1252", "text/html; charset=latin1", "", "header"},
		{"broken header", "", russian, "windows-1251", "text/html;; charset=windows-1251; charset", "", "header"},
		{"unknown charset", meta("windows-1251"), russian, "windows-1251", "text/html; charset=none-such", "", "meta"},
		{"BOM", "\ufeff" + meta("windows-1251"), german, "utf-8", "text/html; charset=koi8-r", "", "bom"},
		{"GB2312 is GB18030", meta("gb2312"), chinese + " €\u00a0ḿ 😀", "gb18030", "", "", "meta"},
		{"XML", `<?xml version="1.0" encoding="windows-1251"?>`, russian, "windows-1251", "", "", "meta"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			body := append([]byte(nil), encode(t, c.charset, c.prefix+c.text)...)
			got, how := Decode(body, c.header, &definition.Definition{Encoding: c.site})
			if !strings.Contains(string(got), c.text) {
				t.Errorf("got %q by %+v, want it to have %q", short(string(got)), how, c.text)
			}
			if how.From != c.from {
				t.Errorf("decided by %q (%s), want %q", how.From, how.Name, c.from)
			}
		})
	}
}

func TestDecodeUTF16(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"\xff\xfe<\x00p\x00>\x00", "\xfe\xff\x00<\x00p\x00>", "<\x00p\x00>\x00", "\x00<\x00p\x00>"} {
		if got, how := Decode([]byte(body), "", nil); string(got) != "<p>" {
			t.Errorf("%q: got %q by %+v", body, got, how)
		}
	}
}

// A few invalid bytes change neither the charset nor the rest of a page.
func TestInvalidBytesAreReplaced(t *testing.T) {
	t.Parallel()
	json := "{\"t\":\"Привет\",\"u\":\"X\xff\"}"
	for _, c := range []struct{ body, contentType, want string }{
		{russian + "\xff" + german, "text/html; charset=utf-8", russian + "\uFFFD" + german},
		{russian + "\xff" + german, "text/html", russian + "\uFFFD" + german},
		{russian + "\xff" + german, "text/html; charset=iso-8859-1", russian + "\uFFFD" + german},
		{json, "application/json", strings.ReplaceAll(json, "\xff", "\uFFFD")},
		{json, "application/json; charset=utf-8", strings.ReplaceAll(json, "\xff", "\uFFFD")},
		{`<meta charset="utf-8">` + "dé\xffjà", "", `<meta charset="utf-8">dé` + "\uFFFDjà"},
		{"dé\xff\xffjà vu", "text/html; charset=utf-8", "dé\uFFFDjà vu"},
		{russian[:len(russian)-2], "", russian[:len(russian)-3] + "\uFFFD"},
		{"caf\xe9 noir", "text/html; charset=utf-8", "café noir"},
	} {
		if got, how := Decode([]byte(c.body), c.contentType, nil); string(got) != c.want {
			t.Errorf("%q of %q: got %q by %+v, want %q", c.body, c.contentType, got, how, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("<html>"), "text/html; charset=utf-8")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		Decode(body, contentType, nil)
	})
}
