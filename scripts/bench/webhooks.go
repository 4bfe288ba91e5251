package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"muster/internal/addressfilter"
	"muster/orchestrator/event"
	"muster/orchestrator/webhook"
	"muster/tasks"
)

const (
	sentWebhooks = 20_000
	sentAtOnce   = 8 // as many as a process sends to an endpoint
)

// webhookRows are the rows of webhooks.
func webhookRows() []row {
	return []row{
		// To one endpoint, 8 at a time, against posting the same without Redis: a delivery is an entry of the outbox and of
		// the log, an item that is added, leased and settled, and a note of the attempt.
		{name: "webhooks.deliver_20000", unit: "deliveries/s", rounds: 3, measure: deliverWebhooks, yardstick: postPlainly, bar: atLeast(0.1)},
	}
}

// inbox counts the webhooks that arrive.
type inbox struct {
	*httptest.Server
	mu   sync.Mutex // guards seen
	seen map[string]bool
	all  chan struct{} // closed when all have arrived
}

func newInbox() *inbox {
	in := &inbox{seen: map[string]bool{}, all: make(chan struct{})}
	in.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		in.mu.Lock()
		defer in.mu.Unlock()
		id := r.Header.Get("webhook-id")
		if !in.seen[id] {
			if in.seen[id] = true; len(in.seen) == sentWebhooks {
				close(in.all)
			}
		}
	}))
	return in
}

// deliverWebhooks is how many events a second one process relays and delivers to one endpoint: events that wait in the
// outbox, until the last has arrived.
func deliverWebhooks(ctx context.Context, l *lab) (float64, error) {
	client, err := tasks.Connect(ctx, l.url())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	filter, err := addressfilter.New(addressfilter.Local()...)
	if err != nil {
		return 0, err
	}
	hooks, err := webhook.New(webhook.Config{Redis: client.Redis(), Filter: filter})
	if err != nil {
		return 0, err
	}
	in := newInbox()
	defer in.Close()
	if _, _, err := hooks.Create(ctx, webhook.NewEndpoint{URL: in.URL}); err != nil {
		return 0, err
	}
	events := event.New(client.Redis())
	if err := many(ctx, sentWebhooks, 16, func(ctx context.Context, i int) error {
		_, err := events.Add(ctx, "job.completed", "", "", map[string]int{"n": i})
		return err
	}); err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- hooks.Run(running) }()
	select {
	case <-in.all:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	took := time.Since(start).Seconds()
	stop()
	return sentWebhooks / took, <-ended
}

// postPlainly is how many requests a second a client posts to the same server, as many at once, without Redis, signatures
// and a log.
func postPlainly(ctx context.Context, _ *lab) (float64, error) {
	in := newInbox()
	defer in.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: sentAtOnce}}
	defer client.CloseIdleConnections()
	start := time.Now()
	err := many(ctx, sentWebhooks, sentAtOnce, func(ctx context.Context, i int) error {
		body := fmt.Appendf(nil, `{"type":"job.completed","timestamp":"2026-01-02T03:04:05.678Z","data":{"event_id":"%d-0","details":{"n":%d}}}`, i, i)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.URL, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("webhook-id", fmt.Sprint(i))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	return sentWebhooks / time.Since(start).Seconds(), err
}
