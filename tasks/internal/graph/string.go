package graph

import (
	"strconv"
	"strings"

	"muster/internal/clip"
)

const (
	shownInput   = 40  // bytes of an input
	shownMembers = 4   // of a group
	shownInAll   = 500 // bytes, then it is cut
)

// String returns the tree on one line; long parts are cut.
func (s *Sig) String() string {
	var b strings.Builder
	s.write(&b)
	return cut(b.String(), shownInAll)
}

func (s *Sig) write(b *strings.Builder) {
	if s == nil {
		b.WriteString("(zero signature)")
		return
	}
	if b.Len() > shownInAll { // cut anyway
		return
	}
	list := func(open, end string, kids []*Sig) {
		b.WriteString(open)
		for i, k := range kids {
			if i > 0 {
				b.WriteString(", ")
			}
			if i == shownMembers && len(kids) > shownMembers+1 {
				b.WriteString("… " + strconv.Itoa(len(kids)-i) + " more")
				break
			}
			k.write(b)
		}
		b.WriteString(end)
	}
	after := func(word, name string) {
		s.Kids[0].write(b)
		b.WriteString(word + name)
	}
	switch s.Shape {
	case Call:
		b.WriteString(s.Task + "(" + cut(string(s.Input), shownInput) + ")")
	case Chain, Chord:
		after(" → ", s.Task)
	case Map:
		after(" → each ", s.Task)
	case Group:
		list("[", "]", s.Kids)
	case Join:
		list("(", ")", s.Kids)
	case Settle:
		list("settle(", ")", s.Kids)
	case Try:
		list("try(", ")", s.Kids)
	case After:
		after("; then ", "")
		s.Kids[1].write(b)
	case Rescue:
		after(", or ", s.Task)
	case OnSuccess:
		after(", on success ", s.Task)
	case OnError:
		after(", on error ", s.Task)
	case Value:
		b.WriteString(cut(string(s.Input), shownInput))
	case MapFunc:
		after(" → each (", "")
		s.Body.write(b)
		b.WriteString(")")
	}
}

// cut shortens text to at most n bytes and an ellipsis, between characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return clip.Bytes(text, n) + "…"
}
