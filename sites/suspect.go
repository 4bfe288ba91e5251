package sites

import (
	"context"
	"errors"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

var errFieldsMissing = errors.New("required fields missing where siblings have them")

// suspect returns an *fetch.Error of class SoftBlock if a page that came by a
// proxy has none of its required fields although a page of its kind has had
// them in this job, in whatever process, and calls page.Refused. Tries is how
// often the page was tried before. At its last try, and without a proxy, a
// page is taken for what it is.
func (j *job) suspect(ctx context.Context, doc *extract.Doc, res *extract.Result, tries int) error {
	found, wanted := requiredFields(j.def, doc, res)
	page := doc.Page
	switch {
	case !wanted || j.def.Blocks.Off:
		return nil
	case found:
		j.noteFields(ctx, page.Kind)
		return nil
	case page.Via == "" || tries >= fetch.PolicyFor(fetch.SoftBlock, j.def.Retries).Retries || !j.siblingsHaveFields(ctx, page.Kind):
		return nil
	}
	if page.Refused != nil {
		page.Refused()
	}
	return &fetch.Error{Class: fetch.SoftBlock, URL: page.Requested, Status: page.Status, Via: page.Via, Err: errFieldsMissing}
}

// requiredFields reports whether the definition wants must_have or required
// fields of a page, and whether the page has them: one of must_have, and a
// value of any of the required fields. A page that lacks only some of them is
// no block page.
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

// noteFields notes for all processes that a kind of page has its required
// fields.
func (j *job) noteFields(ctx context.Context, kind string) {
	if _, noted := j.fields.LoadOrStore(kind, true); noted {
		return
	}
	pipe := j.rdb.Pipeline()
	pipe.SAdd(ctx, fieldsKey(j.id), kind)
	pipe.Expire(ctx, fieldsKey(j.id), keep)
	if _, err := pipe.Exec(ctx); err != nil {
		j.fields.Delete(kind)
		j.log.Warn("cannot note that pages have their required fields", "error", err)
	}
}

// siblingsHaveFields reports whether a page of a kind has had its required
// fields.
func (j *job) siblingsHaveFields(ctx context.Context, kind string) bool {
	if _, noted := j.fields.Load(kind); noted {
		return true
	}
	had, err := j.rdb.SIsMember(ctx, fieldsKey(j.id), kind).Result()
	if err != nil {
		j.log.Warn("cannot see whether pages have had their required fields", "error", err)
		return false
	}
	if had {
		j.fields.Store(kind, true)
	}
	return had
}
