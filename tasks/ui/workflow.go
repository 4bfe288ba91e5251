package ui

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	mostBoxes = 300 // of a graph and a timeline; a larger one would say nothing
	nodesPage = 100 // nodes in the table
)

// The sizes of the graph, in pixels.
const (
	boxWidth  = 190
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
	Left     time.Duration // at the pace so far; 0 if unknown
	Failures []failure     // the first of each text
	Waits    []string      // why nodes that could run do not, each once
	Graph    *graphData    // nil if there is too much to draw
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

// Percent is how much of the workflow is over.
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

// sum sets what the nodes say together.
func (d *workflowData) sum(nodes []tasktype.Node, now time.Time) {
	count := map[tasktype.Status]int{}
	at := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		why := n.Waits
		if n.Open {
			why = "for an answer from outside"
		}
		if why != "" && !slices.Contains(d.Waits, why) && len(d.Waits) < 5 {
			d.Waits = append(d.Waits, why)
		}
		if n.Queue != "" {
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
	if done := d.Progress.Done; done > 0 && d.State == tasktype.WorkflowRunning {
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

// Label says what the box is, for readers that do not see it.
func (b drawnBox) Label() string { return b.label() }

// segment is the part of a bar that a state has.
type segment struct {
	Status tasktype.Status
	X, W   float64
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
		box := drawnBox{box: b, X: margin + b.Layer*(boxWidth+gapX), Y: margin + lead + b.Row*(boxHeight+gapY)}
		x := 0.0
		for _, s := range slices.Backward(b.States) { // what is over is on the left
			w := float64(boxWidth) * float64(s.Count) / float64(len(b.Nodes))
			box.Segments = append(box.Segments, segment{s.Status, x, w})
			x += w
		}
		g.Boxes = append(g.Boxes, box)
	}
	for i := range g.Boxes {
		to := &g.Boxes[i]
		for _, need := range to.Needs {
			from := &g.Boxes[need]
			if from.Layer >= to.Layer {
				continue // within a chain that is drawn as one box
			}
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

// timeline has a row for each box, in the order in which they could run. Its axis is 1000 wide.
type timeline struct {
	Rows  []span
	Whole time.Duration
	Ticks []tick
}

// span is when a box waited and ran.
type span struct {
	*box
	Wait, WaitW, Run, RunW float64
	Waited, Took           time.Duration
	Over                   bool
}

// tick is a mark of the axis.
type tick struct {
	X    float64
	Text string
}

func newTimeline(d *drawing, ended, now time.Time) *timeline {
	end := ended
	if end.IsZero() {
		end = now
	}
	t := &timeline{Whole: max(end.Sub(d.sent), time.Millisecond)}
	at := func(when time.Time) float64 {
		return math.Round(min(max(1000*float64(when.Sub(d.sent))/float64(t.Whole), 0), 1000)*10) / 10
	}
	for i := range d.Boxes {
		b := &d.Boxes[i]
		if b.Ready.IsZero() {
			continue // it waits for others
		}
		row := span{box: b, Over: !b.Ended.IsZero()}
		began, over := b.Started, b.Ended
		if over.IsZero() {
			over = end
		}
		if began.IsZero() || began.After(over) {
			began = over
		}
		row.Wait, row.Run = at(b.Ready), at(began)
		row.WaitW, row.RunW = max(row.Run-row.Wait, 0), max(at(over)-row.Run, 2)
		row.Waited, row.Took = max(began.Sub(b.Ready), 0), max(over.Sub(began), 0)
		if b.Started.IsZero() {
			row.RunW = 0
		}
		t.Rows = append(t.Rows, row)
	}
	slices.SortStableFunc(t.Rows, func(a, b span) int { return a.Ready.Compare(b.Ready) })
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 1} {
		t.Ticks = append(t.Ticks, tick{1000 * share, webui.Took(time.Duration(share * float64(t.Whole)))})
	}
	return t
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
		if (t.State == "" || d.Nodes[i].Status == t.State) && (t.Box == "" || d.boxOf[i] == only) {
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
