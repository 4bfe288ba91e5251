package extract

import "testing"

// fieldCase is a field, a page, and the extracted value as JSON.
type fieldCase struct{ name, field, body, want string }

func testFields(t *testing.T, cases []fieldCase) {
	t.Helper()
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, problems := fieldValue(t, c.field, c.body)
			if got != c.want || len(problems) > 0 {
				t.Errorf("got %s %v, want %s", got, problems, c.want)
			}
		})
	}
}

func TestFieldsOfText(t *testing.T) {
	testFields(t, []fieldCase{
		{"text folds", "h1", "<h1>\n a <b>b</b>c<br>d&nbsp; e </h1>", `"a bc d e"`},
		{"blocks apart", "div", "<div><p>a</p><p>b</p><script>x</script></div>", `"a b"`},
		{"first in the page", "li", "<ul><li>a<li>b</ul>", `"a"`},
		{"skips empty", "li", "<ul><li> <li>b</ul>", `"b"`},
		{"none", "h2", "<h1>a</h1>", ``},
		{"attr", "{css: a, attr: href}", `<a href=" /x ">`, `"/x"`},
		{"attr suffix", "a::attr(href)", `<a href="/x">`, `"/x"`},
		{"chain", "[h2, h1]", "<h1>a</h1>", `"a"`},
		{"chain by type", "{type: number, any: [h1, h2]}", "<h1>a</h1><h2>4.5</h2>", `4.5`},
		{"regex group", `{css: h1, regex: 'for (\w+)'}`, "<h1>for sale</h1>", `"sale"`},
		{"regex alone", `{regex: 'sku=(\d+)'}`, "<script>sku=77;</script>", `"77"`},
		{"replace", `{css: h1, replace: [{pattern: '^Colour: ', with: ''}]}`, "<h1>Colour: red</h1>", `"red"`},
		{"html", "{css: div, type: html}", "<div><i>a</i> &amp; b</div>", `"\u003ci\u003ea\u003c/i\u003e \u0026amp; b"`},
		{"own text", "{css: h1, take: own_text}", "<h1>a <small>b</small> c</h1>", `"a c"`},
		{"value", "{value: x}", "<i>x</i>", `"x"`},
		{"tables mended", "td", "<td>a</td>", ``},
		{"unclosed", ".x", "<div class=x><b>a", `"a"`},
	})
}

