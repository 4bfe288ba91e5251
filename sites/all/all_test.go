package all

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"muster/sites/definition"
	"muster/sites/extract"
)

const tables = `<table border=0 align=center><tr style="border-bottom: 0px"><td style="padding-top: 2em;">“Be yourself; everyone else is already taken.” Author: Oscar Wilde</td></tr>
<tr><td style="padding-bottom: 2em;">Tags: <a href="/tableful/tag/honest/page/1/">honest</a> <a href="/tableful/tag/life/page/1/">life</a></td></tr>
<tr><td>“So many books.” Author: Frank Zappa</td></tr><tr><td>Tags:</td></tr></table><table><tr><td><a href="/tableful/page/2/">Next <span>→</span></a></td></tr></table>`

func TestTablefulPageIsExtracted(t *testing.T) {
	t.Parallel()
	defs, err := Definitions()
	if err != nil || len(defs) != len(extract.Registered()) {
		t.Fatalf("got %d definitions of %d sites, %v", len(defs), len(extract.Registered()), err)
	}
	def := defs[0]
	u, err := url.Parse("https://quotes.toscrape.com/tableful/")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := extract.Parse(def, extract.Page{URL: u, Kind: definition.KindListing, Header: http.Header{}, Body: []byte(tables)})
	if err != nil {
		t.Fatal(err)
	}
	res, err := extract.Run(def, doc)
	if err != nil || len(res.Records) != 2 || len(res.Invalid) != 0 || res.Next == nil || res.Next.URL != "https://quotes.toscrape.com/tableful/page/2/" {
		t.Fatalf("got %+v, %v", res, err)
	}
	got, err := json.Marshal(res.Records[0].Fields)
	if want := `[{"Name":"text","Value":"“Be yourself; everyone else is already taken.”"},{"Name":"author","Value":"Oscar Wilde"},{"Name":"tags","Value":["honest","life"]}]`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if res.Records[0].Key == res.Records[1].Key || fmt.Sprint(res.Hits["quote.tags"]) != "map[0:1 none:1]" {
		t.Errorf("got keys %s and %s, hits %v", res.Records[0].Key, res.Records[1].Key, res.Hits)
	}
}

// Records from code are checked against the definition.
func TestAddChecksRecords(t *testing.T) {
	t.Parallel()
	def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: http://s.example\nstart: [/]\nrecords: {r: {fields: {a: {css: b, required: true}, n: {css: i, type: number, max: 5}}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse("http://s.example/")
	d := &extract.Doc{Page: extract.Page{URL: u}}
	var res extract.Result
	for _, v := range [][]extract.Value{{{Name: "a", Value: "x"}}, {{Name: "n", Value: 3.0}}, {{Name: "a", Value: "y"}, {Name: "n", Value: 7.0}}, {{Name: "a", Value: ""}}} {
		if err := res.Add(def, d, "r", v...); err != nil {
			t.Fatal(err)
		}
	}
	if len(res.Records) != 1 || len(res.Invalid) != 3 {
		t.Errorf("got %d records and %d that do not pass, want 1 and 3: %+v", len(res.Records), len(res.Invalid), res)
	}
	if err := res.Add(def, d, "other"); err == nil {
		t.Error("a record of an unknown name: got no error, want one")
	}
}
