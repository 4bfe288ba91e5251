package crawl

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/tasks"
)

// A page that Redis cannot settle because its disk is full is fetched again, which does not count as an attempt.
func TestFullDiskOfRedisUsesUpNoAttemptsOfPages(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	site := sitetest.NewShop(t, 1, 3)
	site.Faults["/item/0"] = []string{"hang"}
	j := begin(t, newWorker(t, srv.Client()), "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	ids := enqueue(t, j, site.URL+"/item/0", site.URL+"/item/1", site.URL+"/item/2")
	ended := make(chan error, 1)
	go func() { ended <- crawlAs(t.Context(), j, "crawler") }()
	<-site.Hangs
	srv.FillDisk()
	close(site.Hang)
	if err := <-ended; !tasks.Refused(err) {
		t.Fatalf("got %v, want that Redis takes no writes", err)
	}
	srv.FreeDisk()
	again(t, func() (any, error) {
		_, err := crawlOnce(t.Context(), j, "crawler")
		if tasks.Refused(err) { // it looks once a second whether there is room
			err = later{}
		}
		return nil, err
	})
	infos := testutil.Must(j.queue.Get(t.Context(), ids...))(t)
	for _, got := range infos {
		if got.Attempts != 0 || got.State != "done" {
			t.Errorf("page %s is %s after %d attempts (%s), want done after none", got.ID, got.State, got.Attempts, got.Note)
		}
	}
}

// A crawler continues after any number of Redis errors.
func TestErrorOfRedisUsesUpNoAttemptsOfACrawler(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	site := sitetest.NewShop(t, 1, 3)
	j := begin(t, newWorker(t, srv.Client()), "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	collect(t, j)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	srv.Stop()
	_, err := crawlOnce(ctx, j, "crawler")
	if err == nil || tasks.IsFailure(crawlError(err)) {
		t.Errorf("got %v, %v, want an error that runs the crawler again", err, crawlError(err))
	}
	if err := crawlError(store.ErrNoJob); !tasks.IsFailure(err) {
		t.Errorf("got %v for a job that is gone, want a failure", err)
	}
}

// enqueue queues detail pages and returns their IDs.
func enqueue(t *testing.T, j *job, urls ...string) (ids []string) {
	t.Helper()
	var pages []visit
	for _, u := range urls {
		pages = append(pages, visit{Link: extract.Link{URL: u, Kind: definition.KindDetail}})
	}
	items := testutil.Must(j.items(pages))(t)
	testutil.Must(j.queue.Enqueue(t.Context(), items...))(t)
	for _, it := range items {
		ids = append(ids, it.ID)
	}
	return ids
}

// A crawler returns an error, instead of ending as if no page were left, if Redis fails while it takes over leases, counts
// unwritten records or leases pages. A script may need two calls.
func TestCrawlerEndsWithAnErrorOfRedis(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		site := sitetest.NewShop(t, 1, 1)
		f := redistest.NewFault(redistest.Refused, n+1)
		j := begin(t, newWorker(t, f.Client(t, redistest.URL(t))), "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
		collect(t, j)
		f.Arm()
		if n, err := crawlOnce(t.Context(), j, "crawler"); n != 0 || !errors.Is(err, redistest.ErrFault) {
			t.Errorf("got %d pages and error %v, want %v: %v", n, err, redistest.ErrFault, f)
		}
	}
}
