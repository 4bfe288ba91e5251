package draft

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/extract"
)

// list is the repeated elements of a listing page.
type list struct {
	each  string // selects the items
	items []*html.Node
	score float64
}

// findList returns the list with most of the page's content, or nil.
//
// Elements with a common class form a list: items of many sites also have individual classes, such as post-17 and category-news.
// Elements in the same position of the page form a list, too, preferably if they have no classes.
func (c *content) findList() *list {
	groups := map[string]*list{}
	var ordered []*list
	for _, n := range c.elements {
		if !itemLike(n) {
			continue
		}
		for _, css := range selectors(n) {
			g := groups[css]
			if g == nil {
				g = &list{each: css}
				groups[css] = g
				ordered = append(ordered, g)
			}
			g.items = append(g.items, n)
		}
	}
	for _, l := range ordered {
		l.score = c.score(l.items)
		if strings.Contains(l.each, " > ") && len(classes(l.items[0])) > 0 {
			l.score *= 0.7
		}
		if layout.MatchString(l.each[strings.IndexByte(l.each, '.')+1:]) {
			l.score *= 0.95 // elements inside may have a better class
		}
	}
	byScore := func(a, b *list) int { return cmp.Compare(b.score, a.score) }
	slices.SortStableFunc(ordered, byScore)
	ordered = slices.DeleteFunc(ordered[:min(len(ordered), 20)], func(l *list) bool {
		return l.score == 0 || haveSameText(l.items) || !c.locate(l)
	})
	slices.SortStableFunc(ordered, byScore)
	if len(ordered) == 0 {
		return nil
	}
	return ordered[0]
}

// itemLike reports whether an element may be an item: it contains other elements and is not part of a text or a table row.
func itemLike(n *html.Node) bool {
	switch n.Data {
	case "html", "body", "main", "p", "td", "th", "thead", "tbody", "dt", "dd", "label", "ul", "ol", "form", "table", "h1", "h2", "h3", "h4", "h5", "h6":
		return n.Data == "form" && value(n, "class") != ""
	case "tr":
		return selectFirst("td", n) != nil
	}
	for child := range n.ChildNodes() {
		if child.Type == html.ElementNode && child.Data != "br" {
			return true
		}
	}
	return false
}

// selectors returns selectors for an element and similar ones: by each of its classes and by its position.
func selectors(n *html.Node) []string {
	var out []string
	for _, class := range classes(n) {
		out = append(out, n.Data+"."+class)
	}
	if !isSimpleName(n.Data) {
		return out
	}
	if n.Data == "tr" {
		table := within(n, "table")
		if table != nil && len(classes(table)) > 0 {
			return append(out, "table."+classes(table)[0]+" tr:has(td)")
		}
		return append(out, "table tr:has(td)")
	}
	path := n.Data
	for p, depth := n.Parent, 0; p != nil && depth < 3 && isSimpleName(p.Data); p, depth = p.Parent, depth+1 {
		if list := classes(p); len(list) > 0 {
			return append(out, p.Data+"."+list[0]+" > "+path)
		}
		path = p.Data + " > " + path
	}
	return append(out, path)
}

// score rates a list by the amount of text in its items and by the parts that all items have. 0 means that it is not a list.
func (c *content) score(items []*html.Node) float64 {
	if len(items) < 3 {
		return 0
	}
	n, text := float64(len(items)), 0
	counts := map[parts]float64{}
	for i, item := range items {
		if i > 0 && contains(items[i-1], item) {
			return 0
		}
		f := c.facts[item]
		text += min(f.text, 300)
		for part := hasLink; part <= hasPrice; part <<= 1 {
			if f.has&part != 0 || part == hasLink && item.Data == "tr" {
				counts[part]++
			}
		}
	}
	if float64(text) < 8*n || counts[hasLink] < n/2 && counts[hasHeading] < n/2 && float64(text) < 60*n {
		return 0
	}
	score := float64(text) + 20*counts[hasPrice]*counts[hasPrice]/n // a price counts twice
	for part := hasLink; part <= hasPrice; part <<= 1 {
		score += 20 * counts[part] * counts[part] / n
	}
	return score
}

// haveSameText reports whether most items have the same text.
func haveSameText(items []*html.Node) bool {
	texts := map[string]bool{}
	sampled := items[:min(len(items), 30)]
	for _, n := range sampled {
		texts[extract.Text(n)] = true
	}
	return len(texts)*2 < len(sampled)
}

