package webhook

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/orchestrator/event"
)

// relayed returns an endpoint with n deliveries that wait, and their ids, the oldest first.
func relayed(t *testing.T, k kit, url string, n int) (Endpoint, []string, *relay) {
	t.Helper()
	e, _ := k.create(t, url)
	ids := k.emit(t, "job.completed", n)
	r := &relay{Service: k.Service}
	if got, err := r.round(t.Context()); err != nil || got != n {
		t.Fatalf("got %d, %v, want %d events", got, err, n)
	}
	return e, ids, r
}

func TestDeliveriesAreListedInPages(t *testing.T) {
	t.Parallel()
	k := open(t, quick(t, redistest.New(t)))
	e, ids, _ := relayed(t, k, "http://127.0.0.1:1/", 25)
	slices.Reverse(ids)
	var got []string
	cursor := ""
	for page := range 3 {
		p := testutil.Must(k.Deliveries(t.Context(), e.ID, DeliveryFilter{Limit: 10, Cursor: cursor}))(t)
		for _, d := range p.Deliveries {
			if d.State != DeliveryPending || d.Created.IsZero() {
				t.Errorf("got %+v, want it pending", d)
			}
			got = append(got, d.ID)
		}
		if (p.Next == "") != (page == 2) {
			t.Errorf("page %d: got next %q", page, p.Next)
		}
		cursor = p.Next
	}
	if !slices.Equal(got, ids) {
		t.Errorf("got %v, want the newest first: %v", got, ids)
	}
	for _, f := range []DeliveryFilter{{State: "lost"}, {Cursor: "1-0"}} {
		if _, err := k.Deliveries(t.Context(), e.ID, f); !errors.As(err, new(*jobs.FieldError)) {
			t.Errorf("%+v: got %v, want a *job.FieldError", f, err)
		}
	}
	if _, err := k.Redeliver(t.Context(), e.ID, ids[0]); !errors.Is(err, ErrOpen) {
		t.Errorf("sent again while it is open: got %v, want %v", err, ErrOpen)
	}
	if _, err := k.Deliveries(t.Context(), "wh-unknown", DeliveryFilter{}); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("got %v, want %v", err, ErrNoEndpoint)
	}
}

// The log keeps the newest deliveries, and all that have not ended. The queue keeps no others.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newReceiver(t, nil)
		k := open(t, quick(t, rdb))
		e, ids, rel := relayed(t, k, r.URL, 30)
		k.run(t)
		k.settled(t, e.ID, "map[delivered:30]")
		// One that has not ended, the oldest of all.
		body := testutil.Must(Message{Type: TestType}.encode(""))(t)
		waiting := item("1-1", e.ID, TestType, body)
		waiting.NotBefore = time.Now().Add(time.Hour)
		rdb.ZAdd(t.Context(), logKey(e.ID), redis.Z{Score: 1, Member: "1-1"})
		testutil.Must(k.queue.Enqueue(t.Context(), waiting))(t)
		now := testutil.Must(k.now(t.Context()))(t)
		check := func(what string, want int) {
			t.Helper()
			stats, err := k.queue.Stats(t.Context())
			if log := rdb.ZCard(t.Context(), logKey(e.ID)).Val(); err != nil || stats.Total != int64(want) || log != int64(want) {
				t.Errorf("%s: got %d items, %d entries, %v, want %d", what, stats.Total, log, err, want)
			}
		}
		testutil.Ok(t, rel.trim(t.Context(), e.ID, now, 5))
		check("they have just ended", 31)
		testutil.Ok(t, rel.trim(t.Context(), e.ID, now.Add(2*fresh), 5))
		check("too many", 6)
		page, err := k.Deliveries(t.Context(), e.ID, DeliveryFilter{})
		if err != nil || page.Deliveries[0].ID != ids[29] || page.Deliveries[4].ID != ids[25] || page.Deliveries[5].ID != "1-1" {
			t.Errorf("got %+v, %v, want the newest five and the waiting one", page, err)
		}
		testutil.Ok(t, rel.trim(t.Context(), e.ID, now.Add(k.cfg.Keep+time.Minute), 5))
		check("too old", 1)
	})
}

// An endpoint for which too much waits is disabled, so that Redis is not filled.
func TestTooManyPendingDeliveriesDisableAnEndpoint(t *testing.T) {
	t.Parallel()
	cfg := quick(t, redistest.New(t))
	cfg.MaxPending = 10
	k := open(t, cfg)
	e, _, rel := relayed(t, k, "http://127.0.0.1:1/", 11)
	testutil.Ok(t, rel.tidy(t.Context()))
	if is, err := k.Get(t.Context(), e.ID); err != nil || is.State != StateDisabled || !strings.Contains(is.Reason, "11 waiting deliveries") {
		t.Errorf("got %+v, %v, want it disabled", is, err)
	}
}

