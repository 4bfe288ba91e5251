package draft

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/extract"
)

var (
	nextPart = regexp.MustCompile(`(?i)(?:^|[_-])(?:next|older)(?:$|[_-])`)
	backPart = regexp.MustCompile(`(?i)(?:^|[_-])(?:prev|previous|newer)(?:$|[_-])`)
	digits   = regexp.MustCompile(`\d+`)
	pageOf   = regexp.MustCompile(`(?i)(?:/page[/-]?|[?&](?:page|paged|p|pg)=)(\d+)`)
	pagePath = regexp.MustCompile(`(?i)(?:^|/)(?:page|p|seite|pagina|strana|страница)[/-]?$`)
)

// findNext returns the keys of listing.next for the next page, or "".
func (c *content) findNext() string {
	links := selectAll("a[href]", c.doc.Root)
	if n := selectFirst(`link[rel~="next"][href], a[rel~="next"][href]`, c.doc.Root); n != nil && c.elsewhere(n) != nil {
		return "rel: next"
	}
	for _, sure := range []bool{true, false} {
		for _, a := range links {
			if !c.isNextLink(a, sure) {
				continue
			}
			for _, css := range nextSelectors(a) {
				if selectFirst(css, c.doc.Root) == a {
					return "css: " + quote(css)
				}
			}
		}
	}
	return c.findCount(links)
}

// elsewhere returns the target of a link to another page of the site, or nil.
func (c *content) elsewhere(a *html.Node) *url.URL {
	u := c.resolve(value(a, "href"))
	if u == nil || u.Scheme != c.doc.Page.URL.Scheme || pathOf(u) == pathOf(c.doc.Page.URL) {
		return nil
	}
	return u
}

// isNextLink reports whether a link is labelled as the link to the next page, by its text, label, title, image or class. sure
// requires strong evidence.
func (c *content) isNextLink(a *html.Node, sure bool) bool {
	u := c.elsewhere(a)
	if u == nil || pageNumber(u) < pageNumber(c.doc.Page.URL) {
		return false
	}
	labels := []string{extract.Text(a), value(a, "aria-label"), value(a, "title")}
	for _, img := range selectAll("img[alt]", a) {
		labels = append(labels, value(img, "alt"))
	}
	numbered := digits.MatchString(pathOf(u))
	for _, s := range labels {
		word := strings.Trim(withoutArrows(strings.ToLower(s)), " .…-–←«")
		if slices.Contains(nextWords(), word) || strings.HasPrefix(word, "next page") {
			return true
		}
		if !sure && numbered && (word == "more" || word == "" && strings.ContainsFunc(s, isArrow)) {
			return true
		}
	}
	text := strings.ToLower(strings.Join(labels, " "))
	for _, n := range []*html.Node{a, a.Parent} {
		class := value(n, "class")
		for _, part := range strings.Fields(class) {
			if nextPart.MatchString(part) && !backPart.MatchString(class) && !strings.Contains(text, "newer") && (!sure || numbered) && len(text) < 60 {
				return true
			}
		}
	}
	return false
}

// nextWords returns labels of links to the next page.
func nextWords() []string {
	return []string{
		"next", "next page", "next posts", "next entries", "go to next page", "older", "older posts", "older entries", "older articles", "load more", "show more",
		"weiter", "nächste", "nächste seite", "ältere beiträge", "ältere artikel", "suivant", "suivante", "page suivante", "articles plus anciens", "siguiente", "página siguiente", "entradas anteriores",
		"successiva", "avanti", "pagina successiva", "articoli meno recenti", "próxima", "próxima página", "seguinte", "volgende", "volgende pagina", "następna", "následující", "další", "nästa", "næste", "neste", "sonraki",
		"напред", "следваща", "следваща страница", "по-стари публикации", "следующая", "следующая страница", "далее", "наступна", "下一页", "下一頁", "次へ", "次のページ", "다음",
	}
}

func isArrow(r rune) bool { return strings.ContainsRune("»›→>⟩▶", r) }

func withoutArrows(s string) string { return strings.Join(strings.FieldsFunc(s, isArrow), " ") }

// pageNumber returns the number of the page in a URL, or 1.
func pageNumber(u *url.URL) int {
	if m := pageOf.FindStringSubmatch(pathOf(u)); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return 1
}

