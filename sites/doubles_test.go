package sites

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/tasks/redistest"
)

// same is a site whose items 0 to good-1 are pages of their own, and whose
// others all give one page, until each was asked for patient times.
type same struct {
	good, items, patience int
	body                  string // {n} is a number of the request, {url} the address

	mu    sync.Mutex // guards the fields below
	asked map[string]int
	n     int
}

func (s *same) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	asked := s.asked[r.URL.Path]
	s.asked[r.URL.Path]++
	w.Header().Set("Content-Type", "text/html")
	var item int
	switch {
	case r.URL.Path == "/":
		for i := range s.items {
			_, _ = fmt.Fprintf(w, "<a class=to href=/item/%d>item</a> <a class=to href='/item/0?colour=%d'>colour</a> ", i, i)
		}
	case scan(r.URL.Path, "/item/%d", &item) && (item < s.good || s.patience > 0 && asked >= s.patience):
		_, _ = fmt.Fprintf(w, "<h1>Item %d</h1><p class=sku>S%d</p><img src=/i%d.png>", item, item, item)
	case item > 0:
		_, _ = fmt.Fprint(w, strings.NewReplacer("{n}", fmt.Sprint(s.n), "{url}", r.URL.Path, "{item}", fmt.Sprint(item), "{tags}", strings.Repeat("<br>", item)).Replace(s.body))
	default:
		http.NotFound(w, r)
	}
}

// One page at many addresses is told, be it a page that asks to wait or the
// answer to everything that is not there; pages that may well be alike are
// not.
func TestDoubles(t *testing.T) {
	t.Parallel()
	const bare = "records: {item: {fields: {name: h1, picture: {css: img, attr: src}}}}\n"
	for name, c := range map[string]struct {
		body, rest string
		doubles    int // of the 9 pages that are alike; -1: all that come after two
	}{
		"a wait":                         {`<h1>One second</h1><p>It is on its way to you</p><script>var ray={n}</script>`, bare, 7},
		"no record":                      {`<p>Nothing here</p>`, "records: {item: {fields: {name: {css: h1, required: true}}}}\n", 7},
		"an address in the record":       {`<h1>Home</h1>`, "records: {item: {fields: {name: h1, at: {page: url}}}}\n", 7},
		"a key of its own":               {`<h1>Sold out</h1><p class=sku>S9</p>`, "records: {item: {key: [sku], fields: {name: h1, sku: .sku}}}\n", 0},
		"must_have is there":             {`<h1>Home</h1>`, bare + "detail: {must_have: h1}\n", 0},
		"no record is wanted of it":      {`<p>Sold out</p>`, "records: {item: {if: .sku, fields: {name: h1}}}\n", 0},
		"records from the lists":         {`<p>Words</p>`, "records: {item: {from: listing, each: a, fields: {name: a}}}\n", 0},
		"it leads on":                    {`<p>Words</p><a class=on href=/item/1>on</a>`, bare + "detail: {links: a.on}\n", 0},
		"another picture":                {`<h1>Picture</h1><img src=/i{item}.png>`, bare, 0},
		"another description":            {`<meta name=description content="about {item}"><h1>Article</h1>`, bare, 0},
		"its address in a description":   {`<meta property=og:url content="{url}"><meta name=csrf content={n}><h1>One second</h1>`, bare, 7},
		"other elements":                 {`<h1>Article</h1>{tags}`, bare, 0},
		"an article":                     {`<h1>Knots</h1>` + strings.Repeat("<p>A knot that holds is made of two that do not, and both of them are tied in the same way, one after the other.</p>", 20), bare, 0},
		"an article without a record":    {strings.Repeat("<p>A knot that holds is made of two that do not, and both of them are tied in the same way, one after the other.</p>", 20), "records: {item: {fields: {name: {css: h1, required: true}}}}\n", 7},
		"a long list":                    {`<h1>Home</h1>` + strings.Repeat("<p>A knot and another one</p>", 100), bare, 7},
		"pages that are never suspected": {`<h1>One second</h1>`, bare + "blocks: {off: true}\n", 0},
		"lists in the pages":             {`<ul><li>a<li>b</ul>`, "records: {item: {each: li, fields: {name: li}}}\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &same{good: 3, items: 12, body: c.body, asked: map[string]int{}}
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			def, err := definition.Parse("s.yaml", []byte("site: same\nbase_url: "+server.URL+"\nstart: [/]\nlisting: {links: a.to}\npoliteness: {delay: 0, robots: false}\nretries: {attempts: 0}\n"+c.rest))
			if err != nil {
				t.Fatal(err)
			}
			sum := run(t, begin(t, newService(t, redistest.New(t)), "j", def, ScrapeOptions{}))
			if got := sum.ByClass[fetch.Duplicate]; got != c.doubles {
				t.Errorf("got %d doubles, want %d: %v", got, c.doubles, sum.ByClass)
			}
		})
	}
}

