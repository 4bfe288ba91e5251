package extract_test

import (
	"fmt"
	"log"
	"net/http"
	"net/url"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
)

// Each quote is in a row that names its author. No selector separates the two.
func ExampleRegister() {
	row := definition.MustSelector("tr")
	extract.Register("tables", func(def *definition.Definition, d *extract.Doc) (extract.Result, error) {
		res, err := extract.Declared(def, d) // links and the next page
		if err != nil {
			return res, err
		}
		for _, r := range row.All(d.Root) {
			if text, author, ok := strings.Cut(extract.Text(r), " Author: "); ok {
				err = res.Add(def, d, "quote", extract.Value{Name: "text", Value: text}, extract.Value{Name: "author", Value: author})
			}
			if err != nil {
				return res, err
			}
		}
		return res, nil
	})

	def, err := definition.Parse("tables.yaml", []byte(`
site: tables
base_url: https://quotes.example
start: [/]
records: {quote: {from: listing, each: none, key: [text], fields: {text: {css: td, required: true}, author: td}}}
`))
	if err != nil {
		log.Fatal(err)
	}
	doc, err := extract.Parse(def, extract.Page{URL: &url.URL{Path: "/"}, Kind: definition.KindListing, Header: http.Header{}, Body: []byte(
		`<table><tr><td>Be yourself. Author: Oscar Wilde<tr><td>Tags: life<tr><td>So many books. Author: Frank Zappa</table>`)})
	if err != nil {
		log.Fatal(err)
	}
	res, err := extract.Run(def, doc)
	for _, r := range res.Records {
		fmt.Println(r.Fields)
	}
	fmt.Println(res.Invalid, err)
	// Output:
	// [{text Be yourself.} {author Oscar Wilde}]
	// [{text So many books.} {author Frank Zappa}]
	// [] <nil>
}
