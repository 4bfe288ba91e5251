package sites

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/tasks"
)

// A large site does not occupy all slots while other sites wait: four small sites complete long before the large one.
func TestBigSiteLeavesSlotsToOthers(t *testing.T) {
	t.Parallel()
	const pages = 1200
	var big atomic.Int64
	srv := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := 20; r.URL.Path == "/big" || r.URL.Path == "/small" {
			if r.URL.Path == "/big" {
				n = pages
			}
			for i := range n {
				fmt.Fprintf(w, `<a class=item href="%s/%d">x</a>`, r.URL.Path, i)
			}
			return
		}
		if strings.HasPrefix(r.URL.Path, "/big") {
			big.Add(1)
		}
		select { // the site is slow
		case <-time.After(50 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, "<html><h1>%s</h1>%s", r.URL.Path, strings.Repeat("words ", 50))
	}))
	define := func(name, start string, most int) *definition.Definition {
		def, err := definition.Parse(name, fmt.Appendf(nil, `site: %s
base_url: %s
start: [%s]
listing: {links: a.item}
records:
  item:
    fields: {name: {css: h1, required: true}}
politeness: {delay: 0, robots: false, max_per_domain: %d}
`, name, srv.URL, start, most))
		testutil.Ok(t, err)
		return def
	}
	defs := []*definition.Definition{define("big.example", "/big", 5)}
	for i := range 4 {
		defs = append(defs, define(fmt.Sprintf("small%d.example", i), "/small", 2))
	}
	s := configured(t, redistest.New(t), NewRegistry(defs...), Config{})
	work(t, s.cfg.Client, s)
	long := testutil.Must(s.Send(t.Context(), "big.example", ScrapeOptions{}))(t)
	testutil.Eventually(t, "the big site is being fetched", func() bool { return big.Load() > 20 })
	var short []*tasks.Run[report.Summary]
	for i := range 4 {
		run := testutil.Must(s.Send(t.Context(), fmt.Sprintf("small%d.example", i), ScrapeOptions{}))(t)
		short = append(short, run)
	}
	for _, run := range short {
		if sum, err := run.Wait(t.Context()); err != nil || sum.Records != 20 {
			t.Errorf("got %+v, error %v, want 20 records", sum, err)
		}
	}
	if had := big.Load(); had > pages/2 {
		t.Errorf("got %d of %d pages of the big site when the small ones ended, want at most half", had, pages)
	}
	testutil.Ok(t, s.Cancel(t.Context(), long.ID()))
}
