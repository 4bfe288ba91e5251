package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"muster/internal/webhook"
	"muster/tasks/workqueue"
)

// Outcomes of an attempt for note.lua.
const (
	noteDelivered = "delivered"
	noteFailed    = "failed"
	noteGivenUp   = "given_up"
	noteSkipped   = "skipped"
)

// An endpoint without a response silentLimit times in a row receives nothing for a while, so that its deliveries do not block
// workers until their timeout. The pause doubles from holdLeast to holdMost.
const (
	silentLimit = 5
	holdLeast   = time.Second
	holdMost    = time.Minute
	holdAsked   = 10 * time.Minute // maximum pause requested by Retry-After
)

// attempt is the last attempt of a delivery as stored in Redis.
type attempt struct {
	Number int       `json:"n"`
	Status int       `json:"status,omitempty"`
	Took   int64     `json:"ms"`
	Error  string    `json:"error,omitempty"`
	At     time.Time `json:"at"`
}

// deliverer sends the deliveries of the queue.
type deliverer struct {
	*core
	endpoints *endpoints
	sender    *webhook.Sender
	counts    counts

	mu     sync.Mutex     // guards silent
	silent map[string]int // by endpoint: consecutive attempts without a response
}

// deliver makes one attempt at a delivery.
func (d *deliverer) deliver(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
	endpoint := it.ResourceKeys[0]
	rec, there, err := d.endpoint(ctx, endpoint)
	if err != nil {
		return workqueue.Outcome{}, workqueue.Postpone(time.Second, err)
	}
	if !there || rec.Disabled {
		why := "the webhook was removed"
		if there {
			why = "the webhook is disabled: " + rec.Reason
		}
		if err := d.note(ctx, it, nil, noteSkipped); err != nil {
			return workqueue.Outcome{}, workqueue.Postpone(time.Second, err)
		}
		d.counts.ended.WithLabelValues(noteSkipped).Inc()
		return workqueue.Skipped(why), nil
	}
	began := time.Now()
	a := d.sender.Send(ctx, webhook.Request{
		URL: rec.URL, ID: messageOf(it.ID, endpoint), Body: it.Payload, Secrets: rec.valid(began),
	})
	if ctx.Err() != nil && a.Outcome == webhook.Unreachable {
		return workqueue.Outcome{}, context.Cause(ctx) // another process will send it
	}
	d.counts.attempts.WithLabelValues(string(a.Outcome)).Inc()
	d.counts.took.Observe(time.Since(began).Seconds())
	last := attempt{Number: it.Attempts + 1, Status: a.Status, Took: time.Since(began).Milliseconds(), At: began.UTC()}
	if a.Err != nil {
		last.Error = a.Err.Error()
	}
	return d.outcomeOf(ctx, it, a, last)
}

// endpoint returns the record of an endpoint, and false if it was removed. It notices endpoints that another process has just
// added or enabled.
func (d *deliverer) endpoint(ctx context.Context, id string) (rec record, there bool, err error) {
	known, err := d.endpoints.records(ctx)
	if err != nil {
		return record{}, false, err
	}
	if rec, there = known[id]; !there || rec.Disabled {
		d.endpoints.forgetKnown()
		if known, err = d.endpoints.records(ctx); err != nil {
			return record{}, false, err
		}
		rec, there = known[id]
	}
	return rec, there, nil
}

// outcomeOf determines the outcome of a delivery from the response.
func (d *deliverer) outcomeOf(ctx context.Context, it workqueue.Leased, a webhook.Result, last attempt) (workqueue.Outcome, error) {
	endpoint := it.ResourceKeys[0]
	hold := d.hold(endpoint, a)
	outcome := noteFailed
	switch {
	case a.Outcome == webhook.Delivered:
		outcome = noteDelivered
	case a.Outcome == webhook.Gone:
		outcome = noteGivenUp
		if err := d.endpoints.disable(ctx, endpoint, "the endpoint responded with 410 Gone"); err != nil {
			return workqueue.Outcome{}, workqueue.Postpone(time.Second, err)
		}
	case last.Number >= d.cfg.Attempts:
		outcome = noteGivenUp
	}
	if err := d.note(ctx, it, &last, outcome); err != nil {
		// The endpoint may have received the delivery. It is sent again with the same ID.
		return workqueue.Outcome{}, workqueue.RetryAfter(time.Second, err)
	}
	var err error
	switch outcome {
	case noteDelivered:
		d.counts.ended.WithLabelValues(noteDelivered).Inc()
		return workqueue.Done(), nil
	case noteGivenUp:
		d.counts.ended.WithLabelValues(noteGivenUp).Inc()
		d.log.WarnContext(ctx, "delivery to a webhook failed and is given up; see muster webhooks get",
			"webhook", endpoint, "delivery", messageOf(it.ID, endpoint), "attempts", last.Number, "err", a.Err)
		err = workqueue.Permanent(a.Err)
	default:
		d.log.DebugContext(ctx, "attempt to deliver to a webhook failed", "webhook", endpoint, "delivery", messageOf(it.ID, endpoint), "attempt", last.Number, "err", a.Err)
		err = workqueue.RetryAfter(max(d.cfg.delay(last.Number), a.RetryAfter), a.Err)
	}
	if hold > 0 {
		err = workqueue.HoldBack(endpoint, hold, err)
	}
	return workqueue.Outcome{}, err
}

// hold returns the time for which an endpoint is not called after a response.
func (d *deliverer) hold(endpoint string, a webhook.Result) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.Outcome != webhook.Unreachable {
		delete(d.silent, endpoint)
		return min(a.RetryAfter, holdAsked)
	}
	d.silent[endpoint]++
	n := d.silent[endpoint] - silentLimit
	if n < 0 {
		return 0
	}
	return min(holdLeast<<min(n, 10), holdMost)
}

// note stores the outcome of an attempt.
func (d *deliverer) note(ctx context.Context, it workqueue.Leased, last *attempt, outcome string) error {
	endpoint := it.ResourceKeys[0]
	text, cause := "", ""
	if last != nil {
		raw, err := json.Marshal(last)
		if err != nil {
			return fmt.Errorf("store attempt: %w", err)
		}
		text, cause = string(raw), last.Error
	}
	err := scripts["note"].Run(ctx, d.rdb, []string{attemptsKey, numbersKey(endpoint), logKey(endpoint), openKey},
		messageOf(it.ID, endpoint), it.ID, text, outcome, cause).Err()
	if err != nil {
		return fmt.Errorf("store attempt: %w", err)
	}
	return nil
}

// messageOf returns the message of a delivery.
func messageOf(item, endpoint string) string { return strings.TrimSuffix(item, "/"+endpoint) }