// nextSelectors returns selectors for a link to the next page, best first.
func nextSelectors(a *html.Node) []string {
	var out []string
	for _, n := range []*html.Node{a, a.Parent} {
		for _, class := range classes(n) {
			if nextPart.MatchString(class) {
				out = append(out, n.Data+"."+class+map[bool]string{true: "", false: " a"}[n == a])
			}
		}
	}
	for _, name := range []string{"aria-label", "title"} {
		if v := value(a, name); v != "" && len(v) < 40 && !digits.MatchString(v) {
			out = append(out, fmt.Sprintf("a[%s=%q]", name, v))
		}
	}
	text := strings.TrimSpace(withoutArrows(extract.Text(a)))
	if text == "" {
		text = extract.Text(a)
	}
	if text != "" {
		out = append(out, fmt.Sprintf("a:contains(%q)", text), fmt.Sprintf("a:contains(%q)", strings.Fields(text)[0]))
	}
	for p, depth := a.Parent, 0; p != nil && depth < 3; p, depth = p.Parent, depth+1 {
		for _, class := range classes(p) {
			out = append(out, p.Data+"."+class+" a:last-of-type")
			if text != "" {
				out = append(out, fmt.Sprintf("%s.%s a:contains(%q)", p.Data, class, text))
			}
		}
	}
	for _, img := range selectAll("img[alt]", a) {
		out = append(out, fmt.Sprintf("a:has(img[alt=%q])", value(img, "alt")))
	}
	return out
}

// findCount returns the keys of listing.next for numbered pages, derived from links with numbers, or "". The number of the
// current page has no link: it is a number shown on the page, or else one between or before the others.
func (c *content) findCount(links []*html.Node) string {
	numbers := map[int]*url.URL{}
	for _, a := range links {
		n, err := strconv.Atoi(strings.TrimSpace(extract.Text(a)))
		if u := c.elsewhere(a); err == nil && u != nil {
			numbers[n] = u
		}
	}
	shown := map[int]bool{}
	for n := range c.doc.Root.Descendants() {
		if text := strings.TrimSpace(n.Data); n.Type == html.TextNode && len(text) < 10 && within(n, "a") == nil {
			if i, err := strconv.Atoi(digits.FindString(text)); err == nil {
				shown[i] = true
			}
		}
	}
	for _, sure := range []bool{true, false} {
		for _, n := range slices.Sorted(maps.Keys(numbers)) {
			if n < 2 || numbers[n-1] != nil || sure && !shown[n-1] || n > 2 && numbers[n-2] == nil {
				continue
			}
			if keys := c.count(numbers[n], n); keys != "" {
				return keys
			}
		}
	}
	return ""
}

// count returns the keys of listing.next for the URL of page n: by a changed query parameter, or by a number in the path.
func (c *content) count(u *url.URL, n int) string {
	here := c.doc.Page.URL
	for _, key := range slices.Sorted(maps.Keys(u.Query())) {
		v, err := strconv.Atoi(u.Query().Get(key))
		if err != nil || !isPageKey(key) || here.Query().Get(key) == strconv.Itoa(v) || u.Path != here.Path {
			continue
		}
		keys := "param: " + quote(key)
		if v == n || v == n-1 { // numbered from 1 or 0
			if v != 2 {
				keys += ", from: " + strconv.Itoa(v)
			}
		} else if n > 1 && v%(n-1) == 0 { // an offset
			keys += fmt.Sprintf(", from: %d, step: %d", v, v/(n-1))
		} else {
			continue
		}
		return keys
	}
	for _, at := range digits.FindAllStringIndex(u.Path, -1) {
		before, after := u.Path[:at[0]], u.Path[at[1]:]
		if u.Path[at[0]:at[1]] != strconv.Itoa(n) {
			continue
		}
		same := here.Path == before+strconv.Itoa(n-1)+after || strings.TrimSuffix(here.Path, "/")+"/" == before
		if !same && !pagePath.MatchString(before) {
			continue
		}
		keys := "template: " + quote(strings.Replace(pathOf(u), u.Path, before+"{n}"+after, 1))
		if n != 2 {
			keys += ", from: " + strconv.Itoa(n)
		}
		return keys
	}
	return ""
}

// isPageKey reports whether a query parameter may be a page number or an offset.
func isPageKey(key string) bool {
	switch strings.ToLower(key) {
	case "page", "paged", "pg", "p", "pagenum", "pn", "seite", "pagina", "start", "offset", "from", "skip":
		return true
	}
	return false
}