// An entry that cannot be read does not stop the relay.
func TestDamagedEventIsPassedOver(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	r := newReceiver(t, nil)
	k := open(t, quick(t, rdb))
	e, _ := k.create(t, r.URL)
	for _, values := range [][]any{{"a", "b"}, {"type", "job.completed", "at", "x"}, {"type", "job.completed", "at", time.Now().UnixMilli(), "data", "{"}} {
		testutil.Ok(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: event.AllKey(), Values: values}).Err())
	}
	k.emit(t, "job.completed", 1)
	k.run(t)
	k.settled(t, e.ID, "map[delivered:2]") // without its data an event is one
	testutil.Eventually(t, "all events are passed on", func() bool { return k.passed(t) })
}

// A new endpoint receives the next event, even if the sending process has just read the list of endpoints.
func TestNewEndpointGetsTheNextEvent(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	r := newReceiver(t, nil)
	adds, sends := open(t, quick(t, rdb)), open(t, quick(t, rdb))
	adds.create(t, r.URL+"/first")
	testutil.Must(sends.records(t.Context()))(t)
	second, _ := adds.create(t, r.URL+"/second")
	adds.emit(t, "job.completed", 1)
	rel := &relay{Service: sends.Service}
	testutil.Must(rel.round(t.Context()))(t)
	if got, want := adds.states(t, second.ID), "map[pending:1]"; got != want {
		t.Errorf("got deliveries %s, want %s", got, want)
	}

	third, _ := adds.create(t, r.URL+"/third")
	d := &deliverer{Service: sends.Service}
	if _, there, err := d.endpoint(t.Context(), third.ID); err != nil || !there {
		t.Errorf("got %v, %v, want the endpoint", there, err)
	}
}

// A job that cannot be read does not hold up the events of others; its own are sent without it.
func TestUnreadableJobsHoldUpNothing(t *testing.T) {
	t.Parallel()
	cfg := quick(t, redistest.New(t))
	cfg.Job = func(_ context.Context, id string) (any, error) {
		if id == "bad" {
			return nil, errors.New("damaged")
		}
		return map[string]string{"id": id}, nil
	}
	k := open(t, cfg)
	r := newReceiver(t, nil)
	e, _ := k.create(t, r.URL)
	for _, id := range []string{"bad", "good"} {
		testutil.Must(k.events.Add(t.Context(), "job.completed", id, "", nil))(t)
	}
	k.run(t)
	k.settled(t, e.ID, "map[delivered:2]")
}

func TestFormats(t *testing.T) {
	t.Parallel()
	m := Message{Type: "job.failed", Data: Data{EventID: "1-0", JobID: "j1", Details: []byte(`{"error": "no\nagent \u003cb\u003e", "n": 3, "list": [1]}`)}}
	line := "job.failed, job j1, error: no agent <b>, n: 3"
	for format, want := range map[string]string{
		FormatText: line, FormatSlack: `{"text":`, FormatTeams: `"contentType":"application/vnd.microsoft.card.adaptive"`, FormatJSON: `"job_id":"j1"`, "": `"job_id":"j1"`,
	} {
		if body, err := m.encode(format); err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: got %s, %v, want %s", format, body, err, want)
		}
	}
	if err := checkFormat("mail"); !errors.As(err, new(*jobs.FieldError)) {
		t.Errorf("got %v, want a *job.FieldError", err)
	}
}

func TestLargeEventsAreSentWithoutTheirDetails(t *testing.T) {
	t.Parallel()
	large := []byte(`"` + strings.Repeat("x", maxData) + `"`)
	body, err := Message{Type: "a", Data: Data{EventID: "1-0", JobID: "j", Details: large, Job: large}}.encode("")
	if err != nil || len(body) > 1000 || !strings.Contains(string(body), `"omitted":true`) || !strings.Contains(string(body), `"job_id":"j"`) {
		t.Errorf("got %d bytes, %v: %.300s", len(body), err, body)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(string, int) int { return 500 })
	k := open(t, quick(t, redistest.New(t)))
	e, _, _ := relayed(t, k, r.URL, 2)
	k.run(t)
	k.settled(t, e.ID, "map[failed:2]")
	body := testutil.Must(Message{Type: TestType}.encode(""))(t)
	waiting := item("2-1", e.ID, TestType, body)
	waiting.NotBefore = time.Now().Add(time.Hour)
	testutil.Must(k.queue.Enqueue(t.Context(), waiting))(t)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewMetrics(k.Service))
	families := testutil.Must(reg.Gather())(t)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"muster_webhooks_up": 1, "muster_webhooks failing": 1, "muster_webhooks active": 0, "muster_webhook_attempts_total failed": 8,
		"muster_webhook_attempts_total delivered": 0, "muster_webhook_deliveries_total given_up": 2, "muster_webhook_deliveries_pending": 1,
		"muster_webhook_waiting_events": 0, "muster_webhook_attempt_seconds": 8,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
