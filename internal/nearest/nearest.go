// Package nearest finds the known word that is nearest to a misspelt one.
package nearest

// Word returns the one of words with the fewest edits from word; of equals, the
// first in alphabetical order. It returns "" if the edits are more than a third
// of the length of word, and more than one.
func Word(word string, words []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, w := range words {
		if d := edits(word, w); d < least || d == least && best != "" && w < best {
			best, least = w, d
		}
	}
	return best
}

// edits returns how many bytes to insert, delete, replace or swap with their
// neighbour to change a to b.
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
