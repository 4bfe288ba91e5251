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
		c, again := Default(), Default()
		for i, s := range settings(&c) {
			if !s.isObjects() {
				continue
			}
			copied := settings(&again)[i]
			if err := s.set(text); err == nil && s.v.Len() > 0 {
				if err := copied.set(s.text()); err != nil || copied.v.Len() != s.v.Len() {
					t.Errorf("%q: %s has %d elements, and %d, %v after a round trip", text, s.path, s.v.Len(), copied.v.Len(), err)
				}
			} else if err != nil && strings.Contains(err.Error(), hidden) && !strings.Contains(err.Error(), "unknown field") {
				t.Errorf("%q: the error is %v", text, err)
			}
		}
	})
}
