package crawl

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
)

// A field of type file names a download, which is below the directory of the site. Files on other hosts, missing and large ones are
// faults of the record or failed pages. A known file is not downloaded again.
func TestFilesAreDownloaded(t *testing.T) {
	t.Parallel()
	const picture = "\x89PNG\r\n\x1a\n picture"
	var pictures atomic.Int64
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/":
			fmt.Fprint(w, "<a href=/item/1>1</a><a href=/item/2>2</a><a href=/item/3>3</a><a href=/item/4>4</a>")
		case strings.HasPrefix(path, "/item/"):
			src := map[string]string{"1": "/a.PNG?w=1#x", "2": "/none.png", "3": "/large.bin", "4": "http://192.0.2.1/b.png"}[path[6:]]
			fmt.Fprintf(w, "<h1>%s</h1><img src='%s'>%s", path[6:], src, sitetest.Words)
		case path == "/a.PNG":
			pictures.Add(1)
			w.Header().Set("Content-Type", "image/png")
			fmt.Fprint(w, picture)
		case path == "/large.bin":
			fmt.Fprint(w, strings.Repeat("x", 1<<20))
		default:
			http.NotFound(w, r)
		}
	}))
	s, out := newWorker(t, redistest.New(t)), t.TempDir()
	def := sitetest.Parse(t, []byte("site: files\nbase_url: "+server.URL+"\nstart: [/]\nlisting: {links: a}\nlimits: {max_bytes: 500kB}\nrefetch: 7d\n"+sitetest.Impatient+
		"records: {page: {key: [name], fields: {name: {css: h1, required: true}, picture: {css: img, take: image, type: file}}}}\n"))
	for _, id := range []string{"j1", "j2"} {
		j := begin(t, s, id, def, ScrapeOptions{OutDir: out})
		testutil.Must(s.recorder.Write(t.Context(), j.run))(t)
		sum := run(t, j)
		if sum.Records != 4 || sum.ByClass[fetch.Gone] != 1 || sum.ByClass[fetch.TooBig] != 1 || sum.Faults["page.picture"].Unparsed+sum.Faults["page.picture"].Invalid != 1 {
			t.Errorf("%s: got %+v, want 4 records, a missing file, a large one, and one on another host", id, sum.Counts)
		}
		for name := range sitetest.ReadKeys(t, sum.Files[0], "picture") {
			data, err := os.ReadFile(filepath.Join(out, "files", filepath.FromSlash(name)))
			if strings.HasSuffix(name, ".png") && err == nil && string(data) != picture || name != "<nil>" && !strings.HasPrefix(name, "files/") {
				t.Errorf("%s: got %q, %v in %s, want the picture", id, data, err, name)
			}
		}
	}
	if files, err := os.ReadDir(filepath.Join(out, "files", "files")); err != nil || len(files) != 1 || len(files[0].Name()) != 36 || pictures.Load() != 1 {
		t.Errorf("got files %v, %v, after %d downloads, want one", files, err, pictures.Load())
	}
}
