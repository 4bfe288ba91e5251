package webhook

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/clip"
	"muster/internal/webhook"
	"muster/tasks/workqueue"
)

// Outcomes of deliveries, for the metrics.
const (
	noteDelivered = "delivered"
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
	keepNumbers = 30 * 24 * time.Hour
	maxError    = 500 // bytes of the error of an attempt
)

// attempt is the last attempt of a delivery. Its text is the error of the item, or the result after a success.
type attempt struct {
	number, status int
	took           int64 // ms
	at             time.Time
	message        string
}

// Error returns the attempt as text for parseAttempt. The queue keeps about 100 characters.
func (a *attempt) Error() string {
	return fmt.Sprintf("%d %d %d %d %s", a.number, a.status, a.took, a.at.UnixMilli(), a.message)
}

// parseAttempt parses the note or the result of an item, which may be another error.
func parseAttempt(text string) (a attempt) {
	fields := strings.SplitN(strings.TrimPrefix(text, "pipeline_error: "), " ", 5)
	if len(fields) == 5 {
		var n [4]int64
		ok := true
		for i := range n {
			var err error
			n[i], err = strconv.ParseInt(fields[i], 10, 64)
			ok = ok && err == nil
		}
		if ok {
			return attempt{int(n[0]), int(n[1]), n[2], time.UnixMilli(n[3]).UTC(), fields[4]}
		}
	}
	return attempt{message: text}
}

// deliverer sends the deliveries of the queue.
type deliverer struct {
	*Service
	sender *webhook.Sender

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
		d.counts.ended.WithLabelValues(noteSkipped).Inc()
		return workqueue.Skipped(why), nil
	}
	began := time.Now()
	a := d.sender.Send(ctx, webhook.Request{
		URL: rec.URL, ID: messageOf(it.ID, endpoint), Body: it.Payload, Text: rec.Format == FormatText, Secrets: rec.Secrets,
	})
	if ctx.Err() != nil && a.Outcome == webhook.Unreachable {
		return workqueue.Outcome{}, context.Cause(ctx) // another process will send it
	}
	d.counts.attempts.WithLabelValues(string(a.Outcome)).Inc()
	d.counts.took.Observe(time.Since(began).Seconds())
	last := &attempt{number: it.Attempts + 1, status: a.Status, took: time.Since(began).Milliseconds(), at: began}
	if a.Err != nil {
		last.message = clip.Bytes(a.Err.Error(), maxError)
	}
	return d.outcomeOf(ctx, it, a, last)
}

// endpoint returns the record of an endpoint, and false if it was removed. It notices endpoints that another process has just
// added or enabled.
func (d *deliverer) endpoint(ctx context.Context, id string) (rec record, there bool, err error) {
	known, err := d.records(ctx)
	if err != nil {
		return record{}, false, err
	}
	if rec, there = known[id]; !there || rec.Disabled {
		d.forgetKnown()
		if known, err = d.records(ctx); err != nil {
			return record{}, false, err
		}
		rec, there = known[id]
	}
	return rec, there, nil
}

// outcomeOf determines the outcome of a delivery from the response.
func (d *deliverer) outcomeOf(ctx context.Context, it workqueue.Leased, a webhook.Result, last *attempt) (workqueue.Outcome, error) {
	endpoint, number := it.ResourceKeys[0], last.number
	hold := d.hold(endpoint, a)
	if a.Outcome == webhook.Delivered {
		d.note(ctx, endpoint, "last_ok", last.at.UnixMilli())
		d.counts.ended.WithLabelValues(noteDelivered).Inc()
		return workqueue.Outcome{State: workqueue.StateDone, Result: []byte(last.Error())}, nil
	}
	if a.Outcome == webhook.Gone {
		if err := d.disable(ctx, endpoint, "the endpoint responded with 410 Gone"); err != nil {
			return workqueue.Outcome{}, workqueue.Postpone(time.Second, err)
		}
	}
	var err error
	if a.Outcome == webhook.Gone || number >= d.cfg.Attempts {
		d.note(ctx, endpoint, "last_failure", last.at.UnixMilli(), "given_up", last.at.UnixMilli(), "last_error", last.message)
		d.counts.ended.WithLabelValues(noteGivenUp).Inc()
		d.log.WarnContext(ctx, "delivery to a webhook failed and is given up; see muster webhooks get",
			"webhook", endpoint, "delivery", messageOf(it.ID, endpoint), "attempts", number, "err", a.Err)
		err = workqueue.Permanent(last)
	} else {
		d.note(ctx, endpoint, "last_failure", last.at.UnixMilli(), "last_error", last.message)
		d.log.DebugContext(ctx, "attempt to deliver to a webhook failed", "webhook", endpoint, "delivery", messageOf(it.ID, endpoint), "attempt", number, "err", a.Err)
		err = workqueue.RetryAfter(max(d.cfg.delay(number), a.RetryAfter), last)
	}
	if hold > 0 {
		err = workqueue.HoldBack(endpoint, hold, err)
	}
	return workqueue.Outcome{}, err
}

// note stores numbers of an endpoint.
func (d *deliverer) note(ctx context.Context, endpoint string, values ...any) {
	_, err := d.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, numbersKey(endpoint), values...)
		p.Expire(ctx, numbersKey(endpoint), keepNumbers)
		return nil
	})
	d.warn(ctx, "store the numbers of a webhook", err, "webhook", endpoint)
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

// messageOf returns the message of a delivery.
func messageOf(item, endpoint string) string { return strings.TrimSuffix(item, "/"+endpoint) }
