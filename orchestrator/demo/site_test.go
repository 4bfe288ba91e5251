package demo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestFaultsAreDeterministic sends the same requests twice and compares the responses: faults are deterministic.
func TestFaultsAreDeterministic(t *testing.T) {
	t.Parallel()
	a, b := newShop(), newShop()
	for uri, planned := range a.faults {
		if planned.fault == Slow {
			continue
		}
		for n := range 3 {
			one, two := get(a, uri), get(b, uri)
			if one.Code != two.Code || one.Body.String() != two.Body.String() {
				t.Errorf("request %d of %s: got status %d and %d, or different bodies", n+1, uri, one.Code, two.Code)
			}
		}
	}
}

func TestSlowPageArrives(t *testing.T) {
	t.Parallel()
	s := newShop()
	for uri, b := range s.faults {
		if b.fault != Slow {
			continue
		}
		if got := get(s, uri); got.Code != http.StatusOK || got.Body.Len() == 0 {
			t.Errorf("slow page %s: got status %d and %d bytes, want 200 and a body", uri, got.Code, got.Body.Len())
		}
		if got, want := s.Traffic().Paths[uri], 1; got.Served != want || got.Faults[Slow] != want {
			t.Errorf("counted %+v, want one slow and served", got)
		}
		return
	}
	t.Error("no page is slow")
}

func TestCalmEndsFaults(t *testing.T) {
	t.Parallel()
	s := newShop()
	s.Calm()
	for uri := range s.pages {
		if got := faultOf(get(s, uri)); got != NoFault {
			t.Errorf("%s: got fault %q after Calm, want none", uri, got)
		}
	}
}

func TestSiteKnowsItsName(t *testing.T) {
	t.Parallel()
	s := newNews()
	s.Calm()
	for _, c := range []struct {
		host string
		want int
	}{
		{"news.example", 200}, {"NEWS.example:80", 200}, {"127.0.0.1:4000", 200}, {"[::1]:4000", 200},
		{"shop.example", http.StatusMisdirectedRequest}, {"10.0.0.1", http.StatusMisdirectedRequest},
	} {
		r := httptest.NewRequest(http.MethodGet, "/latest/1", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("Host %s: status %d, want %d", c.host, w.Code, c.want)
		}
	}
}

func TestUnknownPages(t *testing.T) {
	t.Parallel()
	s := newShop()
	for i := range 50 {
		if got := get(s, fmt.Sprintf("/nothing/%d", i)); got.Code != http.StatusNotFound {
			t.Fatalf("status %d, want 404", got.Code)
		}
	}
	if got := s.Traffic().Paths; len(got) != 1 || got[notFound].Requests != 50 {
		t.Errorf("counted %v, want 50 under %q: counts must not grow with invented URLs", got, notFound)
	}
	r := httptest.NewRequest(http.MethodPost, "http://shop.example/", nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d, want 405", w.Code)
	}
}

func TestRobotsAllowTheSites(t *testing.T) {
	t.Parallel()
	got := get(newShop(), "/robots.txt").Body.String()
	if !strings.Contains(got, "Disallow: /cart") || strings.Contains(got, "Disallow: /\n") {
		t.Errorf("got robots.txt %q, want only /cart disallowed", got)
	}
}

// TestDemoSitesHaveDocumentedSize checks the documented size and variety of the sites.
func TestDemoSitesHaveDocumentedSize(t *testing.T) {
	t.Parallel()
	shop, news := newShop(), newNews()
	if got := len(shop.Truth()); got != 120 {
		t.Errorf("shop has %d records, want 120", got)
	}
	if got := len(news.Truth()); got != 80+16 {
		t.Errorf("news has %d records, want 96", got)
	}
	for _, s := range []*Site{shop, news} {
		seen := map[string]bool{}
		for _, r := range s.Truth() {
			for _, key := range []string{"sku", "id"} {
				if id, ok := r[key].(string); ok {
					if seen[id] {
						t.Errorf("two records of %s are %s", s.Name, id)
					}
					seen[id] = true
				}
			}
		}
	}
	charsets := map[string]bool{}
	for _, p := range news.pages {
		charsets[p.contentType] = true
	}
	if !charsets["text/html; charset=windows-1251"] || !charsets["text/html"] {
		t.Errorf("content types of news are %v", charsets)
	}
	var spellings strings.Builder
	for _, p := range load[product]("products.jsonl") {
		spellings.WriteString(p.PriceText + "\n")
	}
	for _, pattern := range []string{`(?m)^\d\.\d{3},\d\d €$`, `(?m)^€\d,\d{3}\.\d\d$`, `(?m)^EUR \d{4}\.\d\d$`, `(?m)^\d'\d{3}\.\d\d €$`, `\d\x{00a0}\d{3},`, `\d\x{202f}\d{3},`, `Now only`} {
		if !regexp.MustCompile(pattern).MatchString(spellings.String()) {
			t.Errorf("no price is spelled as %s", pattern)
		}
	}
}

// faultOf returns the fault in a response. A slow page that has arrived has none.
func faultOf(w *httptest.ResponseRecorder) Fault {
	switch {
	case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "1":
		return TooMany
	case w.Code == http.StatusInternalServerError:
		return ServerError
	case w.Code == http.StatusOK && w.Body.Len() == 0:
		return Empty
	case w.Code == http.StatusOK && strings.Contains(w.Body.String(), "challenge-form"):
		return Challenge
	case w.Code == http.StatusOK:
		return NoFault
	default:
		return Fault(fmt.Sprint(w.Code))
	}
}

func get(s *Site, uri string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://"+s.Host+uri, nil)
	r.RemoteAddr = "127.16.1.7:4000"
	s.ServeHTTP(w, r)
	return w
}
