package crawl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/sites/definition"
	"muster/tasks/redistest"
)

func TestMemoryBoundsPagesParsedAtOnce(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	m := newMemory(64 * mb) // 48 for pages
	first, err := m.enter(t.Context(), 2*mb)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := m.enter(ctx, 3*mb); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a timeout of the page that exceeds the memory", err)
	}
	var larger errgroup.Group // than the whole memory
	larger.Go(func() error {
		leave, err := m.enter(t.Context(), 100*mb)
		if err == nil {
			leave()
		}
		return err
	})
	first()
	if err := larger.Wait(); err != nil {
		t.Error(err)
	}
	if !m.room.TryAcquire(m.size) {
		t.Error("got memory that is still in use, want none")
	}

	leave, err := newMemory(0).enter(t.Context(), 1<<50)
	if err != nil {
		t.Fatalf("without a limit: got %v, want none", err)
	}
	leave()
}

// Large pages of several sites are all fetched although the memory suffices for one at a time.
func TestLargePagesShareMemory(t *testing.T) {
	t.Parallel()
	const size, n = 1 << 16, 4
	var body = strings.Repeat("<p>words of a page that is large", size/32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			for i := range n {
				fmt.Fprintf(w, `<a class=item href="/item/%d">x</a>`, i)
			}
			return
		}
		fmt.Fprintf(w, `<html><h1 class=name>%s</h1><b class=price>€ 5</b>%s`, r.URL.Path, body)
	}))
	t.Cleanup(srv.Close)
	s := newWorker(t, redistest.New(t))
	s.handlers.jobs.memory = newMemory(pageFactor * size) // less than a page takes
	t.Run("sites", func(t *testing.T) {
		for i := range 3 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				def, err := definition.Parse("large.yaml", fmt.Appendf(nil, `site: large%d.example
base_url: %s
start: [/]
listing: {links: a.item}
records:
  item:
    fields: {name: {css: h1, required: true}}
politeness: {delay: 0, max_per_domain: 3}
`, i, srv.URL))
				if err != nil {
					t.Fatal(err)
				}
				j := begin(t, s, fmt.Sprint("j", i), def, ScrapeOptions{})
				if sum := run(t, j); sum.Records != n || sum.Errors != 0 {
					t.Errorf("got %d records and %d errors, want %d and 0", sum.Records, sum.Errors, n)
				}
			})
		}
	})
	if !s.handlers.jobs.memory.room.TryAcquire(s.handlers.jobs.memory.size) {
		t.Error("got memory that is still in use, want none")
	}
}