func TestFieldsOfStructuredData(t *testing.T) {
	testFields(t, []fieldCase{
		{"meta", "{meta: 'og:title'}", `<meta property="og:title" content="T">`, `"T"`},
		{"microdata", "{meta: price, type: number}", `<div itemscope><span itemprop="price" content="12.50">12,50</span></div>`, `12.5`},
		{"microdata text", "{meta: name}", `<h1 itemprop="name">N</h1>`, `"N"`},
		{"jsonld", "{jsonld: Product.offers.price, type: price}", `<script type="application/ld+json">{"@graph":[{"@type":["Thing","Product"],"offers":[{"price":"1299.00"}]}]}</script>`, `{"amount":1299}`},
		{"jsonld after a broken one", "{jsonld: '*.name'}", `<script type="application/ld+json">{"name":</script><script type="application/ld+json">{"name":"N"};</script>`, `"N"`},
		{"microdata by type", "{microdata: Product.offers.price, type: price}", `<div itemscope itemtype="http://schema.org/Product"><span itemprop=name>N</span><div itemprop=offers itemscope itemtype="http://schema.org/Offer"><b itemprop=price content="12.50">12,50</b></div></div>`, `{"amount":12.5}`},
		{"jsonld text for an object", "{jsonld: Product.brand.name}", `<script type="application/ld+json">{"@type":"Product","brand":"Lux"}</script>`, `"Lux"`},
		{"jsonld text with entities and tags", "{jsonld: Product.description}", `<script type="application/ld+json">{"@type":"Product","description":"<p>Bread &amp; butter</p><p>for 2 &lt; 3, R&D</p>"}</script>`, `"Bread \u0026 butter for 2 \u003c 3, R\u0026D"`},
		{"jsonld text for HTML", "{jsonld: Product.description, type: html}", `<script type="application/ld+json">{"@type":"Product","description":"<p>Bread &amp; butter</p>"}</script>`, `"\u003cp\u003eBread \u0026amp; butter\u003c/p\u003e"`},
		{"jsonld texts in an object", "{jsonld: Product.offers, fields: {d: {json: description}, p: {json: price, type: price}}}", `<script type="application/ld+json">{"@type":"Product","offers":{"price":"12&nbsp;&euro;","description":"<b>Bread</b> &amp; butter"}}</script>`, `{"d":"Bread \u0026 butter","p":{"amount":12,"currency":"EUR"}}`},
		{"jsonld list of texts", "{jsonld: Product.tags, type: list}", `<script type="application/ld+json">{"@type":"Product","tags":["a &amp; b","<i>c</i>"]}</script>`, `["a \u0026 b","c"]`},
		{"jsonld URL with an entity", "{jsonld: Product.url, type: url}", `<script type="application/ld+json">{"@type":"Product","url":"/p?a=1&amp;b=2"}</script>`, `"http://shop.example/p?a=1\u0026b=2"`},
		{"jsonld currency that is rare", "{jsonld: Product.offers.price, type: price}", `<script type="application/ld+json">{"@type":"Product","offers":{"price":"1200","priceCurrency":"XOF"}}</script>`, `{"amount":1200,"currency":"XOF"}`},
		{"microdata content with entities and tags", "{microdata: Product.description}", `<div itemscope itemtype="http://schema.org/Product"><meta itemprop=description content="&lt;p&gt;Bread &amp;amp; butter&lt;/p&gt;"></div>`, `"Bread \u0026 butter"`},
		{"microdata text as it is", "{microdata: Product.name}", `<div itemscope itemtype="http://schema.org/Product"><span itemprop=name>The &lt;b&gt; tag, 2 &lt; 3</span></div>`, `"The \u003cb\u003e tag, 2 \u003c 3"`},
		{"price beside a rare currency", "{css: p, type: price}", `<p>3 pcs 12 000 XOF</p>`, `{"amount":12000,"currency":"XOF"}`},
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
		{"microdata list", "{microdata: '*.image', type: list, of: url}", `<div itemscope><img itemprop=image src="/a.png"><img itemprop=image src="/b.png"></div>`, `["http://shop.example/a.png","http://shop.example/b.png"]`},
		{"JSON in a script", "{css: 'script#state', json: item.price, type: number}", `<script id=state type="application/json">{"item":{"price":1.234}}</script>`, `1.234`},
		{"JSON cut out of a script", `{css: script, regex: 'state = (\{.*)', json: 'a[1].b'}`, `<script>x()</script><script>window.state = {"a":[{},{"b":"</b>"}]}; go()</script>`, `"\u003c/b\u003e"`},
		{"JSON in an attribute", "{css: '#app', attr: data-page, json: props.name}", `<div id=app data-page="{&quot;props&quot;:{&quot;name&quot;:&quot;N&quot;}}">`, `"N"`},
	})
}

