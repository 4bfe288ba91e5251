package canvas

import (
	"fmt"
	"maps"
	"slices"
)

// Differs returns how the result of a workflow differs from r, or "". A failure has a message.
func (r *Result) Differs(n int, failed bool, message string) string {
	causes := slices.Sorted(maps.Keys(r.Causes))
	switch {
	case failed && !r.Causes[message]:
		return fmt.Sprintf("failed with %q, want %d or one of %q", message, r.N, causes)
	case !failed && (r.Failed() || n != r.N):
		return fmt.Sprintf("got %d, want %d or one of %q", n, r.N, causes)
	}
	return ""
}

// Differs returns how the numbers of runs of tasks differ from r.
func (r Runs) Differs(runs map[string]int) (out []string) {
	for _, task := range slices.Sorted(maps.Keys(runs)) {
		if n := runs[task]; n > r.Sure[task]+r.Loose[task] {
			out = append(out, fmt.Sprintf("%s ran %d times, want %d and at most %d more", task, n, r.Sure[task], r.Loose[task]))
		}
	}
	for _, task := range slices.Sorted(maps.Keys(r.Sure)) {
		if n := runs[task]; n < r.Sure[task] {
			out = append(out, fmt.Sprintf("%s ran %d times, want %d", task, n, r.Sure[task]))
		}
	}
	return out
}
