package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster/internal/dag"
	"muster/tasks/tasktype"
)

// treeOptions are the options of writeTree.
type treeOptions struct {
	width int       // of the longest line, in columns; 0 for no limit
	all   bool      // draw every member of large groups and maps, not only a few and those with a notable state
	now   time.Time // end of the measured time of running tasks
}

// writeTree draws the nodes of a workflow with states and times. A node that depends on another is below it and begins with
// an arrow. Nodes that can run at the same time, the members of a map and the nodes of a plan are branches.
func writeTree(w io.Writer, nodes []tasktype.Node, o treeOptions) error {
	t := newTree(nodes, o)
	for _, s := range t.scope("") {
		t.branch(s, "", "")
	}
	return t.flush(w)
}

// leg is a node in a sequence, with its branches. A leg without a node is a group.
type leg struct {
	node  *tasktype.Node
	parts [][]leg
	more  []*tasktype.Node // members that are not drawn
}

// row is a line of the drawing.
type row struct{ name, id, status, start, took, note string }

type tree struct {
	treeOptions
	byID   map[string]*tasktype.Node
	needs  map[*tasktype.Node][]*tasktype.Node // within the same map or plan, without those that another one implies
	within map[string][]*tasktype.Node
	begun  time.Time
	drawn  map[*tasktype.Node]bool
	rows   []row
}

func newTree(nodes []tasktype.Node, o treeOptions) *tree {
	t := &tree{treeOptions: o, byID: map[string]*tasktype.Node{}, needs: map[*tasktype.Node][]*tasktype.Node{}, within: map[string][]*tasktype.Node{},
		drawn: map[*tasktype.Node]bool{}}
	at := make(map[string]int, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		t.byID[n.ID], at[n.ID] = n, i
		t.within[n.Within] = append(t.within[n.Within], n)
		if !n.Started.IsZero() && (t.begun.IsZero() || n.Started.Before(t.begun)) {
			t.begun = n.Started
		}
	}
	needs := make([][]int, len(nodes))
	for i := range nodes {
		for _, id := range nodes[i].Needs {
			if k, ok := at[id]; ok && nodes[k].Within == nodes[i].Within {
				needs[i] = append(needs[i], k)
			}
		}
	}
	for i, list := range dag.Reduce(needs) {
		for _, k := range list {
			t.needs[&nodes[i]] = append(t.needs[&nodes[i]], &nodes[k])
		}
	}
	return t
}

// scope returns the sequences of the nodes within the map or plan of this id.
func (t *tree) scope(within string) [][]leg {
	var out [][]leg
	list := t.within[within]
	// All nodes that the result needs are found from the last one; then the side nodes are drawn.
	for _, side := range []bool{false, true} {
		needed := map[string]bool{}
		for _, n := range list {
			if n.Side == side {
				for _, id := range n.Needs {
					needed[id] = true
				}
			}
		}
		var ends []*tasktype.Node
		for _, n := range list {
			if n.Side == side && !needed[n.ID] && !t.drawn[n] {
				ends = append(ends, n)
			}
		}
		switch {
		case len(ends) == 1 && !side:
			out = append(out, t.sequence(ends[0]))
		case len(ends) > 1 && !side:
			out = append(out, t.group(ends))
		default:
			for _, n := range ends {
				out = append(out, t.sequence(n))
			}
		}
	}
	return out
}

// before returns the dependencies of n that are not drawn.
func (t *tree) before(n *tasktype.Node) []*tasktype.Node {
	return slices.DeleteFunc(slices.Clone(t.needs[n]), func(b *tasktype.Node) bool { return t.drawn[b] })
}

// sequence returns the nodes that n depends on, and n.
func (t *tree) sequence(n *tasktype.Node) []leg {
	if t.drawn[n] {
		return nil
	}
	t.drawn[n] = true
	virtual := strings.HasPrefix(n.Task, "(")
	before := t.before(n)
	switch {
	case len(before) == 1:
		return append(t.sequence(before[0]), t.leg(n))
	case len(before) > 1 && virtual && len(t.within[n.ID]) == 0:
		steps := t.group(before)
		steps[len(steps)-1].node = n
		return steps
	case len(before) > 1:
		return append(t.group(before), t.leg(n))
	}
	return []leg{t.leg(n)}
}

