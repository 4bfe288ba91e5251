package extract

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

// Microdata follows the HTML standard.
func TestMicrodata(t *testing.T) {
	t.Parallel()
	def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: http://s.example\nstart: [/]\nrecords: {r: {fields: {a: h1}}}\n"))
	testutil.Ok(t, err)
	u, _ := url.Parse("http://s.example/")
	for name, c := range map[string]struct{ body, want string }{
		"values of elements": {`<div itemscope itemtype="https://schema.org/Product"><b itemprop=name>Lamp</b><a itemprop=url href=/l>x</a><meter itemprop=rating value=4>****</meter><time itemprop=date datetime=2026-05-03>May</time></div>`,
			`[{"@type":["https://schema.org/Product"],"date":"2026-05-03","name":"Lamp","rating":"4","url":"/l"}]`},
		"two names and many values": {`<div itemscope><i itemprop="sku name">1</i><i itemprop=name>2</i></div>`, `[{"name":["1","2"],"sku":"1"}]`},
	} {
		doc, err := Parse(def, Page{URL: u, Kind: definition.KindDetail, Header: http.Header{}, Body: []byte("<body>" + c.body)})
		testutil.Ok(t, err)
		if got, err := json.Marshal(doc.Microdata()); string(got) != c.want || err != nil {
			t.Errorf("%s: got %s, want %s; %v", name, got, c.want, err)
		}
	}
}
