package draft

import (
	"math"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/extract"
)

// list is what repeats on a listing page.
type list struct {
	each   string // selects the blocks
	link   string // selects the link to the detail page in a block; "" for none
	under  string // what the paths of those links begin with, when others' do not
	fields []field
	blocks []*html.Node
}

// maxFields is how many fields a kind of record is given.
const maxFields = 16

// findList finds the elements that repeat and are worth most, or nil.
func findList(doc *extract.Doc) *list {
	type group struct {
		nodes []*html.Node
		score float64
	}
	var best group
	var walk func(n *html.Node, discount float64)
	walk = func(n *html.Node, discount float64) {
		if n.Type == html.ElementNode {
			discount *= aside(n)
		}
		groups := map[string][]*html.Node{}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			if c.Type == html.ElementNode && (c.Data != "tr" || len(selected("td", c)) > 0) {
				groups[signature(c)] = append(groups[signature(c)], c)
				walk(c, discount)
			}
		}
		for _, nodes := range groups {
			if len(nodes) < 3 {
				continue
			}
			if s := worth(nodes) * discount; s > best.score {
				best = group{nodes, s}
			}
		}
	}
	walk(doc.Root, 1)
	if best.score < 6 {
		return nil
	}
	blocks := narrow(best.nodes)
	each := selectorOf(doc.Root, blocks)
	if each == "" {
		return nil
	}
	l := &list{each: each, blocks: selected(each, doc.Root)}
	l.link = linkIn(doc, l.blocks)
	l.under = l.prefix(doc)
	l.fields = blockFields(l.blocks)
	if len(l.fields) == 0 {
		return nil
	}
	return l
}

// aside is how little what stands in an element is likely to be the matter
// of the page.
func aside(n *html.Node) float64 {
	switch n.Data {
	case "nav", "footer", "select", "form", "header":
		return 0.15
	case "aside":
		return 0.3
	}
	for _, word := range []string{"nav", "menu", "breadcrumb", "pagination", "pager", "footer", "sidebar", "cookie", "social"} {
		if strings.Contains(strings.ToLower(value(n, "class")+" "+value(n, "id")), word) {
			return 0.3
		}
	}
	return 1
}

var counted = regexp.MustCompile(`^(?:first|last|odd|even|active|selected|current|[a-z]+-?\d+)$`)

// signature is the tag and the classes that tell what an element is, without
// those that tell where it stands.
func signature(n *html.Node) string { return n.Data + "." + strings.Join(classes(n), ".") }

func classes(n *html.Node) []string {
	if !simpleClass.MatchString(n.Data) {
		return nil // no name for a selector
	}
	list := slices.DeleteFunc(strings.Fields(value(n, "class")), func(c string) bool { return counted.MatchString(c) || !simpleClass.MatchString(c) })
	slices.Sort(list)
	return slices.Compact(list)
}

