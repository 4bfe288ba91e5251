package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/orchestrator/webhook"
)

// webhooks returns a service with the webhook ops, which sends to public addresses and those allowed.
func webhooks(t testing.TB, cfg Config, url string, allow ...string) *webhook.Service {
	t.Helper()
	filter := testutil.Must(addressfilter.New(allow...))(t)
	hooks, err := webhook.New(webhook.Config{
		Redis: cfg.Client.Redis(), Filter: filter, Max: 2,
		Static: []webhook.Static{{NewEndpoint: webhook.NewEndpoint{Name: "fixed", URL: url, Events: []string{"job.deleted"}}, Secrets: []string{"whsec_" + strings.Repeat("A", 32)}}},
	})
	testutil.Ok(t, err)
	if _, _, err := hooks.Create(t.Context(), webhook.NewEndpoint{Name: "ops", URL: url}); err != nil {
		t.Fatal(err)
	}
	return hooks
}

func TestWebhooksOverHTTP(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	cfg := setup(t)
	cfg.Write, cfg.Webhooks = true, webhooks(t, cfg, receiver.URL, receiver.Listener.Addr().String())
	h := handler(t, cfg)
	expect := func(method, path, body string, status int, want string) fieldsOf {
		t.Helper()
		w := post(t, h, method, path, []byte(body))
		if w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Fatalf("%s %s: got %d %s, want %d with %s", method, path, w.Code, w.Body, status, want)
		}
		if w.Body.Len() == 0 {
			return nil
		}
		return decode(t, w)
	}
	created := expect("POST", "/v1/webhooks", `{"url":"`+receiver.URL+`","events":["job.*"]}`, 201, `"secret":"whsec_`)
	id, _ := created["id"].(string)
	expect("GET", "/v1/webhooks", "", 200, `"name":"ops"`)
	expect("GET", "/v1/webhooks/"+id, "", 200, `"state":"active"`)
	expect("GET", "/v1/webhooks/ops", "", 200, `"name":"ops"`)
	expect("GET", "/v1/webhooks/none", "", 404, "no such webhook")
	expect("PATCH", "/v1/webhooks/ops", `{"secrets":["short"]}`, 400, "body.secrets")
	expect("PATCH", "/v1/webhooks/ops", `{"format":"mail"}`, 400, "body.format")
	expect("PATCH", "/v1/webhooks/ops", `{"format":"slack"}`, 200, `"format":"slack"`)
	expect("PATCH", "/v1/webhooks/ops", `{"disabled":true}`, 200, `"state":"disabled"`)
	expect("POST", "/v1/webhooks/ops/test", "", 409, `"code":"webhook_disabled"`)
	expect("PATCH", "/v1/webhooks/ops", `{"disabled":false}`, 200, `"state":"active"`)

	sent := expect("POST", "/v1/webhooks/ops/test", "", 200, `"state":"pending"`)
	again := "/v1/webhooks/ops/deliveries/" + sent["id"].(string) + "/redeliver"
	expect("POST", again, "", 409, `"code":"delivery_not_ended"`)
	t.Cleanup(testutil.Background(t, cfg.Webhooks.Run))
	testutil.Eventually(t, "the delivery", func() bool {
		return strings.Contains(ask(t, h, "GET", "/v1/webhooks/ops/deliveries?state=delivered").Body.String(), `"type":"webhook.test"`)
	})
	expect("POST", again, "", 200, `"redelivered":1`)
	expect("POST", "/v1/webhooks/ops/deliveries/none/redeliver", "", 404, "no such delivery")
	expect("POST", "/v1/webhooks/ops/test", "", 200, `"type":"webhook.test"`)
	first := expect("GET", "/v1/webhooks/ops/deliveries?limit=1", "", 200, `"next":"`)
	expect("GET", "/v1/webhooks/ops/deliveries?limit=1&cursor="+first["next"].(string), "", 200, `"redelivered":1`)
	expect("GET", "/v1/webhooks/ops/deliveries?state=failed", "", 200, `{"data":[]`)
	expect("GET", "/v1/webhooks/ops/deliveries?state=lost", "", 400, "query.state")
	expect("POST", "/v1/webhooks", `{"url":"`+receiver.URL+`"}`, 409, `"code":"too_many_webhooks"`)
	expect("PATCH", "/v1/webhooks/fixed", `{"format":"slack"}`, 409, `"code":"webhook_static"`)
	expect("DELETE", "/v1/webhooks/"+id, "", 204, "")
	expect("GET", "/v1/webhooks/"+id, "", 404, "")
}
