package workqueue

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of an item, beside Config.MaxPayload.
const (
	MaxID           = 2048 // bytes of an ID
	MaxResourceKeys = 8    // resource keys of an item
	MaxPriority     = 100  // priorities run from -MaxPriority to MaxPriority
	maxKey          = 512  // bytes of a resource key
	maxHeader       = 64 << 10
	maxNote         = 1000 // bytes of an error or reason
)

// Item is a unit of work.
type Item struct {
	ID           string            // unique in its queue: the idempotence key
	Kind         string            // names the handler
	Payload      []byte            // for the handler, usually JSON
	ResourceKeys []string          // resources whose limits apply to it, such as "host:example.com"
	Priority     int               // higher first; 0 is normal
	Labels       map[string]string // for people and reports
	NotBefore    time.Time         // not leased earlier; zero: at once
	MaxAttempts  int               // 0: the queue's

	// Done adds the item in StateDone, with Result, instead of queueing it.
	Done   bool
	Result []byte
}

// header is the part of an item that is stored in front of its payload.
type header struct {
	// Passed is the token of the lease that passed the item. It comes first, as
	// pass.lua looks for it there.
	Passed int64             `json:"passed,omitempty"`
	Kind   string            `json:"kind,omitempty"`
	Keys   []string          `json:"keys,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// check validates an item.
func (it *Item) check(maxPayload int) error {
	switch {
	case it.ID == "":
		return errors.New("item without id")
	case len(it.ID) > MaxID:
		return fmt.Errorf("item id %.40q… has %d bytes; %d are allowed", it.ID, len(it.ID), MaxID)
	case !utf8.ValidString(it.ID) || strings.ContainsFunc(it.ID, unicode.IsControl):
		return fmt.Errorf("item id %.80q is not plain UTF-8 text", it.ID)
	case it.Done != (it.Result != nil) || len(it.Result) > maxPayload:
		return fmt.Errorf("item %q: an item that is done has a result of up to %d bytes, others have none", it.ID, maxPayload)
	case len(it.Payload) > maxPayload:
		return fmt.Errorf("item %q: payload has %d bytes; %d are allowed", it.ID, len(it.Payload), maxPayload)
	case it.Priority < -MaxPriority || it.Priority > MaxPriority:
		return fmt.Errorf("item %q: priority %d is not within ±%d", it.ID, it.Priority, MaxPriority)
	case it.MaxAttempts < 0:
		return fmt.Errorf("item %q: max attempts %d is below zero", it.ID, it.MaxAttempts)
	case len(it.ResourceKeys) > MaxResourceKeys:
		return fmt.Errorf("item %q has %d resource keys; %d are allowed", it.ID, len(it.ResourceKeys), MaxResourceKeys)
	case !utf8.ValidString(it.Kind):
		return fmt.Errorf("item %q: kind is not valid UTF-8", it.ID)
	}
	for _, k := range it.ResourceKeys {
		if k == "" || len(k) > maxKey || !utf8.ValidString(k) || strings.ContainsFunc(k, unicode.IsControl) {
			return fmt.Errorf("item %q: resource key %.80q is empty, too long or not plain text", it.ID, k)
		}
	}
	for k, v := range it.Labels {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("item %q: label %.80q is not valid UTF-8", it.ID, k)
		}
	}
	return nil
}

// spec encodes the part of an item that only Pass changes, by the lease of a
// token; 0 is none.
func (it *Item) spec(passed int64) (string, error) {
	h, err := json.Marshal(header{Passed: passed, Kind: it.Kind, Keys: it.ResourceKeys, Labels: it.Labels})
	if err != nil {
		return "", fmt.Errorf("item %q: %w", it.ID, err)
	}
	if len(h) > maxHeader {
		return "", fmt.Errorf("item %q: kind, resource keys and labels take %d bytes; %d are allowed", it.ID, len(h), maxHeader)
	}
	return string(h) + "\n" + string(it.Payload), nil
}

// parseSpec is the reverse of spec.
func parseSpec(id, spec string) (it Item, passed int64, err error) {
	head, payload, ok := strings.Cut(spec, "\n")
	var h header
	if !ok {
		return Item{}, 0, fmt.Errorf("item %q is stored without a header", id)
	}
	if err := json.Unmarshal([]byte(head), &h); err != nil {
		return Item{}, 0, fmt.Errorf("item %q: read its header: %w", id, err)
	}
	return Item{ID: id, Kind: h.Kind, ResourceKeys: h.Keys, Labels: h.Labels, Payload: []byte(payload)}, h.Passed, nil
}

// rank is the priority as the scripts sort it, smallest first.
func (it *Item) rank() int { return MaxPriority - it.Priority }

// delay is how many ms from now the item is not ready, or -1 for an item that is done. It travels as a duration: the clocks of machines differ.
func (it *Item) delay() int64 {
	if it.Done {
		return -1
	}
	if it.NotBefore.IsZero() {
		return 0
	}
	return max(0, (time.Until(it.NotBefore) + time.Millisecond - 1).Milliseconds())
}

// lane names the set of resources that an item needs.
func (it *Item) lane() string {
	if len(it.ResourceKeys) == 0 {
		return "\x1f"
	}
	var b strings.Builder
	for _, k := range it.ResourceKeys {
		b.WriteString(k)
		b.WriteByte(0x1f)
	}
	return b.String()
}

// State is the state of an item.
type State string

// The states of an item. The last three are terminal.
const (
	StateQueued     State = "queued" // ready, or waiting for its time
	StateInProgress State = "in_progress"
	StateDone       State = "done"
	StateSkipped    State = "skipped"
	StateError      State = "error"
)

// Terminal reports whether an item leaves s only by Requeue or, for another
// terminal state, by Amend.
func (s State) Terminal() bool { return s == StateDone || s == StateSkipped || s == StateError }

// letter is how the scripts spell a terminal state.
func (s State) letter() (string, error) {
	switch s {
	case StateDone:
		return "d", nil
	case StateSkipped:
		return "s", nil
	case StateError:
		return "e", nil
	}
	return "", fmt.Errorf("%q is not a terminal state; use done, skipped or error", string(s))
}

func stateOf(letter string) State {
	switch letter {
	case "q", "w":
		return StateQueued
	case "i":
		return StateInProgress
	case "d":
		return StateDone
	case "s":
		return StateSkipped
	case "e":
		return StateError
	}
	return State(letter)
}

// Leased is an item that a worker holds.
type Leased struct {
	Item
	Token    int64         // of this lease; no other lease in the queue has it
	Worker   string        // that holds it
	Attempts int           // runs that failed before this one
	Retried  int           // how often the item was requeued
	Waited   time.Duration // how long it was ready
}

// Info is an item with its state.
type Info struct {
	Item
	State     State
	Attempts  int       // runs that failed since it was last requeued
	Retried   int       // how often it was requeued
	Token     int64     // of its last lease; 0 after Requeue, Pass, and a Seal that ended it
	Passed    int64     // token of the lease that passed it here; 0 if none did
	Worker    string    // the worker that holds it, while in progress
	Note      string    // last error, or the reason it was skipped
	Result    []byte    // as given to Settle; nil if none was
	Available time.Time // when it is ready, while delayed; by this machine's clock
	Expires   time.Time // when its lease ends, while in progress; by this machine's clock

	// Ready is when it became ready for the last time; zero while it is delayed
	// and when it has ended. By Redis's clock.
	Ready time.Time
	// Updated is when it came into its state, by Redis's clock. Of an item in
	// progress it is when its lease was taken or last extended, if all users of
	// the queue have the same LeaseTTL; of one that was returned, or that a version
	// of the program before this field ended, it is when it was ready before that.
	Updated time.Time
}

// parseInfo reads one item of get.lua's reply.
func parseInfo(id string, v []any, now time.Time) (Info, error) {
	it, passed, err := parseSpec(id, toString(v[1]))
	if err != nil {
		return Info{}, err
	}
	info := Info{Item: it, Passed: passed, Note: toString(v[2])}
	record := toString(v[0])
	if err := info.setRecord(record); err != nil {
		return Info{}, err
	}
	if toInt(v[3]) == 1 {
		info.Result = []byte(toString(v[4]))
	}
	if record[0] == 'w' {
		info.Available = now.Add(time.Duration(toInt(v[5])) * time.Millisecond)
	}
	if record[0] == 'i' {
		info.Expires = now.Add(time.Duration(toInt(v[6])) * time.Millisecond)
	}
	return info, nil
}

// setRecord sets the values that the record of an item has.
func (i *Info) setRecord(record string) error {
	f := strings.SplitN(record, " ", recordFields)
	if len(f) != recordFields {
		return fmt.Errorf("item %q has the invalid record %q", i.ID, record)
	}
	var n [6]int64
	for k := range n {
		var err error
		if n[k], err = strconv.ParseInt(f[k+1], 10, 64); err != nil {
			return fmt.Errorf("item %q is stored as %q: %w", i.ID, record, err)
		}
	}
	i.State, i.Attempts, i.Retried, i.Token = stateOf(f[0]), int(n[0]), int(n[1]), n[2]
	i.Priority, i.MaxAttempts = MaxPriority-int(n[3]), int(n[5])
	_, i.Worker = cutLane(f[recordFields-1])
	return nil
}

// setTimes sets Ready and Updated from an item of get.lua's reply that parseInfo has read, and Redis's time in unix
// ms.
func (i *Info) setTimes(v []any, now int64, ttl time.Duration) {
	f := strings.SplitN(toString(v[0]), " ", recordFields)
	since, _ := strconv.ParseInt(f[recordFields-2], 10, 64)
	i.Updated = time.UnixMilli(since)
	switch f[0] {
	case "q":
		i.Ready = i.Updated
	case "i":
		i.Ready = i.Updated
		extended := now + toInt(v[6]) - ttl.Milliseconds()
		i.Updated = time.UnixMilli(max(since, min(extended, now)))
	}
}

// note cuts the text of an error or reason to the length that is stored.
func note(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxNote {
		return s
	}
	cut := maxNote
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
