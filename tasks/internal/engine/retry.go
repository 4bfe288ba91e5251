package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"muster/internal/clip"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// The errors of a retry.
var (
	ErrRunning   = store.ErrRunning
	ErrSucceeded = store.Kind(ErrEnded, "the workflow has succeeded: nothing to retry")
	ErrDamaged   = errors.New("the data of the workflow in Redis is damaged: send it again")

	ErrRetryInput = store.Kind(graph.ErrInvalid, "cannot run again in this way")

	// ErrCompensated means that a retry would repeat a step whose compensation has failed.
	ErrCompensated = errors.New("a compensation has failed: its step would run twice; complete it, and send a new workflow")

	errRetryRevoked = fmt.Errorf("the workflow was %w: send it again", tasktype.ErrRevoked)

	errBusy = fmt.Errorf("%w: workers have not returned some of its tasks; retry in a few seconds", ErrRunning)
)

// retryErrors are the errors of the responses of Redis to a retry.
var retryErrors = map[string]error{store.RetryBusy: errBusy, store.RetryRunning: ErrRunning, store.RetryRevoked: errRetryRevoked, store.RetryDamaged: ErrDamaged}

// Corrected is an input for a node that is retried.
type Corrected struct {
	Node  string // empty for the only failed node of Task
	Task  string // that the node must be of; empty for any
	Input json.RawMessage
}

// DropSteps names steps to delete: all steps and the saved value of a node if there are no names.
type DropSteps struct {
	Node  string
	Names []string
}

// Rerun is how nodes run again.
type Rerun struct {
	Inputs []Corrected
	Drop   []DropSteps
	From   string // of RunAgain: only this node, those that depend on it, and those without success run; empty for all
	Copy   bool   // they run in a new workflow
}

// Retry runs the nodes of an ended workflow again that have not succeeded, and the nodes that depend on their outcome.
func (r *Operator) Retry(ctx context.Context, refOrID string, how *Rerun) error {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return err
	}
	_, err = r.rerun(ctx, f, how, func(w *whole, _ *store.Reset) (*flow, error) { return w.flow, nil })
	return err
}

// RunAgain runs nodes of an ended workflow in a new workflow, and returns its reference.
func (r *Operator) RunAgain(ctx context.Context, refOrID string, how *Rerun) (string, error) {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return "", err
	}
	to := store.Flow{Ref: f.Ref}
	for to.Ref == f.Ref || to.Shard() != f.Shard() { // a script can only copy within a shard
		if to, err = r.store.Flows.Address(ctx, store.GeneratedReference(r.newID(r.clock.Now()))); err != nil {
			return "", err
		}
	}
	how.Copy = true
	fl, err := r.rerun(ctx, f, how, func(w *whole, reset *store.Reset) (*flow, error) {
		created, err := r.redisTime(ctx, f.Shard())
		if err != nil {
			return nil, err
		}
		g := &graph.Graph{Header: w.g.Header, Template: w.g.Template}
		g.Created, g.Origin = created.UnixMilli(), w.ID()
		raw, err := g.Encode()
		reset.Set[store.FieldGraph], reset.Source = string(raw), f.Ref
		return newFlow(to, g), err
	})
	if err != nil {
		return "", err
	}
	return fl.Ref, nil
}

