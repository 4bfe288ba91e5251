package crawl

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/internal/tracing/observed"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

// Requests of all processes respect the delay of the definition, the Crawl-delay of robots.txt and Retry-After, measured at the
// server. A request may arrive late, so the test compares times over the whole scrape.
func TestPaceAtTheServer(t *testing.T) {
	t.Parallel()
	const pages = 20
	for name, c := range map[string]struct {
		politeness, robots string
		least              time.Duration // of all requests for pages
	}{
		"delay": {"{delay: 100ms, robots: false, max_per_domain: 4}", "", pages * 50 * time.Millisecond},
		// Crawl-delay is a minimum: random variation only adds to it.
		"Crawl-delay": {"{delay: 0, max_per_domain: 4}", "User-agent: *\nCrawl-delay: 0.1\n", pages * 100 * time.Millisecond},
		"Retry-After": {"{delay: 0, robots: false, max_per_domain: 4}", "", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var at []time.Time
			var limited, read time.Time // when the response 429 was sent and read
			early := 0                  // requests between then and the end of Retry-After
			site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/robots.txt" {
					fmt.Fprint(w, c.robots)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				if name == "Retry-After" && len(at) == pages/2 {
					limited = time.Now()
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				if !read.IsZero() && time.Since(limited) < 990*time.Millisecond {
					early++
				}
				if r.URL.Path != "/" {
					fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.Path, sitetest.Words)
					return
				}
				for i := range pages {
					fmt.Fprintf(w, `<a href="/item/%d">item</a>`, i)
				}
			})
			sum := scrapeOn(t, 2, "site: paced\nbase_url: "+site.URL+"\nstart: [/]\nlisting: {links: a}\npoliteness: "+c.politeness+"\n"+sitetest.PageRecords, func(cfg *Config) {
				cfg.Observe = func(ctx context.Context, _ observed.Page) (context.Context, func(observed.End)) {
					return ctx, func(v observed.End) {
						if v.Class == string(fetch.RateLimited) {
							mu.Lock()
							defer mu.Unlock()
							read = time.Now()
						}
					}
				}
			})
			if sum.Records != pages || sum.Status != report.StatusComplete {
				t.Errorf("got %d records, %s, want %d, COMPLETE", sum.Records, sum.Status, pages)
			}
			if took := at[len(at)-1].Sub(at[0]); took < c.least-100*time.Millisecond {
				t.Errorf("got all requests within %v, want at least %v", took, c.least)
			}
			if peak, _, _ := site.Counts(); peak > 4 || early > 3 { // three may have been on their way
				t.Errorf("got %d requests at once and %d between the response 429 and the end of Retry-After, want at most 4 and 3", peak, early)
			}
		})
	}
}

// A site with a name that resolves to loopback is fetched only if the settings allow it, and its page is not retried.
func TestServiceConnectsOnlyToWhatIsAllowed(t *testing.T) {
	t.Parallel()
	allowed, err := addressfilter.New("127.0.0.1")
	testutil.Ok(t, err)
	for name, filter := range map[string]*addressfilter.Filter{"refused": nil, "allowed": allowed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := sitetest.NewShop(t, 1, 2)
			s := process(t, Config{Fetch: fetch.Config{Filter: filter}})
			j := begin(t, s, "job", site.Definition(t, ""), ScrapeOptions{BaseURL: strings.Replace(site.URL, "127.0.0.1", "shop.test", 1)})
			collect(t, j)
			crawl(t, j)
			_, err = j.sum(t.Context(), nil)
			asked := site.Sum()
			if filter != nil {
				if err != nil || asked == 0 {
					t.Errorf("got %v and %d requests, want the pages", err, asked)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), string(fetch.Address)) || !strings.Contains(err.Error(), "network.allow") || asked != 0 {
				t.Errorf("got %v and %d requests, want an error that names the setting, and none", err, asked)
			}
		})
	}
}
