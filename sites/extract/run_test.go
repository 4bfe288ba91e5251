package extract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"muster/sites/definition"
)

func define(t testing.TB, rest string) *definition.Definition {
	t.Helper()
	def, err := definition.Parse("s.yaml", []byte("site: shop.example\nbase_url: http://shop.example\nstart: [/]\n"+rest))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

func page(t *testing.T, def *definition.Definition, kind, at, body string) *Doc {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(def, Page{URL: u, Requested: at, Kind: kind, Status: 200, Header: http.Header{}, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fieldValue runs one field of a detail page.
func fieldValue(t *testing.T, field, body string) (string, []string) {
	t.Helper()
	def := define(t, "records:\n  r:\n    on_invalid: keep\n    fields:\n      v: "+field+"\n")
	res, err := Run(def, page(t, def, definition.KindDetail, "http://shop.example/p/1", body))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Records) != 1 {
		t.Fatalf("got %d records, want 1", len(res.Records))
	}
	fields := res.Records[0].Fields
	if len(fields) == 0 {
		return "", res.Records[0].Problems
	}
	b, err := json.Marshal(fields[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), res.Records[0].Problems
}

func TestFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, field, body, want string }{
		{"text folds", "h1", "<h1>\n a <b>b</b>c<br>d&nbsp; e </h1>", `"a bc d e"`},
		{"blocks apart", "div", "<div><p>a</p><p>b</p><script>x</script></div>", `"a b"`},
		{"first in the page", "li", "<ul><li>a<li>b</ul>", `"a"`},
		{"skips empty", "li", "<ul><li> <li>b</ul>", `"b"`},
		{"none", "h2", "<h1>a</h1>", ``},
		{"attr", "{css: a, attr: href}", `<a href=" /x ">`, `"/x"`},
		{"attr suffix", "a::attr(href)", `<a href="/x">`, `"/x"`},
		{"url", "{css: a, attr: href, type: url}", `<base href="/b/"><a href="x">`, `"http://shop.example/b/x"`},
		{"chain", "[h2, h1]", "<h1>a</h1>", `"a"`},
		{"chain by type", "{type: number, any: [h1, h2]}", "<h1>a</h1><h2>4.5</h2>", `4.5`},
		{"regex group", `{css: h1, regex: 'for (\w+)'}`, "<h1>for sale</h1>", `"sale"`},
		{"regex alone", `{regex: 'sku=(\d+)'}`, "<script>sku=77;</script>", `"77"`},
		{"replace", `{css: h1, replace: [{pattern: '^Colour: ', with: ''}]}`, "<h1>Colour: red</h1>", `"red"`},
		{"number", "{css: b, type: number, locale: de}", "<b>1.234,5 kg</b>", `1234.5`},
		{"integer", "{css: b, type: integer}", "<b>1 234</b>", `1234`},
		{"price", "{css: b, type: price}", "<b>£51.77</b>", `{"amount":51.77,"currency":"GBP"}`},
		{"bool words", "{css: b, type: bool}", "<b>да</b>", `true`},
		{"bool regex", `{css: b, type: bool, regex: '(?i)in stock'}`, "<b>sold out</b>", `false`},
		{"exists", "{exists: .buy, type: bool}", "<b>x</b>", `false`},
		{"date", "{css: b, type: date}", "<b>2 January 2024</b>", `"2024-01-02"`},
		{"date layout", "{css: b, type: date, layout: 02/01/2006}", "<b>03/04/2024</b>", `"2024-04-03"`},
		{"date and time", "{css: time, attr: datetime, type: date}", `<time datetime="2024-01-02T03:04:05+02:00">`, `"2024-01-02T03:04:05+02:00"`},
		{"list", "{css: li, type: list}", "<li>a<li>b", `["a","b"]`},
		{"list of", "{css: li, type: list, of: integer}", "<li>1<li>x<li>3", `[1,3]`},
		{"split", "{css: b, split: ',', type: list}", "<b>S, M ,L,</b>", `["S","M","L"]`},
		{"list by regex", `{css: b, regex: '#(\w+)', type: list}`, "<b>#a and #b</b>", `["a","b"]`},
		{"html", "{css: div, type: html}", "<div><i>a</i> &amp; b</div>", `"\u003ci\u003ea\u003c/i\u003e \u0026amp; b"`},
		{"own text", "{css: h1, take: own_text}", "<h1>a <small>b</small> c</h1>", `"a c"`},
		{"default", "{css: b, type: integer, default: '0'}", "<i>x</i>", `0`},
		{"value", "{value: x}", "<i>x</i>", `"x"`},
		{"page url", "{page: url}", "<i>x</i>", `"http://shop.example/p/1"`},
		{"page title", "{page: title}", "<title> a\nb </title>", `"a b"`},
		{"meta", "{meta: 'og:title'}", `<meta property="og:title" content="T">`, `"T"`},
		{"microdata", "{meta: price, type: number}", `<div itemscope><span itemprop="price" content="12.50">12,50</span></div>`, `12.5`},
		{"microdata text", "{meta: name}", `<h1 itemprop="name">N</h1>`, `"N"`},
		{"jsonld", "{jsonld: Product.offers.price, type: price}", `<script type="application/ld+json">{"@graph":[{"@type":["Thing","Product"],"offers":[{"price":"1299.00"}]}]}</script>`, `{"amount":1299}`},
		{"jsonld after a broken one", "{jsonld: '*.name'}", `<script type="application/ld+json">{"name":</script><script type="application/ld+json">{"name":"N"};</script>`, `"N"`},
		{"label in table", "{label: UPC}", "<table><tr><th>UPC</th><td>a1</td></tr></table>", `"a1"`},
		{"label with markup", "{label: UPC}", "<table><tr><td><b>upc:</b></td><td>a1</td></tr></table>", `"a1"`},
		{"label in dl", "{label: Size}", "<dl><dt>Size</dt><dd>L</dd></dl>", `"L"`},
		{"label of an empty cell", "{label: Size}", "<table><tr><th>Size</th><td></td></tr><tr><th>Colour</th><td>red</td></tr></table>", ``},
		{"label of an empty cell, and again", "{label: Size}", "<table><tr><th><a>Size:</a></th><td> </td></tr><tr><th>Size</th><td>L</td></tr></table>", `"L"`},
		{"label that is a word before", "{label: Size}", "<p><i>size</i> <i>matters</i></p><table><tr><th><a>Size:</a></th><td>L</td></tr></table>", `"L"`},
		{"label among several", "{label: Rooms}", "<dl><dt>Rooms<dt>Chambers<dd>3</dl>", `"3"`},
		{"label of an input", "{label: Size}", "<form><label for=s>Size</label><input id=s value=L></form>", `"L"`},
		{"label of a select", "{label: Size}", "<label>Size</label> <select><option>S<option selected>L</select>", `"L"`},
		{"label before text", "{label: Size}", "<p><strong>Size:</strong> L</p>", `"L"`},
		{"label in text", "{label: Size}", "<li>Size: L</li>", `"L"`},
		{"label in lines", "{label: Size}", "<p><b>Price:</b> 5 <i>EUR</i><br><b>Size:</b> L<br>Colour: red</p>", `"L"`},
		{"label in lines of text", "{label: Colour}", "<p>Price: 5<br>Colour: red<br>x</p>", `"red"`},
		{"label in a block with others", "{label: Size}", "<div>Size: <b>L</b><div>more</div></div>", `"L"`},
		{"label without a colon", "{label: Size}", "<p><b>Size</b> L<br><b>Price</b> 5</p>", `"L"`},
		{"label beside span", "{label: Size}", "<div><span>Size</span><span>L</span></div>", `"L"`},
		{"object", "{css: .r, type: object, fields: {by: b, stars: {css: i, type: integer}}}", `<div class=r><b>x</b><i>4</i></div>`, `{"by":"x","stars":4}`},
		{"objects", "{css: .r, type: list, of: object, fields: {by: b}}", `<p class=r><b>x</b><p class=r><b>y</b>`, `[{"by":"x"},{"by":"y"}]`},
		{"xpath", "{xpath: '//h1/text()'}", "<h1>a<b>c</b></h1>", `"a"`},
		{"xpath short", "//div[@class='p']/following-sibling::p[1]", "<div class=p>x</div><p>a</p><p>b</p>", `"a"`},
		{"xpath attribute", "{xpath: '//a/@href', type: url}", `<a href="/x">`, `"http://shop.example/x"`},
		{"xpath of a text", "{xpath: 'substring-after(//p, \"SKU: \")'}", "<p>SKU: 77</p>", `"77"`},
		{"xpath count", "{xpath: 'count(//li)', type: integer}", "<li>a<li>b", `2`},
		{"xpath list", "{xpath: '//li', type: list}", "<li>a<li>b", `["a","b"]`},
		{"xpath within", "{css: .r, type: list, of: object, fields: {by: '//b'}}", `<p class=r><b>x</b><p class=r><b>y</b>`, `[{"by":"x"},{"by":"y"}]`},
		{"microdata by type", "{microdata: Product.offers.price, type: price}", `<div itemscope itemtype="http://schema.org/Product"><span itemprop=name>N</span><div itemprop=offers itemscope itemtype="http://schema.org/Offer"><b itemprop=price content="12.50">12,50</b></div></div>`, `{"amount":12.5}`},
		{"jsonld reference", "{jsonld: Product.brand.name}", `<script type="application/ld+json">{"@graph":[{"@type":"Product","name":"N","brand":{"@id":"#b"}},{"@type":"Brand","@id":"#b","name":"Lux"}]}</script>`, `"Lux"`},
		{"jsonld references in a circle", "{jsonld: A.b.a.b.name}", `<script type="application/ld+json">[{"@type":"A","@id":"a","name":"A","b":{"@id":"b"}},{"@type":"B","@id":"b","name":"B","a":{"@id":"a"}}]</script>`, `"B"`},
		{"jsonld text for an object", "{jsonld: Product.brand.name}", `<script type="application/ld+json">{"@type":"Product","brand":"Lux"}</script>`, `"Lux"`},
		{"jsonld text with entities and tags", "{jsonld: Product.description}", `<script type="application/ld+json">{"@type":"Product","description":"<p>Bread &amp; butter</p><p>for 2 &lt; 3, R&D</p>"}</script>`, `"Bread \u0026 butter for 2 \u003c 3, R\u0026D"`},
		{"jsonld text for HTML", "{jsonld: Product.description, type: html}", `<script type="application/ld+json">{"@type":"Product","description":"<p>Bread &amp; butter</p>"}</script>`, `"\u003cp\u003eBread \u0026amp; butter\u003c/p\u003e"`},
		{"jsonld URL with &", "{jsonld: Product.url, type: url}", `<script type="application/ld+json">{"@type":"Product","url":"/p?a=1&copy=2"}</script>`, `"http://shop.example/p?a=1\u0026copy=2"`},
		{"jsonld object without a name", "{any: [{jsonld: Product.brand}, {value: none}]}", `<script type="application/ld+json">{"@type":"Product","brand":{"@type":"Brand","logo":"/l.png"}}</script>`, `"none"`},
		{"jsonld object for a text", "{jsonld: Product.brand}", `<script type="application/ld+json">{"@type":"Product","brand":{"@type":"Brand","name":"Lux"}}</script>`, `"Lux"`},
		{"jsonld images", "{jsonld: Product.image, type: list, of: url}", `<script type="application/ld+json">{"@type":"Product","image":["/a.jpg",{"@type":"ImageObject","url":"/b.jpg"}]}</script>`, `["http://shop.example/a.jpg","http://shop.example/b.jpg"]`},
		{"jsonld currency", "{jsonld: Product.offers.lowPrice, type: price}", `<script type="application/ld+json">{"@type":"Product","offers":{"lowPrice":"1299.00","priceCurrency":"EUR"}}</script>`, `{"amount":1299,"currency":"EUR"}`},
		{"jsonld authors", "{jsonld: 'Product.review[*].author.name', type: list}", `<script type="application/ld+json">{"@type":"Product","review":[{"author":{"name":"Bob"}},{"author":"Ann"}]}</script>`, `["Bob","Ann"]`},
		{"jsonld objects", "{jsonld: 'Product.review[*]', type: list, of: object, fields: {by: {json: author.name}, stars: {json: rating, type: integer}}}", `<script type="application/ld+json">{"@type":"Product","review":[{"author":{"name":"Bob"},"rating":5}]}</script>`, `[{"by":"Bob","stars":5}]`},
		{"jsonld written loosely", "{jsonld: 'BreadcrumbList.itemListElement[*].name', type: list}", "<script type=\"application/ld+json\">/* crumbs */ {\"@type\":\"BreadcrumbList\",\"itemListElement\":[{\"name\":\"A\nB\"},{\"name\":\"C\"},],}</script>", `["A B","C"]`},
		{"microdata currency", "{microdata: Offer.price, type: price}", `<div itemscope itemtype="http://schema.org/Offer"><b itemprop=price content="12.50">12,50</b><meta itemprop=priceCurrency content=EUR></div>`, `{"amount":12.5,"currency":"EUR"}`},
		{"state written as JavaScript", "{css: script, regex: 'cfg = (.*)', json: 'list[-1]'}", `<script>var cfg = {id: 7, 'list': ["a", "b",]};</script>`, `"b"`},
		{"url beyond ASCII", "{css: a, attr: href, type: url}", `<a href="\a b\100%\ц?q=ц;x=a b#й">`, `"http://shop.example/a%20b/100%25/%D1%86?q=%D1%86;x=a%20b#%D0%B9"`},
		{"url in the charset of the page", "{css: a, attr: href, type: url}", "<meta charset=windows-1251><a href='?q=\xf6+1'>", `"http://shop.example/p/1?q=%F6+1"`},
		{"url with a scheme and relative", "{css: a, attr: href, type: url}", `<a href="http:x">`, `"http://shop.example/p/x"`},
		{"url that is none of the web", "{css: a, attr: href, type: url}", `<a href="mailto:a@b.example">`, `"mailto:a@b.example"`},
		{"microdata list", "{microdata: '*.image', type: list, of: url}", `<div itemscope><img itemprop=image src="/a.png"><img itemprop=image src="/b.png"></div>`, `["http://shop.example/a.png","http://shop.example/b.png"]`},
		{"JSON in a script", "{css: 'script#state', json: item.price, type: number}", `<script id=state type="application/json">{"item":{"price":1.234}}</script>`, `1.234`},
		{"JSON cut out of a script", `{css: script, regex: 'state = (\{.*)', json: 'a[1].b'}`, `<script>x()</script><script>window.state = {"a":[{},{"b":"</b>"}]}; go()</script>`, `"\u003c/b\u003e"`},
		{"JSON in an attribute", "{css: '#app', attr: data-page, json: props.name}", `<div id=app data-page="{&quot;props&quot;:{&quot;name&quot;:&quot;N&quot;}}">`, `"N"`},
		{"column", "{css: tr, type: list, of: object, fields: {p: {column: Price, type: number}}}", "<table><tr><th>Name<th>Price<tr><td>a<td>1.5<tr><td>b<td>2</table>", `[{"p":1.5},{"p":2}]`},
		{"column with spans", "{css: tbody tr, type: list, of: object, fields: {p: {column: Price}}}", "<table><thead><tr><th colspan=2>Name<th>Price<tbody><tr><td rowspan=2>a<td>b<td>1<tr><td>c<td>2</table>", `[{"p":"1"},{"p":"2"}]`},
		{"join", `{css: p, join: "\n"}`, "<p>a\n b</p><p> </p><p>c</p>", `"a b\nc"`},
		{"image of a set", "{css: img, take: image, type: url}", `<img src="data:image/gif;base64,x" srcset="/s.jpg 480w, /l.jpg 1080w">`, `"http://shop.example/l.jpg"`},
		{"image shown later", "{css: img, take: image, type: url}", `<img src="/blank.gif" data-src="/l.jpg">`, `"http://shop.example/l.jpg"`},
		{"image of a background", "{css: div, take: image, type: url}", `<div style="color:red;background-image: url('/l.jpg')">`, `"http://shop.example/l.jpg"`},
		{"image without scripts", "{css: .i, take: image, type: url}", `<div class=i><noscript><img alt="" src="/l.jpg?a=1&amp;b=2"></noscript></div>`, `"http://shop.example/l.jpg?a=1\u0026b=2"`},
		{"srcset with densities", "{css: img, attr: srcset, type: url}", `<img srcset="/a.jpg, /b.jpg 2x">`, `"http://shop.example/b.jpg"`},
		{"currency", "{css: b, type: price, currency: eur}", "<b>12</b>", `{"amount":12,"currency":"EUR"}`},
		{"regex list with a look at its surroundings", `{css: b, regex: '\bn(\d)\b', type: list}`, "<b>n1 n2</b>", `["1","2"]`},
		{"tables mended", "td", "<td>a</td>", ``},
		{"xpath, each once", "{xpath: '//div//a', type: list}", "<div><a>1</a><div><a>2</a><div><a>3</a></div><a>4</a></div><a>5</a></div>", `["1","2","3","4","5"]`},
		{"xpath union in the order of the page", "{xpath: '//td|//th', type: list}", "<table><tr><th>A<td>1<tr><th>B<td>2</table>", `["A","1","B","2"]`},
		{"xpath axis that looks back", "{xpath: '//li[3]/preceding-sibling::li', type: list}", "<li>a<li>b<li>c", `["a","b"]`},
		{"xpath parents, each once", "{xpath: '//a/..', type: list}", "<p><a>1</a><a>2</a></p>", `["12"]`},
		{"xpath attributes in order", "{xpath: '//a/@href|//div/@id', type: list}", "<div id=1><a href=2 id=x></a></div><div id=3>", `["1","2","3"]`},
		{"xpath, equal attributes of two", "{xpath: '//a/@href', type: list}", "<a href=/x></a><a href=/x></a>", `["/x","/x"]`},
		{"no template", "{css: a, type: list}", "<template><a>{{name}}</a></template><a>1</a>", `["1"]`},
		{"no template by xpath", "//a", "<template><a>{{name}}</a></template><a>1</a>", `"1"`},
		{"template asked for", "template a", "<template><a>{{name}}</a></template><a>1</a>", `"{{name}}"`},
		{"all of a template", "template", "<template><a>{{name}}</a></template>", `"{{name}}"`},
		{"template that is shown", ".x", "<div><template shadowrootmode=open><b class=x>1</b></template></div>", `"1"`},
		{"label in a template", "{label: Size}", "<template><p>Size: {{s}}</p></template><p>Size: L</p>", `"L"`},
		{"meta in a template", "{meta: name}", "<template><b itemprop=name>{{n}}</b></template><b itemprop=name>N</b>", `"N"`},
		{"image not twice", "{css: .g img, take: image, type: list}", "<div class=g><img data-src=/a.png><noscript><img src=/a.png></noscript></div>", `["/a.png"]`},
		{"noscript asked for", "{css: noscript h1}", "<body><noscript><article><h1>T &amp; U</h1></article></noscript>", `"T \u0026 U"`},
		{"noscript by xpath", "//noscript//h1", "<body><noscript><article><h1>T</h1></article></noscript>", `"T"`},
		{"head with a noscript", "head title", "<head><noscript><img src=/p.gif></noscript><title>T</title></head>", `"T"`},
		{"cents that stand higher", "{css: p, type: price}", "<p><span>12</span><sup>99</sup> €</p>", `{"amount":12.99,"currency":"EUR"}`},
		{"cents behind thousands", "{css: p, type: price}", "<p>$1,299<sup>99</sup></p>", `{"amount":1299.99,"currency":"USD"}`},
		{"cents of another locale", "{css: p, type: price, locale: de}", "<p>1.299 <sup>99</sup> €</p>", `{"amount":1299.99,"currency":"EUR"}`},
		{"cents by class", "{css: p, type: price}", "<p>£<b>19</b><i class=price-cents>05</i></p>", `{"amount":19.05,"currency":"GBP"}`},
		{"a point and cents", "{css: p, type: price}", "<p>£<b>19.</b><i class=price-fraction>05</i></p>", `{"amount":19.05,"currency":"GBP"}`},
		{"a note is no cents", "{css: p, type: price}", "<p>12 €<sup>1</sup></p>", `{"amount":12,"currency":"EUR"}`},
		{"in stock", "{css: p, type: bool}", "<p>Auf Lager.</p>", `true`},
		{"in stock, so many", "{css: p, type: bool}", "<p>In stock (12)</p>", `true`},
		{"in stock, none", "{css: p, type: bool}", "<p>In stock: 0</p>", `false`},
		{"so many in stock", "{css: p, type: bool}", "<p>Noch 12 auf Lager</p>", `true`},
		{"in stock, and more", "{css: p, type: bool}", "<p>In stock, ships today</p>", `true`},
		{"a word of schema.org", "{css: p, type: bool, attr: href}", "<p href=https://schema.org/Discontinued>x</p>", `false`},
		{"sold out", "{css: p, type: bool}", "<p>Няма в наличност</p>", `false`},
		{"currency of the locale", "{css: p, type: price, locale: sv}", "<p>1 299 kr</p>", `{"amount":1299,"currency":"SEK"}`},
		{"currency of the page", "{css: p, type: price}", "<html lang=da><p>129,95 kr.</p>", `{"amount":129.95,"currency":"DKK"}`},
		{"unclosed", ".x", "<div class=x><b>a", `"a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, problems := fieldValue(t, c.field, c.body)
			if got != c.want || len(problems) > 0 {
				t.Errorf("got %s %v, want %s", got, problems, c.want)
			}
		})
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ field, body, want string }{
		{"{css: b, required: true}", "<i>", "v: is missing"},
		{"{css: b, type: number, required: true}", "<b>x</b>", `v: no number in "x"`},
		{"{css: b, type: number, min: 2}", "<b>1</b>", "v: 1 is below 2"},
		{"{css: b, type: price, max: 2}", "<b>3 €</b>", "v: 3 is above 2"},
		{"{css: b, match: '^[A-Z]+$'}", "<b>a</b>", `v: "a" does not match ^[A-Z]+$`},
		{"{css: b, one_of: [x, y]}", "<b>a</b>", `v: "a" is none of x, y`},
		{"{css: b, type: date, required: true}", "<b>soon</b>", `v: "soon" is no date`},
		{"{css: b, type: bool, required: true}", "<b>maybe</b>", `v: "maybe" is neither yes nor no`},
	} {
		_, problems := fieldValue(t, c.field, c.body)
		if len(problems) != 1 || !strings.HasPrefix(problems[0], c.want) {
			t.Errorf("%s: got %q, want %q", c.field, problems, c.want)
		}
	}
}

// An optional field whose text cannot be read is left out and counted, and
// its record stays; a required one makes the record invalid.
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
		{"optional, the page fails what is invalid", "{on_invalid: fail, fields: {p: {css: i, type: price}}}", "<i>call us</i>", `{}`, "", `map[r.p:{0 1 no number in "call us"}]`},
		{"optional, what is invalid is kept", "{on_invalid: keep, fields: {p: {css: i, type: price}}}", "<i>call us</i>", `{}`, "", `map[r.p:{0 1 no number in "call us"}]`},
		{"a default is for no text", "{fields: {p: {css: i, type: integer, default: '0'}}}", "<i>call us</i>", `{}`, "", `map[r.p:{0 1 no number in "call us"}]`},
		{"another alternative has it", "{fields: {p: {any: [i, b], type: integer}}}", "<i>call us</i><b>3</b>", `{"p":3}`, "", `map[]`},
		{"counted each time, with the first text", "{each: li, fields: {p: {css: i, type: integer}}}", "<li><i>a</i><li><i>b</i><li><i>3</i>", `{} {} {"p":3}`, "", `map[r.p:{0 2 no number in "a"}]`},
		{"a check fails", "{fields: {p: {css: i, type: integer, min: 5}}}", "<i>3</i>", "", `{"p":3}`, `map[r.p:{1 0 3 is below 5}]`},
		{"in an object", "{fields: {o: {type: object, fields: {n: b, p: {css: i, type: integer}}}}}", "<b>x</b><i>call us</i>", `{"o":{"n":"x"}}`, "", `map[r.o.p:{0 1 no number in "call us"}]`},
		{"an object that cannot be", "{fields: {t: h1, o: {type: object, fields: {p: {css: i, type: integer, required: true}}}}}", "<h1>x</h1><i>call us</i>",
			`{"t":"x"}`, "", `map[r.o:{0 1 p: no number in "call us"}]`},
		{"a long text", "{fields: {p: {css: i, match: '^x$'}}}", "<i>" + long + "</i>", "", `{"p":"` + strings.TrimSpace(long) + `"}`, `map[r.p:{1 0 "` + long[:60] + `…" does not match ^x$}]`},
	} {
		def := define(t, "records: {r: "+c.record+"}\n")
		res, err := Run(def, page(t, def, definition.KindDetail, "http://shop.example/", c.body))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		fields := func(rs []Record) string {
			var all []string
			for _, r := range rs {
				b, err := object(r.Fields).MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
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
	for mode, want := range map[string][3]int{"drop": {1, 1, 0}, "keep": {2, 0, 0}, "fail": {1, 1, 1}} {
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

func TestKeys(t *testing.T) {
	t.Parallel()
	def := define(t, "records:\n  a: {each: li, key: [b], fields: {b: b, i: i}}\n  p: {fields: {t: title}}\n")
	run := func(at, body string) []Record {
		res, err := Run(def, page(t, def, definition.KindDetail, at, body))
		if err != nil {
			t.Fatal(err)
		}
		return res.Records
	}
	rs := run("http://shop.example/?utm_source=x", "<li><b>1</b><i>x</i><li><b>1</b><i>y</i><li><i>x</i><li><i>y</i>")
	if rs[0].Key != rs[1].Key {
		t.Error("records with the same key fields have different keys")
	}
	if rs[2].Key == rs[3].Key || rs[2].Key == rs[0].Key {
		t.Error("records without any key field share a key")
	}
	if again := run("http://shop.example/", ""); again[0].Key != rs[4].Key {
		t.Error("a page under another spelling of its URL has another key")
	}
	line, err := rs[0].JSON()
	if err != nil || !strings.Contains(string(line), `"b":"1","i":"x"}`) || !json.Valid(line) {
		t.Errorf("got %s, %v", line, err)
	}
}

func TestHits(t *testing.T) {
	t.Parallel()
	def := define(t, "records: {r: {each: li, fields: {v: [b, i]}}}\n")
	res, err := Run(def, page(t, def, definition.KindDetail, "http://shop.example/", "<li><b>a</b><li><i>b</i><li><i>c</i><li>d"))
	if err != nil {
		t.Fatal(err)
	}
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
			res, err := Run(def, page(t, def, definition.KindListing, at, c.body))
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range res.Links {
		got = append(got, l.Kind+" "+l.URL)
	}
	if g, want := strings.Join(got, ", "), "detail http://shop.example/l/1, detail http://shop.example/l/a%20b, listing http://shop.example/l/c"; g != want {
		t.Errorf("got %s, want %s", g, want)
	}
}

// A path to a list and one to its members give the same records.
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
	res, err := Run(def, page(t, def, definition.KindListing, "http://shop.example/api", body))
	if err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestOddPages(t *testing.T) {
	t.Parallel()
	def := define(t, "listing: {next: a.n, links: a}\nrecords: {r: {from: listing, fields: {v: b, l: {label: x}}}}\n")
	for name, body := range map[string]string{
		"empty": "", "binary": "\x00\x01\x02\xff", "cut": "<html><body><a href=", "comment": "<!-- never closed",
		"deep": strings.Repeat("<div>", 400), "many": strings.Repeat("<a href=x>", 5000),
	} {
		d := page(t, def, definition.KindListing, "http://shop.example/", body)
		if _, err := Run(def, d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
