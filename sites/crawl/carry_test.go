package crawl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster/sites/internal/sitetest"
	"muster/sites/report"
	"muster/tasks/redistest"
)

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