// rerun runs nodes of an ended workflow again, in the workflow that target returns.
func (r *Operator) rerun(ctx context.Context, f store.Flow, how *Rerun, target func(*whole, *store.Reset) (*flow, error)) (*flow, error) {
	for call := byOutside + encodeToken(randomBytes(6)); ; {
		w, err := r.ended(ctx, f, !how.Copy)
		if err != nil {
			return nil, err
		}
		again := &resetter{w, how, map[string]bool{}, map[string]bool{}, map[string]bool{}, nil, &store.Reset{Revision: w.field(store.FieldRevision), Set: map[string]string{}}}
		reset, err := again.reset()
		if err != nil {
			return nil, err
		}
		reset.Call = call
		fl, err := target(w, reset)
		if err != nil {
			return nil, err
		}
		state, todo, err := r.store.Flows.Retry(ctx, fl.Flow, reset)
		switch {
		case err != nil:
			return nil, err
		case state == store.RetryOK:
			// From here on the workflow runs in any case: workers do what fails here.
			todo.Plans = reset.Plans
			progress := r.progress.reopened
			if how.Copy {
				r.graphs.keep(fl.Ref, "", fl.g)
				progress = r.progress.dispatched
			}
			if err := errors.Join(progress(ctx, fl), r.advancer.settle(ctx, fl, todo)); err != nil {
				r.log.WarnContext(ctx, "workflow runs again; workers take the rest of its first steps", "workflow", fl.ID(), "error", err)
			}
			return fl, nil
		case state == store.RetryChanged && ctx.Err() == nil:
			continue
		case state == store.RetryChanged:
			return nil, ctx.Err()
		default:
			return nil, cmp.Or(retryErrors[state], ErrUnknown)
		}
	}
}

// ended reads a workflow, and returns an error unless it has ended and, to retry it, has not succeeded.
func (r *Operator) ended(ctx context.Context, f store.Flow, retry bool) (*whole, error) {
	aborted, err := r.graphs.aborted(ctx, f)
	if err != nil {
		return nil, err
	}
	if aborted != nil {
		return nil, ErrDamaged
	}
	w, err := r.graphs.whole(ctx, f.Ref)
	switch {
	case errors.Is(err, errUnreadable):
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return nil, err
	}
	switch stopped := w.field(store.FieldStopped); {
	case stopped == store.StoppedByRevoke && retry:
		return nil, errRetryRevoked
	case stopped != store.StoppedByRevoke && !over(w.fields):
		return nil, ErrRunning
	case retry && stopped == "" && strings.HasPrefix(w.field(w.Root), string(rune(store.StateSucceeded))):
		return nil, ErrSucceeded
	}
	return w, nil
}

// resetter computes the nodes of a workflow that run again.
type resetter struct {
	*whole
	how    *Rerun
	exists map[string]bool
	again  map[string]bool // nodes that are reset
	anew   map[string]bool // of these, the nodes whose input changes: their plan or their members are deleted
	moved  []graph.ID      // nodes that are kept under other names
	out    *store.Reset
}

// reset returns the changes. Afterwards, the fields of the workflow are as if the reset nodes had not begun
// yet. A node that has planned is not reset itself, nor is a map with members, unless its input changes.
func (r *resetter) reset() (*store.Reset, error) {
	how := r.how
	r.mark()
	if id, err := graph.ParseID(how.From); how.From != "" && (err != nil || !r.exists[how.From] || id.Inst < 0 && r.graph(id).Virtual(id.Index) && r.node(id).Kind != graph.Each) {
		return nil, fmt.Errorf("%w: the workflow has no task %s, or it did not run", ErrRetryInput, how.From)
	}
	if !how.Copy {
		if err := r.keepUndo(); err != nil {
			return nil, err
		}
	}
	left := slices.DeleteFunc(slices.Clone(r.ids), func(id graph.ID) bool { return r.deleted(id.String()) })
	inputs := map[string]Corrected{}
	for _, c := range how.Inputs {
		if c.Node == "" {
			var err error
			if c.Node, err = r.onlyFailed(left, c.Task); err != nil {
				return nil, err
			}
		}
		if err := r.accepts(c.Node, c); err != nil {
			return nil, err
		}
		inputs[c.Node] = c
	}
	r.clear()
	for _, d := range how.Drop {
		if err := r.dropSteps(d); err != nil {
			return nil, err
		}
	}
	r.count(append(left, r.moved...))
	came := r.outcomes(left)
	var ready []graph.ID
	for _, id := range left {
		if !r.again[id.String()] {
			continue
		}
		runs, err := r.restart(id, came, inputs)
		if err != nil {
			return nil, err
		}
		if runs {
			ready = append(ready, id)
		}
	}
	r.release(ready)
	r.out.Lanes, r.out.First = r.lanes(), firstSpan(r.flow.g)
	return r.out, nil
}

