package config

import (
	"reflect"
	"strings"
	"testing"

	"muster/internal/testutil"
)

const aSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestWebhooksAreRead(t *testing.T) {
	t.Parallel()
	l := testutil.Must(Load(Sources{File: write(t, "webhooks:\n  static:\n    - {name: ops, url: 'https://ops.example.org/in?token=hush', events: [site.*], secrets: ["+aSecret+"]}\n")}))(t)
	want := []Webhook{{Name: "ops", URL: "https://ops.example.org/in?token=hush", Events: []string{"site.*"}, Secrets: []string{aSecret}}}
	if !reflect.DeepEqual(l.Webhooks.Static, want) {
		t.Errorf("got %+v, want %+v", l.Webhooks.Static, want)
	}
	for _, s := range l.Settings() {
		if s.Path == "webhooks.static" {
			if got := s.Value.([]string); len(got) != 1 || got[0] != "ops https://ops.example.org/in?… (site.*)" {
				t.Errorf("got %q, want no secrets", got)
			}
		}
	}
	child, err := Load(Sources{Environ: l.Environ("")})
	if err != nil || !reflect.DeepEqual(child.Webhooks, l.Webhooks) {
		t.Errorf("a child process reads %+v, %v, want the same", child, err)
	}
}

func TestInvalidWebhooksAreReported(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: a, url: 'https://x.example/'}":                                         "webhook 1: secrets must contain one secret",
		"{name: a, url: 'https://x.example/', secrets: [passphrase]}":                  "16 to 64 bytes as base64",
		"{name: a, url: 'https://me:pw@x.example/', secrets: [" + aSecret + "]}":       "must not contain a user or a password",
		"{url: 'https://x.example/', secrets: [" + aSecret + "]}":                      "webhook 1: a name",
		"{name: a, url: 'https://x.example/', secrets: [" + aSecret + "], event: [a]}": `unknown field "event"`,
	} {
		_, err := Load(Sources{File: write(t, "webhooks:\n  static:\n    - "+text+"\n")})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "passphrase") || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: got %v, want %q, and no secret", text, err, want)
		}
	}
}

// Errors for removed settings name the replacement.
func TestAlertsNameWebhooks(t *testing.T) {
	t.Parallel()
	if _, err := Load(Sources{File: write(t, "sites:\n  alerts: https://x.example/\n")}); err == nil || !strings.Contains(err.Error(), "webhooks.static") {
		t.Errorf("file: got %v, want webhooks.static in it", err)
	}
	_, err := Load(Sources{Environ: []string{"MUSTER_CONFIG=/dev/null", "MUSTER_SITES__ALERTS=https://x.example/"}})
	if err == nil || !strings.Contains(err.Error(), "webhooks.static") {
		t.Errorf("environment: got %v, want webhooks.static in it", err)
	}
	if _, err := Load(Sources{File: write(t, "sites:\n  webhook_secret: a passphrase\n")}); err == nil || !strings.Contains(err.Error(), "base64") || strings.Contains(err.Error(), "passphrase") {
		t.Errorf("secret: got %v, want the format of a secret without its value", err)
	}
}
