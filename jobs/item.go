package jobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

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
	Item
	Created int64 `json:"created"` // unix ms
}

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
func (it *Item) check(field string, p *pipeline.Pipeline) error {
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
		if !contains(p.Labels, label) {
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

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// queueItem returns the queue item that waits for a stage.
func (it Item) queueItem(st pipeline.Stage, attempts int, created time.Time) (workqueue.Item, error) {
	if it.Priority == "" {
		it.Priority = "medium"
	}
	priority := itemPriorities[it.Priority]
	// Fields that the service sets are not stored.
	it.ID, it.JobID, it.Status, it.Stage, it.Agent, it.RejectionReason, it.LastError = "", "", "", "", "", "", ""
	it.RetryCount, it.CreatedAt, it.UpdatedAt = 0, time.Time{}, time.Time{}
	raw, err := json.Marshal(emitted{Item: it, Created: created.UnixMilli()})
	if err != nil {
		return workqueue.Item{}, fmt.Errorf("item %q: %w", it.Key, err)
	}
	return workqueue.Item{
		ID: itemID(it.Key), Kind: st.Name, ResourceKeys: []string{lane(st.Name)}, MaxAttempts: attempts, Payload: raw, Priority: priority,
	}, nil
}

// reviewedItem returns the queue item, waiting for a stage, of an item that a person has accepted.
func (it Item) reviewedItem(by string, st pipeline.Stage, attempts int) (workqueue.Item, error) {
	it.ReviewedBy = by
	return it.queueItem(st, attempts, it.CreatedAt)
}

// integratedItem returns the queue item of an item that a stage emits and no stage takes.
func (it Item) integratedItem(stage, agent string, created time.Time) (workqueue.Item, error) {
	item, err := it.queueItem(pipeline.Stage{Name: stage}, 0, created)
	if err != nil {
		return item, err
	}
	result, err := json.Marshal(outcome{Agent: agent, At: created.UnixMilli()})
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
	it := e.Item
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

// patchable are the fields of an item that an agent may set when it ends its work.
type patchable struct {
	Text              *string         `json:"text"`
	Name              *string         `json:"name"`
	Type              *string         `json:"type"`
	SourceDocument    *string         `json:"source_document"`
	SourceLocation    *string         `json:"source_location"`
	Labels            map[string]bool `json:"labels"`
	ResearchNotes     *string         `json:"research_notes"`
	Citations         []string        `json:"citations"`
	MentionedObjects  []string        `json:"mentioned_objects"`
	MentionedMessages []string        `json:"mentioned_messages"`
	Confidence        *float64        `json:"confidence_score"`
	ExternalID        *string         `json:"external_id"`
	Priority          *string         `json:"priority"`
	Data              json.RawMessage `json:"data"`
}

// apply sets the fields of a patch. Labels are merged, lists replaced.
func (it *Item) apply(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var p patchable
	if err := json.Unmarshal(raw, &p); err != nil {
		return bad("item", "cannot be read: %v", err)
	}
	for to, from := range map[*string]*string{
		&it.Text: p.Text, &it.Name: p.Name, &it.Type: p.Type, &it.SourceDocument: p.SourceDocument, &it.SourceLocation: p.SourceLocation,
		&it.ResearchNotes: p.ResearchNotes, &it.ExternalID: p.ExternalID, &it.Priority: p.Priority,
	} {
		if from != nil {
			*to = *from
		}
	}
	for to, from := range map[*[]string][]string{&it.Citations: p.Citations, &it.MentionedObjects: p.MentionedObjects, &it.MentionedMessages: p.MentionedMessages} {
		if from != nil {
			*to = from
		}
	}
	if len(p.Labels) > 0 {
		labels := map[string]bool{}
		for name, on := range it.Labels {
			labels[name] = on
		}
		for name, on := range p.Labels {
			labels[name] = on
		}
		it.Labels = labels
	}
	if p.Confidence != nil {
		it.Confidence = p.Confidence
	}
	if len(p.Data) > 0 {
		it.Data = p.Data
	}
	return nil
}
