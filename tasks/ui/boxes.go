package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/tasks/tasktype"
)

const (
	// drawnAlone is the most nodes of a workflow whose nodes are all drawn alone. Of a larger one, nodes that are alike
	// are drawn as one box.
	drawnAlone = 60
	// rounds is how far from a node two others are told apart by. A longer chain of the same task is one box in the
	// middle.
	rounds = 8
)

// box is what the graph and the timeline draw: a node, or nodes that are alike.
type box struct {
	ID      string // of its first node
	Task    string
	Nodes   []int           // in the order of the workflow
	States  []stateCount    // of its nodes, those that there are
	Needs   []int           // the boxes that it comes after
	Layer   int             // 0 for those that come after none
	Row     int             // in its layer
	Ready   time.Time       // when the first of its nodes could run; zero before
	Started time.Time       // of the first; zero before
	Ended   time.Time       // of the last; zero while one is not terminal
	Path    bool            // whether one of its nodes is on the critical path
	Status  tasktype.Status // the worst of its nodes that is of use to see first
}

// stateCount is how many nodes of a box have a state.
type stateCount struct {
	Status tasktype.Status
	Count  int
}

// Many reports whether the box is more than one node.
func (b *box) Many() bool { return len(b.Nodes) > 1 }

// worstFirst is the order in which a reader wants to see states.
var worstFirst = []tasktype.Status{tasktype.Failed, tasktype.Retry, tasktype.Started, tasktype.Pending, tasktype.Revoked, tasktype.Skipped, tasktype.Success}

// drawing is a workflow as boxes.
type drawing struct {
	Nodes   []tasktype.Node
	Boxes   []box
	Layers  int
	Rows    int   // of the largest layer
	boxOf   []int // by node
	needs   [][]int
	sent    time.Time
	OnePath []int // the critical path: nodes, from the first to the last
}

// draw puts the nodes of a workflow into boxes. The nodes that a node needs may be anywhere in the list.
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
	layers := d.layers()
	d.OnePath = d.criticalPath()
	d.group(d.classes(at))
	d.link(layers)
	d.place()
	return d
}