// node returns the node of the graph that id is an instance of.
func (r *resetter) node(id graph.ID) *graph.Node { return &r.graph(id).Nodes[id.Index] }

// state returns the letter of the record of a node.
func (r *resetter) state(name string) byte {
	if rec := r.field(name); rec != "" {
		return rec[0]
	}
	return 0
}

// mark finds the nodes to reset: nodes without success, and nodes that depend on the outcome of one.
func (r *resetter) mark() {
	var queue []graph.ID
	mark := func(id graph.ID, anew bool) {
		name := id.String()
		if !r.exists[name] {
			return
		}
		r.anew[name] = r.anew[name] || anew
		if !r.again[name] {
			r.again[name] = true
			queue = append(queue, id)
		}
	}
	for _, id := range r.ids {
		r.exists[id.String()] = r.node(id).Kind != graph.Catch
	}
	for _, id := range r.ids {
		if _, past := r.past(id); past {
			delete(r.exists, id.String())
			continue
		}
		switch name := id.String(); {
		case name == r.how.From, r.how.Copy && r.how.From == "" && id.Scope == "":
			mark(id, true)
		case r.state(name) != store.StateSucceeded:
			mark(id, false)
		}
		if undo, ok := r.undoOf(id); ok && r.state(undo.String()) == store.StateSucceeded {
			for _, step := range r.stepsOf(id) {
				mark(step, true)
			}
		}
	}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		g, n := r.graph(id), r.node(id)
		if id.Inst < 0 && n.By > 0 {
			mark(id.At(n.By-1, -1), false) // so that the nodes that it holds back take a place again
		}
		edges := g.Succs(id.Index)
		switch {
		case n.Kind == graph.Permit:
			continue // succeeded nodes that depend on it need no place
		case id.Inst >= 0:
			edges = g.Members(id.Index)
		}
		for _, e := range edges {
			mark(id.At(e.To, -1), e.Kind != graph.OfMap)
		}
		if id.Scope != "" && id.Index == g.Root && id.Inst < 0 {
			planned, err := graph.ParseID(id.Scope)
			if err == nil {
				mark(planned, false)
			}
		}
	}
}

// CompensateTask is the task that decides whether a step is undone. Its input is a join of the step and the outcome of the rest;
// the first node of its plan undoes the step.
const CompensateTask = "muster.compensate"

// undoOf returns the node that undoes the step of a node, if that was planned.
func (r *resetter) undoOf(id graph.ID) (undo graph.ID, ok bool) {
	n, plan := r.node(id), r.graphs[id.String()]
	if plan == nil || n.Kind != graph.Task || id.Inst >= 0 || n.In == 0 || r.graph(id).Specs[n.Spec].Task != CompensateTask {
		return undo, false
	}
	return graph.ID{Scope: id.String(), Inst: -1}, plan.Nodes[0].Kind == graph.Task
}

// stepsOf returns the tasks and maps that make the value of the step that a node compensates.
func (r *resetter) stepsOf(id graph.ID) (steps []graph.ID) {
	g := r.graph(id)
	todo := g.Preds(r.node(id).In - 1)[:1]
	for len(todo) > 0 {
		i := todo[0]
		todo = todo[1:]
		if k := g.Nodes[i].Kind; k == graph.Task || k == graph.Each {
			steps = append(steps, id.At(i, -1))
			continue
		}
		todo = append(todo, g.Preds(i)...)
	}
	return steps
}

