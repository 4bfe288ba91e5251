// Package clip shortens strings.
package clip

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bytes returns the longest prefix of s of at most n bytes that ends between two characters.
func Bytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Ellipsis returns s or, if it has more than n bytes, the prefix that Bytes returns and an ellipsis.
func Ellipsis(s string, n int) string {
	if len(s) > n {
		return Bytes(s, n) + "…"
	}
	return s
}

// Line returns the first n characters of s, with each run of white space as one space. If it cuts s it adds an
// ellipsis, which is not counted in n.
func Line(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > n {
		return string(rs[:n]) + "…"
	}
	return s
}

// Clean is Line for a text from elsewhere. Characters that are not printable count as white space.
func Clean(s string, n int) string {
	return Line(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s), n)
}
