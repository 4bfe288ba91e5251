package demo

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/internal/addressfilter"
)

var (
	//go:embed pages data
	pageFiles embed.FS

	pages = template.Must(template.ParseFS(pageFiles, "pages/*.html"))

	challengePage = render("challenge.html", nil)
	styleSheet    = must(pageFiles.ReadFile("pages/style.css"))
)

// Site is a website of the world with its pages, their records and request counts. Its methods may be called concurrently.
type Site struct {
	Name string // name in its definition, e.g. "shop"
	Host string // host name, e.g. "shop.example"

	truth  []Record
	pages  map[string]page // by request URI
	faults map[string]plan // by request URI

	mu    sync.Mutex // guards the fields below
	calm  bool
	paths map[string]PathCount
	exits map[netip.Addr]int
}

// page is the content of a path without faults.
type page struct {
	contentType string
	body        []byte
}

// PathCount contains the request counts of a path.
type PathCount struct {
	Requests int           // all requests
	Served   int           // requests for which the page was served
	Faults   map[Fault]int // requests with faults; slow pages count as served, too
}

// Traffic contains the request counts of a site.
type Traffic struct {
	Paths map[string]PathCount // by request URI; unknown paths are counted under "404"
	Exits map[netip.Addr]int   // requests by source address
}

// Requests returns the total number of requests.
func (t Traffic) Requests() int {
	n := 0
	for _, c := range t.Paths {
		n += c.Requests
	}
	return n
}

// Faults returns the total counts of faults.
func (t Traffic) Faults() map[Fault]int {
	sum := map[Fault]int{}
	for _, c := range t.Paths {
		for f, n := range c.Faults {
			sum[f] += n
		}
	}
	return sum
}

// Traffic returns a snapshot of the request counts.
func (s *Site) Traffic() Traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Traffic{Paths: make(map[string]PathCount, len(s.paths)), Exits: maps.Clone(s.exits)}
	for uri, c := range s.paths {
		c.Faults = maps.Clone(c.Faults)
		t.Paths[uri] = c
	}
	return t
}

// Calm disables all faults.
func (s *Site) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
}

// notFound is the key under which requests for unknown paths are counted.
const notFound = "404"

// ServeHTTP serves the site under its host name, and under loopback addresses for browsers.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.hasHost(r.Host) {
		serveText(w, http.StatusMisdirectedRequest, "Not here", "This server is "+s.Host+" only.")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		serveText(w, http.StatusMethodNotAllowed, "Not like that", "These pages can only be read.")
		return
	}

	uri := r.URL.RequestURI()
	p, known := s.pages[uri]
	fault := s.count(uri, known, r.RemoteAddr)
	if fault.serve(w, r) {
		return
	}
	if !known {
		serveText(w, http.StatusNotFound, "Nothing here", "There is no such page.")
		return
	}
	w.Header().Set("Content-Type", p.contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(p.body)))
	_, _ = w.Write(p.body) // the client may have disconnected
	s.served(uri)
}

// hasHost reports whether a Host header identifies this site.
func (s *Site) hasHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, s.Host) || addressfilter.IsLoopback(strings.Trim(host, "[]"))
}

