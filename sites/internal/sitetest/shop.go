// Package sitetest serves sites for the tests of scrapes.
package sitetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/report"
)

// Shop is a loopback site that counts requests and page responses per path.
type Shop struct {
	*httptest.Server
	lists, perList int
	Faults         map[string][]string // by path: faults of the first requests
	Hang           chan struct{}       // closed: slow pages continue
	hanging        func()              // called when a page begins to hang
	Hangs          <-chan struct{}     // closed when a page begins to hang

	mu     sync.Mutex  // guards the fields below
	prices map[int]int // of items with a changed price
	hidden map[int]bool
	asked  map[string]int
	given  map[string]int
}

// NewShop returns a shop with listing pages of perList items each.
func NewShop(t *testing.T, lists, perList int) *Shop {
	t.Helper()
	s := &Shop{lists: lists, perList: perList, Faults: map[string][]string{}, Hang: make(chan struct{}), asked: map[string]int{}, given: map[string]int{}, prices: map[int]int{}, hidden: map[int]bool{}}
	hangs := make(chan struct{})
	s.hanging, s.Hangs = sync.OnceFunc(func() { close(hangs) }), hangs
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	s.mu.Lock()
	n := s.asked[path]
	s.asked[path]++
	fault := ""
	if f := s.Faults[path]; n < len(f) {
		fault = f[n]
	}
	s.mu.Unlock()
	switch fault {
	case "429 while another hangs":
		select {
		case <-s.Hangs:
		case <-r.Context().Done():
			return
		}
		fallthrough
	case "429":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(429)
		return
	case "500", "403", "404", "503":
		var code int
		_, _ = fmt.Sscanf(fault, "%d", &code)
		w.WriteHeader(code)
		return
	case "soft":
		fmt.Fprint(w, `<html><title>Just a moment...</title><body><h1>Checking your browser</h1><form id="challenge-form"></form></body></html>`)
		return
	case "busy":
		fmt.Fprint(w, `<html><title>Shop</title><body><p>We are busy, please come back in a moment.</body></html>`)
		return
	case "empty":
		return
	case "cut":
		w.Header().Set("Content-Length", "5000")
		fmt.Fprint(w, "<html>")
		return
	case "hang":
		s.hanging()
		select {
		case <-s.Hang:
		case <-r.Context().Done():
			return
		}
	}
	var list, item int
	switch {
	case path == "/robots.txt":
		http.NotFound(w, r)
		return
	case path == "/sitemap.xml":
		fmt.Fprintf(w, `<sitemapindex><sitemap><loc>http://shop.example/items.xml</loc></sitemap></sitemapindex>`)
		return
	case path == "/items.xml":
		w.Header().Set("Content-Type", "application/octet-stream")
		fmt.Fprint(w, "<urlset>")
		for i := range s.lists * s.perList {
			fmt.Fprintf(w, "<url><loc>http://shop.example/item/%d</loc></url><url><loc>http://shop.example/about/%d</loc></url>", i, i)
		}
		fmt.Fprint(w, "</urlset>")
		return
	case path == "/":
		s.listing(w, 1)
	case Scan(path, "/page/%d", &list) && list <= s.lists:
		s.listing(w, list)
	case Scan(path, "/item/%d", &item) && item < s.lists*s.perList:
		s.mu.Lock()
		price, ok := s.prices[item]
		s.mu.Unlock()
		if !ok {
			price = item
		}
		fmt.Fprintf(w, `<html><title>Item %d</title><body><h1 class=name>Item %d</h1><p class=price>€ 1.%03d,50</p><p>%s</p></body></html>`, item, item, price, strings.Repeat("words about the item ", 20))
	default:
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	s.given[path]++
	s.mu.Unlock()
}

// Scan parses a number in a string according to a format.
func Scan(s, format string, n *int) bool {
	_, err := fmt.Sscanf(s, format, n)
	return err == nil
}

func (s *Shop) listing(w http.ResponseWriter, n int) {
	fmt.Fprintf(w, `<html><title>Page %d</title><body><ul class=items>`, n)
	for i := (n - 1) * s.perList; i < n*s.perList; i++ {
		if s.isHidden(i) {
			continue
		}
		fmt.Fprintf(w, `<li class=item><a href="/item/%d?utm_source=list">Item %d</a> <b>teaser of the item</b></li>`, i, i)
	}
	fmt.Fprint(w, `</ul>`)
	if n < s.lists {
		fmt.Fprintf(w, `<a class=next href="/page/%d">next</a>`, n+1)
	}
	fmt.Fprint(w, `</body></html>`)
}

// Price changes the price of an item.
func (s *Shop) Price(item, price int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prices[item] = price
}

// Hide removes exactly these items from the lists.
func (s *Shop) Hide(items ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.hidden)
	for _, i := range items {
		s.hidden[i] = true
	}
}

