package yamlstrict

import (
	"fmt"
	"slices"
	"strings"
)

// Pos is a place in a file. Lines and columns are counted from 1. The zero Pos is none, as in a value made in Go.
type Pos struct{ Line, Col int }

// Problem is a mistake in a file.
type Problem struct {
	File string // its name; "" if that is not known
	At   Pos
	Key  string // dotted path of the key, or ""
	Text string // what is wrong and what to write instead
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

// Problems are all mistakes in a file, in the order of the file.
type Problems []*Problem

// Error returns one problem per line.
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

// Sorted sorts the problems by their places, and returns them.
func (ps Problems) Sorted() Problems {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		if a.At.Line != b.At.Line {
			return a.At.Line - b.At.Line
		}
		return a.At.Col - b.At.Col
	})
	return ps
}
