package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// single is the send of one task with the options it was declared with, compiled once: another differs in
// its input and in when it was sent.
type single struct {
	g          *graph.Graph
	grow       store.Grow
	head, tail []byte // of the stored graph, around that time
}

type singleKey struct {
	task string
	opts *graph.Opts
}

// single is compile for a task as it was declared, sent without options.
func (e *Engine) single(s *graph.Sig) (*graph.Graph, store.Grow, error) {
	key := singleKey{s.Task, s.Opts}
	e.mu.Lock()
	one := e.singles[key]
	e.mu.Unlock()
	if one == nil {
		var err error
		if one, err = newSingle(s); err != nil {
			return nil, store.Grow{}, err
		}
		e.mu.Lock()
		if len(e.singles) >= maxMolds {
			clear(e.singles)
		}
		e.singles[key] = one
		e.mu.Unlock()
	}
	if s.Err != nil {
		return nil, store.Grow{}, fmt.Errorf("%w: %w", graph.ErrInvalid, s.Err)
	}
	if err := fits(s.Input, s.Task); err != nil {
		return nil, store.Grow{}, err
	}
	g, grow := *one.g, one.grow
	g.Created = e.now().UnixMilli()
	grow.Graph = slices.Concat(one.head, strconv.AppendInt(nil, g.Created, 10), one.tail)
	grow.Inputs = []store.Literal{{Node: one.grow.Inputs[0].Node, Input: s.Input}}
	return &g, grow, nil
}

func newSingle(s *graph.Sig) (*single, error) {
	g, err := graph.Compile(&graph.Sig{Shape: graph.Call, Task: s.Task, Opts: s.Opts, Input: []byte("0")})
	if err != nil {
		return nil, err
	}
	const created = 1_234_567_890_123
	g.Created = created
	grow, err := grown(g, "")
	if err != nil {
		return nil, err
	}
	head, tail, found := bytes.Cut(grow.Graph, strconv.AppendInt(nil, created, 10))
	if !found || len(grow.Inputs) != 1 {
		return nil, fmt.Errorf("the graph of task %s is not the one this program knows", s.Task)
	}
	return &single{g, grow, head, tail}, nil
}
