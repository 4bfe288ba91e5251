package crawl

import (
	"errors"
	"fmt"
	"testing"

	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/tasks/redistest"
)

// A page in flight completes when the site asks for a pause; otherwise the site would have to serve it twice.
func TestPauseCompletesPagesInFlight(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 6)
	site.Faults["/item/0"] = []string{"hang"}
	site.Faults["/item/1"] = []string{"429 while another hangs"}
	j := begin(t, newWorker(t, redistest.New(t)), "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	var pages []string
	for i := range 6 {
		pages = append(pages, fmt.Sprintf("%s/item/%d", site.URL, i))
	}
	enqueue(t, j, pages...)
	ended := make(chan error, 1)
	go func() {
		_, err := crawlOnce(t.Context(), j, "crawler")
		ended <- err
	}()
	testutil.Eventually(t, "the pages that have not begun are returned", func() bool {
		stats, err := j.queue.Stats(t.Context())
		return err == nil && stats.InProgress == 1
	})
	close(site.Hang)
	if err := <-ended; !errors.As(err, new(later)) {
		t.Errorf("got error %v, want later", err)
	}
	if stats, err := j.queue.Stats(t.Context()); err != nil || stats.Done < 1 || stats.InProgress != 0 {
		t.Errorf("got %+v, %v, want the page in flight done", stats, err)
	}
	if asked, _ := site.Counts("/item/0"); asked != 1 {
		t.Errorf("the page in flight was requested %d times, want 1", asked)
	}
}
