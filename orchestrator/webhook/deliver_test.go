package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

// An endpoint receives the events of its types, signed, with the states of their jobs.
func TestEventsAreDelivered(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newReceiver(t, nil)
		cfg := quick(t, rdb)
		cfg.Job = func(_ context.Context, id string) (any, error) {
			if id == "gone" {
				return nil, nil
			}
			return map[string]string{"id": id, "status": "completed"}, nil
		}
		k := open(t, cfg)
		k.run(t)
		e, secret := k.create(t, r.URL, "job.*", "site.unhealthy")
		var ids []string
		for _, ev := range [][2]string{{"job.completed", "j1"}, {"site.recovered", "j1"}, {"site.unhealthy", "j2"}, {"job.deleted", "gone"}} {
			id := testutil.Must(k.events.Add(t.Context(), ev[0], ev[1], "", map[string]string{"a": "b"}))(t)
			ids = append(ids, id)
		}
		ids = slices.Delete(ids, 1, 2) // it is not wanted
		k.settled(t, e.ID, "map[delivered:3]")
		for _, g := range r.requests() {
			if !slices.Contains(ids, g.id) || !g.verified(secret) {
				t.Errorf("got request %s, verified %v, want one of %v", g.id, g.verified(secret), ids)
			}
			var m Message
			testutil.Ok(t, json.Unmarshal([]byte(g.body), &m))
			job := map[string]string{"j1": `{"id":"j1","status":"completed"}`, "j2": `{"id":"j2","status":"completed"}`}[m.Data.JobID]
			if m.Data.EventID != g.id || string(m.Data.Details) != `{"a":"b"}` || string(m.Data.Job) != job || time.Since(m.Timestamp).Abs() > time.Minute {
				t.Errorf("got %s", g.body)
			}
		}
		testutil.Eventually(t, "all events are passed on", func() bool { return k.passed(t) })
	})
}

func TestDeliveriesAreRepeatedUntilTheyAreAcknowledged(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(_ string, before int) int { return []int{500, 404, 429, 200}[before] })
	k := open(t, quick(t, redistest.New(t)))
	k.run(t)
	e, secret := k.create(t, r.URL)
	ids := k.emit(t, "job.completed", 1)
	k.settled(t, e.ID, "map[delivered:1]")
	all := r.requests()
	if len(all) != 4 || len(r.wrong) > 0 {
		t.Fatalf("got %d requests, ids with two bodies %v, want 4 and none", len(all), r.wrong)
	}
	for _, g := range all {
		if g.id != ids[0] || !g.verified(secret) {
			t.Errorf("got id %s, verified %v, want %s", g.id, g.verified(secret), ids[0])
		}
	}
	page, err := k.Deliveries(t.Context(), e.ID, DeliveryFilter{})
	if d := page.Deliveries[0]; err != nil || d.ID != ids[0] || d.Type != "job.completed" || d.Attempts != 4 || d.Status != 200 || d.Error != "" || d.LastAttempt.IsZero() {
		t.Errorf("got %+v, %v", d, err)
	}
}

// A delivery that failed often enough is given up: the endpoint is failing until one succeeds. It can be sent again.
func TestGivenUpDeliveriesAreShownAndSentAgain(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(string, int) int { return 503 })
	k := open(t, quick(t, redistest.New(t)))
	k.run(t)
	e, _ := k.create(t, r.URL)
	ids := k.emit(t, "job.failed", 2)
	k.settled(t, e.ID, "map[failed:2]")
	if n := len(r.requests()); n != 8 {
		t.Errorf("got %d requests, want 4 for each", n)
	}
	is, err := k.Get(t.Context(), e.ID)
	if err != nil || is.State != StateFailing || is.GivenUp != 2 || is.Pending != 0 || is.LastFailure.IsZero() || !strings.Contains(is.LastError, "503") {
		t.Errorf("got %+v, %v, want it failing", is, err)
	}
	page, err := k.Deliveries(t.Context(), e.ID, DeliveryFilter{State: DeliveryFailed})
	if err != nil || len(page.Deliveries) != 2 || page.Deliveries[0].ID != ids[1] || page.Deliveries[0].Attempts != 4 || page.Deliveries[0].Status != 503 {
		t.Errorf("got %+v, %v, want both, the newest first", page, err)
	}
	r.set(200)
	again, err := k.Redeliver(t.Context(), e.ID, ids[0])
	if err != nil || again.ID != ids[0] || again.Redelivered != 1 {
		t.Errorf("got %+v, %v, want the delivery again", again, err)
	}
	k.settled(t, e.ID, "map[delivered:1 failed:1]")
	if is, err = k.Get(t.Context(), e.ID); err != nil || is.State != StateActive || is.Delivered != 1 {
		t.Errorf("got %+v, %v, want it active", is, err)
	}
	if _, err := k.Redeliver(t.Context(), e.ID, "1-1"); !errors.Is(err, ErrNoDelivery) {
		t.Errorf("an unknown delivery: got %v, want %v", err, ErrNoDelivery)
	}
	if len(r.wrong) > 0 {
		t.Errorf("ids came with two bodies: %v", r.wrong)
	}
}