var simpleClass = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func value(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// worth weighs elements that repeat by what is in them.
func worth(nodes []*html.Node) float64 {
	sum, texts := 0.0, map[string]bool{}
	sampled := nodes[:min(len(nodes), 30)]
	for _, n := range sampled {
		if n.Data == "script" || n.Data == "option" || n.Data == "link" || n.Data == "meta" || n.Data == "style" || n.Data == "br" {
			return 0
		}
		text := extract.Text(n)
		texts[text] = true
		size := float64(len(text))
		s := math.Min(size/40, 4)
		if size > 5000 {
			s = 0.5
		}
		if selected("a[href]", n) != nil {
			s++
		}
		if selected("img", n) != nil {
			s++
		}
		if selected("h1,h2,h3,h4,h5,h6", n) != nil {
			s++
		}
		if n.Data == "tr" && len(selected("td", n)) > 1 {
			s += 2
		}
		if len(selected("[class]", n)) >= 2 {
			s++
		}
		if hasPrice(text) {
			s += 2
		}
		sum += s
	}
	if len(texts)*2 < len(sampled) {
		return 0 // they say the same
	}
	return sum / float64(len(sampled)) * math.Sqrt(float64(min(len(nodes), 60)))
}

var money = regexp.MustCompile(`(?i)(?:[$€£¥₹₽₴₺]|\b(?:USD|EUR|GBP|CHF|PLN|RUB|JPY|BGN)\b)\s?\d|\d\s?(?:[$€£¥₹₽₴₺]|лв|zł|Kč|руб|kr\b|Ft\b|lei\b|円|元|(?:USD|EUR|GBP|CHF|PLN|RUB|JPY|BGN)\b)`)

func hasPrice(text string) bool { return money.MatchString(text) }

// narrow goes from blocks that hold one element each, of one kind, to those.
func narrow(nodes []*html.Node) []*html.Node {
	for {
		var inner []*html.Node
		for _, n := range nodes {
			var only *html.Node
			for c := n.FirstChild; c != nil; c = c.NextSibling {
				if c.Type == html.TextNode && strings.TrimSpace(c.Data) != "" || c.Type == html.ElementNode && only != nil {
					return nodes
				}
				if c.Type == html.ElementNode {
					only = c
				}
			}
			if only == nil || only.Data == "a" || len(classes(only)) == 0 || len(inner) > 0 && signature(inner[0]) != signature(only) {
				return nodes
			}
			inner = append(inner, only)
		}
		nodes = inner
	}
}

// selectorOf is a selector for elements of one kind that selects little else.
func selectorOf(root *html.Node, nodes []*html.Node) string {
	first := nodes[0]
	var candidates []string
	for _, c := range classes(first) {
		candidates = append(candidates, first.Data+"."+c)
	}
	tag := first.Data
	if tag == "tr" {
		tag = "tr:has(td)"
	}
	for p := first.Parent; p != nil && p.Type == html.ElementNode; p = p.Parent {
		if id := value(p, "id"); simpleClass.MatchString(id) {
			candidates = append(candidates, "#"+id+" "+tag)
		}
		for _, c := range classes(p) {
			candidates = append(candidates, p.Data+"."+c+" "+tag, p.Data+"."+c+" > "+tag)
		}
	}
	if first.Parent != nil && first.Parent.Type == html.ElementNode {
		candidates = append(candidates, first.Parent.Data+" > "+tag)
	}
	candidates = append(candidates, tag)
	best, bestExtra := "", math.MaxInt
	for _, css := range candidates {
		found := selected(css, root)
		hit := 0
		for _, n := range nodes {
			if slices.Contains(found, n) {
				hit++
			}
		}
		if hit*10 < len(nodes)*9 {
			continue
		}
		if extra := len(found) - hit; extra < bestExtra {
			best, bestExtra = css, extra
		}
	}
	return best
}

func selected(css string, n *html.Node) []*html.Node {
	s, err := definition.ParseSelector(css)
	if err != nil {
		return nil
	}
	return s.All(n)
}

// linkIn selects the link of a block that leads to a page of its own.
func linkIn(doc *extract.Doc, blocks []*html.Node) string {
	best, most := "", 0
	for _, css := range []string{"h1 a", "h2 a", "h3 a", "h4 a", "h5 a", "[class*=title] a", "[class*=name] a", "a[class*=title]", "a[class*=name]", "td:first-child a", "td a", "a"} {
		seen := map[string]bool{}
		for _, b := range blocks {
			for _, a := range selected(css, b)[:min(1, len(selected(css, b)))] {
				u, err := doc.Page.URL.Parse(value(a, "href"))
				if err == nil && u.Host == doc.Page.URL.Host && (u.Path != doc.Page.URL.Path || u.RawQuery != doc.Page.URL.RawQuery) {
					u.Fragment = ""
					seen[u.String()] = true
				}
			}
		}
		if len(seen) > most {
			best, most = css, len(seen)
		}
	}
	if most*10 < len(blocks)*3 {
		return ""
	}
	return best
}

// prefix is the folder that the first links of all blocks lead into, when
// there are others in the blocks that do not; else "".
func (l *list) prefix(doc *extract.Doc) string {
	common, others := "", false
	for i, b := range l.blocks {
		for n, a := range selected(l.link, b) {
			u, err := doc.Page.URL.Parse(value(a, "href"))
			if err != nil {
				continue
			}
			switch {
			case n > 0:
				others = others || !strings.HasPrefix(u.Path, common)
			case i == 0:
				common = u.Path[:strings.LastIndexByte(u.Path, '/')+1]
			default:
				for common != "" && !strings.HasPrefix(u.Path, common) {
					common = common[:strings.LastIndexByte(strings.TrimSuffix(common, "/"), '/')+1]
				}
			}
		}
	}
	if !others || len(common) < 2 {
		return ""
	}
	return common
}

// firstLink is where the link of the first block leads, or "".
func (l *list) firstLink(doc *extract.Doc) string {
	if l.link == "" {
		return ""
	}
	for _, b := range l.blocks {
		for _, a := range selected(l.link, b) {
			if u, err := doc.Page.URL.Parse(strings.TrimSpace(value(a, "href"))); err == nil && u.Host == doc.Page.URL.Host {
				return u.String()
			}
		}
	}
	return ""
}

// blockFields guesses the fields of blocks.
func blockFields(blocks []*html.Node) []field {
	if blocks[0].Data == "tr" {
		if fields := rowFields(blocks); len(fields) > 0 {
			return fields
		}
	}
	var fields []field
	used := map[string]bool{} // first values, so that none comes twice
	try := func(name, css, keys, typ string) bool {
		hits, first := 0, ""
		for _, b := range blocks {
			if found := selected(css, b); len(found) > 0 {
				v := extract.Text(found[0])
				if keys != "" {
					v = keys + value(found[0], "href") + value(found[0], "src") + value(found[0], "datetime")
				}
				if v != "" {
					hits++
				}
				if first == "" {
					first = v
				}
			}
		}
		if hits*2 < len(blocks) || used[first] || len(fields) >= maxFields {
			return false
		}
		used[first] = true
		fields = add(fields, field{name: name, sources: []string{"css: " + quote(css) + keys}, typ: typ})
		return true
	}
	for _, h := range []string{"h1", "h2", "h3", "h4", "h5", "h6"} {
		if try("title", h, "", "") {
			break
		}
	}
	classFields(blocks, func(f field, first string) {
		if used[first] || len(fields) >= maxFields {
			return
		}
		used[first] = true
		fields = add(fields, f)
	})
	if len(fields) == 0 {
		try("text", "a[href]", "", "")
	}
	try("url", "a[href]", ", attr: href", "url")
	try("image", "img", ", take: image", "url")
	try("date", "time[datetime]", ", attr: datetime", "date")
	if len(fields) > 0 && !slices.ContainsFunc(fields, func(f field) bool { return f.typ != "url" }) {
		fields = add(fields, field{name: "text", sources: []string{"take: text"}})
	}
	return fields
}

// dull are classes that say how something looks, not what it is.
var dull = regexp.MustCompile(`(?i)^(?:col|row|btn|button|icon|fa|glyph|clear|pull|text-|mt|mb|ml|mr|pt|pb|px|py|d-|w-|h-|flex|grid|container|wrapper|inner|outer|content|left|right|center|hidden|visible|img|image|thumb|link|item|box|block|small|large|bold|is-|has-|js-|ng-|css-|sc-)`)

// classFields calls fn with a field for each class of elements that hold a
// short text of their own in at least half of the blocks.
func classFields(blocks []*html.Node, fn func(f field, first string)) {
	type tally struct {
		css, name, first string
		blocks, all      int
		prices, dates    int
		whole            int
		order            int
	}
	tallies := map[string]*tally{}
	for _, b := range blocks {
		inBlock := map[string]bool{}
		var walk func(n *html.Node)
		walk = func(n *html.Node) {
			for c := n.FirstChild; c != nil; c = c.NextSibling {
				if c.Type != html.ElementNode || aside(c) < 1 {
					continue
				}
				walk(c)
				text := extract.Text(c)
				if text == "" || len(text) > 400 || !leaf(c) {
					continue
				}
				for _, class := range classes(c) {
					if dull.MatchString(class) {
						continue
					}
					css := c.Data + "." + class
					t := tallies[css]
					if t == nil {
						t = &tally{css: css, name: fieldName(class), first: text, order: len(tallies)}
						tallies[css] = t
					}
					t.all++
					if !inBlock[css] {
						inBlock[css] = true
						t.blocks++
						if hasPrice(text) && len(text) < 40 {
							t.prices++
						}
						if _, err := extract.Date(text, extract.DateOptions{Order: "dmy"}); err == nil && len(text) < 40 && year.MatchString(text) && !number.MatchString(text) {
							t.dates++
						}
						if number.MatchString(text) {
							t.whole++
						}
					}
					break
				}
			}
		}
		walk(b)
	}
	list := make([]*tally, 0, len(tallies))
	for _, t := range tallies {
		if t.blocks*2 >= len(blocks) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *tally) int { return a.order - b.order })
	for _, t := range list {
		f := field{name: t.name, sources: []string{"css: " + quote(t.css)}}
		switch {
		case t.prices == t.blocks:
			f.typ = "price"
		case t.dates == t.blocks:
			f.typ = "date"
		case t.all*2 > t.blocks*3:
			f.typ = "list"
		case t.whole == t.blocks:
			f.typ = "number"
		}
		fn(f, t.first)
	}
}

