package extract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

func define(t testing.TB, rest string) *definition.Definition {
	t.Helper()
	def := testutil.Must(definition.Parse("s.yaml", []byte("site: shop.example\nbase_url: http://shop.example\nstart: [/]\n"+rest)))(t)
	return def
}

func page(t *testing.T, def *definition.Definition, kind, at, body string) *Doc {
	t.Helper()
	u := testutil.Must(url.Parse(at))(t)
	d := testutil.Must(Parse(def, Page{URL: u, Requested: at, Kind: kind, Status: 200, Header: http.Header{}, Body: []byte(body)}))(t)
	return d
}

// fieldValue runs one field of a detail page.
func fieldValue(t *testing.T, field, body string) (string, []string) {
	t.Helper()
	def := define(t, "records:\n  r:\n    fields:\n      v: "+field+"\n")
	res := testutil.Must(Run(def, page(t, def, definition.KindDetail, "http://shop.example/p/1", body)))(t)
	all := slices.Concat(res.Records, res.Invalid)
	if len(all) != 1 {
		t.Fatalf("got %d records, want 1", len(all))
	}
	fields := all[0].Fields
	if len(fields) == 0 {
		return "", all[0].Problems
	}
	b := testutil.Must(json.Marshal(fields[0].Value))(t)
	return string(b), all[0].Problems
}

func TestInvalidValuesAreReported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ field, body, want string }{
		{"{css: b, required: true}", "<i>", "v: is missing"},
		{"{css: b, type: number, required: true}", "<b>x</b>", `v: no number in "x"`},
		{"{css: b, type: number, min: 2}", "<b>1</b>", "v: 1 is less than 2"},
		{"{css: b, type: price, max: 2}", "<b>3 €</b>", "v: 3 is greater than 2"},
		{"{css: b, match: '^[A-Z]+$'}", "<b>a</b>", `v: "a" does not match ^[A-Z]+$`},
		{"{css: b, one_of: [x, y]}", "<b>a</b>", `v: "a" is not one of x, y`},
		{"{css: b, type: date, required: true}", "<b>soon</b>", `v: unknown date format "soon"`},
		{"{css: b, type: bool, required: true}", "<b>maybe</b>", `v: "maybe" is not a boolean`},
	} {
		_, problems := fieldValue(t, c.field, c.body)
		if len(problems) != 1 || !strings.HasPrefix(problems[0], c.want) {
			t.Errorf("%s: got %q, want %q", c.field, problems, c.want)
		}
	}
}

// An optional field with an unparsable text is dropped and counted, and its record is kept. A required one makes the record
// invalid.
func TestUnparsedFields(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("words ", 100)
	for _, c := range []struct {
		name, record, body string
		records, invalid   string // their fields
		faults             string
	}{
		{"optional", "{each: li, fields: {n: b, p: {css: i, type: price}}}", "<li><b>x</b><i>3 €</i><li><b>y</b><i>call us</i>",
			`{"n":"x","p":{"amount":3,"currency":"EUR"}} {"n":"y"}`, "", `map[r.p:{0 1 no number in "call us"}]`},
		{"required", "{each: li, fields: {n: b, p: {css: i, type: price, required: true}}}", "<li><b>x</b><i>3 €</i><li><b>y</b><i>call us</i>",
			`{"n":"x","p":{"amount":3,"currency":"EUR"}}`, `{"n":"y"}`, `map[r.p:{1 0 no number in "call us"}]`},
		{"optional, invalid values fail the page", "{on_invalid: fail, fields: {p: {css: i, type: price}}}", "<i>call us</i>", `{}`, "", `map[r.p:{0 1 no number in "call us"}]`},
		{"a default is for no text", "{fields: {p: {css: i, type: integer, default: '0'}}}", "<i>call us</i>", `{}`, "", `map[r.p:{0 1 no number in "call us"}]`},
		{"another alternative has it", "{fields: {p: {any: [i, b], type: integer}}}", "<i>call us</i><b>3</b>", `{"p":3}`, "", `map[]`},
		{"counted each time, with the first text", "{each: li, fields: {p: {css: i, type: integer}}}", "<li><i>a</i><li><i>b</i><li><i>3</i>", `{} {} {"p":3}`, "", `map[r.p:{0 2 no number in "a"}]`},
		{"a check fails", "{fields: {p: {css: i, type: integer, min: 5}}}", "<i>3</i>", "", `{"p":3}`, `map[r.p:{1 0 3 is less than 5}]`},
		{"in an object", "{fields: {o: {type: object, fields: {n: b, p: {css: i, type: integer}}}}}", "<b>x</b><i>call us</i>", `{"o":{"n":"x"}}`, "", `map[r.o.p:{0 1 no number in "call us"}]`},
		{"an object that cannot be", "{fields: {t: h1, o: {type: object, fields: {p: {css: i, type: integer, required: true}}}}}", "<h1>x</h1><i>call us</i>",
			`{"t":"x"}`, "", `map[r.o:{0 1 p: no number in "call us"}]`},
		{"a long text", "{fields: {p: {css: i, match: '^x$'}}}", "<i>" + long + "</i>", "", `{"p":"` + strings.TrimSpace(long) + `"}`, `map[r.p:{1 0 "` + long[:60] + `…" does not match ^x$}]`},
	} {
		def := define(t, "records: {r: "+c.record+"}\n")
		res := testutil.Must(Run(def, page(t, def, definition.KindDetail, "http://shop.example/", c.body)))(t)
		fields := func(rs []Record) string {
			var all []string
			for _, r := range rs {
				b := testutil.Must(object(r.Fields).MarshalJSON())(t)
				all = append(all, string(b))
			}
			return strings.Join(all, " ")
		}
		if got := fields(res.Records); got != c.records {
			t.Errorf("%s: got records %s, want %s", c.name, got, c.records)
		}
		if got := fields(res.Invalid); got != c.invalid {
			t.Errorf("%s: got invalid records %s, want %s", c.name, got, c.invalid)
		}
		if got := fmt.Sprint(res.Faults); got != c.faults {
			t.Errorf("%s: got faults %s, want %s", c.name, got, c.faults)
		}
	}
}

