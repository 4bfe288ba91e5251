package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	mostBoxes = 300 // of a graph and a timeline; a larger one is unreadable
	nodesPage = 100 // nodes in the table
)

// The sizes of the graph, in pixels.
const (
	boxWidth  = 220
	boxHeight = 46
	gapX      = 54
	gapY      = 14
	margin    = 8
)

// workflowData is a workflow as graph, timeline and table.
type workflowData struct {
	tasktype.Workflow
	Progress tasktype.Progress
	States   []stateCount
	Left     time.Duration    // at the pace so far; 0 if unknown
	Failures []failure        // the first of each text
	Open     []*tasktype.Node // open nodes, at most mostOpen
	Opens    int              // all of them
	Waits    []string         // reasons why ready nodes do not run, each once
	Graph    *graphData       // nil if there is too much to draw
	Line     *timeline
	Table    table
	Large    bool // it has more than mostRead tasks, and its nodes are not shown
}

// failure is a text with which nodes failed.
type failure struct {
	Node  *tasktype.Node // the first
	Count int
}

// Took is how long the workflow ran, or has run.
func (d workflowData) Took(now time.Time) time.Duration {
	if !d.Ended.IsZero() {
		return d.Ended.Sub(d.Created)
	}
	return now.Sub(d.Created)
}

// Percent is the share of tasks that have ended.
func (d workflowData) Percent() int { return 100 * d.Progress.Done / max(d.Progress.Total, 1) }

func (s *site) workflow(ctx context.Context, r *http.Request) (webui.View, error) {
	run := tasks.Attach[any](s.client, r.PathValue("id"))
	p, err := run.Progress(ctx)
	if err != nil {
		return webui.View{}, err
	}
	read, large := run.Detail, p.Total > mostRead
	if large {
		read = run.Summary
	}
	w, err := read(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d := workflowData{Workflow: w.Workflow, Progress: w.Progress, Large: large}
	view := webui.View{Name: w.Name, At: s.cfg.Prefix + "/workflows", Cost: workflowCost, Fixed: w.Progress.Ended}
	if large {
		d.sum(nil, time.Now())
		view.Data = d
		return view, nil
	}
	d.sum(w.Nodes, time.Now())
	drawn := draw(w.Nodes, w.Created)
	if len(drawn.Boxes) <= mostBoxes {
		d.Graph, d.Line = newGraph(drawn), newTimeline(drawn, w.Ended, time.Now())
	}
	if d.Table, err = newTable(drawn, r.URL.Query()); err != nil {
		return webui.View{}, err
	}
	view.Data = d
	return view, nil
}

// mostOpen bounds the listed nodes that wait for an answer.
const mostOpen = 5

// sum sets the counts, failures and waits of the nodes.
func (d *workflowData) sum(nodes []tasktype.Node, now time.Time) {
	count := map[tasktype.Status]int{}
	at := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.Open:
			if d.Opens++; len(d.Open) < mostOpen {
				d.Open = append(d.Open, n)
			}
		case n.Waits != "" && !slices.Contains(d.Waits, n.Waits) && len(d.Waits) < 5:
			d.Waits = append(d.Waits, n.Waits)
		}
		if !n.Step() {
			count[n.Status]++
		}
		if n.Status != tasktype.Failed || n.Failure == nil {
			continue
		}
		if k, ok := at[n.Failure.Message]; ok {
			d.Failures[k].Count++
		} else if len(d.Failures) < 5 {
			at[n.Failure.Message] = len(d.Failures)
			d.Failures = append(d.Failures, failure{n, 1})
		}
	}
	for _, s := range worstFirst {
		if count[s] > 0 {
			d.States = append(d.States, stateCount{s, count[s]})
		}
	}
	// The pace of people and of queues without workers says nothing about the rest.
	if done := d.Progress.Done; done > 0 && d.State == tasktype.WorkflowRunning && d.Opens == 0 && len(d.Waits) == 0 {
		d.Left = now.Sub(d.Created) / time.Duration(done) * time.Duration(d.Progress.Total-done)
	}
}

// graphData is a graph as SVG.
type graphData struct {
	Width, Height int
	Boxes         []drawnBox
	Lines         []line
}

// drawnBox is a box and its place.
type drawnBox struct {
	*box
	X, Y     int
	Segments []segment
}

// Width is the width of the box.
func (drawnBox) Width() int { return boxWidth }

// Title is the name of the task, shortened to the width of the box.
func (b drawnBox) Title() string { return fit(b.Task, boxWidth-20) }

// Sub is the second line of the box: as many states as fit, each with its whole count.
func (b drawnBox) Sub() string {
	const width = (boxWidth - 20) * 13 / 11.5
	text := b.Summary()
	shown := text
	for end := len(text); widthOf(shown) > width; shown = text[:end] + ", …" {
		if end = strings.LastIndex(text[:end], ", "); end < 0 {
			return fit(text, width)
		}
	}
	return shown
}

