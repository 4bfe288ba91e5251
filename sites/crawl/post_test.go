package crawl

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/redistest"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

// A search by POST continues from page to page, also after an error: a form, and JSON with a cursor. Requests with one URL and
// different forms are different pages.
func TestScrapeByPost(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(searches())
	t.Cleanup(server.Close)
	const head = "base_url: %s\npoliteness: {delay: 0s}\nretries: {base: 1ms}\n"
	for _, c := range []struct{ site, text string }{
		{"form", head + `start: [{url: /form, form: {q: lamp & co, page: 1}}]
listing: {next: {param: page}}
records: {hit: {from: listing, fields: {name: {css: .hit, required: true}}}}
`},
		{"json", head + `start: [{url: /json, json: {paging: {cursor: 1}}}]
listing: {format: json, next: {param: paging.cursor, cursor: next}}
records: {hit: {from: listing, fields: {name: {json: hit, required: true}}}}
`},
	} {
		t.Run(c.site, func(t *testing.T) {
			t.Parallel()
			def := sitetest.Parse(t, fmt.Appendf(nil, "site: %s\n"+c.text, c.site, server.URL))
			sum := run(t, begin(t, newWorker(t, redistest.New(t)), "j1", def, ScrapeOptions{}))
			if sum.Status != report.StatusComplete || len(sum.Files) == 0 {
				t.Fatalf("got %+v, want COMPLETE with files", sum)
			}
			got := sitetest.ReadKeys(t, sum.Files[0], "name")
			if want := map[string]bool{c.site + " 1": true, c.site + " 2": true, c.site + " 3": true}; !maps.Equal(got, want) {
				t.Errorf("got records %v, want %v", got, want)
			}
		})
	}
}

// searches is a site with POST searches of three pages each.
func searches() http.Handler {
	var failures atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		page := 0
		switch r.URL.Path {
		case "/form":
			_, _ = fmt.Sscan(r.PostFormValue("page"), &page)
			if r.PostFormValue("q") != "lamp & co" {
				page = 99
			}
			if page == 2 && failures.Add(1) == 1 {
				http.Error(w, "busy", http.StatusInternalServerError)
				return
			}
		case "/json":
			var asked struct{ Paging struct{ Cursor int } }
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.Header.Get("Content-Type") != "application/json" {
				http.Error(w, "no JSON", http.StatusBadRequest)
				return
			}
			page = asked.Paging.Cursor
		}
		if r.Method != http.MethodPost || page < 1 || page > 3 {
			http.Error(w, "no such search", http.StatusNotFound)
			return
		}
		if r.URL.Path == "/form" {
			fmt.Fprintf(w, "<p class=hit>form %d</p>", page)
			return
		}
		next := "null"
		if page < 3 {
			next = fmt.Sprint(page + 1)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"hit": "json %d", "next": %s}`, page, next)
	})
}

// Values of a listing item are part of the record of its page, in HTML and in JSON.
func TestCarryPassesListingValuesToRecord(t *testing.T) {
	t.Parallel()
	const fields = "records: {item: {key: [name], fields: {name: {css: h1, required: true}, price: {carry: price, type: price, locale: en, required: true}, rank: [{css: .rank}, {carry: rank}]}}}\n"
	for name, c := range map[string]struct{ list, yaml string }{
		"HTML": {
			`<li><a href=/item/0>a</a><b class=price>€1.50</b><i data-rank=7></i></li><li><a href=/item/1>b</a><b class=price>€2.50</b></li>`,
			"listing: {links: [{css: a, each: li, carry: {price: .price, rank: {css: i, attr: data-rank}}}]}\n",
		},
		"JSON": {
			`{"items": [{"id": 0, "price": "€1.50", "rank": 7}, {"id": 1, "price": "€2.50"}]}`,
			"listing: {format: json, links: [{json: id, template: '/item/{value}', each_json: items, carry: {price: {json: price}, rank: {json: rank}}}]}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					fmt.Fprint(w, c.list)
					return
				}
				fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.Path, strings.Repeat("<p>words</p>", 40))
			})
			def := sitetest.Parse(t, []byte("site: carry\nbase_url: "+site.URL+"\nstart: [/]\npoliteness: {delay: 0, robots: false}\n"+c.yaml+fields))
			sum := run(t, begin(t, newWorker(t, redistest.New(t)), "j", def, ScrapeOptions{}))
			if sum.Records != 2 || sum.Status != report.StatusComplete {
				t.Fatalf("got %+v, want 2 records", sum)
			}
			got := sitetest.ReadKeys(t, sum.Files[0], "price")
			if want := "map[map[amount:1.5 currency:EUR]:true map[amount:2.5 currency:EUR]:true]"; fmt.Sprint(got) != want {
				t.Errorf("got prices %v, want %s", got, want)
			}
			if got := sitetest.ReadKeys(t, sum.Files[0], "rank"); !got["7"] {
				t.Errorf("got ranks %v, want one of 7", got)
			}
		})
	}
}