// A page at the addresses of several languages is one.
func TestDoublesInLanguages(t *testing.T) {
	t.Parallel()
	def, err := definition.Parse("s.yaml", []byte("site: same\nbase_url: https://shop.example/\nstart: [/]\nlisting: {links: a}\nrecords: {item: {fields: {name: h1}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(addresses ...string) (n int) {
		var d doubles
		for _, a := range addresses {
			u, err := url.Parse("https://shop.example" + a)
			if err != nil {
				t.Fatal(err)
			}
			doc, err := extract.Parse(def, extract.Page{URL: u, Requested: u.String(), Status: 200, Kind: definition.KindDetail, Header: http.Header{"Content-Type": {"text/html"}}, Body: []byte("<h1>Knots</h1>")})
			if err != nil {
				t.Fatal(err)
			}
			res, err := extract.Run(def, doc)
			if err != nil {
				t.Fatal(err)
			}
			if d.again(def, doc, &res) != nil {
				n++
			}
		}
		return n
	}
	if n := refused("/de/knots", "/en/knots", "/pt-br/knots", "/zh-Hans/knots", "/fr/knots"); n != 0 {
		t.Errorf("%d languages of a page are taken for doubles", n)
	}
	if n := refused("/de/knots", "/de/ropes", "/de/splices", "/de/fr"); n != 2 {
		t.Errorf("got %d doubles, want 2", n)
	}
}

// A page that asks to wait is asked for again, and comes.
func TestDoublesAreTriedAgain(t *testing.T) {
	t.Parallel()
	s := &same{good: 1, items: 12, patience: 1, body: `<p>One second, please</p>`, asked: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	def, err := definition.Parse("s.yaml", []byte("site: same\nbase_url: "+server.URL+"\nstart: [/]\nlisting: {links: a.to}\npoliteness: {delay: 0, robots: false}\nretries: {base: 10ms}\nrecords: {item: {fields: {name: {css: h1, required: true}}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	sum := run(t, begin(t, newService(t, redistest.New(t)), "j", def, ScrapeOptions{}))
	if sum.Errors != 0 || sum.ByType["item"] != 2*12 {
		t.Errorf("got %d errors, %v records: %v", sum.Errors, sum.ByType, sum.ByClass)
	}
}

// What is remembered of pages is bounded.
func TestDoublesForget(t *testing.T) {
	t.Parallel()
	var d doubles
	for i := range 5 * keptDoubles {
		d.note(uint64(i), uint64(i), "")
	}
	if len(d.young)+len(d.old) > 2*keptDoubles {
		t.Errorf("%d and %d pages are remembered", len(d.young), len(d.old))
	}
	for i := range uint64(manyDoubles) {
		if n, first := d.note(1, i, fmt.Sprint("p", i)); n != int(i)+1 || first != "p0" {
			t.Errorf("got %d %q at address %d", n, first, i)
		}
		d.note(1, i, "again")
	}
}

// A page with markup and nothing to read is none.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	s := &same{good: 1, items: 3, body: `<html><head><title>x</title></head><body><div> </div><script>1</script></body></html>`, asked: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	def, err := definition.Parse("s.yaml", []byte("site: same\nbase_url: "+server.URL+"\nstart: [/]\nlisting: {links: a.to}\npoliteness: {delay: 0, robots: false}\nretries: {attempts: 0}\nrecords: {item: {from: listing, each: a, fields: {name: a}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	sum := run(t, begin(t, newService(t, redistest.New(t)), "j", def, ScrapeOptions{}))
	if sum.ByClass[fetch.Empty] != 2 {
		t.Errorf("got %v", sum.ByClass)
	}
}