func TestFieldsByLabel(t *testing.T) {
	testFields(t, []fieldCase{
		{"label in table", "{label: UPC}", "<table><tr><th>UPC</th><td>a1</td></tr></table>", `"a1"`},
		{"label with markup", "{label: UPC}", "<table><tr><td><b>upc:</b></td><td>a1</td></tr></table>", `"a1"`},
		{"label in dl", "{label: Size}", "<dl><dt>Size</dt><dd>L</dd></dl>", `"L"`},
		{"label of an empty cell", "{label: Size}", "<table><tr><th>Size</th><td></td></tr><tr><th>Colour</th><td>red</td></tr></table>", ``},
		{"label of an empty cell, and again", "{label: Size}", "<table><tr><th><a>Size:</a></th><td> </td></tr><tr><th>Size</th><td>L</td></tr></table>", `"L"`},
		{"label that is a word before", "{label: Size}", "<p><i>size</i> <i>matters</i></p><table><tr><th><a>Size:</a></th><td>L</td></tr></table>", `"L"`},
		{"label among several", "{label: Rooms}", "<dl><dt>Rooms<dt>Chambers<dd>3</dl>", `"3"`},
		{"column after a wide one", "{css: tbody tr, type: list, of: object, fields: {p: {column: Price}}}", "<table><thead><tr><th colspan=2>Name<th>Price<tbody><tr><td>a<td>b<td>1<tr><td colspan=2>c<td>2</table>", `[{"p":"1"},{"p":"2"}]`},
		{"column of a table with cells over rows", "{css: tbody tr, type: list, of: object, fields: {p: {column: Price}}}", "<table><thead><tr><th>Name<th>Price<tbody><tr><td rowspan=2>a<td>1<tr><td>2</table>", `[{"p":"1"}]`},
		{"label of a form", "{label: Size}", "<label>Size</label> <select><option>S<option selected>L</select><label for=s>Size</label><input id=s value=L>", ``},
		{"label beside span", "{label: Size}", "<div><span>Size</span><span>L</span></div>", `"L"`},
		{"column", "{css: tr, type: list, of: object, fields: {p: {column: Price, type: number}}}", "<table><tr><th>Name<th>Price<tr><td>a<td>1.5<tr><td>b<td>2</table>", `[{"p":1.5},{"p":2}]`},
	})
}

func TestFieldsByXPath(t *testing.T) {
	testFields(t, []fieldCase{
		{"xpath", "{css: '//h1/text()'}", "<h1>a<b>c</b></h1>", `"a"`},
		{"xpath short", "//div[@class='p']/following-sibling::p[1]", "<div class=p>x</div><p>a</p><p>b</p>", `"a"`},
		{"xpath attribute", "{css: '//a/@href', type: url}", `<a href="/x">`, `"http://shop.example/x"`},
		{"xpath of a text", "{css: 'xpath:substring-after(//p, \"SKU: \")'}", "<p>SKU: 77</p>", `"77"`},
		{"xpath count", "{css: 'xpath:count(//li)', type: integer}", "<li>a<li>b", `2`},
		{"xpath list", "{css: '//li', type: list}", "<li>a<li>b", `["a","b"]`},
		{"xpath within", "{css: .r, type: list, of: object, fields: {by: '//b'}}", `<p class=r><b>x</b><p class=r><b>y</b>`, `[{"by":"x"},{"by":"y"}]`},
		{"xpath, each once", "{css: '//div//a', type: list}", "<div><a>1</a><div><a>2</a><div><a>3</a></div><a>4</a></div><a>5</a></div>", `["1","2","3","4","5"]`},
		{"xpath union in the order of the page", "{css: '//td|//th', type: list}", "<table><tr><th>A<td>1<tr><th>B<td>2</table>", `["A","1","B","2"]`},
		{"xpath axis that looks back", "{css: '//li[3]/preceding-sibling::li', type: list}", "<li>a<li>b<li>c", `["a","b"]`},
		{"xpath parents, each once", "{css: '//a/..', type: list}", "<p><a>1</a><a>2</a></p>", `["12"]`},
		{"xpath upward", "{css: .r, type: list, of: object, fields: {to: './ancestor::div[@class=\"r\"][1]/@id', top: {css: '../../@id'}, all: {css: './ancestor-or-self::div/@id', type: list}}}",
			"<div id=0><div class=r id=1><i>a</i><div class=r id=2></div></div></div>", `[{"all":["0","1"]},{"to":"1","top":"0","all":["0","1","2"]}]`},
		{"xpath beside", "{css: .r, type: list, of: object, fields: {day: './preceding::h2[1]', all: {css: './preceding::h2|./b|./following-sibling::i', type: list}}}",
			"<h2>Mon</h2><p class=r><b>1</b></p><h2>Tue</h2><p class=r><b>2</b></p><i>3</i>", `[{"day":"Mon","all":["Mon","1","3"]},{"day":"Tue","all":["Mon","Tue","2","3"]}]`},
		{"xpath attributes in order", "{css: '//a/@href|//div/@id', type: list}", "<div id=1><a href=2 id=x></a></div><div id=3>", `["1","2","3"]`},
		{"xpath, equal attributes of two", "{css: '//a/@href', type: list}", "<a href=/x></a><a href=/x></a>", `["/x","/x"]`},
	})
}