// keepUndo keeps the nodes that have undone steps, in a plan of their own, for display: the scope of the first plan of node 7 is
// 7.0. It returns an error if a step whose undo has failed runs again.
func (r *resetter) keepUndo() error {
	for _, id := range r.ids {
		undo, ok := r.undoOf(id)
		if !ok {
			continue
		}
		switch r.state(undo.String()) {
		case store.StateFailed, store.StateRevoked:
			for _, step := range r.stepsOf(id) {
				if r.again[step.String()] {
					return fmt.Errorf("%w: node %s (%s)", ErrCompensated, undo, title(r.graph(undo), undo))
				}
			}
		case store.StateSucceeded:
			if err := r.moveUndo(id, undo); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveUndo moves a node that has undone the step of node id, with its own plans, to a new scope.
func (r *resetter) moveUndo(id, undo graph.ID) error {
	k := 0
	for r.field(store.FieldGraph+id.At(id.Index, k).String()) != "" {
		k++
	}
	from, to := id.String(), id.At(id.Index, k).String()
	plan := r.graphs[from]
	g := graph.Graph{Header: plan.Header, Template: graph.Template{Specs: []graph.Spec{plan.Specs[plan.Nodes[0].Spec]}, Nodes: []graph.Node{{}}}}
	raw, err := g.Encode()
	if err != nil {
		return err
	}
	r.out.Set[store.FieldGraph+to], r.out.Set[store.FieldPlannedAt+to] = string(raw), r.field(store.FieldPlannedAt+from)
	for field, value := range r.fields {
		m := ofNode.FindStringSubmatch(field)
		if m == nil || m[2] != undo.String() && !strings.HasPrefix(m[2], undo.String()+":") {
			continue
		}
		r.out.Set[m[1]+to+strings.TrimPrefix(field, m[1]+from)] = value
	}
	for _, other := range r.ids {
		if name := other.String(); name == undo.String() || strings.HasPrefix(name, undo.String()+":") {
			r.moved = append(r.moved, other)
		}
	}
	return nil
}

// deleted reports whether a node is deleted: a run of a catch, and all that is in a plan or map which is made anew.
func (r *resetter) deleted(name string) bool {
	for at := name; ; {
		id, err := graph.ParseID(at)
		if g := r.graphs[id.Scope]; err != nil || g == nil || id.Index >= len(g.Nodes) {
			return true
		}
		if id.Inst >= 0 && r.node(id).Kind == graph.Task && !r.how.Copy { // an earlier plan: it stays
			if at = id.Scope; at == "" {
				return false
			}
			continue
		}
		if r.node(id).Kind == graph.Catch || id.Inst >= 0 && r.node(id).Kind == graph.Task || at != name && r.anew[at] || id.Inst >= 0 && r.anew[id.At(id.Index, -1).String()] {
			return true
		}
		if id.Scope == "" {
			return false
		}
		at = id.Scope
	}
}

// onlyFailed returns the failed node of a task that has one. A node whose plan has failed is none: the nodes of the plan are.
func (r *resetter) onlyFailed(left []graph.ID, task string) (string, error) {
	var failed []string
	for _, id := range left {
		name := id.String()
		if r.state(name) == store.StateFailed && !r.planned(name) && !(id.Inst < 0 && r.graph(id).Virtual(id.Index)) && title(r.graph(id), id) == task {
			failed = append(failed, name)
		}
	}
	if len(failed) != 1 {
		return "", fmt.Errorf("%w: input without a node: %d nodes of task %s have failed; name one", ErrRetryInput, len(failed), task)
	}
	return failed[0], nil
}

// accepts returns an error if a node does not run again, or not with a corrected input.
func (r *resetter) accepts(node string, c Corrected) error {
	id, err := graph.ParseID(node)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRetryInput, err)
	}
	if err := r.runsAgain(node); err != nil {
		return err
	}
	switch {
	case id.Inst < 0 && r.graph(id).Virtual(id.Index):
		return fmt.Errorf("%w: input of node %s: it has no task", ErrRetryInput, node)
	case r.planned(node):
		return fmt.Errorf("%w: input of node %s: it has returned a plan, which continues; give the input to a node of the plan", ErrRetryInput, node)
	}
	if task := title(r.graph(id), id); c.Task != "" && c.Task != task {
		return fmt.Errorf("%w: input of node %s: it is of task %s, not %s", ErrRetryInput, node, task, c.Task)
	}
	if err := fits(c.Input, "it"); err != nil {
		return fmt.Errorf("%w: input of node %s: %w", ErrRetryInput, node, err)
	}
	return nil
}

// runsAgain returns an error if a node does not run again.
func (r *resetter) runsAgain(node string) error {
	switch {
	case !r.exists[node]:
		return fmt.Errorf("%w: node %s does not exist", ErrRetryInput, node)
	case !r.again[node] || r.deleted(node):
		return fmt.Errorf("%w: node %s does not run again", ErrRetryInput, node)
	}
	return nil
}

// dropSteps deletes steps of a node that runs again.
func (r *resetter) dropSteps(d DropSteps) error {
	if err := r.runsAgain(d.Node); err != nil {
		return err
	}
	last, _ := strconv.Atoi(r.field(store.FieldStored + d.Node))
	missing := slices.Clone(d.Names)
	for n := range last + 1 {
		field := store.StepField(d.Node, n)
		st, ok := store.ParseStep(r.field(field))
		if ok && (len(d.Names) == 0 || n > 0 && slices.Contains(d.Names, st.Name)) {
			r.out.Delete = append(r.out.Delete, field)
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == st.Name })
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: node %s has no stored step %q", ErrRetryInput, d.Node, missing[0])
	}
	return nil
}

