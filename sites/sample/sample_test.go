package sample

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

// setup starts a site with a listing and a detail page, and writes its definition.
func setup(t *testing.T) (*definition.Definition, *fetch.Client, string) {
	t.Helper()
	srv := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			fmt.Fprint(w, `<ul><li><a href="/item/1">One</a><li><a href="/item/2">Two</a></ul><a class=next href="/page/2">next</a>`)
		case "/item/1":
			w.Header().Set("Content-Type", "text/html; charset=windows-1251")
			fmt.Fprint(w, "<h1>\xcb\xe0\xec\xef\xe0</h1><p class=price>12,50 лв</p>")
		default:
			http.NotFound(w, r)
		}
	}))
	file := filepath.Join(t.TempDir(), "shop.yaml")
	text := "site: shop.example\nbase_url: " + srv.URL + `
start: [/]
listing: {next: a.next, links: li a}
records:
  item:
    fields:
      name: {css: h1, required: true}
      price: {css: .price, type: price, locale: bg}
      stock: .stock
politeness: {delay: 0}
`
	testutil.Ok(t, os.WriteFile(file, []byte(text), 0o600))
	def := testutil.Must(definition.Load(file))(t)
	return def, fetch.NewClient(fetch.Config{Definition: def}), srv.URL
}

func TestLiveShowsOnePageOfEachSort(t *testing.T) {
	t.Parallel()
	def, client, base := setup(t)
	var samples []View
	err := Live(t.Context(), client, def, func(v View, err error) {
		if err == nil {
			samples = append(samples, v)
		}
	})
	// There is a page of each kind although the next listing page is missing.
	if err == nil || !strings.Contains(err.Error(), "/page/2: gone") || len(samples) != 2 {
		t.Fatalf("got %d samples, %v", len(samples), err)
	}
	if samples[0].Next != base+"/page/2" || len(samples[0].Links) != 2 || samples[1].Kind != definition.KindDetail || len(samples[1].Records) != 1 {
		t.Errorf("got %+v", samples)
	}
}

// The error of a block page names the evidence.
func TestBlockPageNamesItsVendor(t *testing.T) {
	t.Parallel()
	def, _, _ := setup(t)
	body := []byte("<title>Just a moment...</title><p>Checking your browser</p>")
	_, err := Of(t.Context(), def, extract.Page{URL: def.Base(), Requested: def.Base().String(), Kind: definition.KindDetail, Status: 200, Header: http.Header{}, Body: body}, nil)
	if want := `Cloudflare: the title "Just a moment..."`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// With numbered pages, the page after the second is the third.
func TestLiveCounts(t *testing.T) {
	t.Parallel()
	srv := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<title>t</title><li>lamp on page %q", r.URL.RawQuery)
	}))
	def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: "+srv.URL+"\nstart: [/]\nlisting: {next: {param: page}}\nrecords: {r: {from: listing, each: li, fields: {v: {attr: id}, t: {take: text}}}}\npoliteness: {delay: 0, robots: false}\n"))
	testutil.Ok(t, err)
	var next []string
	err = Live(t.Context(), fetch.NewClient(fetch.Config{Definition: def}), def, func(v View, _ error) { next = append(next, v.Next) })
	if want := []string{srv.URL + "/?page=2", srv.URL + "/?page=3"}; err != nil || !slices.Equal(next, want) {
		t.Errorf("got %v, %v, want %v", next, err, want)
	}
}

// A kind of page with records that no link leads to is an error, although another kind has records.
func TestLiveNamesPagesWithoutRecords(t *testing.T) {
	t.Parallel()
	srv := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<title>t</title><li>lamp") }))
	def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: "+srv.URL+"\nstart: [/]\nlisting: {links: a.item}\nrecords: {l: {from: listing, each: li, fields: {t: {take: text}}}, r: {fields: {t: h1}}}\npoliteness: {delay: 0, robots: false}\n"))
	testutil.Ok(t, err)
	err = Live(t.Context(), fetch.NewClient(fetch.Config{Definition: def}), def, func(View, error) {})
	if want := "no detail page yielded a record"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Live follows levels of listings and indexes of sitemaps until it finds a record.
func TestLiveFollowsLevelsUntilARecord(t *testing.T) {
	t.Parallel()
	srv := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch level := strings.Count(r.URL.Path, "/"); {
		case r.URL.Path == "/sitemap.xml":
			fmt.Fprint(w, `<sitemapindex><sitemap><loc>/more.xml</loc></sitemap></sitemapindex>`)
		case r.URL.Path == "/more.xml":
			fmt.Fprint(w, `<urlset><url><loc>/i/1</loc></url></urlset>`)
		case level < 4 && !strings.HasPrefix(r.URL.Path, "/i/"):
			fmt.Fprintf(w, "<h2>level %d</h2><p>some words</p><a class=list href=%s/a>a</a><a class=list href=%s/b>b</a>", level, strings.TrimSuffix(r.URL.Path, "/"), strings.TrimSuffix(r.URL.Path, "/"))
		case !strings.HasPrefix(r.URL.Path, "/i/"):
			fmt.Fprint(w, "<p>threads</p><a class=item href=/i/1>1</a><a class=item href=/i/2>2</a>")
		default:
			fmt.Fprint(w, "<h1>a thing</h1><p>some words</p>")
		}
	}))
	for start, want := range map[string]string{"/": "listing listing listing listing listing detail", "{sitemap: /sitemap.xml}": "sitemap sitemap detail"} {
		def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: "+srv.URL+"\nstart: ["+start+"]\nlisting: {links: [{css: a.list, as: listing}, a.item]}\nrecords: {r: {fields: {t: {css: h1, required: true}}}}\npoliteness: {delay: 0, robots: false}\n"))
		testutil.Ok(t, err)
		var kinds []string
		err = Live(t.Context(), fetch.NewClient(fetch.Config{Definition: def}), def, func(v View, _ error) { kinds = append(kinds, v.Kind) })
		if got := strings.Join(kinds, " "); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", start, got, err, want)
		}
	}
}
