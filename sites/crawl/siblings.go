package crawl

import (
	"errors"
	"sync"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

var errFieldsMissing = errors.New("required fields missing where siblings have them")

// maxWithout is the number of pages of a kind without required fields through every proxy after which such pages are considered
// normal.
const maxWithout = 3

// siblings recognizes pages that lack their required fields although other pages of their kind that this process has fetched have
// them. It is safe for concurrent use.
type siblings struct {
	*pages

	mu         sync.Mutex      // guards the fields below
	withFields map[string]bool // kinds with a page that had the fields
	without    map[string]int  // by kind: pages without fields at their last attempt, since a retry found fields
}

// suspect returns a *fetch.Error of class SoftBlock, and calls page.OnBlocked, if a page from a proxy has none of its required
// fields although another page of its kind in this job has them. tries is the number of earlier attempts. It accepts a page at
// its last attempt, a page without a proxy, and all pages after maxWithout pages without fields through any proxy.
func (s *siblings) suspect(doc *extract.Doc, res *extract.Result, tries int) error {
	found, wanted := requiredFields(s.def, doc, res)
	page := doc.Page
	switch {
	case !wanted || s.def.Blocks.Off:
		return nil
	case found:
		s.noteFields(page.Kind, tries > 0)
		return nil
	case page.Via == "" || !s.haveFields(page.Kind):
		return nil
	case tries >= fetch.PolicyFor(fetch.SoftBlock, s.def.Retries).Retries:
		s.noteWithout(page.Kind)
		return nil
	case s.manyWithout(page.Kind):
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

// noteFields records that a page of a kind has its required fields, and whether it was a retry.
func (s *siblings) noteFields(kind string, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again {
		delete(s.without, kind)
	}
	if s.withFields == nil {
		s.withFields = map[string]bool{}
	}
	s.withFields[kind] = true
}

// haveFields reports whether any page of a kind had its required fields.
func (s *siblings) haveFields(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.withFields[kind]
}

// noteWithout records a page without its fields at the last attempt.
func (s *siblings) noteWithout(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.without == nil {
		s.without = map[string]int{}
	}
	s.without[kind]++
}

func (s *siblings) manyWithout(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.without[kind] >= maxWithout
}
