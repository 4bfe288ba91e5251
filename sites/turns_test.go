package sites

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A site that has work for more slots than there are does not hold them all
// while others have none: four small sites end long before the big one does.
func TestBigSiteLeavesSlotsToOthers(t *testing.T) {
	t.Parallel()
	const pages = 600
	var big atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	t.Cleanup(srv.Close)
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
		if err != nil {
			t.Fatal(err)
		}
		return def
	}
	defs := []*definition.Definition{define("big.example", "/big", 5)}
	for i := range 4 {
		defs = append(defs, define(fmt.Sprintf("small%d.example", i), "/small", 2))
	}
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(defs...)})
	if err != nil {
		t.Fatal(err)
	}
	work(t, client, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	long, err := s.Send(ctx, "big.example", ScrapeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the big site has all slots", func() bool { return big.Load() > 20 })
	var short []*tasks.AsyncResult[Summary]
	for i := range 4 {
		run, err := s.Send(ctx, fmt.Sprintf("small%d.example", i), ScrapeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		short = append(short, run)
	}
	for _, run := range short {
		if sum, err := run.Wait(ctx); err != nil || sum.Records != 20 {
			t.Errorf("got %+v, %v", sum, err)
		}
	}
	had := big.Load()
	t.Logf("%d of the %d pages of the big site were asked for meanwhile", had, pages)
	if had > pages/3 {
		t.Errorf("the small sites ended when %d of %d pages of the big one were asked for", had, pages)
	}
	if err := s.Cancel(ctx, long.ID()); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Redis().ZCard(ctx, store.WaitingJobsKey).Result(); err != nil || n > 1 {
		t.Errorf("%d jobs stand in line, %v", n, err)
	}
}

// A walk that takes as long as its turn to come again to where it was goes on
// from there, or it would never get any further.
func TestTurnBeginsWithNewPages(t *testing.T) {
	t.Parallel()
	site := newShop(t, 3, 5)
	s := newService(t, redistest.New(t))
	j := begin(t, s, "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	w := &walk{job: j, worker: "collect", seen: map[pageID]struct{}{}, prints: map[string]bool{}, given: map[string]int{}}
	if next, err := w.wave(t.Context(), []visit{{URL: site.URL + "/", Kind: definition.KindListing}}); err != nil || len(next) == 0 {
		t.Fatalf("got %v, %v", next, err)
	}
	if err := s.turns.want(t.Context(), "another", -time.Minute); err != nil {
		t.Fatal(err)
	}
	mine := &slot{turns: s.turns, run: "j1", task: "collect", most: time.Hour, dear: true, began: time.Now().Add(-2 * time.Hour)}
	chunks, err := j.collect(context.WithValue(t.Context(), slotKey{}, mine), "collect")
	if err != nil || len(chunks) == 0 {
		t.Errorf("got %v, %v; want that the walk goes on", chunks, err)
	}
	if err := mine.look(t.Context()); err != nil {
		t.Errorf("its turn has just begun: %v", err)
	}
	mine.looked, mine.began = time.Time{}, time.Now().Add(-2*time.Hour)
	if err := mine.look(t.Context()); !errors.As(err, new(later)) {
		t.Errorf("got %v; want that it leaves its slot to the other", err)
	}
}
