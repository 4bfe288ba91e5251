package clip

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzBytes(f *testing.F) {
	f.Add("aäöü€😀", 3)
	f.Add("\x80\x80\xff", 2)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n &= 0xffff
		got := Bytes(s, n)
		if len(got) > n || !strings.HasPrefix(s, got) || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%q cut to %d bytes is %q", s, n, got)
		}
		line := Line(s, n)
		if strings.ContainsAny(line, "\n\r\t") || utf8.RuneCountInString(line) > n+1 {
			t.Errorf("%q as a line of %d is %q", s, n, line)
		}
	})
}
