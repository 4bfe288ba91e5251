package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	mostBoxes = 300 // maximum size of a readable graph or timeline
	nodesPage = 100 // nodes per page of the table
)

// Dimensions of the graph in pixels.
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
	Left     time.Duration                 // estimated remaining time; 0 if unknown
	Failures []webui.Group[*tasktype.Node] // by message
	Open     []*tasktype.Node
	Waits    []string   // distinct reasons why ready nodes do not run
	Graph    *graphData // nil if it is too large to draw
	Line     *timeline
	Table    table
	Log      []tasktype.LogLine
	Large    bool      // it has more than mostRead tasks, and its nodes are not shown
	Node     *nodeData // the selected node, or nil
}

// workflow shows a workflow and, beside it, the selected node.
func (s *site) workflow(ctx context.Context, r *http.Request) (webui.View, error) {
	run := tasks.Attach[any](s.client, r.PathValue("id"))
	p, err := run.Progress(ctx)
	if err != nil {
		return webui.View{}, err
	}
	read, large := run.Detail, p.Total > mostRead
	if large {
		read = run.Info
	}
	w, err := read(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d := workflowData{Workflow: w.Workflow, Progress: w.Progress, Large: large}
	view := webui.View{Name: w.Name}
	if node := r.PathValue("node"); node != "" {
		if d.Node, err = s.node(ctx, r, w.ID, node); err != nil {
			return webui.View{}, err
		}
		d.Node.Over, d.Node.Alone = w.Progress.Ended, large
		d.Node.neighbours(w.Nodes)
		view.Name = d.Node.Task
	} else if d.Log, err = s.log(ctx, r, w.ID, ""); err != nil {
		return webui.View{}, err
	}
	if w.Progress.Ended {
		view.Every = endedEvery
	}
	d.sum(w.Nodes, time.Now())
	if !large {
		drawn := draw(w.Nodes, w.Created)
		if len(drawn.Boxes) <= mostBoxes {
			d.Graph, d.Line = newGraph(drawn), newTimeline(drawn, w.Ended, time.Now())
		}
		d.Table, err = newTable(drawn, r.URL.Query())
	}
	view.Data = d
	return view, err
}

// endedEvery is the interval of updates of a workflow that has ended: a retry runs it again.
const endedEvery = 4 * time.Second

// log returns the last log lines of a workflow or of one of its nodes, if the client may see data of tasks.
func (s *site) log(ctx context.Context, r *http.Request, workflow, node string) ([]tasktype.LogLine, error) {
	if !s.cfg.Data(r) {
		return nil, nil
	}
	lines, err := s.client.Workflow(workflow).Log(ctx)
	if node != "" {
		lines = slices.DeleteFunc(lines, func(l tasktype.LogLine) bool { return l.Node != node })
	}
	return lines, err
}

// sum sets the counts, failures and wait reasons of the nodes.
func (d *workflowData) sum(nodes []tasktype.Node, now time.Time) {
	count := map[tasktype.Status]int{}
	var failed []*tasktype.Node
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.Open:
			d.Open = append(d.Open, n)
		case n.Waits != "" && !slices.Contains(d.Waits, n.Waits) && len(d.Waits) < 5:
			d.Waits = append(d.Waits, n.Waits)
		}
		if !n.Step() {
			count[n.Status]++
		}
		if n.Status == tasktype.Failed && n.Failure != nil {
			failed = append(failed, n)
		}
	}
	d.Failures = webui.Grouped(failed, func(n *tasktype.Node) string { return n.Failure.Message })
	d.States = counted(count)
	// The duration of external tasks and of queues without workers cannot be extrapolated.
	if d.State == tasktype.WorkflowRunning && len(d.Open) == 0 && len(d.Waits) == 0 {
		d.Left = d.Progress.Left(now.Sub(d.Created))
	}
}

// graphData is a graph as SVG.
type graphData struct {
	Width, Height int
	Boxes         []drawnBox
	Lines         []line
}

// drawnBox is a box with its position.
type drawnBox struct {
	*box
	X, Y     int
	Segments []segment
}

// segment is the part of a bar for one state.
type segment struct {
	Status tasktype.Status
	X, W   float64
}

// leastSegment is the minimum width of a segment for a state other than success, so that one failure among thousands
// is visible.
const leastSegment = 8

// segments divides the bar of a box by state, with terminal states on the left.
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
			w = room // it is the last state
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

// A line leads from a box to a dependent box.
type line struct {
	Path string
	On   bool // on the critical path
}

func newGraph(d *drawing) *graphData {
	g := &graphData{Width: 2*margin + d.Layers*(boxWidth+gapX) - gapX, Height: 2*margin + d.Rows*(boxHeight+gapY) - gapY}
	inLayer := make([]int, d.Layers)
	for i := range d.Boxes {
		inLayer[d.Boxes[i].Layer]++
	}
	for i := range d.Boxes {
		b := &d.Boxes[i]
		lead := (d.Rows - inLayer[b.Layer]) * (boxHeight + gapY) / 2 // centers the layers
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
	slices.SortStableFunc(g.Lines, func(a, b line) int { return rank[a.On] - rank[b.On] }) // draws the path on top
	return g
}

// rank sorts by a condition.
var rank = map[bool]int{true: 1}

// A table is a page of the nodes.
type table struct {
	webui.Part
	Nodes []tasktype.Node
	State tasktype.Status // filter by state; empty for all
	Box   string          // filter by box: the ID of its first node; empty for all
}

func newTable(d *drawing, q url.Values) (t table, err error) {
	t.State, t.Box = tasktype.Status(q.Get("state")), q.Get("box")
	if t.State != "" && !slices.Contains(worstFirst, t.State) {
		return t, webui.Invalid("Unknown state %.40q.", t.State)
	}
	only := slices.IndexFunc(d.Boxes, func(b box) bool { return b.ID == t.Box })
	for i := range d.Nodes {
		if d.boxOf[i] >= 0 && (t.State == "" || d.Nodes[i].Status == t.State) && (t.Box == "" || d.boxOf[i] == only) {
			t.Nodes = append(t.Nodes, d.Nodes[i])
		}
	}
	if t.Part, err = webui.NewPart(q, nodesPage, len(t.Nodes)); err == nil {
		t.Nodes = t.Nodes[t.From:t.To]
	}
	return t, err
}
