package crawl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/polite"
	"muster/tasks"
)

func TestAdmissionAdmitsOrDelaysPages(t *testing.T) {
	t.Parallel()
	down := &fetch.Error{Class: fetch.Server, Direct: true, Err: errors.New("down")}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, j *job, a *admission)
		delay   Delay
		class   fetch.Class
	}{
		"a page":               {func(*testing.T, *job, *admission) {}, "", ""},
		"records wait":         {func(t *testing.T, j *job, a *admission) { flood(t, j, 2); a.room = 1; a.heavy.Store(true) }, DelayRecords, ""},
		"no page slot is free": {takeSlot, DelaySlots, ""},
		"the site is down": {func(t *testing.T, _ *job, a *admission) {
			openBreaker(t, a, down)
		}, DelayDown, ""},
		"the site is down for too long": {func(t *testing.T, j *job, a *admission) {
			a.breaker = polite.NewSiteBreaker(j.rdb, SiteKey(j.def), time.Nanosecond, time.Now().Add(-time.Hour), limit.BreakerConfig{Cooldown: time.Hour, Logger: noLog})
			openBreaker(t, a, down)
		}, "", fetch.Server},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := sitetest.NewShop(t, 1, 1)
			s := newWorker(t, redistest.New(t))
			j := begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
			a := j.crawler.admission
			c.prepare(t, j, a)
			release, _, err := a.page(t.Context())
			if err == nil {
				release()
			}
			wait, delayed := errors.AsType[later](err)
			down, failed := errors.AsType[*polite.DownError](err)
			if delayed != (c.delay != "") || wait.delay != c.delay || delayed && wait.after <= 0 {
				t.Errorf("got %v with the delay %+v, want %q", err, wait, c.delay)
			}
			if failed != (c.class != "") || failed && down.Class != string(c.class) || err != nil && !delayed && !failed {
				t.Errorf("got %v, want a site that is down: %q", err, c.class)
			}
		})
	}
}

// Config.BreakerChanged receives changes of the circuit breakers of sites. A reset breaker does not open again after a single
// failure.
func TestBreakerOfASiteTellsChanges(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 1)
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	var got []string
	s := process(t, Config{Client: client, OutDir: t.TempDir(), BreakerChanged: func(_ context.Context, s limit.BreakerState) { got = append(got, s.State+" "+s.Key+" "+s.LastBlock) }})
	j := begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	down := &fetch.Error{Class: fetch.Server, Direct: true, Err: errors.New("down")}
	openBreaker(t, j.crawler.admission, down)
	key := SiteKey(j.def)
	if want := []string{"open " + key + " server"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	testutil.Ok(t, polite.Forget(t.Context(), rdb, key))
	testutil.Ok(t, limit.NewBreaker(rdb, limit.BreakerConfig{Logger: noLog}).Reset(t.Context(), key))
	testutil.Must(j.crawler.breaker.Report(t.Context(), limit.Permit{}, true, fetch.OutcomeOf(down)))(t)
	if state, err := j.crawler.breaker.State(t.Context()); err != nil || state.State != "closed" {
		t.Errorf("after a reset and one failure: got %+v, %v, want closed", state, err)
	}
}

// openBreaker reports failed pages until the circuit breaker of the site opens.
func openBreaker(t *testing.T, a *admission, failure error) {
	t.Helper()
	for range 10 {
		if state, err := a.breaker.State(t.Context()); err == nil && state.State == "open" {
			return
		}
		testutil.Must(a.breaker.Report(t.Context(), limit.Permit{}, true, fetch.OutcomeOf(failure)))(t)
	}
	t.Fatal("the breaker is closed, want open")
}

// takeSlot occupies the only page slot.
func takeSlot(t *testing.T, j *job, a *admission) {
	a.patience = time.Millisecond
	a.slots = limit.NewKeyedLimiter(j.rdb, limit.KeyedConfig{Default: 1, Logger: noLog})
	slot := testutil.Must(a.slots.Acquire(t.Context(), slotsName))(t)
	t.Cleanup(func() { _ = slot.Release(t.Context()) })
}

// The report has the number of delays by reason, summed over all processes in Redis.
func TestDelaysAreReported(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 3)
	site.Faults["/item/1"] = []string{"429"}
	rdb := redistest.New(t)
	one := begin(t, newWorker(t, rdb), "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	two := begin(t, newWorker(t, rdb), "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	two.crawler.counts.add("delay", string(DelaySlots))
	testutil.Ok(t, two.crawler.counts.flush(t.Context()))
	sum := run(t, one)
	if sum.Delays["rate limited"] != 1 || sum.Delays["page slots"] != 1 {
		t.Errorf("got %v, want that a page waited for the site and one for a slot", sum.Delays)
	}
}

func TestMemoryBoundsPagesParsedAtOnce(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	m := newMemory(64 * mb) // 48 for pages
	first := testutil.Must(m.enter(t.Context(), 2*mb))(t)
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
	testutil.Ok(t, larger.Wait())
	if !m.room.TryAcquire(m.size) {
		t.Error("got memory that is still in use, want none")
	}

	leave := testutil.Must(newMemory(0).enter(t.Context(), 1<<50))(t)
	leave()
}

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
