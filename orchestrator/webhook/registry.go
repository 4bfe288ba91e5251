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
	texts, err := s.core.rdb.HGetAll(ctx, endpointsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list the webhooks: %w", err)
	}
	out := make([]Endpoint, 0, len(texts))
	for id, text := range texts {
		r, err := parseRecord(id, text)
		if err != nil {
			return nil, err
		}
		out = append(out, r.endpoint(id))
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return out, s.core.addNumbers(ctx, out)
}

// Get returns an endpoint, or ErrNoEndpoint.
func (s *Service) Get(ctx context.Context, id string) (Endpoint, error) {
	r, _, err := s.readRecord(ctx, id)
	if err != nil {
		return Endpoint{}, err
	}
	one := []Endpoint{r.endpoint(id)}
	err = s.core.addNumbers(ctx, one)
	return one[0], err
}

// endpoint converts a record to an endpoint.
func (r record) endpoint(id string) Endpoint {
	e := Endpoint{ID: id, Name: r.Name, URL: r.URL, Events: append([]string{}, r.Events...), State: StateActive, Reason: r.Reason, Created: r.Created}
	if r.Disabled {
		e.State = StateDisabled
	}
	for _, s := range r.Secrets {
		if !s.Until.IsZero() && s.Until.After(time.Now()) {
			e.OldSecretUntil = s.Until
		}
	}
	return e
}

// addNumbers adds the delivery statistics to endpoints.
func (c *core) addNumbers(ctx context.Context, list []Endpoint) error {
	if len(list) == 0 {
		return nil
	}
	lanes, err := c.queue.LaneStats(ctx)
	if err != nil {
		return err
	}
	numbers := make([]*redis.MapStringStringCmd, len(list))
	static := make([]*redis.FloatCmd, len(list))
	_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, e := range list {
			numbers[i], static[i] = p.HGetAll(ctx, numbersKey(e.ID)), p.ZScore(ctx, staticKey, e.ID)
		}
		return nil
	})
	for i := range list {
		err = cmp.Or(err, numbers[i].Err(), ignoreNil(static[i].Err()))
	}
	if err != nil {
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
		e.Static = static[i].Err() == nil
		e.Pending = lanes[e.ID].Queued + lanes[e.ID].InProgress
		e.Delivered, _ = strconv.ParseInt(n["delivered"], 10, 64)
		e.GivenUp, _ = strconv.ParseInt(n["given_up"], 10, 64)
		e.LastDelivered, e.LastFailure, e.FailingSince, e.LastError = at("last_ok"), at("last_failure"), at("failing"), n["last_error"]
		if n["given_up_at"] != "" && e.State == StateActive {
			e.State = StateFailing
		}
	}
	return nil
}

// readRecord reads the record of an endpoint, parsed and as text. It returns ErrNoEndpoint.
func (s *endpoints) readRecord(ctx context.Context, id string) (record, string, error) {
	text, err := s.rdb.HGet(ctx, endpointsKey, id).Result()
	if errors.Is(err, redis.Nil) {
		return record{}, "", fmt.Errorf("%w: %.100q", ErrNoEndpoint, id)
	}
	if err != nil {
		return record{}, "", fmt.Errorf("read webhook %.100q: %w", id, err)
	}
	r, err := parseRecord(id, text)
	return r, text, err
}

// put stores a record in place of old, which is "" for a new endpoint. With a time it belongs to the configuration.
func (s *endpoints) put(ctx context.Context, id string, r record, old string, announced time.Time) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("store webhook %s: %w", id, err)
	}
	stamp := ""
	if !announced.IsZero() {
		stamp = strconv.FormatInt(announced.UnixMilli(), 10)
	}
	n, err := scripts["put"].Run(ctx, s.rdb, endpointKeys(), id, r.Name, raw, old, s.cfg.Max, stamp).Int()
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

