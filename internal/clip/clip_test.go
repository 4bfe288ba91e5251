package clip_test

import (
	"testing"

	"muster/internal/clip"
)

func TestBytesEndsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"aé", 3, "aé"}, {"é", 1, ""}, {"", 0, ""}, {"\x80\x80\x80", 2, ""}} {
		if got := clip.Bytes(c.s, c.n); got != c.want {
			t.Errorf("%q to %d bytes: got %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

func TestLineIsCutToCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{" a\n\tb ", 9, "a b"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äöü…"}, {"", 3, ""}} {
		if got := clip.Line(c.s, c.n); got != c.want {
			t.Errorf("%q to %d characters: got %q, want %q", c.s, c.n, got, c.want)
		}
	}
}
