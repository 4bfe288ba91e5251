package graph

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Sub is a graph that every member of a map runs as its plan.
type Sub struct {
	Graph  *Graph                  `json:"g"`
	Hole   int                     `json:"h"` // the node whose value the element is; -1 if there is none
	Inputs map[int]json.RawMessage `json:"i,omitempty"`
}

// With returns the graph for an element, as if it was just compiled.
func (s *Sub) With(element json.RawMessage) *Graph {
	g := *s.Graph
	g.inputs = s.Inputs
	if s.Hole >= 0 {
		g.Nodes = slices.Clone(g.Nodes)
		g.Nodes[s.Hole].Value = element
	}
	return &g
}

// mapFunc adds a map over the node list that runs the body of s for each element.
func (c *compiler) mapFunc(s *Sig, list int) (int, error) {
	opts := s.Opts.Over(nil)
	if opts.Err != nil {
		return 0, fmt.Errorf("%w: MapFunc: %w", ErrInvalid, opts.Err)
	}
	body := newCompiler()
	body.g.V, body.bare, body.hole = Version, c.bare, s.Hole
	g, err := body.compile(s.Body)
	if err != nil {
		return 0, fmt.Errorf("body of a MapFunc: %w", err)
	}
	hole := -1
	if i, ok := body.memo[s.Hole]; ok {
		hole = i
	}
	if c.inner == nil {
		c.inner = map[*Sig]bool{}
	}
	maps.Copy(c.inner, body.inner)
	for part := range body.memo {
		c.inner[part] = true
	}
	c.g.Subs = append(c.g.Subs, Sub{Graph: g, Hole: hole, Inputs: g.inputs})
	c.g.Specs = append(c.g.Specs, Spec{Task: "(each)", Queue: firstQueue(g), Sub: len(c.g.Subs)})
	return c.add(Node{Kind: Each, Spec: len(c.g.Specs) - 1, In: list + 1, AtMost: opts.AtMost, FailFast: opts.FailFast})
}

// firstQueue returns the queue of the first task of g: its workers can start g.
func firstQueue(g *Graph) string {
	if len(g.Specs) == 0 {
		return ""
	}
	return g.Specs[0].Queue
}

// checkBodies returns an error if a part is used both in the body of a map and outside of it: it would be two nodes.
func (c *compiler) checkBodies() error {
	for part := range c.inner {
		if _, ok := c.memo[part]; ok && part.Shape != Value {
			return fmt.Errorf("%w: %s is used in a MapFunc and outside of it; Join it with the input of the map", ErrInvalid, part)
		}
	}
	return nil
}
