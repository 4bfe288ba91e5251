package definition

import (
	"fmt"
	"slices"
	"strings"
)

// Pos is a position in a definition's file, counted from one. The zero Pos is none, as in a definition built in Go.
type Pos struct{ Line, Col int }

// Problem is one mistake in a definition.
type Problem struct {
	File string // the name given to Load
	At   Pos
	Key  string // dotted path of the key, such as records.quote.fields.text
	Text string // the mistake and what to write instead
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

// Problems are all mistakes in a definition, in the order of the file.
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

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		if a.At.Line != b.At.Line {
			return a.At.Line - b.At.Line
		}
		return a.At.Col - b.At.Col
	})
	return ps
}
