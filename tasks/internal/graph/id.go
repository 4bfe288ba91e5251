package graph

import (
	"fmt"
	"strconv"
	"strings"
)

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
