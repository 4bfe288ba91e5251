package config

import "fmt"

// meant is ", did you mean …?" when one of words is like word, else empty.
func meant(word string, words []string) string {
	best, least := "", 1+min(len(word)/3, 3)
	for _, w := range words {
		if d := distance(word, w); d <= least {
			best, least = w, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", best)
}

// distance is the number of letters to insert, remove or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
