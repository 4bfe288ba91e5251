package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/dag"
	"muster/internal/webui"
	"muster/tasks/tasktype"
)

// rounds is the distance up to which the neighbors of two nodes are compared.
const rounds = 8

// A box is an element of the graph and a row of the timeline: one task, or a group of similar tasks.
type box struct {
	ID     string // ID of its first node
	Task   string
	Nodes  []int           // in workflow order
	States []stateCount    // states of its nodes, the most urgent first
	Needs  []int           // boxes that it depends on directly
	Layer  int             // 0 without dependencies
	Row    int             // position in its layer
	Path   bool            // whether one of its nodes is on the critical path
	Status tasktype.Status // most urgent state of its nodes
	Open   int             // number of nodes that wait for external completion
}

// stateCount is the number of nodes in a state.
type stateCount struct {
	Status tasktype.Status
	Count  int
}

// Many reports whether the box has more than one node.
func (b *box) Many() bool { return len(b.Nodes) > 1 }

// worstFirst lists the states by urgency.
var worstFirst = []tasktype.Status{tasktype.Failed, tasktype.Retry, tasktype.Started, tasktype.Pending, tasktype.Revoked, tasktype.Skipped, tasktype.Success}

// A drawing is a workflow as boxes. Steps without a task have no box.
type drawing struct {
	Nodes   []tasktype.Node
	Boxes   []box
	Layers  int
	Rows    int     // number of rows of the largest layer
	boxOf   []int   // by node; -1 for a step
	needs   [][]int // dependencies by node
	sent    time.Time
	OnePath []int // the critical path, from the first node to the last
}

// draw groups the nodes of a workflow into boxes. Nodes are similar if they run the same task, have the same distance
// from the start and similar neighbors. If that results in too many boxes, the distance is ignored.
func draw(nodes []tasktype.Node, sent time.Time) *drawing {
	d := &drawing{Nodes: nodes, needs: make([][]int, len(nodes)), sent: sent}
	at := make(map[string]int, len(nodes))
	for i := range nodes {
		at[nodes[i].ID] = i
	}
	for i := range nodes {
		for _, id := range nodes[i].Needs {
			if j, ok := at[id]; ok && j != i {
				d.needs[i] = append(d.needs[i], j)
			}
		}
	}
	layers := dag.Layers(d.needs)
	d.OnePath = d.criticalPath()
	if d.group(d.classes(at, layers)); len(d.Boxes) > mostBoxes {
		d.group(d.classes(at, make([]int, len(nodes))))
	}
	d.link(layers)
	d.place()
	return d
}

// classes returns the class of each node. Similar nodes have the same class.
func (d *drawing) classes(at map[string]int, layers []int) []int {
	class, after := make([]int, len(d.Nodes)), dag.Invert(d.needs)
	known := map[string]int{}
	number := func(key string) int {
		n, ok := known[key]
		if !ok {
			n = len(known)
			known[key] = n
		}
		return n
	}
	for i := range d.Nodes {
		class[i] = number(fmt.Sprint(layers[i], d.Nodes[i].Task))
	}
	for range rounds {
		before := len(known)
		known = map[string]int{}
		next := make([]int, len(class))
		for i := range class {
			within := -1
			if j, ok := at[d.Nodes[i].Within]; ok {
				within = class[j]
			}
			next[i] = number(fmt.Sprint(class[i], within, distinct(class, d.needs[i]), distinct(class, after[i])))
		}
		class = next
		if len(known) == before {
			break
		}
	}
	return class
}

