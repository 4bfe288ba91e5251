package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

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
	if f.Status != "" && !slices.Contains(ItemStatuses, f.Status) {
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
	return s.eachPage(ctx, id, func(items []Item) error {
		for _, it := range items {
			if err := yield(it); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachPage is EachItem for some items at a time.
func (s *Service) eachPage(ctx context.Context, id string, yield func([]Item) error) error {
	p, err := s.planOf(ctx, id)
	if err != nil {
		return err
	}
	for cursor := ""; ; {
		infos, next, err := s.queue(id).Scan(ctx, cursor, itemChunk)
		if err != nil {
			return err
		}
		var items []Item
		for _, info := range infos {
			if it, ok := matchItem(id, p, info, ""); ok {
				items = append(items, it)
			}
		}
		if err := yield(items); err != nil || next == "" {
			return err
		}
		cursor = next
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
	return s.pipeline(ctx, r)
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
		e := fixed.emitted()
		e.ReviewedBy = d.By
		var item workqueue.Item
		if item, err = e.queueItem(*next, s.attempts(*next)); err == nil {
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
	s.Progressed(ctx, id)
	s.advanceAfter(ctx, id, pipeline.Stage{})
	return nil
}

// Limits of an item.
const (
	maxItem  = 4 << 20 // bytes of JSON
	MaxItem  = 1 << 20 // bytes of JSON that an agent emits for one
	MaxItems = 10_000  // items of one call
	MaxKey   = 512     // bytes of the key of an item
)

// The priorities of items, as the work queue orders them.
var itemPriorities = map[string]int{"high": 10, "medium": 0, "low": -10}

// emitted is an item as stored in the queue: the emitted fields, with the changes of later stages.
type emitted struct {
	NewItem
	ReviewedBy string `json:"reviewed_by,omitempty"`
	Created    int64  `json:"created"` // unix ms
}

func (it Item) emitted() emitted { return emitted{it.NewItem, it.ReviewedBy, it.CreatedAt.UnixMilli()} }

// outcome is the result of an item in the queue, set by the agent that ended it.
type outcome struct {
	Agent    string          `json:"agent,omitempty"`
	Reviewer string          `json:"reviewer,omitempty"` // in place of an agent
	Verdict  string          `json:"verdict,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	At       int64           `json:"at"` // unix ms
	Patch    json.RawMessage `json:"patch,omitempty"`
}

// check returns a *FieldError for an item that cannot be stored; field is its path in the request.
func (it *NewItem) check(field string, p *pipeline.Pipeline) error {
	if it.Key == "" || len(it.Key) > MaxKey || strings.ContainsFunc(it.Key, unicode.IsControl) {
		return bad(field+".key", "must be 1 to %d bytes without control characters", MaxKey)
	}
	if it.Key == "." || it.Key == ".." { // the path of the item would name another resource
		return bad(field+".key", "must not be . or ..")
	}
	if err := text(field+".key", it.Key, MaxKey); err != nil {
		return err
	}
	if strings.TrimSpace(it.Text) == "" {
		return bad(field+".text", "must not be empty")
	}
	for name, value := range map[string]string{
		"text": it.Text, "name": it.Name, "type": it.Type, "source_document": it.SourceDocument, "source_location": it.SourceLocation,
		"research_notes": it.ResearchNotes, "external_id": it.ExternalID,
	} {
		if err := text(field+"."+name, value, MaxItem); err != nil {
			return err
		}
	}
	for name, list := range map[string][]string{"citations": it.Citations, "mentioned_objects": it.MentionedObjects, "mentioned_messages": it.MentionedMessages} {
		for i, value := range list {
			if err := text(fmt.Sprintf("%s.%s[%d]", field, name, i), value, MaxItem); err != nil {
				return err
			}
		}
	}
	for label := range it.Labels {
		if !slices.Contains(p.Labels, label) {
			return bad(field+".labels", "the pipeline has no label %.40q; it has %s", label, strings.Join(p.Labels, ", "))
		}
	}
	if _, ok := itemPriorities[it.Priority]; !ok && it.Priority != "" {
		return bad(field+".priority", "%.20q is not high, medium or low", it.Priority)
	}
	if it.Confidence != nil && !(*it.Confidence >= 0 && *it.Confidence <= 1) {
		return bad(field+".confidence_score", "is not within 0 and 1")
	}
	if len(it.Data) > 0 {
		return CheckJSON(field+".data", it.Data, MaxItem)
	}
	return nil
}

// queueItem returns the queue item that waits for a stage.
func (e emitted) queueItem(st pipeline.Stage, attempts int) (workqueue.Item, error) {
	if e.Priority == "" {
		e.Priority = "medium"
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return workqueue.Item{}, fmt.Errorf("item %q: %w", e.Key, err)
	}
	return workqueue.Item{
		ID: itemID(e.Key), Kind: st.Name, ResourceKeys: []string{lane(st.Name)}, MaxAttempts: attempts, Payload: raw, Priority: itemPriorities[e.Priority],
	}, nil
}

// integratedItem returns the queue item of an item that a stage emits and no stage takes.
func (e emitted) integratedItem(stage, agent string) (workqueue.Item, error) {
	item, err := e.queueItem(pipeline.Stage{Name: stage}, 0)
	if err != nil {
		return item, err
	}
	result, err := json.Marshal(outcome{Agent: agent, At: e.Created})
	item.ResourceKeys, item.Done, item.Result = []string{emittedLane(stage)}, true, result
	return item, err
}

// yearTenThousand is the first time, in unix ms, that has no form in JSON.
const yearTenThousand = 253402300800000

// parseItem reads an item as it is stored in the queue. For a damaged item it also returns the known fields.
func parseItem(job, queueID string, payload []byte) (Item, error) {
	var e emitted
	err := json.Unmarshal(payload, &e)
	if err == nil && (e.Created < 0 || e.Created >= yearTenThousand) {
		err = fmt.Errorf("its time %d is out of range", e.Created)
	}
	if err != nil {
		e, err = emitted{}, fmt.Errorf("it is damaged: %w", err)
	}
	it := Item{NewItem: e.NewItem, ReviewedBy: e.ReviewedBy}
	it.Key = strings.TrimPrefix(queueID, itemID(""))
	sum := sha256.Sum256([]byte(job + "\n" + it.Key))
	it.ID, it.JobID = uuid([16]byte(sum[:16]), 8), job
	it.CreatedAt = time.UnixMilli(e.Created).UTC()
	it.UpdatedAt = it.CreatedAt
	return it, err
}

// itemOf returns an item with its state. A damaged item is failed, and its error is the reason.
func itemOf(job string, p *pipeline.Pipeline, info workqueue.Info) Item {
	it, damage := parseItem(job, info.ID, info.Payload)
	it.Stage, it.RetryCount = info.Kind, info.Attempts
	if !info.Updated.IsZero() {
		it.UpdatedAt = info.Updated.UTC()
	}
	var o outcome
	if len(info.Result) > 0 && json.Unmarshal(info.Result, &o) == nil {
		if err := it.apply(o.Patch); err != nil && damage == nil {
			damage = fmt.Errorf("its result is damaged: %w", err)
		}
		it.Agent = o.Agent
		it.ReviewedBy = cmp.Or(o.Reviewer, it.ReviewedBy)
		if o.At > 0 && o.At < yearTenThousand {
			it.UpdatedAt = time.UnixMilli(o.At).UTC()
		}
	}
	it.fill(p)
	switch info.State {
	case workqueue.StateQueued:
		it.Status, it.LastError = ItemPending, info.Note
	case workqueue.StateInProgress:
		it.Status, it.LastError, it.Agent = ItemValidating, info.Note, parseHolder(info.Worker).agent
	case workqueue.StateDone:
		it.Status = ItemIntegrated
	case workqueue.StateSkipped:
		it.Status, it.RejectionReason = ItemRejected, info.Note
	case workqueue.StateError:
		it.Status, it.LastError = ItemFailed, info.Note
		it.RetryCount = max(0, info.Attempts-1) // the first attempt was not a retry
		if st := p.Stage(info.Kind); st != nil && st.Review && info.Result == nil {
			it.Status = ItemReview
		}
	}
	if damage != nil {
		it.Status, it.LastError = ItemFailed, damage.Error()
	}
	return it
}

// fill sets the lists and labels that an item lacks to empty lists and false.
func (it *Item) fill(p *pipeline.Pipeline) {
	for _, list := range []*[]string{&it.Citations, &it.MentionedObjects, &it.MentionedMessages} {
		if *list == nil {
			*list = []string{}
		}
	}
	labels := make(map[string]bool, len(p.Labels))
	for _, name := range p.Labels {
		labels[name] = it.Labels[name]
	}
	it.Labels = labels
}

// apply sets the fields of a patch that an agent may set when it ends its work. Labels are merged, lists replaced.
func (it *NewItem) apply(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	p := *it
	p.Labels, p.Citations, p.MentionedObjects, p.MentionedMessages, p.Data = maps.Clone(it.Labels), nil, nil, nil, nil // other items may share them
	if err := json.Unmarshal(raw, &p); err != nil {
		return bad("item", "cannot be read: %v", err)
	}
	for list, before := range map[*[]string][]string{&p.Citations: it.Citations, &p.MentionedObjects: it.MentionedObjects, &p.MentionedMessages: it.MentionedMessages} {
		if *list == nil {
			*list = before
		}
	}
	if p.Labels == nil {
		p.Labels = it.Labels
	}
	if len(p.Data) == 0 {
		p.Data = it.Data
	}
	p.Confidence = cmp.Or(p.Confidence, it.Confidence)
	p.Key = it.Key
	*it = p
	return nil
}
