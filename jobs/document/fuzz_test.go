package document

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzName wants the name and type of a document from elsewhere to be a name in any folder, and a type without parameters.
func FuzzName(f *testing.F) {
	for _, s := range []string{`attachment; filename="a.pdf"`, `attachment; filename="../../x"`, `inline; filename*=UTF-8''%2e%2e`, "x", `a; filename="\\\\h\\y.txt"`, ";"} {
		f.Add(s, "/docs/a.txt", []byte("%PDF-1.7"))
	}
	f.Fuzz(func(t *testing.T, disposition, path string, head []byte) {
		res := &http.Response{Header: http.Header{"Content-Disposition": {disposition}}, Request: &http.Request{URL: &url.URL{Path: path}}}
		name := nameIn(res)
		if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\\\x00\r\n") || !utf8.ValidString(name) {
			t.Errorf("%q, %q: got the name %q", disposition, path, name)
		}
		if kind := mediaType(name, head); strings.ContainsAny(kind, "; \r\n") || !strings.Contains(kind, "/") {
			t.Errorf("%q is of the type %q", name, kind)
		}
	})
}
