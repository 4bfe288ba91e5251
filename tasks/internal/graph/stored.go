package graph

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Version is the version of the stored form of a [Graph]; the first one is not written, since every
// byte of a workflow of one task counts.
const Version = 0

// Encode returns the stored form of g.
func (g *Graph) Encode() ([]byte, error) {
	raw, err := json.Marshal(packed(g))
	if err != nil {
		return nil, fmt.Errorf("encode graph: %w", err)
	}
	return raw, nil
}

// packed returns g with adjacent equal nodes merged into one.
func packed(g *Graph) *Graph {
	c := *g
	if c.Specs == nil {
		c.Specs = []Spec{} // Peek looks for the list
	}
	c.Subs = slices.Clone(g.Subs)
	for i := range c.Subs {
		c.Subs[i].Graph = packed(c.Subs[i].Graph)
	}
	c.Nodes = nil
	for _, n := range g.Nodes {
		n.Ranges = ranges(n.Args)
		n.Args = nil
		if k := len(c.Nodes); k > 0 {
			same := c.Nodes[k-1]
			same.Same = 0
			if n.Kind == Task && n.equal(&same) {
				c.Nodes[k-1].Same++
				continue
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	if len(c.Nodes) == 1 && len(c.Specs) == 1 && c.Nodes[0].equal(&Node{}) {
		c.Nodes = nil // a graph without nodes has no task
	}
	return &c
}

// equal reports whether two packed nodes are the same.
func (n *Node) equal(o *Node) bool {
	return n.Kind == o.Kind && n.Spec == o.Spec && n.In == o.In && n.Lim == o.Lim && n.Rel == o.Rel && n.By == o.By && n.AtMost == o.AtMost &&
		n.FailFast == o.FailFast && n.Same == o.Same && slices.Equal(n.Ranges, o.Ranges) && slices.Equal(n.After, o.After) && slices.Equal(n.Args, o.Args) &&
		bytes.Equal(n.Value, o.Value)
}

// Decode returns the graph that raw is the stored form of; an error if that is of another version.
// raw need not be trusted: a graph that is returned without an error is valid.
func Decode(raw []byte) (*Graph, error) {
	g := &Graph{}
	if err := json.Unmarshal(raw, g); err != nil {
		return nil, fmt.Errorf("decode graph: %w", err)
	}
	if g.V != Version {
		return nil, fmt.Errorf("graph has version %d, this program reads %d: run senders and workers of one release", g.V, Version)
	}
	if err := unpack(g); err != nil {
		return nil, fmt.Errorf("decode graph: %w", err)
	}
	if err := check(g); err != nil {
		return nil, fmt.Errorf("decode graph: %w", err)
	}
	link(g)
	return g, nil
}

// Peek returns the header of a stored graph, and a key of its template: graphs with the same key have equal ones. Like [Decode], it
// need not trust raw; the template is not checked.
func Peek(raw []byte) (Header, string, error) {
	header, template, ok := bytes.Cut(raw, []byte(`"s":[`)) // no header contains it
	if !ok {
		return Header{}, "", errors.New("decode graph: it has no tasks")
	}
	header = bytes.TrimSuffix(header, []byte(","))
	var h Header
	if len(header) > 1 { // a plain workflow of one task, whose cost counts, has none
		if err := json.Unmarshal(slices.Concat(header, []byte("}")), &h); err != nil {
			return Header{}, "", fmt.Errorf("decode graph: %w", err)
		}
	}
	if h.V != Version {
		return Header{}, "", fmt.Errorf("graph has version %d, this program reads %d: run senders and workers of one release", h.V, Version)
	}
	sum := sha256.Sum256(template)
	return h, string(sum[:]), nil
}

// unpack converts the stored nodes to the nodes of the graph.
func unpack(g *Graph) error {
	for i := range g.Subs {
		if g.Subs[i].Graph == nil {
			return fmt.Errorf("graph %d is missing", i)
		}
		if err := unpack(g.Subs[i].Graph); err != nil {
			return err
		}
	}
	packed := g.Nodes
	if len(packed) == 0 && len(g.Specs) == 1 {
		packed = []Node{{}}
	}
	all := len(packed)
	for _, n := range packed {
		all += min(max(n.Same, 0), MaxNodes)
	}
	g.Nodes = make([]Node, 0, min(all, MaxNodes))
	args := 0
	for _, n := range packed {
		same := n.Same
		if same < 0 || same >= MaxNodes-len(g.Nodes) {
			return fmt.Errorf("more than %d nodes", MaxNodes)
		}
		n.Same = 0
		var err error
		if n.Args, err = unranges(n.Ranges, maxArgs-args); err != nil {
			return err
		}
		args += len(n.Args) * (same + 1)
		n.Ranges = nil
		for range same + 1 {
			g.Nodes = append(g.Nodes, n)
		}
	}
	return nil
}

func ranges(args []int) []int {
	var out []int
	for _, a := range args {
		if k := len(out); k > 0 && out[k-2]+out[k-1] == a {
			out[k-1]++
			continue
		}
		out = append(out, a, 1)
	}
	return out
}

func unranges(rs []int, most int) ([]int, error) {
	var out []int
	for i := 0; i+1 < len(rs); i += 2 {
		if rs[i+1] > most-len(out) {
			return nil, fmt.Errorf("more than %d references between nodes", maxArgs)
		}
		for k := range rs[i+1] {
			out = append(out, rs[i]+k)
		}
	}
	return out, nil
}
