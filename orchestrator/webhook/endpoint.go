package webhook

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/nearest"
	"muster/internal/webhook"
	"muster/jobs"
	"muster/orchestrator/event"
)

// States of an endpoint.
const (
	StateActive   = "active"
	StateFailing  = "failing"  // a delivery was given up, and none was acknowledged since
	StateDisabled = "disabled" // it gets no deliveries
)

// States are all states of an endpoint.
var States = []string{StateActive, StateFailing, StateDisabled}

// maxEvents is the maximum number of event types of an endpoint.
const maxEvents = 50

// Static is an endpoint of the configuration.
type Static struct {
	Name    string
	URL     string
	Events  []string // see New. Defaults to all.
	Secrets []string // one or two
}

// NewEndpoint is an endpoint to create.
type NewEndpoint struct {
	Name   string   // unique, of up to 100 letters, digits, ., _ and -. Defaults to the id.
	URL    string   // http or https, to an address that Config.Filter allows.
	Events []string // types of events, or beginnings as in job.*. Defaults to all.
}

// Edit changes an endpoint. Nil fields remain unchanged.
type Edit struct {
	URL      *string
	Events   *[]string
	Disabled *bool
}

// Endpoint is a receiver of events.
type Endpoint struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	URL            string    `json:"url"`
	Events         []string  `json:"events" doc:"types of events, or prefixes such as job.*; empty means all"`
	State          string    `json:"state" enum:"active,failing,disabled" doc:"failing: a delivery was given up, and none was acknowledged since"`
	Reason         string    `json:"reason,omitempty" doc:"why it is disabled"`
	Static         bool      `json:"static,omitempty" doc:"it is in the configuration"`
	OldSecretUntil time.Time `json:"old_secret_until,omitzero" doc:"until then requests are signed with the secret before the last rotation too"`
	Created        time.Time `json:"created_at"`
	Pending        int64     `json:"pending" doc:"deliveries that wait or are being sent"`
	Delivered      int64     `json:"delivered" doc:"deliveries that were acknowledged"`
	GivenUp        int64     `json:"given_up" doc:"deliveries that failed for a day"`
	FailingSince   time.Time `json:"failing_since,omitzero" doc:"when an attempt failed after the last that was acknowledged"`
	LastDelivered  time.Time `json:"last_delivered_at,omitzero"`
	LastFailure    time.Time `json:"last_failure_at,omitzero"`
	LastError      string    `json:"last_error,omitempty"`
}

