package crawl

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/sites/definition"
	"muster/tasks"
	"muster/tasks/redistest"
)

// At most MaxPages pages are in flight over all sites and processes.
func TestMaxPages(t *testing.T) {
	t.Parallel()
	const most = 2
	var now, peak, asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			for i := range 8 {
				fmt.Fprintf(w, `<a class=to href="/page/%d">page</a>`, i)
			}
			return
		}
		asked.Add(1)
		for n := now.Add(1); ; {
			if p := peak.Load(); n <= p || peak.CompareAndSwap(p, n) {
				break
			}
		}
		select { // so that others could come meanwhile
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
		now.Add(-1)
		fmt.Fprintf(w, "<html><h1>%s</h1>%s</html>", r.URL.Path, strings.Repeat("words ", 50))
	}))
	t.Cleanup(server.Close)
	rdb := redistest.New(t)
	t.Run("all", func(t *testing.T) {
		for i := range 3 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				client := tasks.NewClient(rdb)
				s, err := New(Config{Client: client, OutDir: t.TempDir(), MaxPages: most})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := errors.Join(s.Close(), client.Close()); err != nil {
						t.Error(err)
					}
				})
				def, err := definition.Parse("s.yaml", fmt.Appendf(nil, `site: s%d
base_url: %s
start: [/]
listing: {links: a.to}
politeness: {delay: 0, robots: false, max_per_domain: 4}
records: {page: {key: [name], fields: {name: {css: h1, required: true}}}}
`, i, server.URL))
				if err != nil {
					t.Fatal(err)
				}
				if sum := run(t, begin(t, s, fmt.Sprint("j", i), def, ScrapeOptions{})); sum.Records != 8 || sum.Errors != 0 {
					t.Errorf("got %+v, want 8 records and no errors", sum)
				}
			})
		}
	})
	if peak.Load() > most || asked.Load() != 24 {
		t.Errorf("%d pages were on their way at once, of %d; want at most %d", peak.Load(), asked.Load(), most)
	}
}
