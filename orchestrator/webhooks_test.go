package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/limit"
	"muster/internal/testutil"
	signed "muster/internal/webhook"
	"muster/orchestrator/event"
	"muster/orchestrator/webhook"
	"muster/sites/report"
)

// Webhooks receive the events of agents, jobs and sites. The job summary contains no confidential data.
func TestWebhooksGetEventsOfJobsSitesAndAgents(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Network.Allow = []string{"127.0.0.1"}
	w := serveSystemWith(t, cfg, slog.New(slog.DiscardHandler))
	var mu sync.Mutex // guards the variables below
	secret, messages, wrong := "", map[string]webhook.Message{}, []string{}
	receiver := testutil.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m webhook.Message
		mu.Lock()
		defer mu.Unlock()
		if err := signed.Verify(r.Header, body, time.Now(), secret); err != nil || json.Unmarshal(body, &m) != nil || strings.Contains(string(body), "confidential") {
			wrong = append(wrong, string(body))
		}
		messages[m.Type+" "+m.Data.JobID] = m
	}))
	has := func(what string) webhook.Message {
		t.Helper()
		var m webhook.Message
		testutil.Eventually(t, "a message "+what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			var ok bool
			m, ok = messages[what]
			return ok
		})
		return m
	}

	created := w.ask("POST", "/v1/webhooks", map[string]any{"url": receiver.URL, "name": "all"})
	if created.code != http.StatusCreated || created.text("state") != "active" {
		t.Fatalf("got %d %s, want a webhook", created.code, created.raw)
	}
	mu.Lock()
	secret = created.text("secret")
	mu.Unlock()
	w.register("creator")
	var registered struct{ Name string }
	if m := has("agent.registered "); json.Unmarshal(m.Data.Details, &registered) != nil || registered.Name != "a-creator" || m.Data.Job != nil {
		t.Errorf("got %+v, want the agent", m)
	}
	id := w.ask("POST", "/jobs", map[string]any{"prompt": "confidential", "labels": []string{"urgent"}}).text("id")
	w.ask("DELETE", "/jobs/"+id, nil)
	var j jobSummary
	if m := has("job.cancelled " + id); json.Unmarshal(m.Data.Job, &j) != nil || j.ID != id || j.Status != "cancelled" || j.Name != "default" || len(j.Labels) != 1 {
		t.Errorf("got %s, want a summary of the job", m.Data.Job)
	}

	judged := otherEvents{w.system.Events, w.system.logger}.siteJudged
	h := report.Health{Site: "shop.example", JobID: "scrape-1", Outcome: "INCOMPLETE", Status: report.Degraded, Alerts: []string{"too slow"}}
	for range 2 { // the second call is a duplicate
		testutil.Ok(t, judged(t.Context(), h, ""))
	}
	var got report.Health
	if m := has("site.unhealthy scrape-1"); json.Unmarshal(m.Data.Details, &got) != nil || got.Site != h.Site || len(got.Alerts) != 1 {
		t.Errorf("got %s, want the health", m.Data.Details)
	}
	has("scrape.failed scrape-1")
	healthy := report.Health{Site: "shop.example", JobID: "scrape-2", Outcome: report.StatusComplete, Status: report.Healthy}
	for _, before := range []report.HealthStatus{"", report.Healthy} { // neither is an event
		testutil.Ok(t, judged(t.Context(), healthy, before))
	}
	healthy.JobID = "scrape-3"
	testutil.Ok(t, judged(t.Context(), healthy, report.Critical))
	has("site.recovered scrape-3")
	has("scrape.completed scrape-2")
	mu.Lock()
	defer mu.Unlock()
	if _, ok := messages["site.recovered scrape-2"]; ok || len(wrong) > 0 {
		t.Errorf("got site.recovered of a healthy site: %v, invalid messages: %q", ok, wrong)
	}
}

// Opening and resetting a breaker are events.
func TestBreakerChangesAreEvents(t *testing.T) {
	t.Parallel()
	w := serveSystemWith(t, settings(t), slog.New(slog.DiscardHandler))
	breaker := limit.NewBreaker(w.system.Client.Redis(), limit.BreakerConfig{Threshold: 1, Changed: w.system.BreakerChanged, Logger: w.system.logger})
	permit, _, _, err := breaker.Allow(t.Context(), "shop@shop.example")
	if err == nil {
		err = permit.Failure(t.Context(), "connect")
	}
	if err == nil {
		err = w.system.Breakers.Hosts.Reset(t.Context(), "shop@shop.example")
	}
	testutil.Ok(t, err)
	got, err := w.system.Events.Read(t.Context(), "", "0-0", 100, 0)
	if err != nil || len(got.Events) != 2 || got.Events[0].Type != "breaker.opened" || got.Events[1].Type != "breaker.closed" {
		t.Fatalf("got %+v, %v, want the events opened and closed", got.Events, err)
	}
	var state limit.BreakerState
	if err := json.Unmarshal(got.Events[0].Data, &state); err != nil || state.Key != "shop@shop.example" || state.State != "open" || state.LastBlock != "connect" {
		t.Errorf("got %s, %v, want the breaker of the site", got.Events[0].Data, err)
	}
	for _, e := range got.Events {
		if !slices.Contains(event.Types, e.Type) {
			t.Errorf("no webhook can subscribe to %s", e.Type)
		}
	}
}

// The log of an orchestrator has the events of all processes: problems as warnings, with the reason.
func TestOrchestratorLogsEvents(t *testing.T) {
	t.Parallel()
	var book testutil.Output
	err := Run(t.Context(), settings(t), Options{Logger: slog.New(slog.NewTextHandler(&book, nil))}, func(ctx context.Context, o *Orchestrator) error {
		ctx, stop := context.WithCancel(ctx)
		var logging sync.WaitGroup
		logging.Go(func() { o.logEvents(ctx) })
		events := otherEvents{o.Events, o.opts.Logger}
		n := 0
		testutil.Eventually(t, "both events are logged", func() bool { // events before the first read are not
			n++ // a scrape has each event once
			h := report.Health{Site: "shop.example", JobID: fmt.Sprint("scrape-", n), Outcome: report.StatusComplete, Status: report.Critical, Records: 3, Alerts: []string{"errors 17 %"}}
			if err := events.siteJudged(ctx, h, report.Healthy); err != nil {
				t.Error(err)
			}
			text := book.String()
			return strings.Contains(text, "level=INFO msg=scrape.completed") && strings.Contains(text, "level=WARN msg=site.unhealthy")
		})
		stop()
		logging.Wait()
		return nil
	})
	if want := `site=shop.example outcome=COMPLETE status=critical records=3 alerts="[errors 17 %]"`; err != nil || !strings.Contains(book.String(), want) {
		t.Errorf("got %v and\n%s\nwant %s", err, book.String(), want)
	}
}
