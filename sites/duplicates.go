package sites

import (
	"hash/maphash"
	"sync"

	"muster/sites/definition"
	"muster/sites/extract"
)

// maxContents bounds how many pages duplicates remembers.
const maxContents = 10_000

// duplicates finds pages of a job with the content of a page at another
// address: the same text and the same records, apart from keys and URLs. It
// remembers only the last pages of this process, so it may miss some.
// The zero value is ready for use by many goroutines.
type duplicates struct {
	mu    sync.Mutex // guards first
	first map[uint64]string
}

var contentSeed = maphash.MakeSeed()

// of returns the address of the detail page that had the same content first,
// or "" when there is none.
func (d *duplicates) of(doc *extract.Doc, res *extract.Result) string {
	text := doc.Text()
	if doc.Page.Kind != definition.KindDetail || text == "" {
		return ""
	}
	var h maphash.Hash
	h.SetSeed(contentSeed)
	_, _ = h.WriteString(text) // never fails, as the other write
	for _, r := range res.Records {
		r.Key, r.URL = "", ""
		line, err := r.JSON()
		if err != nil {
			return ""
		}
		_, _ = h.Write(line)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	first, ok := d.first[h.Sum64()]
	if !ok {
		if d.first == nil || len(d.first) >= maxContents {
			d.first = map[uint64]string{}
		}
		d.first[h.Sum64()] = doc.Page.Requested
	}
	if first == doc.Page.Requested {
		return ""
	}
	return first
}
