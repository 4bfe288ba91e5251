package definition

import (
	"fmt"
	"slices"
	"strings"
)

// Pos is a place in a definition's file, counted from one. The zero Pos is
// no place: a definition built in Go has none.
type Pos struct{ Line, Col int }

// Problem is one thing wrong with a definition.
type Problem struct {
	File string // as it was given to Load
	At   Pos
	Key  string // dotted path of the key, such as records.quote.fields.text
	Text string // what is wrong and what to write instead
}

// Error reads file:line:column: key: text.
func (p *Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.At.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.At.Line, p.At.Col)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is everything wrong with a definition, in the order of the file.
type Problems []*Problem

// Error gives one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single Problem.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		if a.At.Line != b.At.Line {
			return a.At.Line - b.At.Line
		}
		return a.At.Col - b.At.Col
	})
	return ps
}

// nearest is the candidate that a misspelt word most likely meant, or "".
func nearest(word string, candidates []string) string {
	best, bestDist := "", len(word)/2+1
	for _, c := range candidates {
		if d := distance(word, c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with
// their neighbour to come from a to b.
func distance(a, b string) int {
	var before []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}

// Nearest is the candidate that a misspelt word most likely meant, or "".
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }
