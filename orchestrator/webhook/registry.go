package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/webhook"
	"muster/tasks/workqueue"
)

// List returns all endpoints by name.
func (s *Service) List(ctx context.Context) ([]Endpoint, error) {
	s.forgetKnown()
	all, err := s.records(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Endpoint, 0, len(all))
	for id, r := range all {
		out = append(out, s.endpoint(id, r))
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return out, s.addNumbers(ctx, out)
}

// Get returns an endpoint, or ErrNoEndpoint.
func (s *Service) Get(ctx context.Context, id string) (Endpoint, error) {
	r, err := s.record(ctx, id)
	if err != nil {
		return Endpoint{}, err
	}
	one := []Endpoint{s.endpoint(id, r)}
	err = s.addNumbers(ctx, one)
	return one[0], err
}

// endpoint converts a record to an endpoint.
func (s *Service) endpoint(id string, r record) Endpoint {
	e := Endpoint{ID: id, Name: r.Name, URL: r.URL, Events: append([]string{}, r.Events...), Workflows: r.Workflows, Labels: r.Labels, Format: cmp.Or(r.Format, FormatJSON), State: StateActive, Reason: r.Reason, Created: r.Created}
	_, e.Static = s.static[id]
	if r.Disabled {
		e.State = StateDisabled
	}
	return e
}

// addNumbers adds the numbers of their deliveries to endpoints.
func (s *Service) addNumbers(ctx context.Context, list []Endpoint) error {
	if len(list) == 0 {
		return nil
	}
	lanes, err := s.queue.LaneStats(ctx)
	if err != nil {
		return err
	}
	numbers := make([]*redis.MapStringStringCmd, len(list))
	if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, e := range list {
			numbers[i] = p.HGetAll(ctx, numbersKey(e.ID))
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the numbers of webhooks: %w", err)
	}
	for i := range list {
		e, n := &list[i], numbers[i].Val()
		at := func(name string) time.Time {
			ms, err := strconv.ParseInt(n[name], 10, 64)
			if err != nil {
				return time.Time{}
			}
			return time.UnixMilli(ms).UTC()
		}
		lane := lanes[e.ID]
		e.Pending, e.Delivered, e.GivenUp = lane.Queued+lane.InProgress, lane.Done, lane.Error
		e.LastDelivered, e.LastFailure, e.LastError = at("last_ok"), at("last_failure"), n["last_error"]
		if e.State == StateActive && at("given_up").After(e.LastDelivered) {
			e.State = StateFailing
		}
	}
	return nil
}

// put stores a record in place of old, which is "" for a new endpoint.
func (s *Service) put(ctx context.Context, id string, r record, old string) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("store webhook %s: %w", id, err)
	}
	n, err := scripts["put"].Run(ctx, s.rdb, endpointKeys(), id, r.Name, raw, old, s.cfg.Max).Int()
	s.forgetKnown()
	switch {
	case err != nil:
		return fmt.Errorf("store webhook %s: %w", id, err)
	case n == 0:
		return ErrChanged
	case n == -1:
		return fmt.Errorf("%d webhooks: %w", s.cfg.Max, ErrTooMany)
	case n == -2:
		return bad("name", "another webhook has the name %s", r.Name)
	}
	return nil
}