// count counts a request and returns its fault.
func (s *Site) count(uri string, known bool, remote string) Fault {
	if !known {
		uri = notFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from, err := netip.ParseAddrPort(remote); err == nil {
		s.exits[from.Addr().Unmap()]++
	}

	c := s.paths[uri]
	c.Requests++
	fault := NoFault
	if !s.calm {
		fault = s.faults[uri].at(c.Requests)
	}
	if fault != NoFault {
		if c.Faults == nil {
			c.Faults = map[Fault]int{}
		}
		c.Faults[fault]++
	}
	s.paths[uri] = c
	return fault
}

func (s *Site) served(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.paths[uri]
	c.Served++
	s.paths[uri] = c
}

// newSite returns a site with the common pages.
func newSite(name, host, about string) *Site {
	s := &Site{
		Name:   name,
		Host:   host,
		pages:  map[string]page{},
		faults: map[string]plan{},
		paths:  map[string]PathCount{},
		exits:  map[netip.Addr]int{},
	}
	s.add("/style.css", "text/css; charset=utf-8", styleSheet)
	s.add("/robots.txt", "text/plain; charset=utf-8", []byte("User-agent: *\nDisallow: /cart\nDisallow: /drafts/\nAllow: /\n"))
	s.add("/about", htmlUTF8, render("text.html", text{Title: "About", Paragraphs: []string{about}}))
	return s
}

const htmlUTF8 = "text/html; charset=utf-8"

func (s *Site) add(uri, contentType string, body []byte) {
	if _, twice := s.pages[uri]; twice {
		panic("demo: two pages at " + uri) // the content is constant, so tests detect it
	}
	s.pages[uri] = page{contentType: contentType, body: body}
}

// text is a page with paragraphs.
type text struct {
	Title      string
	Paragraphs []string
}

func serveText(w http.ResponseWriter, status int, title, paragraph string) {
	body := render("text.html", text{Title: title, Paragraphs: []string{paragraph}})
	w.Header().Set("Content-Type", htmlUTF8)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected
}

// render executes a template of pages/. Templates and data are constant, so it cannot fail after the tests pass.
func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		panic(fmt.Sprintf("demo: render %s: %v", name, err))
	}
	return b.Bytes()
}

// load reads a JSON Lines file of data/.
func load[T any](name string) []T {
	var out []T
	dec := json.NewDecoder(bytes.NewReader(must(pageFiles.ReadFile("data/" + name))))
	for dec.More() {
		var row T
		if err := dec.Decode(&row); err != nil {
			panic(fmt.Sprintf("demo: read %s: %v", name, err)) // the content is constant, so tests detect it
		}
		out = append(out, row)
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("demo: %v", err))
	}
	return v
}

// A Fault is an injected failure of a request.
type Fault string

// The faults of a site. All are temporary: the page is served after a few requests.
const (
	NoFault     Fault = ""
	TooMany     Fault = "429"       // 429 with Retry-After: 1
	ServerError Fault = "500"       // 500 with an HTML body
	Slow        Fault = "slow"      // the page after the delay slowness
	Challenge   Fault = "challenge" // soft block: challenge page with status 200
	Empty       Fault = "empty"     // status 200 without a body
)

// slowness is the delay of a slow page. Together with the Retry-After of 429, it determines the duration of the demo.
const slowness = 600 * time.Millisecond

// plan is the fault of a path: the first requests get it.
type plan struct {
	fault Fault
	times int
}

// at returns the fault of the n-th request, starting at 1. It is deterministic.
func (p plan) at(n int) Fault {
	if n <= p.times {
		return p.fault
	}
	return NoFault
}

// cycle is the order of the faults on the pages of a site.
var cycle = []Fault{ServerError, Slow, TooMany, Challenge, Empty}

// planFor returns the plan of the n-th path, starting at 0: every gap-th path fails once, and every second server error occurs
// twice.
func planFor(n, gap int) plan {
	if n%gap != gap/2 {
		return plan{}
	}
	turn := n / gap
	p := plan{fault: cycle[turn%len(cycle)], times: 1}
	if p.fault == ServerError && turn/len(cycle)%2 == 1 {
		p.times = 2
	}
	return p
}

// serve responds to the request with the fault and reports whether it did. After a slow fault the caller must serve the page.
func (f Fault) serve(w http.ResponseWriter, r *http.Request) (done bool) {
	switch f {
	case TooMany:
		w.Header().Set("Retry-After", "1")
		serveText(w, http.StatusTooManyRequests, "Too many requests", "You are asking faster than we can pour. Come back in a second.")
	case ServerError:
		serveText(w, http.StatusInternalServerError, "Something broke", "The kettle fell over. We are on it.")
	case Challenge:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(challengePage) // the client may have disconnected
	case Empty:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	case Slow:
		wait := time.NewTimer(slowness)
		defer wait.Stop()
		select {
		case <-wait.C:
			return false
		case <-r.Context().Done():
		}
	default:
		return false
	}
	return true
}
