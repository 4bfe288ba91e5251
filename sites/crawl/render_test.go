package crawl

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/render"
	"muster/sites/report"
	"muster/tasks"
)

// scripted is a shop with listing pages of 20 products, which a script builds from the JSON of an API.
type scripted struct {
	products    int
	shells, api atomic.Int64
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const perPage = 20
	var n int
	switch path := r.URL.Path; {
	case path == "/robots.txt":
		http.NotFound(w, r)
	case path == "/app.js":
		fmt.Fprint(w, `(async () => {
			const add = (to, tag, attributes, text) => {
				const element = Object.assign(document.createElement(tag), attributes)
				element.textContent = text
				to.append(element)
				return element
			}
			const root = document.getElementById("root")
			const page = await (await fetch("/api" + location.pathname + location.search)).json()
			if (page.name) {
				add(root, "h1", {}, page.name)
				add(root, "p", {className: "price"}, page.price)
				return
			}
			const list = add(root, "ul", {className: "products"}, "")
			for (const p of page.products) add(add(list, "li", {className: "product"}, ""), "a", {href: p.href}, p.name)
			if (page.next) add(root, "a", {className: "next", href: page.next}, "Next")
		})()`)
	case sitetest.Scan(path, "/api/p/%d", &n) && n < s.products:
		s.api.Add(1)
		fmt.Fprintf(w, `{"name": "Lamp %d", "price": "€ %d,50"}`, n, 10+n)
	case path == "/api/":
		s.api.Add(1)
		page := 1
		sitetest.Scan(r.URL.Query().Get("page"), "%d", &page)
		var list []string
		for i := (page - 1) * perPage; i < page*perPage; i++ {
			list = append(list, fmt.Sprintf(`{"name": "Lamp %d", "href": "/p/%d"}`, i, i))
		}
		next := ""
		if page*perPage < s.products {
			next = fmt.Sprintf("?page=%d", page+1)
		}
		fmt.Fprintf(w, `{"products": [%s], "next": %q}`, strings.Join(list, ","), next)
	default:
		s.shells.Add(1)
		fmt.Fprint(w, `<!doctype html><title>Lantern &amp; Loom</title><div id="root"></div><noscript>This shop needs JavaScript.</noscript><script src="/app.js"></script>`)
	}
}

const scriptedShop = `site: scripted
base_url: %s
start: [/]
listing: {next: a.next, links: .product a}
records:
  product:
    key: [name]
    fields:
      name: {css: h1, required: true}
      price: {css: .price, type: price, required: true}
politeness: {delay: 0, max_per_domain: 4}
render: auto
`

// A shop whose pages are built by JavaScript is scraped completely with render: auto, which fetches only the first pages of a kind
// twice.
func TestScriptedShopIsRendered(t *testing.T) {
	t.Parallel()
	path, _, err := render.Find(os.Getenv("MUSTER_TEST_BROWSER"))
	if err != nil || os.Getenv("MUSTER_TEST_BROWSER") == "" {
		t.Skip("NOT CHECKED: make render runs it in a browser: ", err)
	}
	shop := &scripted{products: 120}
	if testing.Short() {
		shop.products = 20
	}
	pages := int64(shop.products + shop.products/20)
	server := testutil.Serve(t, shop)
	browser := render.New(render.Config{Browser: path})
	t.Cleanup(browser.Close)
	sum := scrapeOn(t, 1, fmt.Sprintf(scriptedShop, server.URL), func(cfg *Config) { cfg.Fetch.Browser = browser })
	if sum.Status != report.StatusComplete || sum.Records != shop.products || sum.Errors != 0 {
		t.Fatalf("got %s with %d records and %d errors, want COMPLETE with %d and none", sum.Status, sum.Records, sum.Errors, shop.products)
	}
	names := sitetest.ReadKeys(t, sum.Files[0], "name")
	for i := range shop.products {
		if !names[fmt.Sprint("Lamp ", i)] {
			t.Errorf("%s: got no Lamp %d, want one", filepath.Base(sum.Files[0]), i)
		}
	}
	if shells, api := shop.shells.Load(), shop.api.Load(); api != pages || shells > pages+2*4 {
		t.Errorf("got %d requests for pages and %d to the API, want %d and a few, and %d", shells, api, pages, pages)
	}
}

// Without a browser, a scrape that needs one fails before its first request, with the remedy.
func TestNoBrowserForAScrape(t *testing.T) {
	t.Parallel()
	shop := &scripted{}
	server := testutil.Serve(t, shop)
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	w, err := New(Config{Client: client, OutDir: t.TempDir(), Logger: noLog, Fetch: fetch.Config{Browser: render.New(render.Config{Browser: t.TempDir() + "/chromium"})}})
	testutil.Ok(t, err)
	work(t, client, w)
	def := sitetest.Parse(t, fmt.Appendf(nil, scriptedShop, server.URL))
	run := testutil.Must(store.Scrape(requestOf(t, def, w.cfg.OutDir, ScrapeOptions{})).Send(t.Context(), client))(t)
	if _, err = run.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "apt-get install chromium") || shop.shells.Load() > 0 {
		t.Errorf("got %v and %d requests, want the remedy and none", err, shop.shells.Load())
	}
}
