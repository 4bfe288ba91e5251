package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

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
	Name    string   `yaml:"name" json:"name"`
	URL     string   `yaml:"url" json:"url"`
	Events  []string `yaml:"events,omitempty" json:"events,omitempty"` // event types, or prefixes such as job.*; default: all
	Format  string   `yaml:"format,omitempty" json:"format,omitempty"` // json, text, slack or teams; default: json
	Secrets []string `yaml:"secrets" json:"secrets"`                   // one secret, two during a rotation
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

// readWebhooks parses a YAML list of mappings.
func readWebhooks(items []ast.Node) ([]Webhook, error) {
	var out []Webhook
	for i, item := range items {
		var w Webhook
		if err := yaml.NodeToValue(item, &w, yaml.Strict()); err != nil {
			var at yaml.Error
			if errors.As(err, &at) {
				err = errors.New(at.GetMessage())
			}
			return nil, fmt.Errorf("webhook %d: set name, url and secrets, and optionally events: %w", i+1, err)
		}
		out = append(out, w)
	}
	return out, nil
}

// parseWebhooks parses endpoints from JSON on one line.
func parseWebhooks(text string) ([]Webhook, error) {
	var out []Webhook
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("invalid webhooks: use JSON such as [{\"name\": …, \"url\": …, \"secrets\": […]}]: %w", err)
	}
	return out, nil
}

// webhooksText returns endpoints in the format of parseWebhooks.
func webhooksText(list []Webhook) string {
	if len(list) == 0 {
		return ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(list) // cannot fail for strings
	return strings.TrimSpace(b.String())
}
