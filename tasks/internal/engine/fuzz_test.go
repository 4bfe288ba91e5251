package engine

import (
	"errors"
	"strings"
	"testing"

	"muster/tasks/internal/graph"
)

// FuzzToken checks that every accepted token is valid, and that errors do not contain the token.
func FuzzToken(f *testing.F) {
	good, _ := newToken("w1", "3.2")
	for _, s := range []string{good, " " + good + "\n", good + ".x", "..", "AAAAAAAAAAAAAAAAAAAAAA.w.0:1.2", "AAAAAAAAAAAAAAAAAAAAAB.w.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseToken(s)
		if err != nil {
			if text, _, _ := strings.Cut(s, "."); !errors.Is(err, ErrUnknown) || len(text) > 10 && strings.Contains(err.Error(), text) {
				t.Errorf("%q: got %v", s, err)
			}
			return
		}
		if _, err := graph.ParseID(got.node); err != nil || got.workflow == "" || got.hash == "" || !strings.HasSuffix(strings.TrimSpace(s), "."+got.workflow+"."+got.node) {
			t.Errorf("%q: got %+v", s, got)
		}
	})
}
