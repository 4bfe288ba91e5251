package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/orchestrator/event"
	"muster/orchestrator/pipeline"
	"muster/tasks/workqueue"
)

// Saved is a job as a backup has it, without its items.
type Saved struct {
	ID string `json:"id"`
	// Record are the fields of the job: texts, numbers, times as RFC 3339, durations as in 1h0m0s, and JSON.
	Record map[string]json.RawMessage  `json:"record"`
	Usage  map[string]map[string]int64 `json:"usage,omitempty"`  // by agent
	Events []event.Event               `json:"events,omitempty"` // the last ones, oldest first
}

// SavedItem is an item of a job, or a stage that takes the job, as a backup has it.
type SavedItem struct {
	Job         string          `json:"job"`
	ID          string          `json:"id"` // stage/NAME or item/KEY
	Stage       string          `json:"stage"`
	State       workqueue.State `json:"state"`
	Attempts    int             `json:"attempts,omitempty"`     // that have failed
	Retried     int             `json:"retried,omitempty"`      // how often it got new attempts
	MaxAttempts int             `json:"max_attempts,omitempty"` // 0: the setting jobs.max_retries
	Priority    int             `json:"priority,omitempty"`
	Since       time.Time       `json:"since"`               // in this state, or ready
	NotBefore   time.Time       `json:"not_before,omitzero"` // of one that waits for another attempt
	Note        string          `json:"note,omitempty"`      // last error, or the reason of a rejection
	Item        json.RawMessage `json:"item,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	// Item and Result of those that are not JSON, because they are damaged.
	RawItem   []byte `json:"item_base64,omitempty"`
	RawResult []byte `json:"result_base64,omitempty"`
}

// form is how the field of a record is written in a backup.
type form int

const (
	asText form = iota
	asNumber
	asTime     // unix ms in Redis
	asDuration // ms in Redis
	asJSON
)

// forms are those of the fields of a record that are not texts.
var forms = map[string]form{
	"version": asNumber, "priority": asNumber, "generation": asNumber, "futile": asNumber, "recoveries": asNumber,
	"created": asTime, "updated": asTime, "started": asTime, "ended": asTime, "at": asTime, "progressed": asTime, "waited": asTime,
	"stuck_after": asDuration, "timeout": asDuration,
	"pipeline": asJSON, "doc": asJSON, "context": asJSON, "labels": asJSON, "after": asJSON, "details": asJSON, "final": asJSON,
}

func formOf(field string) form {
	if strings.HasPrefix(field, "done:") {
		return asTime
	}
	return forms[field]
}

// passing are the fields of a record that mean nothing outside of its Redis: its place in the list of all jobs, where
// its workflow is, what was counted of it and what was told of it.
func passing(field string) bool {
	return field == "seq" || field == "phase" || field == "node" || field == "counted" || field == "endings" || strings.HasPrefix(field, "told:")
}

// saved returns the fields of a record as a backup has them.
func (r record) saved() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for field, value := range r {
		if passing(field) {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		switch f := formOf(field); {
		case f == asJSON && json.Valid([]byte(value)):
			out[field] = json.RawMessage(value)
		case f == asNumber && err == nil:
			out[field] = json.RawMessage(strconv.FormatInt(n, 10))
		case f == asTime && err == nil:
			out[field] = quoted(time.UnixMilli(n).UTC().Format(time.RFC3339Nano))
		case f == asDuration && err == nil:
			out[field] = quoted((time.Duration(n) * time.Millisecond).String())
		default:
			out[field] = quoted(value)
		}
	}
	return out
}

func quoted(text string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // never fails
	return bytes.TrimSpace(b.Bytes())
}

// Limits of a saved job.
const (
	maxFields = 2000
	maxEvents = 2000 // of a job
	maxField  = 8 << 20
)

// record returns the record of a saved job. Its errors name the field.
func (s Saved) record() (record, error) {
	if err := checkID(s.ID); err != nil {
		return nil, err
	}
	if len(s.Record) > maxFields || len(s.Events) > maxEvents {
		return nil, fmt.Errorf("job %s has %d fields and %d events; at most %d of each are allowed", s.ID, len(s.Record), len(s.Events), maxFields)
	}
	r := record{}
	for _, field := range slices.Sorted(maps.Keys(s.Record)) {
		if passing(field) {
			continue
		}
		value, err := restored(field, s.Record[field])
		if err != nil {
			return nil, fmt.Errorf("job %s: field %.60q: %w", s.ID, field, err)
		}
		r[field] = value
	}
	return r, r.check(s.ID)
}

// restored returns the value of a field as Redis has it.
func restored(field string, raw json.RawMessage) (string, error) {
	if field == "" || len(field) > 200 || len(raw) > maxField {
		return "", fmt.Errorf("a field has a name of up to 200 bytes, and up to %d bytes", maxField)
	}
	f := formOf(field)
	if f == asJSON {
		if err := CheckJSON(field, raw, maxField); err != nil {
			return "", err
		}
		var b bytes.Buffer
		err := json.Compact(&b, raw)
		return b.String(), err
	}
	var text string
	if f == asNumber {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return "", fmt.Errorf("%.40s is no whole number", raw)
		}
		return strconv.FormatInt(n, 10), nil
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", fmt.Errorf("%.40s is no text", raw)
	}
	switch f {
	case asTime:
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return "", fmt.Errorf("%.40q is no time; write it as in 2026-01-31T12:00:00Z", text)
		}
		return strconv.FormatInt(t.UnixMilli(), 10), nil
	case asDuration:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return "", fmt.Errorf("%.40q is no duration; write it as in 1h30m", text)
		}
		return strconv.FormatInt(d.Milliseconds(), 10), nil
	}
	return text, nil
}

// check returns what makes a restored record one that no job has.
func (r record) check(id string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("job %s: "+format, append([]any{id}, args...)...)
	}
	if !slices.Contains(Kinds, r["kind"]) {
		return fail("%.40q is no kind of jobs; there are %s", r["kind"], strings.Join(Kinds, ", "))
	}
	if !slices.Contains(Statuses, r.status()) {
		return fail("%.40q is no state of a job", string(r.status()))
	}
	if r["name"] == "" || r["created"] == "" || r["version"] == "" {
		return fail("a job has a name, a version and the time when it was created")
	}
	if r.status().Terminal() && r["ended"] == "" {
		return fail("it is %s, and does not say when it ended", r.status())
	}
	for _, list := range []string{"labels", "after"} {
		var texts []string
		if r[list] != "" && json.Unmarshal([]byte(r[list]), &texts) != nil {
			return fail("%s is no list of texts", list)
		}
	}
	if err := checkLabels(r.list("labels")); err != nil {
		return fail("%w", err)
	}
	if d := r.document(); r["doc"] != "" && (d == nil || !isHash(d.Hash)) {
		return fail("doc is no document with its SHA-256")
	}
	for _, other := range r.list("after") {
		if err := checkID(other); err != nil {
			return fail("after: %w", err)
		}
	}
	p, err := r.pipeline()
	switch {
	case err != nil:
		return fail("%w", err)
	case r["kind"] != KindPipeline:
		return nil
	case p == nil:
		return fail("a job of a pipeline has the pipeline in its record")
	}
	if err := pipeline.Validate(p); err != nil {
		return fail("%w", err)
	}
	return nil
}

// isHash reports whether a text is a SHA-256 in hexadecimal.
func isHash(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// savedItem returns an item of the queue of a job as a backup has it.
func savedItem(job string, info workqueue.Info) SavedItem {
	it := SavedItem{
		Job: job, ID: info.ID, Stage: info.Kind, State: info.State, Attempts: info.Attempts, Retried: info.Retried, MaxAttempts: info.MaxAttempts,
		Priority: info.Priority, Since: info.Updated.UTC(), Note: info.Note,
	}
	if info.State == workqueue.StateInProgress {
		it.State, it.Since = workqueue.StateQueued, info.Ready.UTC() // its lease ends with its Redis
	}
	if !info.Available.IsZero() {
		it.NotBefore = info.Available.UTC()
	}
	if json.Valid(info.Payload) {
		it.Item = info.Payload
	} else {
		it.RawItem = info.Payload
	}
	if json.Valid(info.Result) {
		it.Result = info.Result
	} else if info.Result != nil {
		it.RawResult = info.Result
	}
	return it
}

// queued returns the item as one of the queue.
func (it SavedItem) queued(p *pipeline.Pipeline) (workqueue.Info, error) {
	if p.Stage(it.Stage) == nil {
		return workqueue.Info{}, fmt.Errorf("item %.80q: the pipeline has no stage %.40q", it.ID, it.Stage)
	}
	if !strings.HasPrefix(it.ID, itemID("")) && it.ID != stageID(it.Stage) {
		return workqueue.Info{}, fmt.Errorf("item %.80q is neither item/KEY nor stage/%s", it.ID, it.Stage)
	}
	info := workqueue.Info{
		Item:  workqueue.Item{ID: it.ID, Kind: it.Stage, ResourceKeys: []string{lane(it.Stage)}, MaxAttempts: it.MaxAttempts, Priority: it.Priority},
		State: it.State, Attempts: it.Attempts, Retried: it.Retried, Note: it.Note, Updated: it.Since, Ready: it.Since, Available: it.NotBefore,
	}
	info.Payload, info.Result = it.Item, it.Result
	if it.RawItem != nil {
		info.Payload = it.RawItem
	}
	if it.RawResult != nil {
		info.Result = it.RawResult
	}
	return info, nil
}