func TestInvalidRecords(t *testing.T) {
	t.Parallel()
	const body = "<li><b>a</b><li><i>b</i>"
	for mode, want := range map[string][3]int{"drop": {1, 1, 0}, "fail": {1, 1, 1}} {
		def := define(t, "records: {r: {each: li, on_invalid: "+mode+", fields: {v: {css: b, required: true}}}}\n")
		res, err := Run(def, page(t, def, definition.KindDetail, "http://shop.example/", body))
		failed := 0
		if err != nil {
			failed = 1
		}
		if got := [3]int{len(res.Records), len(res.Invalid), failed}; got != want {
			t.Errorf("%s: got %v records, invalid, errors, want %v", mode, got, want)
		}
		if got := res.Faults["r.v"]; got != (Fault{Invalid: 1, Example: "is missing"}) {
			t.Errorf("%s: got fault %+v, want 1 record, is missing", mode, got)
		}
	}
}

// Records from code are checked against the definition.
func TestAddChecksRecords(t *testing.T) {
	t.Parallel()
	def := define(t, "records: {r: {fields: {a: {css: b, required: true}, n: {css: i, type: number, max: 5}}}}\n")
	d := page(t, def, definition.KindDetail, "http://shop.example/", "")
	var res Result
	for _, v := range [][]Value{{{"a", "x"}}, {{"n", 3.0}}, {{"a", "y"}, {"n", 7.0}}, {{"a", ""}}} {
		testutil.Ok(t, res.Add(def, d, "r", v...))
	}
	if len(res.Records) != 1 || len(res.Invalid) != 3 {
		t.Errorf("got %d records and %d invalid ones, want 1 and 3: %+v", len(res.Records), len(res.Invalid), res)
	}
	if err := res.Add(def, d, "other"); err == nil {
		t.Error("a record of an unknown name: got no error, want one")
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	def := define(t, "records:\n  a: {each: li, key: [b], fields: {b: b, i: i}}\n  p: {fields: {t: title}}\n")
	run := func(at, body string) []Record {
		res := testutil.Must(Run(def, page(t, def, definition.KindDetail, at, body)))(t)
		return res.Records
	}
	rs := run("http://shop.example/?utm_source=x", "<li><b>1</b><i>x</i><li><b>1</b><i>y</i><li><i>x</i><li><i>y</i>")
	if rs[0].Key != rs[1].Key {
		t.Error("records with the same key fields: got different keys, want one")
	}
	if rs[2].Key == rs[3].Key || rs[2].Key == rs[0].Key {
		t.Error("records without any key field: got one key, want two")
	}
	if again := run("http://shop.example/", ""); again[0].Key != rs[4].Key {
		t.Error("another spelling of a page's URL: got another key, want the same")
	}
	line, err := rs[0].JSON()
	if err != nil || !strings.Contains(string(line), `"b":"1","i":"x"}`) || !json.Valid(line) {
		t.Errorf("got %s, %v", line, err)
	}
}

func TestHitsCountMatchesBySelector(t *testing.T) {
	t.Parallel()
	def := define(t, "records: {r: {each: li, fields: {v: [b, i]}}}\n")
	res := testutil.Must(Run(def, page(t, def, definition.KindDetail, "http://shop.example/", "<li><b>a</b><li><i>b</i><li><i>c</i><li>d")))(t)
	if h := res.Hits["r.v"]; h["0"] != 1 || h["1"] != 2 || h["none"] != 1 {
		t.Errorf("got %v", h)
	}
}

func TestLinksAndNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, listing, body, next string }{
		{"css", "next: li.next a", `<li class=next><a href="/p/2#x">`, "http://shop.example/p/2"},
		{"last page", "next: li.next a", `<a href="/p/2">`, ""},
		{"rel link", "next: {rel: next}", `<link rel="prev next" href="?p=2">`, "http://shop.example/list?p=2"},
		{"other host", "next: a", `<a href="http://evil.example/">`, ""},
		{"no address", "next: a", `<a href="javascript:void(0)">`, ""},
		{"template", "next: {template: '/p/{n}'}", ``, "http://shop.example/p/2"},
		{"template from", "next: {template: '/p/{n}', from: 10, step: 5}", ``, "http://shop.example/p/10"},
		{"template to", "next: {template: '/p/{n}', to: 1}", ``, ""},
		{"param", "next: {param: page}", ``, "http://shop.example/list?page=2&q=1"},
		{"offset", "next: {param: o, from: 20, step: 20}", ``, "http://shop.example/list?o=20&q=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			def := define(t, "listing:\n  "+c.listing+"\nrecords: {r: {fields: {v: b}}}\n")
			at := "http://shop.example/list"
			if strings.Contains(c.next, "q=1") {
				at += "?q=1"
			}
			res := testutil.Must(Run(def, page(t, def, definition.KindListing, at, c.body)))(t)
			got := ""
			if res.Next != nil {
				got = res.Next.URL
			}
			if got != c.next {
				t.Errorf("got %q, want %q", got, c.next)
			}
		})
	}
	def := define(t, "listing:\n  links: [{css: a, deny: /no/}, {css: b, attr: data-u, as: listing}]\nrecords: {r: {fields: {v: b}}}\n")
	res, err := Run(def, page(t, def, definition.KindListing, "http://shop.example/l/", `<a href=1><a href="1#x"><a href="/no/2"><a href="mailto:a@b"><a href=" a b "><b data-u=c>`))
	testutil.Ok(t, err)
	var got []string
	for _, l := range res.Links {
		got = append(got, l.Kind+" "+l.URL)
	}
	if g, want := strings.Join(got, ", "), "detail http://shop.example/l/1, detail http://shop.example/l/a%20b, listing http://shop.example/l/c"; g != want {
		t.Errorf("got %s, want %s", g, want)
	}
}

