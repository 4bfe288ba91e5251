package config

import (
	"strings"
	"testing"
)

// FuzzOneLine checks that lists of sources, agents and webhooks in the environment are parsed and survive a round trip, or are
// rejected with an error without secrets.
func FuzzOneLine(f *testing.F) {
	for _, s := range []string{"list.txt,http://a.example/x", `[{"url":"http://a.example/?key=`, `[{"gateway":"http://u:`, `[{"name":"one","role":"creator","url":"http://creator:8001","secret":"`, `[{"name":"ops","url":"https://h","secrets":["`, `[{"auth":`, `[]`, "{"} {
		f.Add(s, `"]}]`)
		f.Add(s, `"}]`)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const hidden = "s3cr3tw0rd"
		text := before + hidden + after
		if list, err := parseSources(text); err == nil {
			if again, err := parseSources(sourcesText(list)); err != nil || len(again) != len(list) && len(list) > 0 {
				t.Errorf("%q: read %d sources, and %d, %v after a round trip", text, len(list), len(again), err)
			}
		} else if strings.Contains(err.Error(), hidden) && !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%q: the error is %v", text, err)
		}
		if list, err := parseAgents(text); err == nil && len(list) > 0 {
			if again, err := parseAgents(agentsText(list)); err != nil || len(again) != len(list) {
				t.Errorf("%q: read %d agents, and %d, %v after a round trip", text, len(list), len(again), err)
			}
		} else if err != nil && strings.Contains(err.Error(), hidden) && !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%q: the error is %v", text, err)
		}
		if list, err := parseWebhooks(text); err == nil && len(list) > 0 {
			if again, err := parseWebhooks(webhooksText(list)); err != nil || len(again) != len(list) {
				t.Errorf("%q: read %d webhooks, and %d, %v after a round trip", text, len(list), len(again), err)
			}
		} else if err != nil && strings.Contains(err.Error(), hidden) && !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%q: the error is %v", text, err)
		}
	})
}
