package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/workqueue"
)

// States of a delivery.
const (
	DeliveryPending   = "pending"   // it waits for its first or next attempt
	DeliverySending   = "sending"   // an attempt runs
	DeliveryDelivered = "delivered" // acknowledged with 2xx
	DeliveryFailed    = "failed"    // given up
	DeliverySkipped   = "skipped"   // the endpoint was disabled
)

// DeliveryStates are all states of a delivery.
var DeliveryStates = []string{DeliveryPending, DeliverySending, DeliveryDelivered, DeliveryFailed, DeliverySkipped}

var deliveryStates = map[workqueue.State]string{
	workqueue.StateQueued: DeliveryPending, workqueue.StateInProgress: DeliverySending, workqueue.StateDone: DeliveryDelivered,
	workqueue.StateError: DeliveryFailed, workqueue.StateSkipped: DeliverySkipped,
}

// A Delivery is the delivery of an event to an endpoint.
type Delivery struct {
	ID          string    `json:"id" doc:"the webhook-id, which is the event's ID and the same for each attempt"`
	Type        string    `json:"type" example:"job.completed"`
	State       string    `json:"state" enum:"pending,sending,delivered,failed,skipped"`
	Attempts    int       `json:"attempts" doc:"attempts so far, since it was last sent again"`
	Status      int       `json:"status,omitempty" doc:"HTTP status of the last attempt; absent without a response"`
	DurationMS  int64     `json:"duration_ms,omitempty" doc:"duration of the last attempt"`
	Error       string    `json:"error,omitempty" doc:"why the last attempt failed, or why it was skipped"`
	Redelivered int       `json:"redelivered,omitempty" doc:"how often it was sent again by a command"`
	Created     time.Time `json:"created_at" doc:"when it happened"`
	LastAttempt time.Time `json:"last_attempt_at,omitzero"`
	NextAttempt time.Time `json:"next_attempt_at,omitzero" doc:"of a pending one that has failed"`
}

// DeliveryFilter selects deliveries.
type DeliveryFilter struct {
	State  string // Defaults to all.
	Cursor string // Next of the previous page. Defaults to the newest deliveries.
	Limit  int    // 1 to 500. Defaults to 50.
}

// DeliveryPage is a part of the log of an endpoint, newest first.
type DeliveryPage struct {
	Deliveries []Delivery `json:"deliveries"`
	Next       string     `json:"next,omitempty" doc:"cursor of the next page"`
}

// maxLook limits the deliveries that one page with a state filter searches.
const maxLook = 5000

// Deliveries returns a page of the deliveries to an endpoint, newest first. With a state filter a page may have fewer than Limit
// entries although there is a next one. It returns ErrNoEndpoint or a *job.FieldError.
func (s *Service) Deliveries(ctx context.Context, endpoint string, f DeliveryFilter) (DeliveryPage, error) {
	page := DeliveryPage{Deliveries: []Delivery{}}
	if _, err := s.record(ctx, endpoint); err != nil {
		return page, err
	}
	if f.State != "" && !slices.Contains(DeliveryStates, f.State) {
		return page, bad("state", "%.40q is not one of %s", f.State, strings.Join(DeliveryStates, ", "))
	}
	if f.Limit == 0 {
		f.Limit = 50
	}
	f.Limit = min(max(f.Limit, 1), 500)
	start := int64(0)
	if f.Cursor != "" {
		at, err := s.rdb.ZRevRank(ctx, logKey(endpoint), f.Cursor).Result()
		if errors.Is(err, redis.Nil) {
			return page, bad("cursor", "the delivery is no longer in the log; start with the first page")
		}
		if err != nil {
			return page, fmt.Errorf("list the deliveries to webhook %s: %w", endpoint, err)
		}
		start = at + 1
	}
	for looked := 0; ; {
		n := f.Limit
		if f.State != "" {
			n = 500
		}
		zs, err := s.rdb.ZRevRangeWithScores(ctx, logKey(endpoint), start, start+int64(n)-1).Result()
		if err != nil {
			return page, fmt.Errorf("list the deliveries to webhook %s: %w", endpoint, err)
		}
		list, err := s.deliveries(ctx, endpoint, zs)
		if err != nil {
			return page, err
		}
		for i, d := range list {
			if d.ID == "" || f.State != "" && d.State != f.State {
				continue
			}
			page.Deliveries = append(page.Deliveries, d)
			if len(page.Deliveries) == f.Limit {
				page.Next, _ = zs[i].Member.(string)
				return page, nil
			}
		}
		if start, looked = start+int64(len(zs)), looked+len(zs); len(zs) < n {
			return page, nil
		}
		if looked >= maxLook {
			page.Next, _ = zs[len(zs)-1].Member.(string)
			return page, nil
		}
	}
}

