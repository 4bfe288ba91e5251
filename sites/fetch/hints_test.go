package fetch

import (
	"strings"
	"testing"
)

func TestHints(t *testing.T) {
	t.Parallel()
	h := hintsOf(strong)
	for _, s := range strong {
		for _, word := range s.hints {
			for _, body := range []string{word, "<p id=" + word, strings.Repeat("c", 100) + word + ">"} {
				if !h.in([]byte(body)) {
					t.Errorf("%q is not found in %q", word, body)
				}
			}
			if h.in([]byte(word[:len(word)-1])) && !strings.Contains(word, "challenge") {
				t.Errorf("a part of %q is taken for it", word)
			}
		}
	}
	for _, body := range []string{"", "c", "a page of no interest", "se", "sec-"} {
		if h.in([]byte(body)) {
			t.Errorf("a hint is found in %q", body)
		}
	}
}