// A path to a list and a path to its members yield the same records.
func TestEachJSON(t *testing.T) {
	t.Parallel()
	for path, c := range map[string]struct {
		body string
		want int
	}{
		"data.items": {`{"data":{"items":[{"id":1},{"id":2}]}}`, 2}, "data.items[*]": {`{"data":{"items":[{"id":1},{"id":2}]}}`, 2},
		"$": {`[{"id":1},{"id":2},{"id":3}]`, 3}, "item": {`{"item":{"id":1}}`, 1}, "groups[*].items": {`{"groups":[{"items":[{"id":1},{"id":2}]},{"items":[{"id":3}]},{"items":[]}]}`, 3},
		"none": {`{"items":[]}`, 0}, "items": {`{"items":null}`, 0},
	} {
		def := define(t, "listing: {format: json}\nrecords: {item: {from: listing, each_json: '"+path+"', key: [id], fields: {id: {json: id, type: integer, required: true}}}}\n")
		res, err := Run(def, page(t, def, definition.KindListing, "http://shop.example/api", c.body))
		if err != nil || len(res.Records) != c.want {
			t.Errorf("%s in %s: got %d records, want %d; %v", path, c.body, len(res.Records), c.want, err)
		}
	}
}

func TestJSONPages(t *testing.T) {
	t.Parallel()
	def := define(t, `listing:
  format: json
  links: {json: 'items[*].id', template: '/item/{value}'}
  next: {param: after, cursor: paging.cursor, while: paging.more}
records:
  item:
    from: listing
    each_json: items[*]
    key: [id]
    fields:
      id: {json: id, type: integer}
      name: {json: name}
      tags: {json: tags, type: list}
      by: {type: object, fields: {name: {json: author.name}}}
      total: {json: total, scope: page, type: integer}
`)
	const body = `{"total":2,"items":[{"id":12345678901234567,"name":"a","tags":["x","y"],"author":{"name":"A"}},{"id":2,"name":null}],"paging":{"more":true,"cursor":"c 1"}}`
	res := testutil.Must(Run(def, page(t, def, definition.KindListing, "http://shop.example/api", body)))(t)
	if len(res.Records) != 2 || res.Next == nil || res.Next.URL != "http://shop.example/api?after=c+1" {
		t.Fatalf("got %d records and next %+v", len(res.Records), res.Next)
	}
	line, err := res.Records[0].JSON()
	if err != nil || !strings.HasSuffix(string(line), `"id":12345678901234567,"name":"a","tags":["x","y"],"by":{"name":"A"},"total":2}`) {
		t.Errorf("got %s, %v", line, err)
	}
	if len(res.Links) != 2 || res.Links[1].URL != "http://shop.example/item/2" {
		t.Errorf("got links %v", res.Links)
	}
	for _, bad := range []string{"", "<html>", "{", "{} {}"} {
		u, _ := url.Parse("http://shop.example/api")
		if _, err := Parse(def, Page{URL: u, Kind: definition.KindListing, Header: http.Header{}, Body: []byte(bad)}); err == nil {
			t.Errorf("%q: got no error, want one", bad)
		}
	}
}

