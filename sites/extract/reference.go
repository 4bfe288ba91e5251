package extract

import (
	"bytes"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
)

// reference returns the URL of a reference of the page as browsers do: relative to the page's base, with backslashes
// as slashes, stray percent signs escaped, escaped dot segments resolved, and the query in the charset of the page. A login in it
// is dropped.
func (d *Doc) reference(ref string) (*url.URL, error) {
	ref = strings.NewReplacer("\n", "", "\r", "", "\t", "", " ", "%20").Replace(strings.TrimSpace(ref))
	at := strings.IndexAny(ref, "?#")
	if at < 0 {
		at = len(ref)
	}
	path, rest := ref[:at], ref[at:]
	scheme := schemeForm.FindString(path)
	if scheme == "" || strings.EqualFold(scheme, "http:") || strings.EqualFold(scheme, "https:") {
		path = strings.ReplaceAll(path, `\`, "/")
	}
	path = plainDots(escapeStray(path))
	u, err := d.base.Parse(path + rest)
	if err != nil {
		return nil, err
	}
	if u.Opaque != "" && strings.EqualFold(u.Scheme, d.base.Scheme) { // http:x is relative
		if u, err = d.base.Parse(strings.TrimPrefix(path+rest, scheme)); err != nil {
			return nil, err
		}
	}
	u.RawQuery, u.User = d.query(u.RawQuery), nil
	return u, nil
}

// schemeForm matches the scheme of a reference, with its colon.
var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// query escapes the characters of a query that browsers escape, those beyond ASCII in the charset of the page.
func (d *Doc) query(q string) string {
	escaped := func(r rune) bool { return r >= 0x7f || r <= ' ' || strings.ContainsRune(`"'<>`, r) }
	if strings.IndexFunc(q, escaped) < 0 {
		return q
	}
	var enc *encoding.Encoder
	if e, err := htmlindex.Get(d.Charset.Name); err == nil && !strings.HasPrefix(d.Charset.Name, "utf-") {
		enc = encoding.HTMLEscapeUnsupported(e.NewEncoder())
	}
	var b strings.Builder
	for _, r := range q {
		s := string(r)
		if !escaped(r) {
			b.WriteString(s)
			continue
		}
		if enc != nil && r >= utf8.RuneSelf {
			if t, err := enc.String(s); err == nil {
				s = t
			}
		}
		b.WriteString(strings.ReplaceAll(url.QueryEscape(s), "+", "%20"))
	}
	return b.String()
}

// plainDots decodes the escaped dots of dot segments.
func plainDots(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if dots := strings.ReplaceAll(strings.ToLower(s), "%2e", "."); dots == "." || dots == ".." {
			segments[i] = dots
		}
	}
	return strings.Join(segments, "/")
}

// escapeStray escapes percent signs that are not part of an escape.
func escapeStray(path string) string {
	parts := strings.Split(path, "%")
	for i, p := range parts[1:] {
		if len(p) < 2 || strings.Trim(p[:2], "0123456789abcdefABCDEF") != "" {
			parts[i+1] = "25" + p
		}
	}
	return strings.Join(parts, "%")
}

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