// change edits the record of an endpoint, again after a concurrent change. edit reports whether it changed anything.
func (s *endpoints) change(ctx context.Context, id string, edit func(*record) (bool, error)) error {
	for try := 0; ; try++ {
		r, old, err := s.readRecord(ctx, id)
		if err != nil {
			return err
		}
		changed, err := edit(&r)
		if err != nil || !changed {
			return err
		}
		if err := s.put(ctx, id, r, old, time.Time{}); try >= 5 || !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

// isStatic reports whether an endpoint is in the configuration.
func (s *endpoints) isStatic(ctx context.Context, id string) (bool, error) {
	err := s.rdb.ZScore(ctx, staticKey, id).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// Create stores a new endpoint and returns its secret, which is not shown again. It returns ErrTooMany or a *job.FieldError.
func (s *Service) Create(ctx context.Context, n NewEndpoint) (Endpoint, string, error) {
	id := "wh-" + newID()
	r := record{Name: cmp.Or(n.Name, id), URL: n.URL, Events: n.Events, Created: time.Now().UTC().Truncate(time.Millisecond)}
	if !endpointName.MatchString(r.Name) {
		return Endpoint{}, "", bad("name", "use up to 100 letters, digits, dots, hyphens and underscores")
	}
	if err := s.core.checkURL(n.URL); err != nil {
		return Endpoint{}, "", err
	}
	if err := checkEvents(n.Events); err != nil {
		return Endpoint{}, "", err
	}
	key := webhook.NewSecret()
	r.Secrets = []secret{{Key: key}}
	if err := s.put(ctx, id, r, "", time.Time{}); err != nil {
		return Endpoint{}, "", err
	}
	return r.endpoint(id), key, nil
}

// Edit changes an endpoint. It returns ErrNoEndpoint, a *job.FieldError, or ErrStatic for changes other than Disabled
// of an endpoint of the configuration. Waiting deliveries are sent to the new URL; deliveries to a disabled endpoint
// are skipped.
func (s *Service) Edit(ctx context.Context, id string, e Edit) (Endpoint, error) {
	if e.URL != nil || e.Events != nil {
		static, err := s.isStatic(ctx, id)
		if err != nil {
			return Endpoint{}, fmt.Errorf("edit webhook %s: %w", id, err)
		}
		if static {
			return Endpoint{}, fmt.Errorf("edit webhook %s: %w", id, ErrStatic)
		}
	}
	if e.URL != nil {
		if err := s.core.checkURL(*e.URL); err != nil {
			return Endpoint{}, err
		}
	}
	if e.Events != nil {
		if err := checkEvents(*e.Events); err != nil {
			return Endpoint{}, err
		}
	}
	err := s.change(ctx, id, func(r *record) (bool, error) {
		if e.URL != nil {
			r.URL = *e.URL
		}
		if e.Events != nil {
			r.Events = *e.Events
		}
		if e.Disabled != nil && *e.Disabled != r.Disabled {
			r.Disabled, r.Reason = *e.Disabled, ""
			if r.Disabled {
				r.Reason = "disabled by a command"
			}
		}
		return true, nil
	})
	if err != nil {
		return Endpoint{}, err
	}
	return s.Get(ctx, id)
}

// disable disables an endpoint, which stops its deliveries.
func (s *endpoints) disable(ctx context.Context, id, reason string) error {
	done := false
	err := s.change(ctx, id, func(r *record) (bool, error) {
		done = !r.Disabled
		r.Disabled, r.Reason = true, reason
		return done, nil
	})
	s.forgetKnown() // even if another goroutine has just disabled it
	if err == nil && done {
		s.log.WarnContext(ctx, "webhook disabled; enable it with muster webhooks enable", "webhook", id, "reason", reason)
	}
	return err
}

// Rotate creates a new secret for an endpoint and returns it. For the duration keep, which may be 0, requests are also signed
// with the previous secret. It returns ErrNoEndpoint, ErrStatic or a *job.FieldError.
func (s *Service) Rotate(ctx context.Context, id string, keep time.Duration) (Endpoint, string, error) {
	if keep < 0 || keep > maxOverlap {
		return Endpoint{}, "", bad("keep", "must be from 0s to %s", maxOverlap)
	}
	static, err := s.isStatic(ctx, id)
	if err == nil && static {
		err = ErrStatic
	}
	if err != nil {
		return Endpoint{}, "", fmt.Errorf("rotate the secret of webhook %s: %w", id, err)
	}
	key := webhook.NewSecret()
	err = s.change(ctx, id, func(r *record) (bool, error) {
		secrets := []secret{{Key: key}}
		if keep > 0 && len(r.Secrets) > 0 {
			secrets = append(secrets, secret{r.Secrets[0].Key, time.Now().Add(keep).UTC().Truncate(time.Second)})
		}
		r.Secrets = secrets
		return true, nil
	})
	if err != nil {
		return Endpoint{}, "", err
	}
	e, err := s.Get(ctx, id)
	return e, key, err
}

// maxOverlap is the maximum validity of an old secret after a rotation.
const maxOverlap = 30 * 24 * time.Hour

// Remove removes an endpoint and stops its deliveries. It returns ErrNoEndpoint or ErrStatic.
func (s *Service) Remove(ctx context.Context, id string) error {
	static, err := s.isStatic(ctx, id)
	if err == nil && static {
		err = ErrStatic
	}
	if err != nil {
		return fmt.Errorf("remove webhook %s: %w", id, err)
	}
	return s.remove(ctx, id)
}

func (s *endpoints) remove(ctx context.Context, id string) error {
	r, _, err := s.readRecord(ctx, id)
	if err != nil {
		return err
	}
	now, err := s.now(ctx)
	if err == nil { // first, so that every removed endpoint with a log is recorded
		err = s.rdb.ZAdd(ctx, removedKey, redis.Z{Score: float64(now.UnixMilli()), Member: id}).Err()
	}
	if err == nil {
		err = scripts["drop"].Run(ctx, s.rdb, endpointKeys(), id, r.Name).Err()
	}
	s.forgetKnown()
	if err != nil {
		return fmt.Errorf("remove webhook %s: %w", id, err)
	}
	return nil
}

// announceEvery is the interval of announcements of the endpoints of the configuration. They are removed after a multiple of it
// without an announcement.
const announceEvery = time.Minute

// announce stores new and changed endpoints of the configuration, and removes endpoints that left it.
func (s *endpoints) announce(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	var refused []error // store the others
	for _, want := range s.static {
		if err := s.announceOne(ctx, want, now); err != nil {
			refused = append(refused, fmt.Errorf("webhook %s of the configuration: %w", want.Name, err))
		}
	}
	return errors.Join(append(refused, s.removeStatic(ctx, now))...)
}

// announceOne stores an endpoint of the configuration.
func (s *endpoints) announceOne(ctx context.Context, want record, now time.Time) error {
	id := staticID(want.Name)
	is, old, err := s.readRecord(ctx, id)
	switch {
	case errors.Is(err, ErrNoEndpoint):
		want.Created = now.UTC().Truncate(time.Millisecond)
	case err != nil:
		return err
	default: // keep it enabled or disabled
		want.Created, want.Disabled, want.Reason = is.Created, is.Disabled, is.Reason
	}
	if err := s.put(ctx, id, want, old, now); err != nil && !errors.Is(err, ErrChanged) {
		return err
	}
	return nil
}

// removeStatic removes endpoints that no process has announced for some time.
func (s *endpoints) removeStatic(ctx context.Context, now time.Time) error {
	left, err := s.rdb.ZRangeByScore(ctx, staticKey, &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(now.Add(-5*announceEvery).UnixMilli(), 10),
	}).Result()
	if err != nil {
		return err
	}
	for _, id := range left {
		if err := s.remove(ctx, id); err != nil && !errors.Is(err, ErrNoEndpoint) {
			return err
		}
		s.log.InfoContext(ctx, "removed a webhook that left the configuration", "webhook", id)
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