func TestOddPages(t *testing.T) {
	t.Parallel()
	def := define(t, "listing: {next: a.n, links: a}\nrecords: {r: {from: listing, fields: {v: b, l: {label: x}}}}\n")
	for _, body := range map[string]string{
		"empty": "", "binary": "\x00\x01\x02\xff", "cut": "<html><body><a href=", "comment": "<!-- never closed",
		"deep": strings.Repeat("<div>", 400), "many": strings.Repeat("<a href=x>", 5000),
	} {
		d := page(t, def, definition.KindListing, "http://shop.example/", body)
		testutil.Must(Run(def, d))(t)
	}
}

// The recipes of the README extract the documented values.
func TestReadmeRecipesExtractTheirExamples(t *testing.T) {
	t.Parallel()
	readme := testutil.Must(os.ReadFile("../README.md"))(t)
	_, recipes, _ := strings.Cut(string(readme), "## Recipes\n")
	m := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(recipes)
	if m == nil {
		t.Fatal("no YAML under Recipes in README.md")
	}
	def := testutil.Must(definition.Parse("README.md", []byte(m[1])))(t)
	for text, want := range map[string]string{
		"Floor: 4-ти от 8": `{"floor":4,"floors":8}`, "Floor: 3rd floor of 5": `{"floor":3,"floors":5}`, "Floor: Ground floor / 4": `{"floor":0,"floors":4}`,
		"Floor: basement": `{"floor":-1}`, "Floor: -2": `{"floor":-2}`, "Floor: high up": `{}`,
		"Built: 令和元年5月1日": `{"built":"2019-05-01"}`, "Built: 令和8年5月3日": `{"built":"2026-05-03"}`, "Built: 平成31年4月30日": `{"built":"2019-04-30"}`, "Built: 昭和64年1月7日": `{}`,
		"Added: 3 พฤษภาคม 2569": `{"added":"2026-05-03"}`, "Added: 3 พฤษภาคม 2567": `{}`,
	} {
		res, err := Run(def, page(t, def, definition.KindDetail, "http://flats.example/1", "<dl><dt>"+strings.Replace(text, ": ", "<dd>", 1)+"</dl>"))
		if err != nil || len(res.Records) != 1 {
			t.Errorf("%s: got %d records, %v, want 1", text, len(res.Records), err)
			continue
		}
		got, err := json.Marshal(object(res.Records[0].Fields))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

// Microdata follows the HTML standard.
func TestMicrodata(t *testing.T) {
	t.Parallel()
	def := define(t, "records: {r: {fields: {a: h1}}}\n")
	for name, c := range map[string]struct{ body, want string }{
		"values of elements": {`<div itemscope itemtype="https://schema.org/Product"><b itemprop=name>Lamp</b><a itemprop=url href=/l>x</a><meter itemprop=rating value=4>****</meter><time itemprop=date datetime=2026-05-03>May</time></div>`,
			`[{"@type":["https://schema.org/Product"],"date":"2026-05-03","name":"Lamp","rating":"4","url":"/l"}]`},
		"two names and many values": {`<div itemscope><i itemprop="sku name">1</i><i itemprop=name>2</i></div>`, `[{"name":["1","2"],"sku":"1"}]`},
	} {
		doc := page(t, def, definition.KindDetail, "http://s.example/", "<body>"+c.body)
		if got, err := json.Marshal(doc.Microdata()); string(got) != c.want || err != nil {
			t.Errorf("%s: got %s, want %s; %v", name, got, c.want, err)
		}
	}
}
