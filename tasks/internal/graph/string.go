package graph

import (
	"fmt"
	"strconv"
	"strings"

	"muster/internal/clip"
)

const (
	shownInput   = 40  // bytes of an input
	shownMembers = 4   // of a group
	shownInAll   = 500 // bytes, then it is cut
)

// links are the words between the first part of a signature and what follows it.
var links = map[Shape]string{
	Chain: " → ", Chord: " → ", Map: " → each ", MapFunc: " → each (", After: "; then ", Rescue: ", or ", OnSuccess: ", on success ", OnError: ", on error ",
}

// String returns the tree on one line; long parts are cut.
func (s *Sig) String() string {
	var b strings.Builder
	s.write(&b)
	return clip.Ellipsis(b.String(), shownInAll)
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
	switch s.Shape {
	case Call:
		b.WriteString(s.Task + "(" + clip.Ellipsis(string(s.Input), shownInput) + ")")
	case Group:
		list("[", "]", s.Kids)
	case Join:
		list("(", ")", s.Kids)
	case Settle:
		list("settle(", ")", s.Kids)
	case Try:
		list("try(", ")", s.Kids)
	case Value:
		b.WriteString(clip.Ellipsis(string(s.Input), shownInput))
	default:
		s.Kids[0].write(b)
		b.WriteString(links[s.Shape] + s.Task)
	}
	switch s.Shape {
	case After:
		s.Kids[1].write(b)
	case MapFunc:
		s.Body.write(b)
		b.WriteString(")")
	}
}

// ID names a node of a workflow: the scope of the plan it belongs to, its index there and, in a map
// or a catch over many, its instance.
type ID struct {
	Scope string // id of the planned node; empty at the top
	Index int
	Inst  int // -1 for none
}

// ParseID reads the string form.
func ParseID(s string) (ID, error) {
	id := ID{Inst: -1}
	local := s
	if k := strings.LastIndexByte(s, ':'); k >= 0 {
		id.Scope, local = s[:k], s[k+1:]
	}
	index, inst, ok := strings.Cut(local, ".")
	var err error
	if id.Index, err = strconv.Atoi(index); err != nil || id.Index < 0 {
		return id, fmt.Errorf("node id %q: expected an index", s)
	}
	if ok {
		if id.Inst, err = strconv.Atoi(inst); err != nil || id.Inst < 0 {
			return id, fmt.Errorf("node id %q: expected an instance", s)
		}
	}
	return id, nil
}

// String returns the form that ParseID reads.
func (id ID) String() string {
	s := strconv.Itoa(id.Index)
	if id.Scope != "" {
		s = id.Scope + ":" + s
	}
	if id.Inst >= 0 {
		s += "." + strconv.Itoa(id.Inst)
	}
	return s
}

// At returns the id of another node of the same scope.
func (id ID) At(index, inst int) ID { return ID{id.Scope, index, inst} }
