package nearest

import (
	"slices"
	"testing"
)

func TestNearestWordIsReturned(t *testing.T) {
	t.Parallel()
	words := []string{"start", "worker", "scrape", "sites", "send", "css", "external"}
	for word, want := range map[string]string{
		"strat":    "start", // transposition
		"wroker":   "worker",
		"cs":       "css",
		"extern":   "external",
		"scrap":    "scrape",
		"sendd":    "send",
		"dance":    "",
		"":         "",
		"x":        "",
		"siteless": "",
		"start":    "start",
	} {
		if got := Word(word, words); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

// The alphabetically first of equally similar words is returned, in any order.
func TestFirstOfEqualsIsReturned(t *testing.T) {
	t.Parallel()
	words := []string{"bat", "cat", "hat"}
	for range 2 {
		if got := Word("mat", words); got != "bat" {
			t.Errorf("%v: got %q, want %q", words, got, "bat")
		}
		slices.Reverse(words)
	}
}
