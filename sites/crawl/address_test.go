package crawl

import (
	"strings"
	"testing"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
)

// A site with a name that resolves to loopback is fetched only if the settings allow it, and its page is not retried.
func TestServiceConnectsOnlyToWhatIsAllowed(t *testing.T) {
	t.Parallel()
	allowed, err := addressfilter.New("127.0.0.1")
	testutil.Ok(t, err)
	for name, filter := range map[string]*addressfilter.Filter{"refused": nil, "allowed": allowed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := sitetest.NewShop(t, 1, 2)
			s := process(t, Config{Filter: filter})
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
