package crawl

import (
	"net/http"
	"strings"
	"testing"

	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
	"muster/tasks/redistest"
)

// The report has the number of proxies, the worst proxy, and the state of the site's circuit breaker.
func TestReportOfProxiesAndBreaker(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 6)
	site.Faults["/item/2"] = []string{"soft", "404"}
	site.Faults["/item/3"] = []string{"403"}
	via := func(r *http.Response) string {
		switch r.Request.URL.Path {
		case "/item/2":
			return "http://bad.example:1"
		case "/item/3":
			return "http://other.example:1"
		}
		return "http://good.example:1"
	}
	s := process(t, Config{Via: via})
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	// The listing and 4 items; a refusal and a 404; a 403 and then the item.
	if sum.Proxies == nil || len(sum.Proxies.Worst) != 2 || sum.Proxies.Worst[0] != (report.Proxy{Proxy: "http://bad.example:1", Responses: 2, Failures: 1}) || sum.Proxies.Worst[1].Proxy != "http://other.example:1" {
		t.Errorf("got %+v as the worst, want the bad and the other one", sum.Proxies.Worst)
	}
	if sum.Breaker != "closed" {
		t.Errorf("got breaker %q, want closed", sum.Breaker)
	}
	for _, want := range []string{"3 used, 9 responses, 2 of them failed; worst http://bad.example:1 with 1 of 2", "breaker"} {
		if !strings.Contains(sum.Text(), want) {
			t.Errorf("the report lacks %q:\n%s", want, sum.Text())
		}
	}
	if sum.ByClass[fetch.Gone] != 1 {
		t.Errorf("got %v, want one page that is gone", sum.ByClass)
	}

	direct := run(t, begin(t, newWorker(t, redistest.New(t)), "j1", sitetest.NewShop(t, 1, 1).Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if direct.Proxies != nil || strings.Contains(direct.Text(), "proxies") {
		t.Errorf("without proxies: got %+v, want none", direct.Proxies)
	}
}
