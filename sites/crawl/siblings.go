package crawl

import (
	"errors"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

var errFieldsMissing = errors.New("required fields missing where siblings have them")

// maxWithout is the number of pages of a kind without required fields through every proxy after which such pages are considered
// normal.
const maxWithout = 3

// fieldsOf counts the pages of a kind.
type fieldsOf struct {
	found   bool // a page had the fields
	without int  // pages without fields at their last attempt, since a retry found fields
}

// suspect returns a *fetch.Error of class SoftBlock, and calls page.OnBlocked, if a page from a proxy has none of its required
// fields although another page of its kind in this job has them. tries is the number of earlier attempts. It accepts a page at
// its last attempt, a page without a proxy, and all pages after maxWithout pages without fields through any proxy.
func (x *extractor) suspect(doc *extract.Doc, res *extract.Result, tries int) error {
	found, wanted := requiredFields(x.def, doc, res)
	if !wanted || x.def.Blocks.Off {
		return nil
	}
	page := doc.Page
	last := tries >= fetch.PolicyFor(fetch.SoftBlock, x.def.Retries).Retries
	x.mu.Lock()
	of := x.kinds[page.Kind]
	ok := found || page.Via == "" || !of.found || last || of.without >= maxWithout
	switch {
	case found && tries > 0:
		of = fieldsOf{found: true}
	case found:
		of.found = true
	case page.Via != "" && of.found && last:
		of.without++
	}
	x.kinds[page.Kind] = of
	x.mu.Unlock()
	if ok {
		return nil
	}
	if page.OnBlocked != nil {
		page.OnBlocked()
	}
	return &fetch.Error{Class: fetch.SoftBlock, URL: page.Requested, Status: page.Status, Via: page.Via, Err: errFieldsMissing}
}

// requiredFields reports whether the definition requires elements or fields (must_have or required), and whether the page has
// them: a match of must_have, and a value of any required field. A page without only some of them is not a block page.
func requiredFields(def *definition.Definition, doc *extract.Doc, res *extract.Result) (found, wanted bool) {
	if !extract.MustHave(def, doc) {
		return false, true
	}
	found = len(def.Page(doc.Page.Kind).MustHave) > 0
	wanted = found
	asked, hit := false, false
	for _, r := range def.RecordsFrom(doc.Page.Kind) {
		for i := range r.Fields {
			if !r.Fields[i].Required {
				continue
			}
			for by, n := range res.Hits[r.Name+"."+r.Fields[i].Name] {
				asked = true
				hit = hit || n > 0 && by != "none"
			}
		}
	}
	if asked {
		return hit, true
	}
	return found, wanted
}