// locate narrows the selector of a list to the list, and reports whether it selects little else on the page. Other matches lower
// the score.
func (c *content) locate(l *list) bool {
	candidates := []string{l.each}
	for p := l.items[0].Parent; p != nil && p.Type == html.ElementNode && p.Data != "body"; p = p.Parent {
		if !contains(p, l.items[len(l.items)-1]) {
			continue
		}
		if id := value(p, "id"); isSimpleName(id) {
			candidates = append(candidates, "#"+id+" "+l.each)
		}
		for _, class := range classes(p) {
			candidates = append(candidates, p.Data+"."+class+" "+l.each)
		}
		if p.Data == "main" {
			candidates = append(candidates, "main "+l.each)
		}
	}
	most := len(l.items) * 5 / 4
	var best []*html.Node
	for _, css := range candidates {
		found := selectAll(css, c.doc.Root)
		if len(found) >= len(l.items) && len(found) <= most && (best == nil || len(found) < len(best)) {
			l.each, best = css, found
		}
	}
	if best == nil {
		return false
	}
	l.score *= float64(len(l.items)) / float64(len(best))
	l.items = best
	return true
}

// share returns the share of the page's content that is in the list.
func (c *content) share(l *list) float64 {
	text := 0
	for _, n := range l.items {
		text += c.facts[n].text
	}
	return float64(text) / float64(max(c.facts[c.doc.Body()].text, 1))
}

// links are the main links of a list: one per item, to the item's page.
type links struct {
	css   string // selects the link in an item; "" if the item is the link
	allow string // common prefix of the paths, if css also selects other links
	first string // first URL on the site, or ""
}

// findLinks returns the main links, or nil.
func (c *content) findLinks(items []*html.Node) *links {
	main := make([]*html.Node, len(items))
	votes := map[string]int{}
	var order []string
	for i, item := range items {
		main[i] = mainLink(item)
		if main[i] == nil {
			continue
		}
		for _, css := range linkSelectors(main[i], item) {
			if votes[css] == 0 {
				order = append(order, css)
			}
			if css == "" || selectFirst(css, item) == main[i] {
				votes[css]++
			}
		}
	}
	best := -1
	for i, css := range order {
		if votes[css]*5 >= len(items)*4 && (best < 0 || votes[css] > votes[order[best]]) {
			best = i
		}
	}
	l := &links{css: "a[href]"}
	if best >= 0 {
		l.css = order[best]
	} else { // use the first link of each item
		for i, item := range items {
			main[i] = selectFirst(l.css, item)
		}
	}
	var urls []*url.URL
	for _, a := range main {
		if a == nil {
			continue
		}
		if u := c.resolve(value(a, "href")); u != nil && u.String() != c.doc.Page.URL.String() {
			urls = append(urls, u)
		}
	}
	if best < 0 && len(urls)*2 < len(items) {
		return nil
	}
	if len(urls)*2 >= len(items) {
		l.first = urls[0].String()
		l.allow = c.folder(l.css, items, urls)
	}
	return l
}

// mainLink returns the link in an item's heading, or the link with the longest text whose class is unique in the item, or nil.
func mainLink(item *html.Node) *html.Node {
	if item.Data == "a" {
		return item
	}
	var best *html.Node
	most := -1
	for _, a := range selectAll("a[href]", item) {
		if selectFirst("h1, h2, h3, h4, h5, h6", a) != nil {
			return a
		}
		for p := a.Parent; p != item; p = p.Parent {
			if isHeading(p) {
				return a
			}
		}
		if n := len(extract.Text(a)); n > most && !oneOfSeveral(a, item) {
			best, most = a, n
		}
	}
	return best
}

// oneOfSeveral reports whether an item has links of the same class to other pages, such as tags.
func oneOfSeveral(a, item *html.Node) bool {
	list := classes(a)
	return len(list) > 0 && slices.ContainsFunc(selectAll("a."+list[0], item), func(o *html.Node) bool {
		return value(o, "href") != value(a, "href")
	})
}

// linkSelectors returns selectors for a link in an item, best first.
func linkSelectors(a, item *html.Node) []string {
	if a == item {
		return []string{""}
	}
	var out []string
	for p := a.Parent; p != item; p = p.Parent {
		if isHeading(p) {
			out = append(out, p.Data+" a")
		}
	}
	for _, class := range classes(a) {
		out = append(out, "a."+class)
	}
	for p := a.Parent; p != item; p = p.Parent {
		for _, class := range classes(p) {
			out = append(out, p.Data+"."+class+" a")
		}
	}
	return append(out, "a[href]")
}

// folder returns the common prefix of the paths of the main links if css also selects links with other paths, or "".
func (c *content) folder(css string, items []*html.Node, main []*url.URL) string {
	common := main[0].Path[:strings.LastIndexByte(strings.TrimSuffix(main[0].Path, "/"), '/')+1]
	for _, u := range main {
		for common != "" && !strings.HasPrefix(u.Path, common) {
			common = common[:strings.LastIndexByte(strings.TrimSuffix(common, "/"), '/')+1]
		}
	}
	if css == "" || len(common) < 2 {
		return ""
	}
	for _, item := range items {
		for _, a := range selectAll(css, item) {
			if u := c.resolve(value(a, "href")); u != nil && !strings.HasPrefix(u.Path, common) {
				return common
			}
		}
	}
	return ""
}
