// Package clip shortens texts.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Bytes returns the beginning of s that has at most n bytes and ends between two characters.
func Bytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Line returns s on one line, each run of white space as a blank, and at most n characters of it. What is cut off
// becomes an ellipsis beyond the n.
func Line(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > n {
		return string(rs[:n]) + "…"
	}
	return s
}