var (
	number = regexp.MustCompile(`^[\d.,\s]+$`)
	year   = regexp.MustCompile(`\b(?:1[5-9]|20)\d\d\b`)
)

// leaf tells whether an element holds text and no blocks.
func leaf(n *html.Node) bool {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.Type != html.ElementNode {
			continue
		}
		switch c.Data {
		case "a", "b", "i", "em", "strong", "span", "br", "small", "sup", "sub", "img", "time", "svg", "del", "ins":
			if len(classes(c)) > 0 && extract.Text(c) != "" && c.Data != "a" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// rowFields makes a field of each column of a table.
func rowFields(rows []*html.Node) []field {
	table := rows[0].Parent
	for table != nil && table.Data != "table" {
		table = table.Parent
	}
	if table == nil {
		return nil
	}
	var fields []field
	for _, th := range selected("tr:first-child th, thead th", table) {
		heading := extract.Text(th)
		if heading == "" || len(fields) >= maxFields {
			continue
		}
		fields = add(fields, field{name: fieldName(heading), sources: []string{"column: " + quote(heading)}})
	}
	if len(fields) > 0 {
		return fields
	}
	for i := range selected("td", rows[min(1, len(rows)-1)]) {
		if len(fields) >= maxFields {
			break
		}
		fields = add(fields, field{name: "column", sources: []string{"css: " + quote("td:nth-child("+itoa(i+1)+")")}})
	}
	return fields
}