// group returns the nodes that more than one of ends depend on, and a leg with ends as its branches.
func (t *tree) group(ends []*tasktype.Node) []leg {
	first, common := map[*tasktype.Node]int{}, map[*tasktype.Node]bool{}
	var shared []*tasktype.Node
	for i, n := range ends {
		own := map[*tasktype.Node]bool{}
		var walk func(*tasktype.Node)
		walk = func(n *tasktype.Node) {
			if own[n] {
				return
			}
			own[n] = true
			if k, ok := first[n]; !ok {
				first[n] = i
			} else if k != i && !common[n] {
				common[n] = true
				shared = append(shared, n)
			}
			for _, b := range t.before(n) {
				walk(b)
			}
		}
		walk(n)
	}
	for _, n := range slices.Clone(shared) {
		for _, b := range t.before(n) {
			common[b] = false // it is drawn before n
		}
	}
	shared = slices.DeleteFunc(shared, func(n *tasktype.Node) bool { return !common[n] || slices.Contains(ends, n) })
	var steps []leg
	switch len(shared) {
	case 0:
	case 1:
		steps = t.sequence(shared[0])
	default:
		steps = t.group(shared)
	}
	var g leg
	for _, n := range t.few(ends, &g) {
		if s := t.sequence(n); s != nil {
			g.parts = append(g.parts, s)
		}
	}
	return append(steps, g)
}

func (t *tree) leg(n *tasktype.Node) leg {
	s := leg{node: n}
	parts := t.within[n.ID]
	if len(parts) > 0 && strings.HasPrefix(n.Task, "(") {
		for _, p := range t.few(parts, &s) {
			s.parts = append(s.parts, []leg{{node: p, parts: t.scope(p.ID)}})
		}
	} else if len(parts) > 0 {
		s.parts = t.scope(n.ID)
	}
	return s
}

// Of more than foldOver parts, foldTo are drawn that wait or have succeeded.
const foldOver, foldTo = 12, 3

// few returns the parts to draw, and adds the others to s.more.
func (t *tree) few(parts []*tasktype.Node, s *leg) []*tasktype.Node {
	if t.all || len(parts) <= foldOver {
		return parts
	}
	var out []*tasktype.Node
	normal, notable := 0, 0
	for _, p := range parts {
		switch p.Status {
		case tasktype.Started, tasktype.Retry, tasktype.Failed, tasktype.Revoked:
			notable++
			if notable <= foldOver {
				out = append(out, p)
				continue
			}
		default:
			normal++
			if normal <= foldTo {
				out = append(out, p)
				continue
			}
		}
		t.drawn[p] = true
		s.more = append(s.more, p)
	}
	return out
}

// branch draws a sequence behind a connector; the lines after its first begin with the margin.
func (t *tree) branch(steps []leg, connector, margin string) {
	for i, s := range steps {
		head := connector
		if i > 0 {
			head = margin + "→ "
		}
		t.draw(head, s)
		parts := len(s.parts)
		if len(s.more) > 0 {
			parts++
		}
		for k, p := range s.parts {
			if k == parts-1 {
				t.branch(p, margin+"└─ ", margin+"   ")
			} else {
				t.branch(p, margin+"├─ ", margin+"│  ")
			}
		}
		if len(s.more) > 0 {
			t.rows = append(t.rows, row{name: margin + "└─ " + tally(s.more)})
		}
	}
}

// tally returns a text with the number of nodes in each state.
func tally(nodes []*tasktype.Node) string {
	count := map[tasktype.Status]int{}
	for _, n := range nodes {
		count[n.Status]++
	}
	var parts []string
	for _, s := range []tasktype.Status{tasktype.Success, tasktype.Started, tasktype.Pending, tasktype.Retry, tasktype.Failed, tasktype.Revoked, tasktype.Skipped} {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprint(count[s], " ", s))
		}
	}
	return fmt.Sprintf("… and %d more: %s", len(nodes), strings.Join(parts, ", "))
}