// change edits the record of an endpoint in Redis, again after a concurrent change.
func (s *Service) change(ctx context.Context, id string, edit func(*record)) error {
	for try := 0; ; try++ {
		old, err := s.rdb.HGet(ctx, endpointsKey, id).Result()
		if errors.Is(err, redis.Nil) {
			return fmt.Errorf("%w: %.100q", ErrNoEndpoint, id)
		}
		if err != nil {
			return fmt.Errorf("read webhook %.100q: %w", id, err)
		}
		r, err := parseRecord(id, old)
		if err != nil {
			return err
		}
		edit(&r)
		if err := s.put(ctx, id, r, old); try >= 5 || !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

// Create stores a new endpoint and returns its secret, which is not shown again. It returns ErrTooMany or a *job.FieldError.
func (s *Service) Create(ctx context.Context, n NewEndpoint) (Endpoint, string, error) {
	id, key := "wh-"+newID(), webhook.NewSecret()
	n.Name = cmp.Or(n.Name, id)
	r := record{NewEndpoint: n, Secrets: []string{key}, Created: time.Now().UTC().Truncate(time.Millisecond)}
	if !endpointName.MatchString(r.Name) {
		return Endpoint{}, "", bad("name", "use up to 100 letters, digits, dots, hyphens and underscores")
	}
	if _, taken := s.static[staticID(r.Name)]; taken {
		return Endpoint{}, "", bad("name", "a webhook of the configuration has the name %s", r.Name)
	}
	if err := cmp.Or(s.checkURL(n.URL), n.check()); err != nil {
		return Endpoint{}, "", err
	}
	if err := s.beginWorkflows(ctx, r); err != nil {
		return Endpoint{}, "", err
	}
	if err := s.put(ctx, id, r, ""); err != nil {
		return Endpoint{}, "", err
	}
	return s.endpoint(id, r), key, nil
}

// Edit changes an endpoint. It returns ErrNoEndpoint, a *job.FieldError, or ErrStatic for changes other than Disabled
// of an endpoint of the configuration. Waiting deliveries are sent to the new URL; deliveries to a disabled endpoint
// are skipped.
func (s *Service) Edit(ctx context.Context, id string, e EndpointEdit) (Endpoint, error) {
	changed := e.URL != nil || e.Events != nil || e.Format != nil || e.Secrets != nil || e.Workflows != nil || e.Labels != nil
	if _, static := s.static[id]; static && changed {
		return Endpoint{}, fmt.Errorf("edit webhook %s: %w", id, ErrStatic)
	}
	edit := func(r *record) {
		set(&r.URL, e.URL)
		set(&r.Events, e.Events)
		set(&r.Format, e.Format)
		set(&r.Secrets, e.Secrets)
		set(&r.Workflows, e.Workflows)
		set(&r.Labels, e.Labels)
	}
	var edited record // what is edited only
	edit(&edited)
	err := edited.check()
	if e.URL != nil {
		err = cmp.Or(s.checkURL(*e.URL), err)
	}
	if e.Secrets != nil {
		err = cmp.Or(err, checkSecrets(*e.Secrets))
	}
	if err == nil {
		err = s.beginWorkflows(ctx, edited)
	}
	if err == nil && changed {
		err = s.change(ctx, id, edit)
	}
	if err == nil && e.Disabled != nil {
		reason := ""
		if *e.Disabled {
			reason = "disabled by a command"
		}
		err = s.setReason(ctx, id, reason)
	}
	if err != nil {
		return Endpoint{}, err
	}
	return s.Get(ctx, id)
}

// set sets a field unless the value is absent.
func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// setReason disables an endpoint for a reason, or enables it if the reason is "".
func (s *Service) setReason(ctx context.Context, id, reason string) error {
	defer s.forgetKnown()
	if _, static := s.static[id]; !static {
		return s.change(ctx, id, func(r *record) {
			if (reason != "") != r.Disabled {
				r.Disabled, r.Reason = reason != "", reason
			}
		})
	}
	if reason == "" {
		return s.rdb.HDel(ctx, offKey, id).Err()
	}
	return s.rdb.HSetNX(ctx, offKey, id, reason).Err()
}

// disable disables an endpoint, which stops its deliveries.
func (s *Service) disable(ctx context.Context, id, reason string) error {
	if r, err := s.record(ctx, id); err != nil || r.Disabled {
		return err
	}
	err := s.setReason(ctx, id, reason)
	if err == nil {
		s.log.WarnContext(ctx, "webhook disabled; enable it with muster resume webhook", "webhook", id, "reason", reason)
	}
	return err
}

// Remove removes an endpoint and stops its deliveries. It returns ErrNoEndpoint or ErrStatic.
func (s *Service) Remove(ctx context.Context, id string) error {
	if _, static := s.static[id]; static {
		return fmt.Errorf("remove webhook %s: %w", id, ErrStatic)
	}
	r, err := s.record(ctx, id)
	if err != nil {
		return err
	}
	err = scripts["drop"].Run(ctx, s.rdb, endpointKeys(), id, r.Name).Err()
	s.forgetKnown()
	if err != nil {
		return fmt.Errorf("remove webhook %s: %w", id, err)
	}
	return nil
}

// lane returns the lane of the queue for the deliveries to an endpoint.
func lane(endpoint string) []string { return []string{endpoint} }

// itemID returns the ID of the delivery of a message to an endpoint.
func itemID(message, endpoint string) string { return message + "/" + endpoint }

const itemKind = "webhook"

// item returns the delivery of a message.
func item(message, endpoint, eventType string, body []byte) workqueue.Item {
	return workqueue.Item{ID: itemID(message, endpoint), Kind: itemKind, Payload: body, ResourceKeys: lane(endpoint), Labels: map[string]string{"type": eventType}}
}
