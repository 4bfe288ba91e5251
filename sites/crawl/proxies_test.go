package crawl

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
)

// The report has the number of proxies, the worst proxy, and the state of the site's circuit breaker.
func TestReportOfProxiesAndBreaker(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 6)
	site.Faults["/item/2"] = []string{"soft", "404"}
	site.Faults["/item/3"] = []string{"403"}
	site.Faults["/item/4"] = []string{"500"} // of the site
	via := func(r *http.Response) string {
		switch r.Request.URL.Path {
		case "/item/2":
			return "http://bad.example:1"
		case "/item/3":
			return "http://other.example:1"
		}
		return "http://good.example:1"
	}
	s := process(t, Config{Fetch: fetch.Config{Via: via}})
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	// The listing and 3 items; a refusal and a 404; a 403 and then the item; a 500 and then the item.
	if sum.Proxies == nil || len(sum.Proxies.Worst) != 2 || sum.Proxies.Worst[0] != (report.Proxy{Proxy: "http://bad.example:1", Responses: 2, Failures: 1}) || sum.Proxies.Worst[1].Proxy != "http://other.example:1" {
		t.Errorf("got %+v as the worst, want the bad and the other one", sum.Proxies.Worst)
	}
	if sum.Breaker != "closed" {
		t.Errorf("got breaker %q, want closed", sum.Breaker)
	}
	for _, want := range []string{"3 used, 10 responses, 2 of them failed; worst http://bad.example:1 with 1 of 2", "breaker"} {
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

var errNoWay = errors.New("no proxy")

// resting is the error of a pool whose suitable proxies are all resting.
type resting struct{ error }

func (resting) Resting() time.Duration { return time.Millisecond }
func (r resting) Unwrap() error        { return r.error }

// sparse is a transport without a proxy for the first requests of a page.
type sparse struct {
	times int
	why   error

	mu  sync.Mutex // guards had
	had map[string]int
}

func (s *sparse) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.had[req.URL.Path]++
	n := s.had[req.URL.Path]
	s.mu.Unlock()
	if n <= s.times {
		return nil, s.why
	}
	return http.DefaultTransport.RoundTrip(req)
}

// A page that waits for resting proxies uses no attempts. It fails after some attempts without any proxy, or if the proxies rest
// too long.
func TestProxiesThatRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		times   int
		why     error
		stall   string // how long a page may be delayed
		rest    string // of the definition
		whole   bool
		problem string
	}{
		"they rest for a while":      {12, resting{errNoWay}, "15m", "", true, ""},
		"they rest for too long":     {1 << 30, resting{errNoWay}, "0s", "", false, "delayed too long"},
		"there are none":             {12, errNoWay, "15m", "", false, "no proxy"},
		"they rest until it is over": {12, resting{errNoWay}, "0s", "limits: {max_duration: 1h}\n", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := sitetest.NewShop(t, 1, 2)
			way := &sparse{times: c.times, why: c.why, had: map[string]int{}}
			s := process(t, Config{Fetch: fetch.Config{NoProxy: errNoWay}, Transport: func(*definition.Definition) http.RoundTripper { return way }})
			yaml := strings.Replace(string(site.Definition(t, c.rest).YAML()), "retries: {base: 10ms, cap: 50ms}", "retries: {attempts: 2, base: 1ms, cap: 1ms, stall_max: "+c.stall+"}", 1)
			def := sitetest.Parse(t, []byte(yaml))
			j := begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL})
			if c.whole {
				if sum := run(t, j); sum.Records != 4 || sum.Errors != 0 || sum.ByClass[fetch.OK] != sum.Pages {
					t.Errorf("got %+v, want 4 records and pages of class %s only", sum, fetch.OK)
				}
				return
			}
			collect(t, j)
			crawl(t, j)
			if delays, err := j.crawler.counts.all(t.Context()); err != nil || (delays["delay"][string(DelayProxies)] > 0) != (c.stall != "0s") {
				t.Errorf("got delays %v, %v, want those of a page that waits for proxies", delays, err)
			}
			if _, err := j.sum(t.Context(), nil); !errors.Is(err, errNoStart) || !strings.Contains(err.Error(), "no_proxy") || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want a failed start page: %s", err, c.problem)
			}
		})
	}
}

// A job with sessions survives all faults, and its report has the reasons of ended sessions.
func TestFaultsInSessions(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 3, 10)
	site.Faults = map[string][]string{
		"/item/1": {"429"}, "/item/2": {"500", "500"}, "/item/3": {"soft"}, "/item/4": {"empty"}, "/item/5": {"cut"}, "/item/6": {"403"}, "/page/2": {"soft"},
	}
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, "session: {}\n"), ScrapeOptions{BaseURL: site.URL}))
	site.IsWhole(t, sum)
	if sum.Status != report.StatusComplete || sum.Errors != 0 {
		t.Errorf("got %+v, want COMPLETE without errors", sum)
	}
	// A fault of a page that another request has in flight hits the same visitor.
	ended := 0
	for why, n := range sum.Sessions {
		ended += n
		if !slices.Contains([]string{"soft_block", "blocked", "rate_limited"}, why) {
			t.Errorf("got sessions that ended because of %s", why)
		}
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(sum.Files[0]), "report.txt"))
	if err != nil || ended < 2 || ended > 4 || !strings.Contains(string(text), "sessions  ended: ") {
		t.Errorf("got %v, want 2 to 4 ended sessions in the report, got %v:\n%s", err, sum.Sessions, text)
	}
}

// A process that only fetches forgets a job that another process has closed.
func TestJobsThatAreClosedElsewhereAreForgotten(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 3)
	rdb := redistest.New(t)
	here, there := newWorker(t, rdb), newWorker(t, rdb)
	def, o := site.Definition(t, "session: {}\n"), ScrapeOptions{BaseURL: site.URL, OutDir: t.TempDir()}
	begin(t, here, "j1", def, o)
	run(t, begin(t, there, "j1", def, o))
	if err := rdb.SRem(t.Context(), store.OpenJobsKey, "j1").Err(); err != nil { // as Aggregate does
		t.Fatal(err)
	}
	testutil.Background(t, here.Run)
	testutil.Eventually(t, "the job is forgotten", func() bool { return len(here.handlers.jobs.all()) == 0 })
}
