package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/internal/webhook"
)

// Webhooks configures webhook endpoints.
type Webhooks struct {
	Static  []Webhook     `yaml:"static" secret:"all"`
	Timeout time.Duration `yaml:"timeout" range:"1s 1m"`
	Keep    time.Duration `yaml:"keep" range:"10m 720h"`
}

func defaultWebhooks() Webhooks { return Webhooks{Timeout: 15 * time.Second, Keep: 72 * time.Hour} }

// Webhook is a static webhook endpoint.
type Webhook struct {
	Name      string   `yaml:"name" json:"name"`
	URL       string   `yaml:"url" json:"url"`
	Events    []string `yaml:"events" json:"events,omitempty"`       // event types, or prefixes such as job.*; default: all
	Workflows []string `yaml:"workflows" json:"workflows,omitempty"` // names of workflows, or prefixes such as billing-*, for events workflow.*
	Labels    []string `yaml:"labels" json:"labels,omitempty"`       // their labels, KEY=VALUE
	Format    string   `yaml:"format" json:"format,omitempty"`       // json, text, slack or teams; default: json
	Secrets   []string `yaml:"secrets" json:"secrets"`               // one secret, two during a rotation
}

// shown returns a description of the endpoint without secrets.
func (w Webhook) shown() string {
	text := w.Name + " " + webhook.ShownURL(w.URL)
	if len(w.Events) > 0 {
		text += " (" + strings.Join(w.Events, ", ") + ")"
	}
	return text
}

var webhookName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// checkWebhooks returns all errors in endpoints.
func checkWebhooks(list []Webhook) []error {
	var errs []error
	var seen []string
	for i, w := range list {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("webhook %d: "+format, append([]any{i + 1}, args...)...))
		}
		switch {
		case !webhookName.MatchString(w.Name):
			bad("a name of up to 100 letters, digits, dots, hyphens and underscores is required")
		case slices.Contains(seen, w.Name):
			bad("duplicate name %s; set a unique name", w.Name)
		}
		seen = append(seen, w.Name)
		if err := webhook.CheckURL(w.URL); err != nil {
			bad("url: %w", err)
		}
		if len(w.Secrets) < 1 || len(w.Secrets) > 2 {
			bad("secrets must contain one secret, or two during a rotation")
		}
		for _, secret := range w.Secrets {
			if err := webhook.CheckSecret(secret); err != nil {
				bad("secrets: %w", err)
			}
		}
	}
	return errs
}
