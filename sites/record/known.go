package record

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
	"muster/sites/internal/store"
	"muster/sites/ledger"
)

// loadKnown stores the pages of the site's ledger in Redis, where the crawlers of a job with refetch look for them. It omits pages
// whose records are not in the ledger, and pages that an earlier version of the definition extracted.
func (w *writer) loadKnown(ctx context.Context) error {
	if w.known || !w.req.SkipsKnown(w.def) {
		return nil
	}
	key := store.KnownKey(w.id)
	loaded, err := w.rdb.HExists(ctx, key, "").Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	if w.known = loaded; loaded {
		return nil
	}
	pages, err := w.files.book(store.PageType)
	if err != nil {
		return err
	}
	books := map[string]*ledger.Book{}
	for _, r := range w.def.Records {
		if books[r.Name], err = w.files.book(r.Name); err != nil {
			return err
		}
	}
	isLost := func(r store.Ref) bool { return books[r.Type] == nil || !books[r.Type].Has(r.Key) }
	extraction, batch := w.def.Extraction(), []any{}
	for e, err := range pages.All() {
		var p store.Page
		if err == nil {
			err = json.Unmarshal(e.Record, &p)
		}
		if err != nil {
			return fmt.Errorf("read page %s of the ledger: %w", e.Key, err)
		}
		if p.Extraction != extraction || slices.ContainsFunc(p.Records, isLost) {
			continue
		}
		if batch = append(batch, e.Key, []byte(e.Record)); len(batch) >= 2*writeBatch {
			if err := w.rdb.HSet(ctx, key, batch...).Err(); err != nil {
				return fmt.Errorf("store the pages of the ledger: %w", err)
			}
			batch = batch[:0]
		}
	}
	_, err = w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, append(batch, "", "")...)
		p.Expire(ctx, key, store.Keep)
		return nil
	})
	w.known = err == nil
	return wrap.Err(err, "store the pages of the ledger")
}

// recall replaces a reference to a record by the record in the ledger.
func (w *writer) recall(h *head, data *[]byte) error {
	book, err := w.files.book(h.Type)
	if err != nil {
		return err
	}
	e, ok, err := book.Find(h.Key)
	if err == nil && !ok {
		err = fmt.Errorf("the ledger has no record %s of type %s, although its page has not changed; cancel the job and start it with muster scrape --full", h.Key, h.Type)
	}
	if err == nil {
		*data = e.Record
		err = json.Unmarshal(e.Record, h)
	}
	return err
}
