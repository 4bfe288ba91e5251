package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"muster/sites/extract"
)

func itoa(n int) string { return strconv.Itoa(n) }

// nextWords are what links to the next page say.
var nextWords = []string{"next", "next page", "older", "older posts", "more", "weiter", "nächste", "nächste seite", "suivant", "suivante", "page suivante", "siguiente", "successiva", "avanti", "próxima", "seguinte", "volgende", "następna", "další",
	"напред", "следваща", "следваща страница", "следующая", "далее", "наступна", "下一页", "下一頁", "次へ", "다음", "»", "›", ">", ">>", "→"}

var numbered = regexp.MustCompile(`^(.*(?:/page/|/p/|[?&](?:page|p|pg|seite|pagina)=))2(/?|&.*|\.html?)$`)

// findNext is the way to the next page as the keys of next, or "".
func findNext(doc *extract.Doc) string {
	if len(selected(`link[rel~="next"], a[rel~="next"]`, doc.Root)) > 0 {
		return "rel: next"
	}
	for _, css := range []string{"li.next a", "a.next", ".next a", ".pagination-next a", "a.pagination-next", "a.next-page", ".pager-next a", `a[class*="next"]`, `[class*="next"] a`, `a[aria-label*="ext page"]`} {
		for _, a := range selected(css, doc.Root) {
			if value(a, "href") != "" && !strings.HasPrefix(value(a, "href"), "#") {
				return "css: " + quote(css)
			}
		}
	}
	for _, a := range selected("a[href]", doc.Root) {
		text := strings.Trim(strings.ToLower(extract.Text(a)), " .…")
		bare := strings.Trim(text, " »›→>")
		if !slices.Contains(nextWords, text) && (bare == "" || !slices.Contains(nextWords, bare)) {
			continue
		}
		// The selector goes by the text as it stands in the page, which may be
		// parted by elements and odd spaces; its first word will do.
		css := fmt.Sprintf("a:contains(%q)", strings.Fields(extract.Text(a))[0])
		if found := selected(css, doc.Root); len(found) > 0 && found[0] == a {
			return "css: " + quote(css)
		}
	}
	for _, a := range selected("a[href]", doc.Root) {
		u, err := doc.Page.URL.Parse(value(a, "href"))
		if err != nil || u.Host != doc.Page.URL.Host || strings.TrimSpace(extract.Text(a)) != "2" {
			continue
		}
		if m := numbered.FindStringSubmatch(pathOf(u)); m != nil {
			return "template: " + quote(m[1]+"{n}"+m[2])
		}
	}
	return ""
}