func TestFieldsInTemplates(t *testing.T) {
	testFields(t, []fieldCase{
		{"no template", "{css: a, type: list}", "<template><a>{{name}}</a></template><a>1</a>", `["1"]`},
		{"no template by xpath", "//a", "<template><a>{{name}}</a></template><a>1</a>", `"1"`},
		{"template asked for", "template a", "<template><a>{{name}}</a></template><a>1</a>", `"{{name}}"`},
		{"all of a template", "template", "<template><a>{{name}}</a></template>", `"{{name}}"`},
		{"template that is shown", ".x", "<div><template shadowrootmode=open><b class=x>1</b></template></div>", `"1"`},
		{"label in a template", "{label: Size}", "<template><dl><dt>Size<dd>{{s}}</dl></template><dl><dt>Size<dd>L</dl>", `"L"`},
		{"meta in a template", "{meta: name}", "<template><b itemprop=name>{{n}}</b></template><b itemprop=name>N</b>", `"N"`},
		{"image not twice", "{css: .g img, take: image, type: list}", "<div class=g><img data-src=/a.png><noscript><img src=/a.png></noscript></div>", `["/a.png"]`},
		{"head with a noscript", "head title", "<head><noscript><img src=/p.gif></noscript><title>T</title></head>", `"T"`},
	})
}

func TestFieldsOfURLsAndImages(t *testing.T) {
	testFields(t, []fieldCase{
		{"url", "{css: a, attr: href, type: url}", `<base href="/b/"><a href="x">`, `"http://shop.example/b/x"`},
		{"page url", "{page: url}", "<i>x</i>", `"http://shop.example/p/1"`},
		{"page title", "{page: title}", "<title> a\nb </title>", `"a b"`},
		{"url beyond ASCII", "{css: a, attr: href, type: url}", `<a href="\a b\100%\ц?q=ц;x=a b#й">`, `"http://shop.example/a%20b/100%25/%D1%86?q=%D1%86;x=a%20b#%D0%B9"`},
		{"url in the charset of the page", "{css: a, attr: href, type: url}", "<meta charset=windows-1251><a href='?q=\xf6+1'>", `"http://shop.example/p/1?q=%F6+1"`},
		{"url with a scheme and relative", "{css: a, attr: href, type: url}", `<a href="http:x">`, `"http://shop.example/p/x"`},
		{"url with a query that browsers escape", "{css: a, attr: href, type: url}", `<a href="?q='x'&r=<a>&s=&quot;">`, `"http://shop.example/p/1?q=%27x%27\u0026r=%3Ca%3E\u0026s=%22"`},
		{"url with escaped dot segments", "{css: a, attr: href, type: url}", `<a href="b/%2e%2E/.%2e/c%2e%2e/%2e">`, `"http://shop.example/c%2e%2e/"`},
		{"url with a login", "{css: a, attr: href, type: url}", `<a href="http://u:p@shop.example/x?a=@">`, `"http://shop.example/x?a=@"`},
		{"url that is none of the web", "{css: a, attr: href, type: url}", `<a href="mailto:a@b.example">`, `"mailto:a@b.example"`},
		{"image of a set", "{css: img, take: image, type: url}", `<img src="data:image/gif;base64,x" srcset="/s.jpg 480w, /l.jpg 1080w">`, `"http://shop.example/l.jpg"`},
		{"image shown later", "{css: img, take: image, type: url}", `<img src="/blank.gif" data-src="/l.jpg">`, `"http://shop.example/l.jpg"`},
		{"image of a background", "{css: div, take: image, type: url}", `<div style="color:red;background-image: url('/l.jpg')">`, `"http://shop.example/l.jpg"`},
		{"srcset with densities", "{css: img, attr: srcset, type: url}", `<img srcset="/a.jpg, /b.jpg 2x">`, `"http://shop.example/b.jpg"`},
	})
}