// classes returns a number for each node: the same for nodes that are alike, that is, that run the same task, come
// after alike nodes and have alike nodes after them.
func (d *drawing) classes(at map[string]int) []int {
	class := make([]int, len(d.Nodes))
	if len(d.Nodes) <= drawnAlone {
		for i := range class {
			class[i] = i
		}
		return class
	}
	after := make([][]int, len(d.Nodes))
	for i, needs := range d.needs {
		for _, j := range needs {
			after[j] = append(after[j], i)
		}
	}
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
		class[i] = number(d.Nodes[i].Task)
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

// distinct returns the classes of nodes, each once.
func distinct(class, nodes []int) []int {
	all := make([]int, 0, min(len(nodes), 16))
	for _, n := range nodes {
		all = append(all, class[n])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// group makes the boxes of the classes.
func (d *drawing) group(class []int) {
	d.boxOf = make([]int, len(d.Nodes))
	byClass := map[int]int{}
	for i, c := range class {
		b, ok := byClass[c]
		if !ok {
			b = len(d.Boxes)
			byClass[c] = b
			d.Boxes = append(d.Boxes, box{ID: d.Nodes[i].ID, Task: d.Nodes[i].Task})
		}
		d.boxOf[i] = b
		d.Boxes[b].Nodes = append(d.Boxes[b].Nodes, i)
	}
	for _, i := range d.OnePath {
		d.Boxes[d.boxOf[i]].Path = true
	}
	for b := range d.Boxes {
		d.sum(&d.Boxes[b])
	}
}

// sum sets the states and times of a box from its nodes.
func (d *drawing) sum(b *box) {
	count := map[tasktype.Status]int{}
	over := true
	for _, i := range b.Nodes {
		n := &d.Nodes[i]
		count[n.Status]++
		over = over && n.Status.Terminal()
		if r := d.ready(i); !r.IsZero() && (b.Ready.IsZero() || r.Before(b.Ready)) {
			b.Ready = r
		}
		if !n.Started.IsZero() && (b.Started.IsZero() || n.Started.Before(b.Started)) {
			b.Started = n.Started
		}
		if n.Ended.After(b.Ended) {
			b.Ended = n.Ended
		}
	}
	if !over {
		b.Ended = time.Time{}
	}
	for _, s := range worstFirst {
		if count[s] > 0 {
			b.States = append(b.States, stateCount{s, count[s]})
		}
	}
	b.Status = b.States[0].Status
}

// ready is when a node could run: when the last of those that it needs ended. Zero while one has not.
func (d *drawing) ready(i int) time.Time {
	at := d.sent
	for _, j := range d.needs[i] {
		end := d.Nodes[j].Ended
		if end.IsZero() {
			return time.Time{}
		}
		if end.After(at) {
			at = end
		}
	}
	return at
}

// criticalPath returns the nodes that the end had to wait for: the node that ended last, before it the last to end of
// those that it needs, and so on. While the workflow runs, it is the path to the node that ended last so far.
func (d *drawing) criticalPath() []int {
	last := -1
	for i := range d.Nodes {
		if end := d.Nodes[i].Ended; !end.IsZero() && (last < 0 || !end.Before(d.Nodes[last].Ended)) {
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

// layers returns for each node how many nodes are before it on the longest path to it.
func (d *drawing) layers() []int {
	layer, open := make([]int, len(d.Nodes)), make([]int, len(d.Nodes))
	after := make([][]int, len(d.Nodes))
	var free []int
	for i, needs := range d.needs {
		open[i] = len(needs)
		for _, j := range needs {
			after[j] = append(after[j], i)
		}
		if len(needs) == 0 {
			free = append(free, i)
		}
	}
	for len(free) > 0 {
		i := free[0]
		free = free[1:]
		for _, j := range after[i] {
			layer[j] = max(layer[j], layer[i]+1)
			if open[j]--; open[j] == 0 {
				free = append(free, j)
			}
		}
	}
	return layer
}

// link sets what the boxes need and their layers. Layers without a box are left out.
func (d *drawing) link(layers []int) {
	for b := range d.Boxes {
		d.Boxes[b].Layer = layers[d.Boxes[b].Nodes[0]]
		for _, i := range d.Boxes[b].Nodes {
			d.Boxes[b].Layer = min(d.Boxes[b].Layer, layers[i])
			for _, j := range d.needs[i] {
				if of := d.boxOf[j]; of != b {
					d.Boxes[b].Needs = append(d.Boxes[b].Needs, of)
				}
			}
		}
		slices.Sort(d.Boxes[b].Needs)
		d.Boxes[b].Needs = slices.Compact(d.Boxes[b].Needs)
	}
	var used []int
	for b := range d.Boxes {
		used = append(used, d.Boxes[b].Layer)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	for b := range d.Boxes {
		d.Boxes[b].Layer, _ = slices.BinarySearch(used, d.Boxes[b].Layer)
	}
	d.Layers = len(used)
}

// place gives the boxes of each layer rows, in the order of the middle of those that they need, so that few lines cross.
func (d *drawing) place() {
	byLayer := make([][]int, d.Layers)
	for b := range d.Boxes {
		byLayer[d.Boxes[b].Layer] = append(byLayer[d.Boxes[b].Layer], b)
	}
	for _, layer := range byLayer {
		middle := map[int]float64{}
		for _, b := range layer {
			sum, n := 0.0, 0
			for _, need := range d.Boxes[b].Needs {
				if d.Boxes[need].Layer < d.Boxes[b].Layer {
					sum, n = sum+float64(d.Boxes[need].Row), n+1
				}
			}
			if n > 0 {
				middle[b] = sum / float64(n)
			}
		}
		slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
		for row, b := range layer {
			d.Boxes[b].Row = row
		}
		d.Rows = max(d.Rows, len(layer))
	}
}

// label is what a screen reader says of a box.
func (b *box) label() string {
	var parts []string
	for _, s := range b.States {
		if b.Many() {
			parts = append(parts, fmt.Sprintf("%d %s", s.Count, stateWord(s.Status)))
		} else {
			parts = append(parts, stateWord(s.Status))
		}
	}
	return b.Task + ": " + strings.Join(parts, ", ")
}