// Label is the title of the box for screen readers, and its tooltip.
func (b drawnBox) Label() string { return b.Task + ": " + b.Summary() }

// segment is the part of a bar that a state has.
type segment struct {
	Status tasktype.Status
	X, W   float64
}

// leastSegment is the width of the part of a bar that a state other than success has at least, so that one failure among
// thousands is visible.
const leastSegment = 8

// segments divides the bar of a box among its states; terminal states are on the left.
func segments(b *box) (out []segment) {
	room, total := float64(boxWidth), 0
	for _, s := range b.States {
		total += s.Count
	}
	for _, s := range b.States {
		w := float64(boxWidth) * float64(s.Count) / float64(total)
		if s.Status != tasktype.Success {
			w = min(max(w, leastSegment), room)
		} else {
			w = room // it is the last of the states
		}
		room -= w
		out = append(out, segment{Status: s.Status, W: w})
	}
	out[len(out)-1].W += room
	slices.Reverse(out)
	x := 0.0
	for i := range out {
		out[i].X = x
		x += out[i].W
	}
	return out
}

// line leads from a box to one that needs it.
type line struct {
	Path string
	On   bool // the critical path
}

func newGraph(d *drawing) *graphData {
	g := &graphData{Width: 2*margin + d.Layers*(boxWidth+gapX) - gapX, Height: 2*margin + d.Rows*(boxHeight+gapY) - gapY}
	inLayer := make([]int, d.Layers)
	for i := range d.Boxes {
		inLayer[d.Boxes[i].Layer]++
	}
	for i := range d.Boxes {
		b := &d.Boxes[i]
		lead := (d.Rows - inLayer[b.Layer]) * (boxHeight + gapY) / 2 // so that layers are centred
		g.Boxes = append(g.Boxes, drawnBox{b, margin + b.Layer*(boxWidth+gapX), margin + lead + b.Row*(boxHeight+gapY), segments(b)})
	}
	for i := range g.Boxes {
		to := &g.Boxes[i]
		for _, need := range to.Needs {
			from := &g.Boxes[need]
			x1, y1, x2, y2 := from.X+boxWidth, from.Y+boxHeight/2, to.X, to.Y+boxHeight/2
			half := (x2 - x1) / 2
			g.Lines = append(g.Lines, line{fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+half, y1, x2-half, y2, x2, y2), from.Path && to.Path})
		}
	}
	slices.SortStableFunc(g.Lines, func(a, b line) int { return btoi(a.On) - btoi(b.On) }) // the path on top
	return g
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// table is a part of the nodes.
type table struct {
	Nodes  []tasktype.Node
	State  tasktype.Status // of those that are listed; empty for all
	Box    string          // the first node of the box whose nodes are listed; empty for all
	Total  int
	From   int
	Before string // the address of the part before, or empty
	After  string
}

// Last is the number of the last node of the part.
func (t table) Last() int { return t.From + len(t.Nodes) }

// First is the number of the first node of the part.
func (t table) First() int { return min(t.From+1, t.Total) }

func newTable(d *drawing, q url.Values) (table, error) {
	t := table{State: tasktype.Status(q.Get("state")), Box: q.Get("box")}
	if t.State != "" && !slices.Contains(worstFirst, t.State) {
		return t, webui.Invalid("There is no state %.40q.", t.State)
	}
	from, err := strconv.Atoi(q.Get("from"))
	if q.Get("from") != "" && (err != nil || from < 0) {
		return t, webui.Invalid("The parameter from is not the number of a node.")
	}
	only := -1
	for b := range d.Boxes {
		if t.Box != "" && d.Boxes[b].ID == t.Box {
			only = b
		}
	}
	var found []tasktype.Node
	for i := range d.Nodes {
		if d.boxOf[i] >= 0 && (t.State == "" || d.Nodes[i].Status == t.State) && (t.Box == "" || d.boxOf[i] == only) {
			found = append(found, d.Nodes[i])
		}
	}
	t.Total = len(found)
	t.From = min(from, max(t.Total-1, 0))
	t.Nodes = found[t.From:min(t.From+nodesPage, t.Total)]
	address := func(from int) string {
		to := url.Values{}
		for name, v := range map[string]string{"state": string(t.State), "box": t.Box} {
			if v != "" {
				to.Set(name, v)
			}
		}
		to.Set("from", strconv.Itoa(from))
		return "?" + to.Encode() + "#nodes"
	}
	if t.From > 0 {
		t.Before = address(max(t.From-nodesPage, 0))
	}
	if t.Last() < t.Total {
		t.After = address(t.Last())
	}
	return t, nil
}
