// Package counts lists numbers by name.
package counts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names returns the names by their numbers, the largest first.
func Names[K ~string](by map[K]int) []K {
	return slices.SortedFunc(maps.Keys(by), func(a, b K) int { return cmp.Or(by[b]-by[a], cmp.Compare(a, b)) })
}

// Text returns the names with their numbers, the largest first, as in "alive 7, dead 2".
func Text[K ~string](by map[K]int) string {
	var words []string
	for _, name := range Names(by) {
		words = append(words, fmt.Sprintf("%s %d", name, by[name]))
	}
	return strings.Join(words, ", ")
}
