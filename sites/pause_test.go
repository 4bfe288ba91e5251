package sites

import (
	"errors"
	"fmt"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/tasks/redistest"
)

// A page that is under way when the site asks for a pause ends: were it
// dropped, the site would have to serve it twice.
func TestPauseLetsPagesUnderWayEnd(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 6)
	site.faults["/item/0"] = []string{"hang"}
	site.faults["/item/1"] = []string{"429 while another hangs"}
	j := begin(t, newService(t, redistest.New(t)), "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	var pages []visit
	for i := range 6 {
		pages = append(pages, visit{URL: fmt.Sprintf("%s/item/%d", site.URL, i), Kind: definition.KindDetail})
	}
	ids, err := j.enqueue(t.Context(), pages)
	if err != nil {
		t.Fatal(err)
	}
	leases, _, _, err := j.queue.LeaseIDs(t.Context(), "chunk", ids)
	if err != nil || len(leases) != 6 {
		t.Fatalf("got %d leases, error %v, want 6", len(leases), err)
	}

	var done []yield
	ended := make(chan error, 1)
	go func() {
		var err error
		done, err = j.crawler.batch(t.Context(), leases, 2)
		ended <- err
	}()
	testutil.Eventually(t, "the pages that have not begun are returned", func() bool {
		stats, err := j.queue.Stats(t.Context())
		return err == nil && stats.InProgress <= 1
	})
	close(site.hang)
	if err := <-ended; !errors.As(err, new(later)) {
		t.Errorf("got error %v, want later", err)
	}
	if len(done) != 1 {
		t.Errorf("got %d pages that ended, want the one in flight", len(done))
	}
	for i, want := range []int{1, 1, 0, 0, 0, 0} {
		if asked, _ := site.counts(fmt.Sprint("/item/", i)); asked != want {
			t.Errorf("item %d was asked for %d times, want %d", i, asked, want)
		}
	}
}