// record is an endpoint as stored in Redis, without its ID.
type record struct {
	Name     string    `json:"name"`
	URL      string    `json:"url"`
	Events   []string  `json:"events,omitempty"`
	Secrets  []secret  `json:"secrets"` // the newest first
	Disabled bool      `json:"disabled,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Created  time.Time `json:"created"`
}

// parseRecord decodes the record of an endpoint.
func parseRecord(id, text string) (record, error) {
	var r record
	err := json.Unmarshal([]byte(text), &r)
	if err == nil && r.Name == "" {
		err = errors.New("the name is missing")
	}
	if err != nil {
		return r, fmt.Errorf("decode webhook %.100q of key %s: %w", id, endpointsKey, err)
	}
	return r, nil
}

type secret struct {
	Key   string    `json:"key"`
	Until time.Time `json:"until,omitzero"` // zero: without end
}

// valid returns the secrets that sign requests at a time.
func (r record) valid(now time.Time) []string {
	var keys []string
	for _, s := range r.Secrets {
		if s.Until.IsZero() || now.Before(s.Until) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// wants reports whether the endpoint receives events of a type.
func (r record) wants(eventType string) bool {
	return !r.Disabled && (len(r.Events) == 0 || slices.ContainsFunc(r.Events, func(pattern string) bool { return matches(pattern, eventType) }))
}

// matches reports whether a pattern equals a type or, with a final asterisk, is a prefix of it.
func matches(pattern, eventType string) bool {
	start, open := strings.CutSuffix(pattern, "*")
	return pattern == eventType || open && strings.HasPrefix(eventType, start)
}

func bad(field, format string, args ...any) error {
	return &jobs.FieldError{Field: field, Why: fmt.Sprintf(format, args...)}
}

var endpointName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// checkEvents returns a *job.FieldError for patterns that match no event type.
func checkEvents(patterns []string) error {
	if len(patterns) > maxEvents {
		return bad("events", "specify at most %d types", maxEvents)
	}
	for i, p := range patterns {
		if p == "*" || slices.ContainsFunc(event.Types, func(t string) bool { return matches(p, t) }) {
			continue
		}
		hint := ""
		if near := nearest.Word(p, event.Types); near != "" {
			hint = ", did you mean " + near + "?"
		}
		return bad(fmt.Sprintf("events[%d]", i), "unknown event type %.60q%s; use %s, or a prefix such as job.*", p, hint, strings.Join(event.Types, ", "))
	}
	return nil
}

// checkURL returns a *job.FieldError for a URL that cannot receive requests.
func (c *core) checkURL(text string) error {
	if err := webhook.CheckURL(text); err != nil {
		return bad("url", "%v", err)
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("url", "invalid URL")
	}
	if err := c.cfg.Filter.CheckURL(u); err != nil { // names are checked on connection
		return bad("url", "%v", err)
	}
	return nil
}

// record returns the record of an endpoint of the configuration.
func (st Static) record() (record, error) {
	r := record{Name: st.Name, URL: st.URL, Events: st.Events}
	for _, key := range st.Secrets {
		if err := webhook.CheckSecret(key); err != nil {
			return r, fmt.Errorf("webhook %s: %w", st.Name, err)
		}
		r.Secrets = append(r.Secrets, secret{Key: key})
	}
	if len(r.Secrets) < 1 || len(r.Secrets) > 2 || !endpointName.MatchString(st.Name) {
		return r, fmt.Errorf("webhook %.100q: a name and one or two secrets are required", st.Name)
	}
	if err := webhook.CheckURL(st.URL); err != nil {
		return r, fmt.Errorf("webhook %s: url: %w", st.Name, err)
	}
	if err := checkEvents(st.Events); err != nil {
		return r, fmt.Errorf("webhook %s: %w", st.Name, err)
	}
	return r, nil
}

// staticID returns the ID of an endpoint of the configuration.
func staticID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "static-" + hex.EncodeToString(sum[:6])
}

// newID returns 64 random bits as text.
func newID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// endpoints are the records of endpoints in Redis.
type endpoints struct {
	*core
	static []record // of the configuration

	mu    sync.Mutex // guards the fields below, and lets one caller read
	read  time.Time
	cache map[string]record
}

// staleFor is the maximum age of a cached record.
const staleFor = time.Second

// records returns the records of all endpoints by ID, at most a second old. Callers must not change them.
func (s *endpoints) records(ctx context.Context) (map[string]record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache != nil && time.Since(s.read) < staleFor {
		return s.cache, nil
	}
	texts, err := s.rdb.HGetAll(ctx, endpointsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("read the webhooks: %w", err)
	}
	all := make(map[string]record, len(texts))
	for id, text := range texts {
		if all[id], err = parseRecord(id, text); err != nil {
			return nil, err
		}
	}
	s.cache, s.read = all, time.Now()
	return all, nil
}

// remembered returns the number of endpoints, including removed ones that may still have deliveries.
func (s *endpoints) remembered(ctx context.Context) (int, error) {
	known, err := s.records(ctx)
	if err != nil {
		return 0, err
	}
	removed, err := s.rdb.ZCard(ctx, removedKey).Result()
	return len(known) + int(removed), err
}

// forgetKnown invalidates the cache of known.
func (s *endpoints) forgetKnown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache = nil
}
