package extract

import (
	"bytes"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// refreshForm matches the content of a meta refresh with a delay of at most three seconds.
var refreshForm = regexp.MustCompile(`(?is)^\s*[0-3]?(?:\.\d*)?\s*[;,\s]\s*(?:url\s*=)?\s*(?:"([^"]*)|'([^']*)|(.*))`)

// refreshWithin is how much of a page is searched for a meta refresh, in bytes.
const refreshWithin = 32 << 10

// Refresh returns the target of the page's <meta http-equiv=refresh>, or nil. One that is for clients without JavaScript is ignored,
// and one that reloads the page too, unless the response set a cookie: the site checks whether clients return it.
func (p Page) Refresh() *url.URL {
	head := p.Body[:min(len(p.Body), refreshWithin)]
	if !bytes.Contains(head, []byte("efresh")) && !bytes.Contains(head, []byte("EFRESH")) {
		return nil
	}
	text, charset := Decode(head, p.Header.Get("Content-Type"), nil)
	d := &Doc{Page: p, Charset: charset, base: p.URL}
	z := html.NewTokenizer(bytes.NewReader(text))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return nil
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			get := func(name string) string {
				v, _ := Attr(&html.Node{Attr: t.Attr}, name)
				return v
			}
			switch {
			case t.Data == "base" && get("href") != "":
				if u, err := d.reference(get("href")); err == nil {
					d.base = u
				}
			case t.Data == "meta" && strings.EqualFold(strings.TrimSpace(get("http-equiv")), "refresh"):
				m := refreshForm.FindStringSubmatch(get("content"))
				if m == nil {
					return nil
				}
				ref := strings.TrimSpace(m[1] + m[2] + m[3])
				u, err := d.reference(ref)
				if err != nil || ref == "" || u.Scheme != "http" && u.Scheme != "https" {
					return nil
				}
				u.Fragment, u.RawFragment = "", ""
				if u.String() == p.URL.String() && p.Header.Get("Set-Cookie") == "" {
					return nil
				}
				return u
			}
		}
	}
}
