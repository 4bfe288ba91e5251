package yamlstrict

import (
	"fmt"
	"slices"
	"strings"
)

// Pos is a position in a file. Lines and columns start at 1. The zero Pos means no position, as in values created in Go.
type Pos struct{ Line, Col int }

// Problem is a mistake in a file.
type Problem struct {
	File string // name, or "" if unknown
	At   Pos
	Key  string // dotted path of the key, or ""
	Text string // description with advice
}

// Error returns file:line:column: key: text.
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

// Problems are all mistakes in a file, in file order.
type Problems []*Problem

// Error returns one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap supports errors.As for a single Problem.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// Sorted sorts the problems by position and returns them, each once. ps is invalid afterwards.
func (ps Problems) Sorted() Problems {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		if a.At.Line != b.At.Line {
			return a.At.Line - b.At.Line
		}
		return a.At.Col - b.At.Col
	})
	return slices.CompactFunc(ps, func(a, b *Problem) bool { return *a == *b })
}
