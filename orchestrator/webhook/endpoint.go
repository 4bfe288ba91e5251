package webhook

import (
	"cmp"
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
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/nearest"
	"muster/internal/webhook"
	"muster/jobs"
	"muster/orchestrator/event"
	"muster/tasks/tasktype"
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
	NewEndpoint `yaml:",inline"`
	Secrets     []string `yaml:"secrets"` // one or two
}

// NewEndpoint is an endpoint to create. Workflows and Labels select events of workflows.
type NewEndpoint struct {
	Name      string   `yaml:"name" json:"name,omitempty" cli:"name" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits, and . _ - after the first" doc:"unique name. Defaults to the id." example:"ops"`
	URL       string   `yaml:"url" json:"url" cli:"arg" maxLength:"2000" pattern:"^https?://" patternDescription:"an http or https URL" doc:"that receives the events. Its address must be public, or in the setting network.allow." example:"https://ops.example.org/muster"`
	Events    []string `yaml:"events" json:"events,omitempty" cli:"event" maxItems:"50" maxLength:"60" pattern:"^[a-z.*_]+$" patternDescription:"the type of an event, or a prefix as in job.*" doc:"types of events to send. Defaults to all." example:"job.completed"`
	Workflows []string `yaml:"workflows" json:"workflows,omitempty" cli:"workflow" maxItems:"50" maxLength:"200" doc:"for events that begin with workflow: names of workflows, or prefixes as in billing-*. Defaults to all but Muster's own." example:"billing-*"`
	Labels    []string `yaml:"labels" json:"labels,omitempty" cli:"label" maxItems:"20" maxLength:"1024" doc:"for events that begin with workflow: labels that the workflow has, KEY=VALUE" example:"team=billing"`
	Format    string   `yaml:"format" json:"format,omitempty" cli:"format" enum:"json,text,slack,teams" doc:"of the body. Defaults to json."`
}

// EndpointEdit changes an endpoint. Nil fields remain unchanged.
type EndpointEdit struct {
	URL       *string   `json:"url,omitempty" maxLength:"2000" pattern:"^https?://" patternDescription:"an http or https URL" doc:"waiting deliveries are sent to it, too"`
	Events    *[]string `json:"events,omitempty" maxItems:"50" maxLength:"60" pattern:"^[a-z.*_]+$" patternDescription:"the type of an event, or a prefix as in job.*"`
	Workflows *[]string `json:"workflows,omitempty" maxItems:"50" maxLength:"200"`
	Labels    *[]string `json:"labels,omitempty" maxItems:"20" maxLength:"1024"`
	Format    *string   `json:"format,omitempty" enum:"json,text,slack,teams"`
	Secrets   *[]string `json:"secrets,omitempty" minItems:"1" maxItems:"2" maxLength:"200" doc:"that sign the requests; to replace one, set the new and the old one until the receiver has the new one" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
	Disabled  *bool     `json:"disabled,omitempty" doc:"true: it receives nothing, and its waiting deliveries are skipped"`
}

// Endpoint is a receiver of events.
type Endpoint struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	URL           string    `json:"url"`
	Events        []string  `json:"events" doc:"types of events, or prefixes such as job.*; empty means all"`
	Workflows     []string  `json:"workflows,omitempty" doc:"names of workflows, or prefixes, whose events it gets; empty means all but Muster's own"`
	Labels        []string  `json:"labels,omitempty" doc:"labels of workflows, KEY=VALUE, whose events it gets"`
	State         string    `json:"state" enum:"active,failing,disabled" doc:"failing: a delivery was given up, and none was acknowledged since"`
	Reason        string    `json:"reason,omitempty" doc:"why it is disabled"`
	Format        string    `json:"format" enum:"json,text,slack,teams"`
	Static        bool      `json:"static,omitempty" doc:"it is in the configuration"`
	Created       time.Time `json:"created_at,omitzero" doc:"absent if it is in the configuration"`
	Pending       int64     `json:"pending" doc:"deliveries that wait or are being sent"`
	Delivered     int64     `json:"delivered" doc:"deliveries in the log that were acknowledged"`
	GivenUp       int64     `json:"given_up" doc:"deliveries in the log that failed for a day"`
	LastDelivered time.Time `json:"last_delivered_at,omitzero"`
	LastFailure   time.Time `json:"last_failure_at,omitzero"`
	LastError     string    `json:"last_error,omitempty"`
}

// record is an endpoint as stored in Redis, without its ID.
type record struct {
	NewEndpoint
	Secrets  []string  `json:"secrets"`
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
		return bad(fmt.Sprintf("events[%d]", i), "unknown event type %.60q%s; use %s, or a prefix such as job.*", p, nearest.Hint(p, event.Types), strings.Join(event.Types, ", "))
	}
	return nil
}

// check returns a *job.FieldError for what selects and forms the messages of an endpoint.
func (n NewEndpoint) check() error {
	return cmp.Or(checkEvents(n.Events), checkFormat(n.Format), checkLabels(n.Labels))
}

// checkLabels returns a *job.FieldError for labels that are not KEY=VALUE.
func checkLabels(labels []string) error {
	if _, err := tasktype.ParseLabels(labels); err != nil {
		return bad("labels", "%v", err)
	}
	return nil
}

// checkSecrets returns a *job.FieldError unless there are one or two valid secrets.
func checkSecrets(keys []string) error {
	if len(keys) < 1 || len(keys) > 2 {
		return bad("secrets", "one or two secrets are required")
	}
	for _, key := range keys {
		if err := webhook.CheckSecret(key); err != nil {
			return bad("secrets", "%v", err)
		}
	}
	return nil
}

// checkURL returns a *job.FieldError for a URL that cannot receive requests.
func (s *Service) checkURL(text string) error {
	if err := webhook.CheckURL(text); err != nil {
		return bad("url", "%v", err)
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("url", "invalid URL")
	}
	if err := s.cfg.Filter.CheckURL(u); err != nil { // names are checked on connection
		return bad("url", "%v", err)
	}
	return nil
}

// String returns a description without secrets.
func (st Static) String() string {
	text := st.Name + " " + webhook.ShownURL(st.URL)
	if len(st.Events) > 0 {
		text += " (" + strings.Join(st.Events, ", ") + ")"
	}
	return text
}

// CheckStatic returns an error for each endpoint that is invalid.
func CheckStatic(list []Static) []error {
	var errs []error
	seen := map[string]bool{}
	for _, st := range list {
		err := cmp.Or(checkSecrets(st.Secrets), webhook.CheckURL(st.URL), st.check())
		if !endpointName.MatchString(st.Name) {
			err = errors.New("a name is required")
		} else if err == nil && seen[st.Name] {
			err = errors.New("duplicate name; set a unique name")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("webhook %.100s: %w", st.Name, err))
		}
		seen[st.Name] = true
	}
	return errs
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

// staleFor is the maximum age of a cached record.
const staleFor = time.Second

// records returns the records of all endpoints by ID, at most a second old. Callers must not change them.
func (s *Service) records(ctx context.Context) (map[string]record, error) {
	s.known.Lock()
	defer s.known.Unlock()
	if s.cache != nil && time.Since(s.read) < staleFor {
		return s.cache, nil
	}
	var texts, off *redis.MapStringStringCmd
	if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		texts, off = p.HGetAll(ctx, endpointsKey), p.HGetAll(ctx, offKey)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the webhooks: %w", err)
	}
	all := make(map[string]record, len(texts.Val())+len(s.static))
	for id, text := range texts.Val() {
		r, err := parseRecord(id, text)
		if err != nil {
			return nil, err
		}
		all[id] = r
	}
	for id, r := range s.static {
		r.Reason, r.Disabled = off.Val()[id], off.Val()[id] != ""
		all[id] = r
	}
	s.cache, s.read = all, time.Now()
	return all, nil
}

// record returns the current record of an endpoint. It returns ErrNoEndpoint.
func (s *Service) record(ctx context.Context, id string) (record, error) {
	s.forgetKnown()
	all, err := s.records(ctx)
	r, ok := all[id]
	if err == nil && !ok {
		err = fmt.Errorf("%w: %.100q", ErrNoEndpoint, id)
	}
	return r, err
}

// forgetKnown invalidates the cache of records.
func (s *Service) forgetKnown() {
	s.known.Lock()
	defer s.known.Unlock()
	s.cache = nil
}