// planned reports whether a node keeps its plan.
func (r *resetter) planned(name string) bool {
	return r.field(store.FieldGraph+name) != "" && !r.anew[name]
}

// ofNode matches the fields of a node.
var ofNode = regexp.MustCompile(`^([a-z]*)(\d[\d:.]*)(?:!|/\d+)?$`)

// clear deletes the fields of nodes that are deleted or reset.
func (r *resetter) clear() {
	del := []string{store.FieldStopped, store.FieldSpans, store.FieldProgress}
	if r.again[r.Root] {
		del = append(del, store.FieldRoot)
	}
	for _, field := range slices.Sorted(maps.Keys(r.fields)) {
		m := ofNode.FindStringSubmatch(field)
		switch {
		case strings.HasPrefix(field, store.FieldCaught):
			del = append(del, field)
		case m == nil && r.how.Copy && !slices.Contains(keptByCopy, field):
			del = append(del, field)
		case m == nil:
		case r.deleted(m[2]), r.how.Copy && r.again[m[2]] && (m[1] == store.FieldStored || m[1] == store.FieldRuns):
			del = append(del, field)
		case !r.again[m[2]] && r.how.Copy:
			r.backdate(field, m[1])
		case !r.again[m[2]]:
		case m[1] == "" || slices.Contains([]string{store.FieldArrived, store.FieldNeedsNoPlace, store.FieldError, store.FieldProgress, store.FieldToken}, m[1]):
			del = append(del, field)
		case r.anew[m[2]] && slices.Contains([]string{store.FieldGraph, store.FieldPlannedAt, store.FieldMembersOf, store.FieldStored}, m[1]):
			del = append(del, field)
		}
	}
	r.out.Delete = slices.DeleteFunc(del, func(field string) bool { return r.field(field) == "" })
}

// keptByCopy are the fields of a whole workflow that a copy has, beside its counts, which are computed.
var keptByCopy = []string{store.FieldGraph, store.FieldFairness, store.FieldRoot}

