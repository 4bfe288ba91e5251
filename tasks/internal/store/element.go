package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Element is a part of a take: nodes of a workflow.
type Element struct {
	Flow      Flow // with the reference only
	Lost      int
	Cancelled bool   // its workflow is; see [Flows.Cancel]
	Overdue   bool   // likewise, by its deadline
	Graph     []byte // nil if it is large, or in an earlier element
	Planned   string // when the plan with the nodes was stored; empty if they are in none
	Nodes     []string
	Records   [][]byte
	Inputs    [][]byte // literal ones; nil for none
}

var errElement = errors.New("script returned an invalid element")

// element reads {element, graph or false, time at which its plan was stored or false, record or false and input or false of each node}.
func element(shard int, v any) (Element, error) {
	list, _ := v.([]any)
	if len(list) < 3 {
		return Element{}, errElement
	}
	el, err := ParseElement(shard, text(list[0]))
	if err != nil {
		return el, err
	}
	if g := text(list[1]); g != "" {
		el.Graph = []byte(g)
	}
	el.Planned = text(list[2])
	el.Records, el.Inputs = make([][]byte, len(el.Nodes)), make([][]byte, len(el.Nodes))
	for i := range el.Nodes {
		if at := 3 + 2*i; at+1 < len(list) {
			el.Records[i], el.Inputs[i] = raw(list[at]), raw(list[at+1])
		}
	}
	return el, nil
}

// maxSpan bounds the nodes of an element, which may be damaged.
const maxSpan = 1 << 20

// ParseElement reads an element of a ready list, "<workflow>/<span>[@deaths]".
func ParseElement(shard int, s string) (Element, error) {
	id, span, ok := strings.Cut(s, "/")
	if !ok {
		return Element{}, fmt.Errorf("%w: %.100q", errElement, s)
	}
	el := Element{Flow: Flow{Ref: id, shard: shard}}
	span, lost, _ := strings.Cut(span, "@")
	el.Lost = int(toInt(lost))
	dash := strings.LastIndexByte(span, '-')
	if dash < 0 {
		el.Nodes = []string{span}
		return el, nil
	}
	from := strings.LastIndexAny(span[:dash], ".:") + 1
	prefix := span[:from]
	first, err := strconv.Atoi(span[from:dash])
	last, err2 := strconv.Atoi(span[dash+1:])
	if err != nil || err2 != nil || first < 0 || last < first || last-first >= maxSpan {
		return Element{}, fmt.Errorf("%w: %.100q", errElement, s)
	}
	el.Nodes = make([]string, 0, last-first+1)
	for i := first; i <= last; i++ {
		el.Nodes = append(el.Nodes, prefix+strconv.Itoa(i))
	}
	return el, nil
}

// splitSpan returns the id of a node up to its last number, and that number.
func splitSpan(node string) (prefix string, n int) {
	from := strings.LastIndexAny(node, ".:") + 1
	n, _ = strconv.Atoi(node[from:])
	return node[:from], n
}
