package ui

import (
	"math"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks/tasktype"
)

// A timeline has a row for each box with tasks that have run or may still run, ordered by the time when they were
// ready. Its axis has a width of 1000.
type timeline struct {
	Rows  []row
	Whole time.Duration
	Ticks []string // labels of the axis
	Kinds []kind   // kinds in use, for the legend
	Never int      // number of tasks that did not run and never will
}

// A row holds the bars of a box.
type row struct {
	*box
	Height int
	Bars   []bar
	Waited time.Duration // mean wait of its tasks for a worker; negative if none was ready
	Ran    time.Duration // the longest attempt, with its pauses; negative if there was none
}

// A bar is a phase of a task or, in a row with many tasks, a column with the number of concurrent tasks.
type bar struct {
	Kind kind
	X, W float64
	Y, H float64
}

// kind is the kind of a phase. It is a class of style.css.
type kind string

// Kinds of bars, in the order of the legend.
const (
	forOthers kind = "t-others"
	forTime   kind = "t-time"
	forWorker kind = "t-worker"
	forPerson kind = "t-person"
	earlier   kind = "t-earlier"
	running   kind = "t-running"
	succeeded kind = "t-succeeded"
	failed    kind = "t-failed"
	revoked   kind = "t-revoked"
)

var kinds = []kind{forOthers, forTime, forWorker, forPerson, earlier, running, succeeded, failed, revoked}

const (
	mostLines  = 24  // maximum number of tasks with individual bars in a row; more are shown as columns
	columns    = 100 // number of columns of a row with many tasks
	lineHeight = 4
	rowHeight  = 14
)

// A phase is a part of the time of a task.
type phase struct {
	kind     kind
	from, to time.Time
}

// phases returns the phases of a node up to end. Empty phases other than runs are omitted.
func phases(n *tasktype.Node, sent, end time.Time) (out []phase) {
	at := sent
	add := func(k kind, to time.Time) {
		if to.After(at) {
			out = append(out, phase{k, at, to})
			at = to
		}
	}
	if !n.Ended.IsZero() {
		end = n.Ended
	}
	if n.Ready.IsZero() {
		if !n.Status.Terminal() {
			add(forOthers, end)
		}
		return out
	}
	never := n.First.IsZero() && n.Status.Terminal()
	add(forOthers, n.Ready)
	if due := n.Scheduled; n.First.IsZero() && due.After(end) {
		add(forTime, end)
	} else {
		add(forTime, due)
	}
	if never && n.Status == tasktype.Revoked {
		return out
	}
	if n.First.IsZero() {
		add(forWorker, end)
		if never { // it failed before its handler was called, or was completed before it was opened
			out = append(out, phase{ranAs(n), end, end})
		}
		return out
	}
	add(forWorker, n.First)
	at = n.First
	if !n.Status.Terminal() && n.Status != tasktype.Started {
		add(earlier, end)
		return out
	}
	if n.Attempts > 1 { // else the earlier runs have returned early, or died with their worker: they belong to the last one
		add(earlier, n.Started)
		at = n.Started
	}
	switch {
	case !n.Opened.IsZero():
		out = append(out, phase{forPerson, at, end})
		if n.Status.Terminal() {
			out = append(out, phase{ranAs(n), end, end})
		}
	case !n.Planned.IsZero():
		out = append(out, phase{ranAs(n), at, n.Planned})
	default:
		out = append(out, phase{ranAs(n), at, end})
	}
	return out
}

