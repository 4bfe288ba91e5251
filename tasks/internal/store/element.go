package store

import (
	"strconv"
	"strings"
)

// Element is a part of a take: nodes of a workflow.
type Element struct {
	Flow    Flow // with the reference only
	Lost    int
	Stopped string // see [FieldStopped]
	Graph   []byte // nil if it is large, or in an earlier element
	Planned string // when the plan with the nodes was stored; empty if they are in none
	Nodes   []string
	Records [][]byte
	Inputs  [][]byte // literal ones; nil for none
}

// element reads {element, graph or false, time at which its plan was stored or false, [FieldStopped] or false, record or false and input or
// false of each node}.
func element(shard int, v any) Element {
	list, _ := v.([]any)
	el := ParseElement(shard, text(list[0]))
	el.Graph, el.Planned, el.Stopped = raw(list[1]), text(list[2]), text(list[3])
	for i := range el.Nodes {
		el.Records, el.Inputs = append(el.Records, raw(list[4+2*i])), append(el.Inputs, raw(list[5+2*i]))
	}
	return el
}

// ParseElement reads an element of a ready list, "<workflow>/<span>[@deaths]".
func ParseElement(shard int, s string) Element {
	ref, span, _ := strings.Cut(s, "/")
	span, lost, _ := strings.Cut(span, "@")
	el := Element{Flow: Flow{Ref: ref, shard: shard}, Lost: int(toInt(lost))}
	prefix, first, last := parseSpan(span)
	for i := first; i <= last; i++ {
		el.Nodes = append(el.Nodes, prefix+strconv.Itoa(i))
	}
	return el
}

// parseSpan reads a node, or a span of nodes: their IDs up to the last number, the first and the last of these numbers.
func parseSpan(span string) (prefix string, first, last int) {
	from := strings.LastIndexAny(span, ".:") + 1
	a, b, many := strings.Cut(span[from:], "-")
	first = int(toInt(a))
	if last = first; many {
		last = int(toInt(b))
	}
	return span[:from], first, last
}
