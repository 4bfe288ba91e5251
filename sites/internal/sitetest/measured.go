package sitetest

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

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
