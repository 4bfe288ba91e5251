package fetch

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"muster/sites/definition"
)

// encoder returns a function that encodes a body with a writer.
func encoder(open func(io.Writer) io.WriteCloser) func([]byte) []byte {
	return func(body []byte) []byte {
		var b bytes.Buffer
		w := open(&b)
		_, _ = w.Write(body)
		_ = w.Close()
		return b.Bytes()
	}
}

var (
	asGzip = encoder(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	asZlib = encoder(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	asRaw  = encoder(func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 9); return z })
	asBr   = encoder(func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) })
	asZstd = encoder(func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z })
)

// after returns an encoder that adds bytes after the stream of another.
func after(encode func([]byte) []byte, rest string) func([]byte) []byte {
	return func(body []byte) []byte { return append(encode(body), rest...) }
}

// cut returns an encoder that omits the last bytes of another.
func cut(encode func([]byte) []byte) func([]byte) []byte {
	return func(body []byte) []byte { b := encode(body); return b[:len(b)-3] }
}

// Every encoding is decoded on every path. An unknown encoding and a damaged body are errors that name the encoding, on every path.
func TestEncodingsAreDecoded(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 500)
	for _, e := range []struct {
		name   string // Content-Encoding
		encode func([]byte) []byte
		want   Class
	}{
		{"identity", bytes.Clone, OK},
		{"gzip", asGzip, OK},
		{"GZIP", asGzip, OK},
		{"x-gzip", asGzip, OK},
		{"deflate", asZlib, OK},
		{"deflate", asRaw, OK},
		{"br", asBr, OK},
		{"zstd", asZstd, OK},
		{"gzip, gzip", func(b []byte) []byte { return asGzip(asGzip(b)) }, OK},
		{"gzip, identity", asGzip, OK},
		{"br,gzip", func(b []byte) []byte { return asGzip(asBr(b)) }, OK},
		{"deflate, zstd", func(b []byte) []byte { return asZstd(asZlib(b)) }, OK},
		{"gzip", func(b []byte) []byte { return append(asGzip(b[:5]), asGzip(b[5:])...) }, OK},
		{"gzip", after(asGzip, zeros), OK},
		{"gzip", after(asGzip, "junk"), OK},
		{"gzip", after(asGzip, "\x1f\x8bjunk"), OK},
		{"deflate", after(asZlib, zeros), OK},
		{"deflate", after(asRaw, "junk"), OK},
		{"br", after(asBr, zeros), OK},
		{"zstd", after(asZstd, "junk"), OK},
		{"gzip", cut(asGzip), Truncated},
		{"deflate", cut(asZlib), Truncated},
		{"br", cut(asBr), Truncated},
		{"zstd", cut(asZstd), Truncated},
		{"gzip", bytes.Clone, Truncated},
		{"zstd", bytes.Clone, Truncated},
		{"compress", bytes.Clone, BadType},
		{"compress, gzip", asGzip, BadType},
		{"gzip, gzip, gzip, gzip, gzip, gzip", asGzip, BadType},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			bodies := map[string]string{
				"/robots.txt": "user-agent: *\ndisallow: /no\n",
				"/json":       `{"name": "lamp"}`,
				"/login":      page + "<form method=post action=/in><input name=user><input type=password name=password></form>",
				"/in":         page + "<a href=/logout>Log out</a>",
				"/moved":      page,
				"/no":         page,
			}
			encoded := "/page" // path of the encoded response; the others are plain
			serve := func(w http.ResponseWriter, r *http.Request) {
				body := []byte(bodies[r.URL.Path])
				switch r.URL.Path {
				case "/page":
					body = []byte(bodies["/in"])
				case "/to-moved":
					http.Redirect(w, r, "/moved", http.StatusFound)
					return
				case "/sitemap.xml":
					body = fmt.Appendf(nil, "<urlset><url><loc>http://%s/page</loc></url></urlset>", r.Host)
				}
				if r.URL.Path == encoded {
					w.Header().Set("Content-Encoding", e.name)
					body = e.encode(body)
				}
				_, _ = w.Write(body)
			}
			for _, p := range []struct {
				name, encoded, path, kind, rest string
				class                           Class // of a decoded response
				text                            string
			}{
				{"page", "/page", "/page", definition.KindDetail, "", OK, "Log out"},
				{"robots.txt", "/robots.txt", "/no", definition.KindDetail, "", Robots, ""},
				{"sitemap", "/sitemap.xml", "/sitemap.xml", definition.KindSitemap, "", OK, "/page"},
				{"JSON", "/json", "/json", definition.KindDetail, "detail: {format: json}\n", OK, "lamp"},
				{"login page", "/login", "/page", definition.KindDetail, strings.Replace(memberLogin, "hush & co", "hush", 1), OK, "Log out"},
				{"redirect target", "/moved", "/to-moved", definition.KindDetail, "", OK, "words"},
			} {
				encoded = p.encoded
				def, base := site(t, serve, "politeness: {delay: 0}\n"+p.rest)
				client := NewClient(Config{Definition: def, Clock: free{}})
				got, err := client.Get(t.Context(), base+p.path, p.kind)
				client.Close()
				want := e.want
				if e.want == OK {
					want = p.class
				} else if p.name == "login page" && e.want == BadType { // final for all sessions
					want = Login
				}
				if ClassOf(err) != want {
					t.Errorf("%s: got %v, want %s", p.name, err, want)
					continue
				}
				if err == nil && !strings.Contains(string(got.Body), p.text) {
					t.Errorf("%s: got the body %q, want %q in it", p.name, got.Body, p.text)
				}
				last := e.name[strings.LastIndex(e.name, ",")+1:]
				if e.want != OK && !strings.Contains(err.Error(), strings.TrimSpace(last)) && !strings.Contains(err.Error(), "compress") {
					t.Errorf("%s: got %v, want an error that names %s", p.name, err, e.name)
				}
			}
		})
	}
}
