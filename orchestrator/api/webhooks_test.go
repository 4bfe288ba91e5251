package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/orchestrator/webhook"
)

// fakeWebhooks knows one webhook with one delivery. It keeps what it was asked for.
type fakeWebhooks struct {
	mu     sync.Mutex // guards what follows
	asked  []any
	failed error
}

func (f *fakeWebhooks) one(id string, asked ...any) (webhook.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, asked...)
	if id != "wh-1" {
		return webhook.Endpoint{}, fmt.Errorf("%w: %s", webhook.ErrNoEndpoint, id)
	}
	return webhook.Endpoint{ID: id, Name: "ops", URL: "https://ops.example/", State: webhook.StateActive}, f.failed
}

func (f *fakeWebhooks) List(context.Context) ([]webhook.Endpoint, error) {
	e, err := f.one("wh-1")
	return []webhook.Endpoint{e}, err
}
func (f *fakeWebhooks) Get(_ context.Context, id string) (webhook.Endpoint, error) { return f.one(id) }
func (f *fakeWebhooks) Create(_ context.Context, n webhook.NewEndpoint) (webhook.Endpoint, string, error) {
	e, err := f.one("wh-1", n)
	return e, "whsec_new", err
}
func (f *fakeWebhooks) Edit(_ context.Context, id string, e webhook.Edit) (webhook.Endpoint, error) {
	return f.one(id, e)
}
func (f *fakeWebhooks) Remove(_ context.Context, id string) error {
	_, err := f.one(id)
	return err
}
func (f *fakeWebhooks) Rotate(_ context.Context, id string, keep time.Duration) (webhook.Endpoint, string, error) {
	e, err := f.one(id, keep)
	return e, "whsec_rotated", err
}
func (f *fakeWebhooks) Deliveries(_ context.Context, id string, filter webhook.DeliveryFilter) (webhook.DeliveryPage, error) {
	_, err := f.one(id, filter)
	return webhook.DeliveryPage{Deliveries: []webhook.Delivery{{ID: "1-0", Type: "job.completed", State: webhook.DeliveryFailed, Status: 500}}, Next: "5_1-0"}, err
}
func (f *fakeWebhooks) Redeliver(_ context.Context, id, delivery string) (webhook.Delivery, error) {
	_, err := f.one(id)
	if err == nil && delivery != "1-0" {
		err = webhook.ErrNoDelivery
	}
	return webhook.Delivery{ID: delivery, State: webhook.DeliveryPending}, err
}
func (f *fakeWebhooks) Test(_ context.Context, id string) (webhook.Delivery, error) {
	_, err := f.one(id)
	return webhook.Delivery{ID: "test-1", State: webhook.DeliveryPending}, err
}

func TestWebhooksOverHTTP(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	off := true
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string // in the answer
		asked              any
	}{
		{"GET", "/v1/webhooks", "", 200, `"data":[{"id":"wh-1"`, nil},
		{"POST", "/v1/webhooks", `{"url":"https://ops.example/","events":["job.*"]}`, 201, `"secret":"whsec_new"`, webhook.NewEndpoint{URL: "https://ops.example/", Events: []string{"job.*"}}},
		{"GET", "/v1/webhooks/wh-1", "", 200, `"state":"active"`, nil},
		{"POST", "/v1/webhooks/ops/rotate", `{"keep":"1000h"}`, 400, "body.keep", nil},
		{"POST", "/v1/webhooks/ops/rotate", `{"keep":"-1s"}`, 400, "body.keep", nil},
		{"GET", "/v1/webhooks/ops", "", 200, `"id":"wh-1"`, nil},
		{"GET", "/v1/webhooks/wh-2", "", 404, "no such webhook", nil},
		{"PATCH", "/v1/webhooks/wh-1", `{"disabled":true}`, 200, `"id":"wh-1"`, webhook.Edit{Disabled: &off}},
		{"POST", "/v1/webhooks/wh-1/rotate", "", 200, `"secret":"whsec_rotated"`, 24 * time.Hour},
		{"POST", "/v1/webhooks/wh-1/rotate", `{"keep":"0s"}`, 200, `"secret":"whsec_rotated"`, time.Duration(0)},
		{"GET", "/v1/webhooks/wh-1/deliveries?state=failed&limit=2&cursor=9_2-0", "", 200, `"next":"5_1-0"`, webhook.DeliveryFilter{State: "failed", Limit: 2, Cursor: "9_2-0"}},
		{"GET", "/v1/webhooks/wh-1/deliveries?state=lost", "", 400, "query.state", nil},
		{"POST", "/v1/webhooks/wh-1/deliveries/1-0/redeliver", "", 200, `"state":"pending"`, nil},
		{"POST", "/v1/webhooks/wh-1/deliveries/2-0/redeliver", "", 404, "no such delivery", nil},
		{"POST", "/v1/webhooks/wh-1/test", "", 200, `"id":"test-1"`, nil},
		{"DELETE", "/v1/webhooks/wh-1", "", 204, "", nil},
	} {
		w := ask(t, h, c.method, c.path, header("Content-Type", "application/json"), func(r *http.Request) {
			r.Body = http.NoBody
			if c.body != "" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
			}
		})
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: got %d %s, want %d with %s", c.method, c.path, w.Code, w.Body, c.status, c.want)
		}
		if c.asked == nil {
			continue
		}
		f.webhooks.mu.Lock()
		got, _ := json.Marshal(f.webhooks.asked[len(f.webhooks.asked)-1])
		f.webhooks.mu.Unlock()
		if want, _ := json.Marshal(c.asked); string(got) != string(want) {
			t.Errorf("%s %s: asked for %s, want %s", c.method, c.path, got, want)
		}
	}
	for err, status := range map[error]int{webhook.ErrStatic: 409, webhook.ErrOpen: 409, webhook.ErrDisabled: 409, webhook.ErrTooMany: 409} {
		f.webhooks.mu.Lock()
		f.webhooks.failed = err
		f.webhooks.mu.Unlock()
		if w := ask(t, h, "POST", "/v1/webhooks/wh-1/test"); w.Code != status {
			t.Errorf("%v: got %d, want %d", err, w.Code, status)
		}
	}
}
