package jobs

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Limits of a page of items.
const (
	itemChunk = 500    // items that are read in one round trip
	itemLooks = 20_000 // items that one page examines for a state
)

// Items returns a page of the items of a job.
func (s *Service) Items(ctx context.Context, id string, f ItemFilter) (ItemPage, error) {
	if f.Limit < 0 || f.Limit > 1000 {
		return ItemPage{}, bad("limit", "%d is not within 1 and 1000", f.Limit)
	}
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Status != "" && !containsStatus(f.Status) {
		return ItemPage{}, bad("status", "%.20q is not a state of an item; there are pending, validating, integrated, rejected, failed and review", string(f.Status))
	}
	p, err := s.planOf(ctx, id)
	if err != nil {
		return ItemPage{}, err
	}
	page := ItemPage{Items: []Item{}}
	at, err := parsePlace(f.Cursor)
	if err != nil {
		return ItemPage{}, err
	}
	q := s.queue(id)
	looks, chunk := cmp.Or(f.Looks, itemLooks), itemChunk
	if f.Status == "" {
		chunk = min(f.Limit, itemChunk)
	}
	for looked := 0; looked < looks && len(page.Items) < f.Limit; {
		infos, next, err := q.Scan(ctx, at.scan, chunk)
		if err != nil {
			return ItemPage{}, cursorError(err, f.Cursor)
		}
		looked += len(infos)
		slices.SortFunc(infos, func(a, b workqueue.Info) int { return strings.Compare(a.ID, b.ID) })
		for _, info := range infos {
			if info.ID <= at.after {
				continue
			}
			if len(page.Items) == f.Limit { // the queue returns more than it was asked for, at times
				page.Next = at.String()
				return page, nil
			}
			at.after = info.ID
			if it, ok := matchItem(id, p, info, f.Status); ok {
				page.Items = append(page.Items, it)
			}
		}
		at = place{scan: next}
		if page.Next = next; next == "" {
			break
		}
	}
	return page, nil
}

// place is the start of a page of items: a cursor of the queue, and the ID after which the page begins among the
// items that the queue returns for the cursor.
type place struct{ scan, after string }

func (at place) String() string {
	if at.after == "" {
		return at.scan
	}
	return at.scan + "." + base64.RawURLEncoding.EncodeToString([]byte(at.after))
}

func parsePlace(cursor string) (place, error) {
	scan, after, _ := strings.Cut(cursor, ".")
	id, err := base64.RawURLEncoding.DecodeString(after)
	if err != nil {
		return place{}, bad("cursor", "%.40q is not a cursor of this list", cursor)
	}
	return place{scan, string(id)}, nil
}

// cursorError names the cursor that the queue does not take.
func cursorError(err error, cursor string) error {
	if cursor != "" && strings.Contains(err.Error(), "cursor") {
		return bad("cursor", "%.40q is not a cursor of this list", cursor)
	}
	return err
}

func containsStatus(st ItemStatus) bool {
	for _, known := range ItemStatuses {
		if known == st {
			return true
		}
	}
	return false
}

// matchItem returns an item of the queue, and whether it is an item of the job in the state.
func matchItem(id string, p *pipeline.Pipeline, info workqueue.Info, st ItemStatus) (Item, bool) {
	if !strings.HasPrefix(info.ID, itemID("")) {
		return Item{}, false
	}
	it := itemOf(id, p, info)
	return it, st == "" || it.Status == st
}

