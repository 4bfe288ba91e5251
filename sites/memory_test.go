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

	"golang.org/x/sync/errgroup"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/tasks/redistest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	m := NewMemory(64*mb, nil) // 48 for pages
	var used atomic.Int64
	m.used = used.Load
	a, err := m.enter(t.Context(), 2*mb) // 16
	if err != nil {
		t.Fatal(err)
	}
	if !a.grow(3*mb) || a.grow(7*mb) == false && m.taken.Load() != 24*mb {
		t.Errorf("%d MB are taken, want 24", m.taken.Load()/mb)
	}
	// One that is larger than there is room for gets all there is, alone, and
	// the small one that asks later gets its room later.
	entered := make(chan string, 2)
	var both errgroup.Group
	both.Go(func() error {
		r, err := m.enter(t.Context(), 100*mb)
		entered <- "large"
		testutil.Eventually(t, "the small one waits", func() bool { return m.waiting.Load() == 1 })
		r.leave()
		return err
	})
	testutil.Eventually(t, "the large one waits", func() bool { return m.waiting.Load() == 1 })
	both.Go(func() error {
		r, err := m.enter(t.Context(), 0)
		entered <- "small"
		r.leave()
		return err
	})
	testutil.Eventually(t, "both wait", func() bool { return m.waiting.Load() == 2 })
	a.leave()
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	if first := <-entered; first != "large" {
		t.Errorf("the %s one came first", first)
	}
	if m.taken.Load() != 0 || m.pages.Load() != 0 {
		t.Errorf("%d bytes are still taken by %d pages", m.taken.Load(), m.pages.Load())
	}

	// Whatever is set aside, above the limit one page goes on at a time.
	used.Store(65 * mb)
	if a, err = m.enter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := m.enter(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the second page waits", err)
	}
	used.Store(63 * mb)
	b, err := m.enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	a.leave()
	b.leave()

	none := NewMemory(0, nil)
	if use := none.Use(); use != (MemoryUse{}) {
		t.Errorf("without a limit: got %+v", use)
	}
	r, err := none.enter(t.Context(), 1<<50)
	if err != nil || !r.grow(1<<60) {
		t.Errorf("without a limit: %v", err)
	}
	r.leave()
}

// Pages whose size nobody has told, of several sites at once, take no more
// than there is, and every one of them comes.
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
		fmt.Fprintf(w, `<html><h1 class=name>%s</h1><b class=price>€ 5</b>`, r.URL.Path)
		w.(http.Flusher).Flush() // no Content-Length
		fmt.Fprint(w, body)
	}))
	t.Cleanup(srv.Close)
	s := newService(t, redistest.New(t))
	m := NewMemory(pageFactor*size*2, nil) // room for one page and a half
	s.cfg.Memory = m
	m.used = func() int64 { // asked for when a second page comes in
		if m.taken.Load() > m.size {
			t.Error("more is set aside than there is")
		}
		return 0
	}
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
					t.Errorf("got %+v", sum)
				}
			})
		}
	})
	if m.taken.Load() != 0 || m.pages.Load() != 0 {
		t.Errorf("%d bytes are still taken by %d pages", m.taken.Load(), m.pages.Load())
	}
}