// distinct returns the classes of nodes without duplicates.
func distinct(class, nodes []int) []int {
	all := make([]int, 0, min(len(nodes), 16))
	for _, n := range nodes {
		all = append(all, class[n])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// group creates the boxes of the classes. Boxes of steps are at the end.
func (d *drawing) group(class []int) {
	d.boxOf, d.Boxes = make([]int, len(d.Nodes)), nil
	byClass := map[int]int{}
	for _, steps := range []bool{false, true} {
		for i, c := range class {
			if d.Nodes[i].Step() != steps {
				continue
			}
			b, ok := byClass[c]
			if !ok {
				b = len(d.Boxes)
				byClass[c] = b
				d.Boxes = append(d.Boxes, box{ID: d.Nodes[i].ID, Task: d.Nodes[i].Task})
			}
			d.boxOf[i] = b
			d.Boxes[b].Nodes = append(d.Boxes[b].Nodes, i)
		}
	}
	for _, i := range d.OnePath {
		d.Boxes[d.boxOf[i]].Path = true
	}
	for b := range d.Boxes {
		box, count := &d.Boxes[b], map[tasktype.Status]int{}
		for _, i := range box.Nodes {
			if count[d.Nodes[i].Status]++; d.Nodes[i].Open {
				box.Open++
			}
		}
		box.States = counted(count)
		box.Status = box.States[0].Status
	}
}

// counted returns the states of nodes, the most urgent first.
func counted(count map[tasktype.Status]int) (out []stateCount) {
	for _, s := range worstFirst {
		if count[s] > 0 {
			out = append(out, stateCount{s, count[s]})
		}
	}
	return out
}

// criticalPath returns the nodes that determined the end of the workflow: the last completed node, the last completed
// of its dependencies, and so on. While the workflow is running, the path leads to the most recently completed node.
func (d *drawing) criticalPath() []int {
	last := -1
	for i := range d.Nodes {
		if end := d.Nodes[i].Ended; !end.IsZero() && d.Nodes[i].Status != tasktype.Skipped && (last < 0 || !end.Before(d.Nodes[last].Ended)) {
			last = i
		}
	}
	var path []int
	for last >= 0 && len(path) <= len(d.Nodes) {
		path = append(path, last)
		before := -1
		for _, j := range d.needs[last] {
			if before < 0 || d.Nodes[j].Ended.After(d.Nodes[before].Ended) {
				before = j
			}
		}
		last = before
	}
	slices.Reverse(path)
	return path
}

// link sets the dependencies and layers of boxes. It removes the boxes of steps and passes their dependencies on to
// their dependents. Dependencies between boxes lead from a lower layer of nodes to a higher one, or stay within a
// chain that is one box, so there are no cycles.
func (d *drawing) link(layers []int) {
	lowest := make([]int, len(d.Boxes))
	for b := range d.Boxes {
		lowest[b] = layers[d.Boxes[b].Nodes[0]]
		for _, i := range d.Boxes[b].Nodes {
			lowest[b] = min(lowest[b], layers[i])
		}
	}
	direct := make([]map[int]bool, len(d.Boxes))
	order := make([]int, len(d.Boxes))
	for b := range d.Boxes {
		order[b], direct[b] = b, map[int]bool{}
		for _, i := range d.Boxes[b].Nodes {
			for _, j := range d.needs[i] {
				if of := d.boxOf[j]; lowest[of] < lowest[b] {
					direct[b][of] = true
				}
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return lowest[a] - lowest[b] })
	tasks := slices.IndexFunc(d.Boxes, func(b box) bool { return d.Nodes[b.Nodes[0]].Step() })
	if tasks < 0 {
		tasks = len(d.Boxes)
	}
	needs := make([][]int, tasks)
	for _, b := range order {
		for of := range direct[b] {
			if of >= tasks {
				delete(direct[b], of)
				for before := range direct[of] { // only tasks, since of precedes b in the order
					direct[b][before] = true
				}
			}
		}
		if b < tasks {
			for of := range direct[b] {
				needs[b] = append(needs[b], of)
			}
			slices.Sort(needs[b])
		}
	}
	d.Boxes = d.Boxes[:tasks]
	for i := range d.boxOf {
		if d.boxOf[i] >= tasks {
			d.boxOf[i] = -1
		}
	}
	needs = dag.Reduce(needs)
	for b, layer := range dag.Layers(needs) {
		d.Boxes[b].Needs, d.Boxes[b].Layer = needs[b], layer
		d.Layers = max(d.Layers, layer+1)
	}
}

// place sets the rows of the boxes of each layer, ordered by the average row of their dependencies, to reduce
// crossings.
func (d *drawing) place() {
	byLayer := make([][]int, d.Layers)
	for b := range d.Boxes {
		byLayer[d.Boxes[b].Layer] = append(byLayer[d.Boxes[b].Layer], b)
	}
	for _, layer := range byLayer {
		middle := map[int]float64{}
		for _, b := range layer {
			for _, need := range d.Boxes[b].Needs {
				middle[b] += float64(d.Boxes[need].Row) / float64(len(d.Boxes[b].Needs))
			}
		}
		slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
		for row, b := range layer {
			d.Boxes[b].Row = row
		}
		d.Rows = max(d.Rows, len(layer))
	}
}

// Parts describes the states of the box.
func (b *box) Parts() (parts []string) {
	add := func(count int, word string) {
		switch {
		case count == 0:
		case b.Many():
			parts = append(parts, webui.Number(count)+" "+word)
		default:
			parts = append(parts, word)
		}
	}
	for _, s := range b.States {
		if s.Status == tasktype.Started { // open external tasks have this status too
			add(b.Open, "waiting for completion")
			s.Count -= b.Open
		}
		add(s.Count, word(s.Status))
	}
	return parts
}

// Summary describes the states of the box in one line.
func (b *box) Summary() string { return strings.Join(b.Parts(), ", ") }