func TestFieldsOfTypes(t *testing.T) {
	testFields(t, []fieldCase{
		{"number", "{css: b, type: number, locale: de}", "<b>1.234,5 kg</b>", `1234.5`},
		{"integer", "{css: b, type: integer}", "<b>1 234</b>", `1234`},
		{"price", "{css: b, type: price}", "<b>£51.77</b>", `{"amount":51.77,"currency":"GBP"}`},
		{"bool words", "{css: b, type: bool}", "<b>Yes</b>", `true`},
		{"bool regex", `{css: b, type: bool, regex: '(?i)in stock'}`, "<b>sold out</b>", `false`},
		{"exists", "{exists: .buy, type: bool}", "<b>x</b>", `false`},
		{"date", "{css: b, type: date}", "<b>2 January 2024</b>", `"2024-01-02"`},
		{"date layout", "{css: b, type: date, layout: 02/01/2006}", "<b>03/04/2024</b>", `"2024-04-03"`},
		{"date and time", "{css: time, attr: datetime, type: date}", `<time datetime="2024-01-02T03:04:05+02:00">`, `"2024-01-02T03:04:05+02:00"`},
		{"default", "{css: b, type: integer, default: '0'}", "<i>x</i>", `0`},
		{"currency", "{css: b, type: price, currency: eur}", "<b>12</b>", `{"amount":12,"currency":"EUR"}`},
		{"a word of schema.org", "{css: p, type: bool, attr: href}", "<p href=https://schema.org/Discontinued>x</p>", `false`},
		{"currency of the locale", "{css: p, type: price, locale: sv}", "<p>1 299 kr</p>", `{"amount":1299,"currency":"SEK"}`},
		{"currency of the page", "{css: p, type: price}", "<html lang=da><p>129,95 kr.</p>", `{"amount":129.95,"currency":"DKK"}`},
	})
}

func TestFieldsOfLists(t *testing.T) {
	testFields(t, []fieldCase{
		{"list", "{css: li, type: list}", "<li>a<li>b", `["a","b"]`},
		{"list of", "{css: li, type: list, of: integer}", "<li>1<li>x<li>3", `[1,3]`},
		{"split", "{css: b, split: ',', type: list}", "<b>S, M ,L,</b>", `["S","M","L"]`},
		{"list by regex", `{css: b, regex: '#(\w+)', type: list}`, "<b>#a and #b</b>", `["a","b"]`},
		{"object", "{css: .r, type: object, fields: {by: b, stars: {css: i, type: integer}}}", `<div class=r><b>x</b><i>4</i></div>`, `{"by":"x","stars":4}`},
		{"objects", "{css: .r, type: list, of: object, fields: {by: b}}", `<p class=r><b>x</b><p class=r><b>y</b>`, `[{"by":"x"},{"by":"y"}]`},
		{"join", `{css: p, join: "\n"}`, "<p>a\n b</p><p> </p><p>c</p>", `"a b\nc"`},
		{"regex list with a look at its surroundings", `{css: b, regex: '\bn(\d)\b', type: list}`, "<b>n1 n2</b>", `["1","2"]`},
	})
}