func (s *Shop) isHidden(item int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hidden[item]
}

// Counts returns the number of requests for a path, and how many of the responses were the page.
func (s *Shop) Counts(path string) (asked, given int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path], s.given[path]
}

// Parse parses a definition.
func Parse(t testing.TB, yaml []byte) *definition.Definition {
	t.Helper()
	def, err := definition.Parse("site.yaml", yaml)
	testutil.Ok(t, err)
	return def
}

// Definition returns the definition of the shop, with rest appended.
func (s *Shop) Definition(t *testing.T, rest string) *definition.Definition {
	t.Helper()
	return Parse(t, []byte(`site: shop.example
base_url: http://shop.example
start: [/]
listing:
  next: a.next
  links: .item a
  must_have: ul.items
detail:
  must_have: h1.name
records:
  item:
    key: [name]
    fields:
      name: {css: h1.name, required: true}
      price: {css: .price, type: price, required: true}
  teaser:
    from: listing
    each: li.item
    fields:
      name: {css: a, required: true}
politeness: {delay: 0, max_per_domain: 2}
retries: {base: 10ms, cap: 50ms}
`+rest))
}

// ReadKeys returns a field of every record of a file. A duplicate key fails the test.
func ReadKeys(t *testing.T, path, field string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(path)
	testutil.Ok(t, err)
	names, keys := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(data)) {
		var rec map[string]any
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatalf("%s: %v in %q", path, err, line)
		}
		key, _ := rec["_key"].(string)
		if keys[key] {
			t.Errorf("%s: got record %s twice, want once", filepath.Base(path), line)
		}
		keys[key] = true
		names[fmt.Sprint(rec[field])] = true
	}
	return names
}

// IsWhole checks that the files have every record of the shop exactly once.
func (s *Shop) IsWhole(t *testing.T, sum report.Summary) {
	t.Helper()
	for _, f := range sum.Files {
		names := ReadKeys(t, f, "name")
		if len(names) != s.lists*s.perList {
			t.Errorf("%s: got %d records, want %d", filepath.Base(f), len(names), s.lists*s.perList)
		}
		for i := range s.lists * s.perList {
			if !names[fmt.Sprintf("Item %d", i)] {
				t.Errorf("%s: got no item %d, want one", filepath.Base(f), i)
			}
		}
	}
	if len(sum.Files) != 2 || sum.Records != 2*s.lists*s.perList {
		t.Errorf("got %d files and %d records, want 2 and %d", len(sum.Files), sum.Records, 2*s.lists*s.perList)
	}
}

// Patience limits waits in tests.
const Patience = 60 * time.Second

// Heal removes all faults.
func (s *Shop) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.Faults)
}

// Sum returns the number of requests.
func (s *Shop) Sum() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, of := range s.asked {
		n += of
	}
	return n
}

// Parts of definitions and pages.
const (
	PageRecords = "records: {page: {key: [name], fields: {name: {css: h1, required: true}}}}\n"
	Impatient   = "politeness: {delay: 0, robots: false}\nretries: {attempts: 2, base: 1ms, cap: 5ms}\n"
	Words       = "<p>some words about the item, so that the page is not empty</p>"
)

// Measured is a loopback site that measures its requests.
type Measured struct {
	*httptest.Server
	mu                  sync.Mutex // guards the fields below
	now, peak, requests int
	asked               map[string]int
}

// NewMeasured returns a site whose pages take a time.
func NewMeasured(t testing.TB, took time.Duration, page func(w http.ResponseWriter, r *http.Request)) *Measured {
	t.Helper()
	m := &Measured{asked: map[string]int{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.now++
		m.requests++
		m.peak = max(m.peak, m.now)
		m.asked[r.URL.RequestURI()]++
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			m.now--
			m.mu.Unlock()
		}()
		select {
		case <-time.After(took):
			page(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// Counts returns the maximum of concurrent requests, the number of requests, and the maximum number of requests per page.
func (m *Measured) Counts() (peak, requests, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.asked {
		most = max(most, n)
	}
	return m.peak, m.requests, most
}
