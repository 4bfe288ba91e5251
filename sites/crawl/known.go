package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
)

// awaitKnown returns later until the writer of the job has stored the pages of the site's ledger, if the job uses them.
func (p *pages) awaitKnown(ctx context.Context) error {
	if !p.req.SkipsKnown(p.def) {
		return nil
	}
	ok, err := p.rdb.HExists(ctx, store.KnownKey(p.id), "").Result()
	if err == nil && !ok {
		return later{after: 100 * time.Millisecond}
	}
	return err
}

// known returns the state of a page in the ledger, or nil.
func (p *pages) known(ctx context.Context, id string, v visit) (*store.Page, error) {
	if !isKept(v) || !p.req.SkipsKnown(p.def) {
		return nil, nil
	}
	data, err := p.rdb.HGet(ctx, store.KnownKey(p.id), id).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	var known store.Page
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	if err != nil {
		return nil, fmt.Errorf("read page %s of the ledger: %w", v.URL, err)
	}
	return &known, nil
}

// isKept reports whether the ledger has pages of this kind.
func isKept(v visit) bool { return v.Kind == definition.KindDetail || v.Kind == definition.KindFile }

// carryOf returns a hash of the values that a link carries, or "".
func carryOf(carry map[string]string) string {
	var parts []string
	for name, value := range carry {
		parts = append(parts, name+"="+value)
	}
	return printOf(parts)
}

// isCurrent reports whether a page need not be requested.
func (p *pages) isCurrent(known *store.Page, v visit) bool {
	at, refetch := time.UnixMilli(known.At), p.def.Refetch
	switch {
	case hasOtherCarry(known, v), v.Modified.After(at):
		return false
	case refetch.IfChanged:
		return !v.Modified.IsZero()
	}
	return time.Since(at) < refetch.After
}

// hasOtherCarry reports whether the records of a page depend on other carried values than those of the ledger.
func hasOtherCarry(known *store.Page, v visit) bool {
	return len(v.Carry) > 0 && carryOf(v.Carry) != known.Carry
}

// validators returns the validators for a request of a page. known may be nil.
func (p *pages) validators(known *store.Page, v visit) fetch.Validators {
	if known == nil || hasOtherCarry(known, v) {
		return fetch.Validators{}
	}
	return known.Validators
}

// keep returns the result of a page that has not changed. Its outputs refer to the records in the ledger.
func (p *pages) keep(known *store.Page, v visit) fetched {
	y := &yield{Yield: known.Yield}
	y.Known = true
	f := fetched{yield: y, known: known}
	for _, r := range known.Records {
		r.Same = true
		line, _ := json.Marshal(r) // texts
		f.records, y.types = append(f.records, line), append(y.types, r.Type)
	}
	for _, l := range known.Links {
		y.links = append(y.links, visit{l, v.Depth + 1})
	}
	return f
}

// stateOf returns the state of a fetched page for the ledger, or nil if the ledger has no such pages.
func (p *pages) stateOf(id string, v visit, page extract.Page, f fetched) *store.Page {
	if !isKept(v) || p.def.Refetch.IsZero() {
		return nil
	}
	s := &store.Page{
		Type: store.PageType, ID: id, Extraction: p.extraction, At: page.FetchedAt.UnixMilli(), Carry: carryOf(v.Carry),
		Yield: f.yield.Yield, Validators: fetch.ValidatorsOf(page),
	}
	s.Yield.Bytes, s.Yield.Took = 0, 0
	for _, line := range f.records {
		var r store.Ref
		_ = json.Unmarshal(line, &r) // made by this process
		s.Records = append(s.Records, r)
	}
	for _, l := range f.yield.links {
		s.Links = append(s.Links, l.Link)
	}
	return s
}