// backdate sets the times in a field of a node that a copy keeps to the time at which the copy is sent.
func (r *resetter) backdate(field, kind string) {
	switch p := strings.SplitN(r.field(field), "|", 6); {
	case kind == store.FieldPlannedAt:
		r.out.Set[field] = "0"
	case kind == "" && len(p) == 6: // the record of a success
		p[2], p[3] = "0", "0"
		r.out.Set[field] = strings.Join(p, "|")
	}
}

// count sets the counts of the workflow.
func (r *resetter) count(left []graph.ID) {
	counts := map[string]int{store.FieldTasks: 0, store.FieldTasksEnded: 0, store.FieldSteps: 0, store.FieldStepsEnded: 0, store.FieldMembers: 0, store.FieldMembersEnded: 0}
	for _, id := range left {
		g, n := r.graph(id), r.node(id)
		member := id.Inst >= 0
		all, over := store.FieldTasks, store.FieldTasksEnded
		if !member && g.Virtual(id.Index) || member && g.Specs[n.Spec].Sub > 0 {
			all, over = store.FieldSteps, store.FieldStepsEnded
		}
		ended := 1
		if r.again[id.String()] {
			ended = 0
		}
		counts[all]++
		counts[over] += ended
		if member {
			counts[store.FieldMembers]++
			counts[store.FieldMembersEnded] += ended
		}
	}
	for name, n := range counts {
		if n > 0 || r.field(name) != "" && !r.how.Copy {
			r.out.Set[name] = strconv.Itoa(n)
		}
	}
}

// outcomes returns, by node, how many of the outcomes that reset nodes wait for have come.
func (r *resetter) outcomes(left []graph.ID) map[string]int {
	came := map[string]int{}
	for _, id := range left {
		if r.again[id.String()] {
			continue
		}
		edges := r.graph(id).Succs(id.Index)
		if id.Inst >= 0 {
			edges = r.graph(id).Members(id.Index)
		}
		for _, e := range edges {
			if to := id.At(e.To, -1).String(); r.again[to] && (e.Kind == graph.Need || e.Kind == graph.Any) {
				came[to]++
			}
		}
	}
	return came
}

// restart sets the fields of a node that is reset. It reports whether the node can run now.
func (r *resetter) restart(id graph.ID, came map[string]int, inputs map[string]Corrected) (bool, error) {
	name, g, n := id.String(), r.graph(id), r.node(id)
	raw := r.field(name)
	rec := store.ParseRecord([]byte(raw), r.Created)
	if rec.State == store.StateFailed {
		r.out.Failed = append(r.out.Failed, name)
	}
	if r.planned(name) {
		p := strings.SplitN(raw, "|", 6)
		p = append(p, make([]string, 6)...)
		r.out.Set[name] = fmt.Sprintf("%c|%s|0|%s|%s", store.StatePlanned, p[1], p[2], p[4])
		sub := r.graphs[name]
		if root := (graph.ID{Scope: name, Index: sub.Root, Inst: -1}).String(); !r.again[root] {
			r.out.Plans = append(r.out.Plans, name)
		}
		return false, nil
	}
	if n.Kind == graph.Each && id.Inst < 0 && r.field(store.FieldMembersOf+name) != "" && !r.anew[name] {
		m, err := strconv.Atoi(r.field(store.FieldMembersOf + name))
		if err != nil {
			return false, fmt.Errorf("%w: members of map %s: %w", ErrDamaged, name, err)
		}
		ended := 0
		for i := range m {
			if !r.again[id.At(id.Index, i).String()] {
				ended++
			}
		}
		if ended == m {
			r.out.Set[name] = string(rune(store.StateMapped))
			return true, nil
		}
		r.out.Set[name] = string(rune(store.StateMapping))
		if ended > 0 {
			r.out.Set[store.FieldArrived+name+"!"] = strconv.Itoa(ended)
		}
		return false, nil
	}
	if err := r.giveInput(id, inputs); err != nil {
		return false, err
	}
	if !r.how.Copy {
		r.keepRun(id, &rec)
	}
	if id.Inst >= 0 {
		return true, nil
	}
	need, known := g.Need(id.Index), true
	switch n.Kind {
	case graph.Or:
		return !r.again[id.At(n.Args[0], -1).String()], nil
	case graph.EachEnded:
		of := id.At(n.In-1, -1).String()
		m, err := strconv.Atoi(r.field(store.FieldMembersOf + of))
		need, known = need+m, err == nil && !r.anew[of]
	}
	if known && came[name] >= need {
		return true, nil
	}
	if came[name] > 0 && (need > 1 || !known) {
		r.out.Set[store.FieldArrived+name] = strconv.Itoa(came[name])
	}
	return false, nil
}

