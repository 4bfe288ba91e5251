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

	"muster/internal/addressfilter"
)

var (
	//go:embed pages data
	pageFiles embed.FS

	pages = template.Must(template.ParseFS(pageFiles, "pages/*.html"))

	challengePage = render("challenge.html", nil)
	styleSheet    = must(pageFiles.ReadFile("pages/style.css"))
)

// Site is a web site of the world: its pages, their records, and counts of the requests for them. Its
// methods may be called concurrently.
type Site struct {
	Name string // as in its definition, e.g. "shop"
	Host string // the name it answers to, e.g. "shop.example"

	truth  []Record
	pages  map[string]page // by request URI
	faults map[string]plan // by request URI

	mu    sync.Mutex // guards the fields below
	calm  bool
	paths map[string]PathCount
	exits map[netip.Addr]int
}

// page is what a path serves without a fault.
type page struct {
	contentType string
	body        []byte
}

// PathCount counts the requests for one path.
type PathCount struct {
	Asked  int           // all of them
	Served int           // of these, answered with the page itself
	Faults map[Fault]int // of these, failed; a slow page counts here and as served
}

// Traffic counts the requests to a site.
type Traffic struct {
	Paths map[string]PathCount // by request URI; paths that do not exist are together under "404"
	Exits map[netip.Addr]int   // requests by the address they came from
}

// Asked is the number of requests for pages, over all paths.
func (t Traffic) Asked() int {
	n := 0
	for _, c := range t.Paths {
		n += c.Asked
	}
	return n
}

// Faults is how often each fault was served, over all paths.
func (t Traffic) Faults() map[Fault]int {
	sum := map[Fault]int{}
	for _, c := range t.Paths {
		for f, n := range c.Faults {
			sum[f] += n
		}
	}
	return sum
}

// Traffic is a copy of the site's counts.
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

// Calm ends all faults: from now on every request gets its page.
func (s *Site) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
}

// notFound is the path under which requests for pages that do not exist are counted.
const notFound = "404"

// ServeHTTP serves the site under its own name, and under a loopback address for browsers.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.answersTo(r.Host) {
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
	_, _ = w.Write(p.body) // the client may have left
	s.served(uri)
}

// answersTo reports whether a Host header means this site.
func (s *Site) answersTo(host string) bool {
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
	c.Asked++
	fault := NoFault
	if !s.calm {
		fault = s.faults[uri].at(c.Asked)
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

// newSite returns a site with the pages that every site has.
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
		panic("demo: two pages at " + uri) // the content is fixed: a test sees it first
	}
	s.pages[uri] = page{contentType: contentType, body: body}
}

// text is a page of paragraphs.
type text struct {
	Title      string
	Paragraphs []string
}

func serveText(w http.ResponseWriter, status int, title, paragraph string) {
	body := render("text.html", text{Title: title, Paragraphs: []string{paragraph}})
	w.Header().Set("Content-Type", htmlUTF8)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}

// render returns a template of pages/ with data filled in. Both are fixed, so it cannot fail once the tests
// pass.
func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		panic(fmt.Sprintf("demo: render %s: %v", name, err))
	}
	return b.Bytes()
}

// load reads a file of data/, a JSON object on a line.
func load[T any](name string) []T {
	var out []T
	dec := json.NewDecoder(bytes.NewReader(must(pageFiles.ReadFile("data/" + name))))
	for dec.More() {
		var row T
		if err := dec.Decode(&row); err != nil {
			panic(fmt.Sprintf("demo: read %s: %v", name, err)) // it is fixed: a test sees it first
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