// 410 disables an endpoint. Its waiting deliveries are skipped, and it receives no more until it is enabled.
func TestGoneDisablesAnEndpoint(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(string, int) int { return 410 })
	k := open(t, quick(t, redistest.New(t)))
	e, _ := k.create(t, r.URL)
	ids := k.emit(t, "job.completed", 30)
	k.run(t)
	testutil.Eventually(t, "the endpoint to be disabled", func() bool {
		is, err := k.Get(t.Context(), e.ID)
		return err == nil && is.State == StateDisabled && strings.Contains(is.Reason, "410") && is.Pending == 0
	})
	if n := len(r.requests()); n > perEndpoint {
		t.Errorf("got %d requests, want only requests in progress", n)
	}
	k.emit(t, "job.completed", 1) // no endpoint gets it
	testutil.Eventually(t, "all events are passed on", func() bool { return k.passed(t) })
	if _, err := k.Test(t.Context(), e.ID); !errors.Is(err, ErrDisabled) {
		t.Errorf("a test: got %v, want %v", err, ErrDisabled)
	}
	r.set(200)
	off := false
	testutil.Must(k.Edit(t.Context(), e.ID, EndpointEdit{Disabled: &off}))(t)
	testutil.Must(k.Redeliver(t.Context(), e.ID, ids[29]))(t)
	d := testutil.Must(k.Test(t.Context(), e.ID))(t)
	testutil.Eventually(t, "both to be delivered", func() bool {
		page, err := k.Deliveries(t.Context(), e.ID, DeliveryFilter{State: DeliveryDelivered})
		return err == nil && len(page.Deliveries) == 2 && page.Deliveries[0].ID == d.ID && page.Deliveries[0].Type == TestType
	})
}

// An endpoint that hangs, and one that is down, do not hold up a third.
func TestSlowEndpointsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hanging := testutil.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release) })
	down := httptest.NewServer(nil)
	down.Close()
	r := newReceiver(t, nil)
	cfg := quick(t, redistest.New(t))
	cfg.Timeout = time.Hour // it never ends
	k := open(t, cfg)
	k.create(t, hanging.URL)
	k.create(t, down.URL)
	good, _ := k.create(t, r.URL)
	k.emit(t, "job.completed", 300)
	k.run(t)
	k.settled(t, good.ID, "map[delivered:300]")
}

// An endpoint pauses after a few attempts without a response, and after Retry-After.
func TestSilentEndpointsRest(t *testing.T) {
	t.Parallel()
	d := &deliverer{silent: map[string]int{}}
	for i := range silentLimit - 1 {
		if got := d.hold("a", unreachable); got != 0 {
			t.Errorf("after %d failures: got a rest of %s, want none", i+1, got)
		}
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := d.hold("a", unreachable); got != want*time.Second {
			t.Errorf("rest %d: got %s, want %d s", i, got, want)
		}
	}
	if got := d.hold("b", unreachable); got != 0 {
		t.Errorf("another endpoint: got a pause of %s, want none", got)
	}
	if got := d.hold("a", answered(time.Hour)); got != holdAsked {
		t.Errorf("Retry-After: got %s, want %s", got, holdAsked)
	}
	if got := d.hold("a", unreachable); got != 0 {
		t.Errorf("after a response: got a pause of %s, want none", got)
	}
}

// The attempts of a delivery are spread over a day.
func TestAttemptsEndAfterADay(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	total := time.Duration(0)
	for n := 1; n < cfg.Attempts; n++ {
		d := cfg.delay(n)
		if want := min(cfg.Retry<<min(n-1, 30), cfg.MaxRetry); d < want*94/100 || d > want*106/100 {
			t.Errorf("after attempt %d: got %s, want %s and a little", n, d, want)
		}
		total += d
	}
	if total < 22*time.Hour || total > 25*time.Hour {
		t.Errorf("got %s between the first and the last attempt, want about a day", total)
	}
	if got := cfg.delay(1000); got > cfg.MaxRetry*106/100 {
		t.Errorf("got %s, want no overflow", got)
	}
}