func (t *tree) draw(head string, s leg) {
	n := s.node
	if n == nil {
		t.rows = append(t.rows, row{name: head + "(group)"})
		return
	}
	r := row{name: head + n.Task, id: n.ID, status: string(n.Status)}
	var notes []string
	if n.Side && len(n.Needs) > 0 && t.byID[n.Needs[0]] != nil {
		notes = append(notes, "beside "+n.Needs[0])
	}
	if !n.Started.IsZero() {
		r.start = "+" + brief(n.Started.Sub(t.begun))
		end := n.Ended
		if !n.Planned.IsZero() {
			end = n.Planned // from then on its plan runs
		}
		if end.IsZero() && n.Status == tasktype.Started {
			end = t.now
			if n.Worker != "" {
				notes = append(notes, "on "+n.Worker)
			}
		}
		if !end.IsZero() {
			r.took = brief(max(0, end.Sub(n.Started)))
		}
	}
	if n.Total > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d", n.Done, n.Total))
	}
	if !n.Due.IsZero() {
		notes = append(notes, "due in "+brief(max(0, n.Due.Sub(t.now))))
	}
	if n.Attempts > 1 {
		notes = append(notes, fmt.Sprintf("%d attempts", n.Attempts))
	}
	if n.Runs > max(n.Attempts, 1) {
		notes = append(notes, fmt.Sprintf("%d runs", n.Runs))
	}
	switch {
	case n.Failure != nil && n.Status == tasktype.Revoked && n.Failure.Code == tasktype.CodeRevoked: // the state shows it
	case n.Failure != nil && n.Status != tasktype.Skipped:
		notes = append(notes, n.Failure.Message)
	case n.Message != "":
		notes = append(notes, n.Message)
	}
	if n.Waits != "" {
		notes = append(notes, n.Waits)
	}
	r.note = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.Join(notes, ", "))
	t.rows = append(t.rows, r)
}

// brief returns d with about three digits.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// idsFrom is the least width of a drawing with the ids of nodes.
const idsFrom = 80

func (t *tree) flush(w io.Writer) error {
	rows := append([]row{{"TASK", "NODE", "STATUS", "START", "TOOK", ""}}, t.rows...)
	var name, id, status, start, took int
	for _, r := range rows {
		if r.status != "" {
			name = max(name, utf8.RuneCountInString(r.name))
		}
		id, status, start, took = max(id, len(r.id)), max(status, len(r.status)), max(start, len(r.start)), max(took, len(r.took))
	}
	if t.width > 0 && t.width < idsFrom {
		id = -2 // with the space before it
	}
	fixed := 2 + id + 2 + status + 2 + start + 2 + took
	if t.width > 0 {
		name = min(name, max(t.width-fixed, 12))
	}
	for _, r := range rows {
		if r.status == "" {
			if err := t.line(w, r.name); err != nil {
				return err
			}
			continue
		}
		head := fit(r.name, name)
		line := head + strings.Repeat(" ", name-utf8.RuneCountInString(head))
		if id >= 0 {
			line += fmt.Sprintf("  %-*s", id, r.id)
		}
		line += fmt.Sprintf("  %-*s  %*s  %*s", status, r.status, start, r.start, took, r.took)
		room := t.width - name - fixed - 2
		if r.note != "" && (t.width == 0 || room >= utf8.RuneCountInString(r.note)) {
			line, r.note = line+"  "+r.note, ""
		}
		if err := t.line(w, line); err != nil {
			return err
		}
		if r.note != "" {
			if err := t.line(w, "    "+r.note); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tree) line(w io.Writer, s string) error {
	if t.width > 0 {
		s = fit(s, t.width)
	}
	_, err := fmt.Fprintln(w, strings.TrimRight(s, " "))
	return err
}

// fit cuts s to n columns.
func fit(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:max(n-1, 0)]) + "…"
}