// ranAs returns the kind of the last run of a node.
func ranAs(n *tasktype.Node) kind {
	switch n.Status {
	case tasktype.Success:
		return succeeded
	case tasktype.Failed:
		return failed
	case tasktype.Revoked, tasktype.Skipped:
		return revoked
	}
	if !n.Planned.IsZero() {
		return succeeded
	}
	return running
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
	used, order := map[kind]bool{}, map[*box]time.Time{}
	for i := range d.Boxes {
		b := &d.Boxes[i]
		r := row{box: b, Waited: -1, Ran: -1, Height: rowHeight}
		var all [][]phase
		ready := 0
		var waited time.Duration
		for _, k := range b.Nodes {
			n := &d.Nodes[k]
			if n.Status == tasktype.Skipped || n.Status == tasktype.Revoked && n.First.IsZero() {
				t.Never++
				continue
			}
			ps := phases(n, d.sent, end)
			all = append(all, ps)
			for _, p := range ps {
				switch p.kind {
				case forWorker:
					waited += p.to.Sub(p.from)
				case running, succeeded, failed, revoked:
					r.Ran = max(r.Ran, p.to.Sub(p.from))
				}
			}
			if n.Ready.IsZero() {
				continue
			}
			ready++
			if o := order[b]; o.IsZero() || n.Ready.Before(o) {
				order[b] = n.Ready
			}
		}
		if len(all) == 0 {
			continue
		}
		if order[b].IsZero() {
			order[b] = end.Add(time.Duration(b.Layer) + 1)
		}
		if ready > 0 {
			r.Waited = waited / time.Duration(ready)
		}
		if len(all) <= mostLines {
			r.lines(all, at)
		} else {
			r.columns(all, d.sent, t.Whole)
		}
		for _, bar := range r.Bars {
			used[bar.Kind] = true
		}
		t.Rows = append(t.Rows, r)
	}
	slices.SortStableFunc(t.Rows, func(a, b row) int { return order[a.box].Compare(order[b.box]) })
	for _, k := range kinds {
		if used[k] {
			t.Kinds = append(t.Kinds, k)
		}
	}
	t.Ticks = []string{"0"}
	for _, share := range []float64{0.25, 0.5, 0.75, 1} {
		t.Ticks = append(t.Ticks, webui.Took(time.Duration(share*float64(t.Whole))))
	}
	return t
}

// lines draws the phases of each task of a row on a separate line.
func (r *row) lines(all [][]phase, at func(time.Time) float64) {
	high := float64(lineHeight)
	if len(all) == 1 {
		high = rowHeight
	}
	r.Height = max(rowHeight, len(all)*lineHeight)
	for i, ps := range all {
		for _, p := range ps {
			b := bar{Kind: p.kind, X: at(p.from), Y: float64(i)*high + high/8, H: high * 3 / 4}
			b.W = at(p.to) - b.X
			switch p.kind {
			case forOthers, forTime, forWorker:
				b.Y, b.H = float64(i)*high+high*3/8, high/4
			default:
				b.W = max(b.W, 2)
				b.X = min(b.X, 1000-b.W)
			}
			if b.W > 0 {
				r.Bars = append(r.Bars, b)
			}
		}
	}
}

// columns draws the concurrency of the tasks of a row relative to its maximum, with failed tasks on top.
func (r *row) columns(all [][]phase, sent time.Time, whole time.Duration) {
	r.Height = 2 * rowHeight
	count := map[kind]*[columns]int{}
	for _, ps := range all {
		for _, p := range ps {
			if p.kind == forOthers || p.kind == forTime || p.kind == forWorker || p.kind == earlier {
				continue
			}
			if count[p.kind] == nil {
				count[p.kind] = &[columns]int{}
			}
			column := func(t time.Time) int { return min(max(int(columns*t.Sub(sent)/whole), 0), columns-1) }
			for c := column(p.from); c <= column(p.to); c++ {
				count[p.kind][c]++
			}
		}
	}
	most := 1
	for c := range columns {
		sum := 0
		for _, of := range count {
			sum += of[c]
		}
		most = max(most, sum)
	}
	for c := range columns {
		y := float64(r.Height)
		for _, k := range slices.Backward(kinds) {
			if count[k] == nil || count[k][c] == 0 {
				continue
			}
			h := float64(r.Height) * float64(count[k][c]) / float64(most)
			if k == failed {
				h = max(h, 3)
			}
			y = max(y-h, 0)
			r.Bars = append(r.Bars, bar{k, float64(c) * 1000 / columns, 1000/columns - 0.5, y, h})
		}
	}
}
