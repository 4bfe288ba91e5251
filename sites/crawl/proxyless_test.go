package crawl

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
)

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
			s := process(t, Config{NoProxy: errNoWay, Transport: func(*definition.Definition) http.RoundTripper { return way }})
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
			if _, err := j.sum(t.Context(), nil); !errors.Is(err, errNoStart) || !strings.Contains(err.Error(), "no_proxy") || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want a failed start page: %s", err, c.problem)
			}
		})
	}
}
