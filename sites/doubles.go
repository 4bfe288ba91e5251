package sites

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"muster/sites/definition"
	"muster/sites/extract"
)

const (
	// manyDoubles is how many addresses that give the same page are too many.
	manyDoubles = 3
	// keptDoubles bounds what is remembered of pages, twice.
	keptDoubles = 4096
	// muchProse is how many bytes of sentences make an article.
	muchProse = 2000
)

// doubles tells when a site gives one page for different addresses: a page
// that asks to wait, or the same answer to everything that it does not know.
// It remembers the last few thousand pages that this process has read of a
// job, in a few hundred kB. The zero value is ready for use.
type doubles struct {
	mu    sync.Mutex // guards young and old
	young map[uint64]double
	old   map[uint64]double // they were young before
}

var doublesSeed = maphash.MakeSeed()

// double is a page, and the first addresses that gave it.
type double struct {
	paths [manyDoubles]uint64
	n     int
	first string
}

// again notes a page, and returns an error when it is one too many of the
// same. What counts is what a reader sees, the elements it is made of, what it
// says of itself, and the records but for their address. It only looks at pages which nothing else vouches for: HTML detail pages
// whose records have no key but the address, or that have neither records nor
// links although the definition wants records of each of them. An article that
// stands at several addresses, such as those of languages that it was not
// translated to, is no answer to what is not there.
func (d *doubles) again(def *definition.Definition, doc *extract.Doc, res *extract.Result) error {
	if doc.Root == nil || doc.Page.Kind != definition.KindDetail || def.Blocks.Off || vouchedFor(def, doc, res) {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(doublesSeed)
	own := []string{doc.Page.Requested, doc.Page.URL.String(), doc.Page.URL.EscapedPath()}
	writeShape(&h, doc.Root, own)
	_, _ = h.WriteString(doc.Text())
	for _, r := range res.Records {
		r.Key, r.URL = "", ""
		line, err := r.JSON()
		if err != nil {
			return nil // the page fails by itself
		}
		for _, o := range own[:2] {
			line = bytes.ReplaceAll(line, []byte(o), nil)
		}
		_, _ = h.Write(line)
	}
	path := doc.Page.Requested
	if u, err := url.Parse(path); err == nil { // parameters may tell the same page in other ways
		path = u.Host + ofLanguage.ReplaceAllString(u.EscapedPath(), "/")
	}
	at := maphash.String(doublesSeed, path)

	if n, first := d.note(h.Sum64(), at, doc.Page.Requested); n >= manyDoubles && !(len(res.Records) > 0 && writtenOut(doc)) {
		return fmt.Errorf("%d addresses or more give this page, %s was the first; if that is right, blocks.off or must_have says so", n, first)
	}
	return nil
}

// writeShape writes the elements of a page, and what it says of itself but for
// its own addresses: two articles with the same words are two pages, while what
// one template makes of nothing is always the same.
func writeShape(h *maphash.Hash, root *html.Node, own []string) {
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		_, _ = h.WriteString("<" + n.Data)
		var name, content string
		for _, a := range n.Attr {
			switch a.Key {
			case "lang", "dir":
				_, _ = h.WriteString(" " + a.Val)
			case "name", "property":
				name = a.Val
			case "content":
				content = a.Val
			}
		}
		if n.DataAtom == atom.Meta && ofItself.MatchString(name) {
			for _, o := range own {
				if len(o) > 1 {
					content = strings.ReplaceAll(content, o, "")
				}
			}
			_, _ = h.WriteString(" " + content)
		}
	}
}

// ofLanguage matches the part of an address that only tells the language of a
// page: what was not translated is the same in many.
var ofLanguage = regexp.MustCompile(`(?i)/[a-z]{2}([-_][a-z]{2,4})?/`)

// writtenOut tells whether a page has as much to read as neither a page that
// asks to wait nor one that knows nothing has, and none that leads elsewhere.
func writtenOut(doc *extract.Doc) bool {
	if asked, err := url.Parse(doc.Page.Requested); err != nil || asked.Path != doc.Page.URL.Path {
		return false
	}
	prose := 0
	for _, line := range extract.Lines(doc.Body(), false) {
		if len(line) >= 80 && strings.ContainsAny(line, ".!?。！？؟।") { // no list of links
			prose += len(line)
		}
	}
	return prose >= muchProse
}

// ofItself matches the names of what pages say of themselves, and not of the
// visit.
var ofItself = regexp.MustCompile(`(?i)^(author|description|keywords|((og|article|twitter|dc|dcterms)[:.].*))$`)

// note counts the addresses of a page, up to manyDoubles, and returns how many
// there were so far and what was said of the first.
func (d *doubles) note(print, path uint64, page string) (n int, first string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen, ok := d.young[print]
	if !ok {
		if seen, ok = d.old[print]; !ok {
			seen.first = page
		}
		if d.young == nil || len(d.young) >= keptDoubles {
			d.young, d.old = map[uint64]double{}, d.young
		}
	}
	if seen.n < manyDoubles && !slices.Contains(seen.paths[:seen.n], path) {
		seen.paths[seen.n] = path
		seen.n++
	}
	d.young[print] = seen
	return seen.n, seen.first
}

// vouchedFor tells whether a page may well be the same as others.
func vouchedFor(def *definition.Definition, doc *extract.Doc, res *extract.Result) bool {
	if len(def.Detail.MustHave) > 0 && extract.MustHave(def, doc) || len(res.Links) > 0 {
		return true
	}
	if len(res.Records) == 0 {
		wanted := def.RecordsFrom(definition.KindDetail)
		return len(wanted) == 0 || slices.ContainsFunc(wanted, func(r *definition.Record) bool { return !r.If.IsZero() })
	}
	return slices.ContainsFunc(res.Records, func(r extract.Record) bool {
		i := slices.IndexFunc(def.Records, func(d definition.Record) bool { return d.Name == r.Type })
		if i < 0 {
			return true
		}
		of := &def.Records[i]
		return len(of.Key) == 0 && !(of.Each.IsZero() && of.EachJSON.IsZero()) || len(of.Key) > 0 && !slices.Equal(of.Key, []string{"_url"})
	})
}
