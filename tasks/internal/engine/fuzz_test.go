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

// FuzzWake wants a wake-task that is let through to be sent as the same.
func FuzzWake(f *testing.F) {
	for _, s := range []string{"3 17", "-1 2", "x", "0 ", "+3 g", "99999999999999999999 1", "1 a b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		w, err := parseWake("q", payload)
		if err != nil {
			if len(err.Error()) > 400 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if w.Shard < 0 || w.Gen == "" || w.Queue != "q" || !strings.HasSuffix(string(payload), " "+w.Gen) {
			t.Errorf("%q: got %+v", payload, w)
		}
	})
}