// giveInput gives a node that is reset its literal input.
func (r *resetter) giveInput(id graph.ID, inputs map[string]Corrected) error {
	name, n := id.String(), r.node(id)
	field := store.FieldInput + name
	if c, ok := inputs[name]; ok {
		input, err := unbound(&r.graph(id).Specs[n.Spec], c.Input)
		if err != nil {
			return fmt.Errorf("%w: input of node %s: %w", ErrRetryInput, name, err)
		}
		r.out.Set[field] = string(input)
		return nil
	}
	literal := id.Inst >= 0 || n.Kind == graph.Task && n.In == 0
	switch {
	case literal && r.field(field) == "":
		return fmt.Errorf("%w: input of node %s (%s) was not kept: give it with RetryInput", ErrRetryInput, name, title(r.graph(id), id))
	case !literal && r.anew[name] && r.field(field) != "": // an earlier correction
		r.out.Delete = append(r.out.Delete, field)
	}
	return nil
}

// keepRun adds the last run of a node to its kept runs.
func (r *resetter) keepRun(id graph.ID, rec *store.Record) {
	if rec.Began.IsZero() || rec.State != store.StateFailed && rec.State != store.StateRevoked && rec.State != store.StateSucceeded {
		return
	}
	run := tasktype.NodeAttempt{Attempt: rec.Attempts, Started: rec.Began, Ended: rec.Ended, Worker: rec.Owner, Outcome: tasktype.OutcomeSuccess}
	var f tasktype.Failure
	if rec.State != store.StateSucceeded && json.Unmarshal(rec.Body, &f) == nil {
		run.Outcome, run.Code, run.Message = tasktype.OutcomeFailure, f.Code, clip.Bytes(f.Message, 300)
		if rec.State == store.StateRevoked {
			run.Outcome = tasktype.OutcomeRevoked
		}
	}
	r.out.Runs = append(r.out.Runs, store.Literal{Node: id.String(), Input: store.EncodeRun(&run)})
}

// release adds the nodes that can run.
func (r *resetter) release(ready []graph.ID) {
	var out spans
	for _, id := range ready {
		g, n := r.graph(id), r.node(id)
		rel := release(g, id, false)
		rel.Delay = ""
		if n.Kind == graph.Task || id.Inst >= 0 {
			at := g.Specs[n.Spec].At
			if id.Inst < 0 && g.Need(id.Index) == 0 {
				at = max(at, g.At)
			}
			rel.Delay = store.Delay(0, at, g.Specs[n.Spec].Expires)
		}
		out.add(id, rel)
	}
	r.out.Roots = out.list
}

// reopened writes the progress keys of a workflow that is retried.
func (pr *progress) reopened(ctx context.Context, fl *flow) error {
	if fl.g.Progress == "" {
		return nil
	}
	if err := pr.store.Agenda.Add(ctx, fl.Flow, progressNote, keepAlive); err != nil {
		return err
	}
	if err := pr.store.Progress.Delete(ctx, fl.g.Progress, fl.ID(), "completed_at", "total_chunks", "completed_chunks", "status"); err != nil {
		return err
	}
	return errors.Join(pr.publish(ctx, fl, "status", "PROCESSING"), pr.write(ctx, fl))
}
