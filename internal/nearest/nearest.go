// Package nearest finds the known word that is most similar to a misspelled one.
package nearest

import "fmt"

// Hint returns ", did you mean …?" with the result of Word, or "".
func Hint(word string, words []string) string {
	if near := Word(word, words); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}

// Word returns the member of words with the smallest edit distance from word, and the alphabetically first of several. It returns ""
// if the distance is more than one and more than a third of the length of word.
func Word(word string, words []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, w := range words {
		if d := edits(word, w); d < least || d == least && best != "" && w < best {
			best, least = w, d
		}
	}
	return best
}

// edits returns the number of bytes to insert, delete, replace or transpose to change a to b.
func edits(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j+1]+1, row[j]+1, prev[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