// planOf is plan of a job that may have been deleted since it was read.
func (s *Service) planOf(ctx context.Context, id string) (*pipeline.Pipeline, error) {
	if p := s.plans.get(id); p != nil {
		return p, s.exists(ctx, id)
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	return s.plan(ctx, id)
}

func (s *Service) exists(ctx context.Context, id string) error {
	n, err := s.rdb.Exists(ctx, recordKey(id)).Result()
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return err
}

// EachItem calls yield with every item of a job, in no particular order, and holds few of them at a time. It ends with
// the first error of yield.
func (s *Service) EachItem(ctx context.Context, id string, yield func(Item) error) error {
	p, err := s.planOf(ctx, id)
	if err != nil {
		return err
	}
	for cursor := ""; ; {
		infos, next, err := s.queue(id).Scan(ctx, cursor, itemChunk)
		if err != nil {
			return err
		}
		for _, info := range infos {
			it, ok := matchItem(id, p, info, "")
			if !ok {
				continue
			}
			if err := yield(it); err != nil {
				return err
			}
		}
		if cursor = next; next == "" {
			return nil
		}
	}
}

// Item returns an item of a job, or ErrNoItem.
func (s *Service) Item(ctx context.Context, id, key string) (Item, error) {
	p, err := s.planOf(ctx, id)
	if err != nil {
		return Item{}, err
	}
	if len(key) > MaxKey {
		return Item{}, fmt.Errorf("%w: %.80q of job %s", ErrNoItem, key, id)
	}
	infos, err := s.queue(id).Get(ctx, itemID(key))
	if err != nil {
		return Item{}, err
	}
	if len(infos) == 0 {
		return Item{}, fmt.Errorf("%w: %.80q of job %s", ErrNoItem, key, id)
	}
	return itemOf(id, p, infos[0]), nil
}

// Decide decides on an item in review: it goes to its next stage, is integrated by its last one, or is rejected. An item
// that was decided on already, or is not in review, is ErrNotReview.
func (s *Service) Decide(ctx context.Context, id, key string, d Decision) (Item, error) {
	if err := d.check(); err != nil {
		return Item{}, err
	}
	it, err := s.Item(ctx, id, key)
	if err != nil {
		return Item{}, err
	}
	if it.Status != ItemReview {
		return it, fmt.Errorf("%w: it is %s", ErrNotReview, it.Status)
	}
	p, err := s.openPlan(ctx, id)
	if err != nil {
		return it, err
	}
	if err := s.decide(ctx, id, p, it, d); err != nil {
		return it, err
	}
	return s.Item(ctx, id, key)
}

// DecideAll makes the same decision on the items with keys, or on all items of a job in review. It returns on how many: items
// that are not in review are left out.
func (s *Service) DecideAll(ctx context.Context, id string, keys []string, d Decision) (n int, err error) {
	if err := d.check(); err != nil {
		return 0, err
	}
	p, err := s.openPlan(ctx, id)
	if err != nil {
		return 0, err
	}
	one := func(it Item) error {
		err := s.decide(ctx, id, p, it, d)
		if err == nil {
			n++
		}
		if errors.Is(err, ErrNotReview) {
			err = nil
		}
		return err
	}
	for _, key := range keys {
		it, err := s.Item(ctx, id, key)
		if err == nil {
			err = one(it)
		}
		if err != nil {
			return n, err
		}
	}
	if len(keys) > 0 {
		return n, nil
	}
	for offset := 0; ; {
		items, next, err := s.Failures(ctx, id, ItemReview, offset, itemChunk)
		if err != nil {
			return n, err
		}
		before := n
		for _, it := range items {
			if err := one(it); err != nil {
				return n, err
			}
		}
		if next == 0 {
			return n, nil
		}
		offset = next - (n - before) // they have left the list of failed items
	}
}

func (d Decision) check() error {
	if err := text("reason", d.Reason, MaxItem); err != nil {
		return err
	}
	if !d.Accept && strings.TrimSpace(d.Reason) == "" {
		return bad("reason", "is needed to reject an item")
	}
	if len(d.Patch) > 0 {
		return CheckJSON("item", d.Patch, MaxItem)
	}
	return nil
}

// openPlan returns the pipeline of a job that has not ended.
func (s *Service) openPlan(ctx context.Context, id string) (*pipeline.Pipeline, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.status().Terminal() {
		return nil, fmt.Errorf("%w: it is %s", ErrTerminal, r.status())
	}
	return r.pipeline()
}

func (s *Service) decide(ctx context.Context, id string, p *pipeline.Pipeline, it Item, d Decision) error {
	if it.Status != ItemReview {
		return fmt.Errorf("%w: it is %s", ErrNotReview, it.Status)
	}
	fixed := it
	if err := fixed.apply(d.Patch); err != nil {
		return err
	}
	if err := fixed.check("item", p); err != nil {
		return err
	}
	result, err := json.Marshal(outcome{Reviewer: d.By, Reason: d.Reason, At: time.Now().UnixMilli(), Patch: d.Patch})
	if err != nil {
		return err
	}
	next := following(p, it.Stage)
	switch {
	case d.Accept && next != nil:
		var item workqueue.Item
		if item, err = fixed.reviewedItem(d.By, *next, s.attempts(*next)); err == nil {
			err = s.queue(id).PassFailed(ctx, item, result)
		}
	case d.Accept:
		err = s.queue(id).Amend(ctx, itemID(it.Key), workqueue.StateError, workqueue.Done().With(result))
	default:
		err = s.queue(id).Amend(ctx, itemID(it.Key), workqueue.StateError, workqueue.Skipped(d.Reason).With(result))
	}
	switch {
	case errors.Is(err, workqueue.ErrNotInState):
		return fmt.Errorf("%w: already decided", ErrNotReview)
	case errors.Is(err, workqueue.ErrSealed):
		return ErrTerminal
	case err != nil:
		return err
	}
	if d.Accept && next != nil {
		err = s.announceWork(ctx, id, next.Worker(), 0)
	}
	if err := errors.Join(err, s.tellEndings(ctx, id)); err != nil {
		return err
	}
	s.progressed(ctx, id)
	s.advanceAfter(ctx, id, pipeline.Stage{})
	return nil
}