// deliveries returns the deliveries of log entries. A delivery that is not in the queue has no ID.
func (s *Service) deliveries(ctx context.Context, endpoint string, zs []redis.Z) ([]Delivery, error) {
	out, at, ids := make([]Delivery, len(zs)), map[string]int{}, make([]string, len(zs))
	for i, z := range zs {
		message, _ := z.Member.(string)
		ids[i] = itemID(message, endpoint)
		at[ids[i]] = i
	}
	infos, err := s.queue.Get(ctx, ids...)
	for _, info := range infos {
		i := at[info.ID]
		d := Delivery{
			ID: messageOf(info.ID, endpoint), Type: info.Labels["type"], State: deliveryStates[info.State], Attempts: info.Attempts, Redelivered: info.Retried,
			Created: time.UnixMilli(int64(zs[i].Score)).UTC(),
		}
		text := info.Note
		if info.State == workqueue.StateDone {
			text = string(info.Result)
		}
		last := parseAttempt(text)
		d.Status, d.DurationMS, d.Error, d.LastAttempt = last.status, last.took, last.message, last.at
		if info.State.Terminal() {
			d.Attempts = max(d.Attempts, last.number)
		}
		if !info.State.Terminal() && !info.Available.IsZero() {
			d.NextAttempt = info.Available.UTC().Truncate(time.Second)
		}
		out[i] = d
	}
	return out, err
}

// delivery returns a delivery. It returns ErrNoEndpoint or ErrNoDelivery.
func (s *Service) delivery(ctx context.Context, endpoint, message string) (Delivery, error) {
	score, err := s.rdb.ZScore(ctx, logKey(endpoint), message).Result()
	if errors.Is(err, redis.Nil) {
		return Delivery{}, fmt.Errorf("%w: %.100q", ErrNoDelivery, message)
	}
	if err != nil {
		return Delivery{}, fmt.Errorf("read delivery %.100q: %w", message, err)
	}
	list, err := s.deliveries(ctx, endpoint, []redis.Z{{Score: score, Member: message}})
	if err == nil && list[0].ID == "" {
		err = fmt.Errorf("%w: %.100q", ErrNoDelivery, message)
	}
	if err != nil {
		return Delivery{}, err
	}
	return list[0], nil
}

// Redeliver sends an ended delivery again, with the same ID and body and with all its attempts. It returns ErrNoEndpoint,
// ErrNoDelivery, ErrDisabled or, for a delivery that has not ended, ErrOpen.
func (s *Service) Redeliver(ctx context.Context, endpoint, message string) (Delivery, error) {
	rec, err := s.record(ctx, endpoint)
	if err != nil {
		return Delivery{}, err
	}
	if rec.Disabled {
		return Delivery{}, ErrDisabled
	}
	if _, err := s.delivery(ctx, endpoint, message); err != nil {
		return Delivery{}, err
	}
	id := itemID(message, endpoint)
	again, err := s.queue.Requeue(ctx, workqueue.RequeueOptions{
		IDs: []string{id}, States: []workqueue.State{workqueue.StateDone, workqueue.StateError, workqueue.StateSkipped},
	})
	if err != nil {
		return Delivery{}, err
	}
	if len(again) == 0 {
		return Delivery{}, fmt.Errorf("send delivery %s again: %w", message, ErrOpen)
	}
	return s.delivery(ctx, endpoint, message)
}

// TestType is the type of the events that Test sends.
const TestType = "webhook.test"

// Test sends an event of the type webhook.test to an endpoint, regardless of its event types. It returns before the
// delivery, with ErrNoEndpoint or ErrDisabled on failure.
func (s *Service) Test(ctx context.Context, endpoint string) (Delivery, error) {
	rec, err := s.record(ctx, endpoint)
	if err != nil {
		return Delivery{}, err
	}
	if rec.Disabled {
		return Delivery{}, ErrDisabled
	}
	now, err := s.now(ctx)
	if err != nil {
		return Delivery{}, err
	}
	id := "test-" + newID()
	body, err := Message{Type: TestType, Timestamp: now.UTC().Truncate(time.Millisecond), Data: Data{EventID: id}}.encode(rec.Format)
	if err != nil {
		return Delivery{}, err
	}
	err = s.add(ctx, []workqueue.Item{item(id, endpoint, TestType, body)}, map[string][]redis.Z{endpoint: {{Score: float64(now.UnixMilli()), Member: id}}})
	if err != nil {
		return Delivery{}, err
	}
	return s.delivery(ctx, endpoint, id)
}
