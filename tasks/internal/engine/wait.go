package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// lookEvery is how often a wait reads the workflow, since the message that it has ended can be lost.
const lookEvery = time.Second

// Wait blocks until the root of a workflow is terminal. By then its progress keys tell so too.
func (e *Engine) Wait(ctx context.Context, id string) (json.RawMessage, *tasktype.Failure, error) {
	fl, fail, err := e.find(ctx, id)
	if err != nil || fail != nil {
		return nil, fail, err
	}
	bell, stop, err := e.listen(ctx, id)
	if err != nil {
		return nil, nil, endedBy(ctx, err)
	}
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		v := e.newValues(fl)
		rec, err := v.record(ctx, fl.Root)
		if err != nil && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err == nil && rec.Terminal() {
			defer e.dropLarge(fl.ID)
			if fl.g.Progress != "" { // the process that ended it may not have done this yet
				if err := e.project(ctx, fl); err != nil {
					e.log.Warn("progress keys were not written", "workflow", fl.ID, "error", err)
				}
			}
			m, err := v.member(ctx, graph.ID{Index: fl.g.Root, Inst: -1})
			return m.Raw, m.Failure, err
		}
		if err == nil {
			_, fail, err := e.hasEnded(ctx, fl.Flow)
			if errors.Is(err, ErrUnknown) || err == nil && fail != nil {
				return nil, fail, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-bell:
		case <-tick.C:
		}
	}
}

// find returns a workflow or, if it cannot be read, why it was given up.
func (e *Engine) find(ctx context.Context, id string) (*flow, *tasktype.Failure, error) {
	fl, err := e.load(ctx, id)
	if err == nil {
		return fl, nil, nil
	}
	if f := e.abortedID(ctx, id); f != nil {
		return nil, f, nil
	}
	return nil, nil, endedBy(ctx, err)
}

// hasEnded reports whether all of a workflow is terminal, and why it was given up if it was. It returns ErrUnknown
// when the retention has run out, which may be while somebody waits.
func (e *Engine) hasEnded(ctx context.Context, f store.Flow) (bool, *tasktype.Failure, error) {
	raws, err := e.store.Flows.Fields(ctx, f, endFields)
	if err != nil {
		return false, nil, err
	}
	if raws[0] == nil {
		return false, nil, ErrUnknown
	}
	fields := map[string]string{}
	for i, raw := range raws {
		if raw != nil {
			fields[endFields[i]] = string(raw)
		}
	}
	fail, err := cause(f, raws[len(raws)-1])
	return over(fields), fail, err
}

// endedBy is err, or the end of ctx where that is behind it. Connections have the deadline of ctx as their
// own, and tell its passing in their words, a moment before ctx knows.
func endedBy(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case err == nil || errors.Is(err, ErrUnknown):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case ok && !time.Now().Before(deadline):
		return context.DeadlineExceeded
	}
	return err
}

// aborted returns why a workflow was given up as a whole, or nil if it was not.
func (e *Engine) aborted(ctx context.Context, f store.Flow) (*tasktype.Failure, error) {
	raws, err := e.store.Flows.Fields(ctx, f, []string{store.AbortField})
	if err != nil {
		return nil, err
	}
	return cause(f, raws[0])
}

// cause reads the field that says why a workflow was given up; nil if it was not.
func cause(f store.Flow, raw []byte) (*tasktype.Failure, error) {
	if raw == nil {
		return nil, nil
	}
	fail := &tasktype.Failure{}
	if err := json.Unmarshal(raw, fail); err != nil {
		return nil, fmt.Errorf("failure of workflow %s: %w", f.ID, err)
	}
	return fail, nil
}

// abortedID is aborted for a workflow that cannot be read.
func (e *Engine) abortedID(ctx context.Context, id string) *tasktype.Failure {
	f, err := e.store.Flows.Address(ctx, id)
	if err != nil {
		return nil
	}
	fail, err := e.aborted(ctx, f)
	if err != nil {
		return nil
	}
	return fail
}

// Pause returns after d, or as soon as a message says that the workflow has its value or has ended.
func (e *Engine) Pause(ctx context.Context, id string, d time.Duration) error {
	bell, stop, err := e.listen(ctx, id)
	if err != nil {
		return endedBy(ctx, err)
	}
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-bell:
	case <-timer.C:
	}
	return nil
}

// waiter shares one subscription among the waits of a process.
type waiter struct {
	sub  *redis.PubSub
	done chan struct{} // closed when the reader has returned

	mu    sync.Mutex                        // guards bells
	bells map[string]map[chan struct{}]bool // by channel
}

// listen returns a channel that gets a value when a message on the workflow arrives, and a function that ends that.
func (e *Engine) listen(ctx context.Context, id string) (<-chan struct{}, func(), error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, nil, fmt.Errorf("client is closed")
	}
	if e.waits == nil {
		w := &waiter{sub: e.store.Redis().Subscribe(context.Background()), done: make(chan struct{}), bells: map[string]map[chan struct{}]bool{}}
		e.waits = w
		go w.read()
	}
	w := e.waits
	e.mu.Unlock()
	return w.add(ctx, store.DoneChannel(id))
}

func (w *waiter) add(ctx context.Context, channel string) (<-chan struct{}, func(), error) {
	bell := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bells[channel] == nil {
		// Subscribe returns before Redis has answered; until then waits depend on lookEvery. A ctx that ends during the
		// call would close the connection, which other waits use.
		if err := w.sub.Subscribe(context.WithoutCancel(ctx), channel); err != nil {
			return nil, nil, fmt.Errorf("subscribe: %w", err)
		}
		w.bells[channel] = map[chan struct{}]bool{}
	}
	w.bells[channel][bell] = true
	return bell, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.bells[channel], bell)
		if len(w.bells[channel]) == 0 {
			delete(w.bells, channel)
			_ = w.sub.Unsubscribe(context.Background(), channel)
		}
	}, nil
}

func (w *waiter) read() {
	defer close(w.done)
	for m := range w.sub.ChannelWithSubscriptions() {
		var channel string
		switch m := m.(type) {
		case *redis.Message:
			channel = m.Channel
		case *redis.Subscription:
			if m.Kind != "subscribe" {
				continue
			}
			channel = m.Channel // messages from before may have been missed: look once
		default:
			continue
		}
		w.mu.Lock()
		for bell := range w.bells[channel] {
			select {
			case bell <- struct{}{}:
			default:
			}
		}
		w.mu.Unlock()
	}
}

func (w *waiter) close() {
	_ = w.sub.Close()
	<-w.done
}

// Progress returns how far a workflow is.
func (e *Engine) Progress(ctx context.Context, id string) (tasktype.Progress, error) {
	fl, err := e.load(ctx, id)
	if err != nil {
		return tasktype.Progress{}, err
	}
	raws, err := e.store.Flows.Fields(ctx, fl.Flow, []string{"n", "z", "vn", "vz", "ct", "cc", fl.Root, store.AbortField, store.OpenedField})
	if err != nil {
		return tasktype.Progress{}, err
	}
	if raws[0] == nil {
		return tasktype.Progress{}, ErrUnknown
	}
	num := func(i int) int { n, _ := strconv.Atoi(string(raws[i])); return n }
	p := tasktype.Progress{Done: num(1), Total: num(0), ChunksDone: num(5), Chunks: num(4)}
	p.Ended = num(1) >= num(0) && num(3) >= num(2) || raws[7] != nil
	rec := store.ParseRecord(raws[6], fl.Created)
	p.Status = status(rec)
	if raws[7] != nil {
		p.Status = tasktype.Failed
	}
	if p.Status == tasktype.Skipped {
		// Its root was skipped because another node failed or was revoked.
		p.Status = tasktype.Failed
		cause, err := e.newValues(fl).record(ctx, rec.Cause)
		if err == nil && cause.State == 'X' {
			p.Status = tasktype.Revoked
		}
	}
	if p.Status == tasktype.Pending && !p.Ended {
		begun := p.Done > 0 || raws[8] != nil
		if !begun {
			running, err := e.running(ctx, fl.Flow)
			if err != nil {
				return tasktype.Progress{}, err
			}
			begun = len(running) > 0
		}
		if begun {
			p.Status = tasktype.Started
		}
	}
	return p, nil
}

// running returns the nodes of a workflow that are in batches of workers, with their batches. Redis has no record of a
// node that runs, except that it is in a batch.
func (e *Engine) running(ctx context.Context, f store.Flow) (map[string]*store.Batch, error) {
	batches, err := e.store.Batches.OfFlow(ctx, f)
	if err != nil {
		return nil, err
	}
	out := map[string]*store.Batch{}
	for i := range batches {
		for _, el := range batches[i].Nodes {
			if el.Flow.ID != f.ID {
				continue
			}
			for _, node := range el.Nodes {
				out[node] = &batches[i]
			}
		}
	}
	return out, nil
}

// endFields are what over reads.
var endFields = []string{"n", "z", "vn", "vz", store.AbortField}

// over reports whether all of a workflow is terminal, or it was given up.
func over(fields map[string]string) bool {
	num := func(f string) int { n, _ := strconv.Atoi(fields[f]); return n }
	_, aborted := fields[store.AbortField]
	return aborted || num("z") >= num("n") && num("vz") >= num("vn")
}

func status(r store.Record) tasktype.Status {
	switch r.State {
	case 'P', 'E', 'e', 'W':
		return tasktype.Started
	case 'T':
		return tasktype.Retry
	case 'S':
		return tasktype.Success
	case 'F':
		return tasktype.Failed
	case 'X':
		return tasktype.Revoked
	case 'K', 'k':
		return tasktype.Skipped
	}
	return tasktype.Pending
}

// Member is the value or the failure of a member of a group or a map; neither while it has not ended.
type Member struct {
	Raw     json.RawMessage
	Failure *tasktype.Failure
}

// Members are those of the list that a workflow yields.
type Members struct {
	List  []Member // empty while it is not known how many there are
	Ended bool     // all of them are there, and they and the workflow's root have ended
}

// Members returns what the members of the list that a workflow yields have come to, without those already seen, and why
// the workflow yields no list, once that is so.
func (e *Engine) Members(ctx context.Context, id string, seen []bool) (Members, *tasktype.Failure, error) {
	fl, fail, err := e.find(ctx, id)
	if err != nil || fail != nil {
		return Members{}, fail, err
	}
	out, fail, err := e.membersOf(ctx, fl, seen)
	return out, fail, endedBy(ctx, err)
}

func (e *Engine) membersOf(ctx context.Context, fl *flow, seen []bool) (Members, *tasktype.Failure, error) {
	v := e.newValues(fl)
	root := graph.ID{Index: fl.g.Root, Inst: -1}
	rec, err := v.record(ctx, fl.Root) // first, so that what there was before it ended is seen with it
	if err != nil {
		return Members{}, nil, err
	}
	l, err := v.list(ctx, root)
	if err != nil {
		return Members{}, nil, err
	}
	out := Members{Ended: l.known && rec.Terminal()}
	for _, raw := range l.elements {
		out.List = append(out.List, Member{Raw: raw})
	}
	if err := v.addParts(ctx, &out, l, seen); err != nil {
		return out, nil, err
	}
	var fail *tasktype.Failure
	switch {
	case rec.Terminal() && rec.State != 'S' && (out.Ended || !l.known):
		fail, err = v.failure(ctx, root)
	case !out.Ended:
		_, fail, err = e.hasEnded(ctx, fl.Flow)
	}
	return out, fail, err
}

// addParts adds the parts of a list to out, and of those that were not seen what they have come to.
func (v *values) addParts(ctx context.Context, out *Members, l listing, seen []bool) error {
	fresh := func(i int) bool { return i >= len(seen) || !seen[i] }
	var ids []graph.ID
	for i, p := range l.parts {
		if fresh(i) {
			ids = append(ids, p)
		}
	}
	if err := v.fetchParts(ctx, ids); err != nil {
		return err
	}
	for i, p := range l.parts {
		var m Member
		if fresh(i) {
			var err error
			if m, err = v.member(ctx, p); err != nil {
				return err
			}
			if l.outcomes {
				m = m.settled()
			}
			out.Ended = out.Ended && (m.Raw != nil || m.Failure != nil)
		}
		out.List = append(out.List, m)
	}
	return nil
}

// nodeEvery is how often NodeValue looks: the end of a node is not told to anyone.
const nodeEvery = 100 * time.Millisecond

// NodeValue blocks until a node of a workflow has a value or cannot have one any more.
func (e *Engine) NodeValue(ctx context.Context, id, node string) (json.RawMessage, *tasktype.Failure, error) {
	nid, err := graph.ParseID(node)
	if err != nil {
		return nil, nil, err
	}
	fl, fail, err := e.find(ctx, id)
	if err != nil || fail != nil {
		return nil, fail, err
	}
	for v := e.newValues(fl); ; v.refresh() {
		over, fail, err := e.hasEnded(ctx, fl.Flow) // before the look, so that what ended before that is seen
		if err != nil {
			return nil, nil, endedBy(ctx, err)
		}
		m, err := v.node(ctx, nid)
		if err != nil {
			return nil, nil, endedBy(ctx, err)
		}
		switch {
		case m.Raw != nil || m.Failure != nil:
			return m.Raw, m.Failure, nil
		case fail != nil:
			return nil, fail, nil
		case over:
			return nil, nil, fmt.Errorf("node %s did not run, and the workflow has ended", node)
		}
		if err := e.Pause(ctx, id, nodeEvery); err != nil {
			return nil, nil, err
		}
	}
}

// node is member for a node that a caller has named.
func (v *values) node(ctx context.Context, id graph.ID) (Member, error) {
	g, err := v.graph(ctx, id)
	if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) && g != nil {
		return Member{}, fmt.Errorf("the workflow has no node %s", id)
	}
	if err != nil {
		return Member{}, err
	}
	if id.Inst >= 0 && g.Nodes[id.Index].Kind == graph.Each {
		of, err := v.members(ctx, id.At(id.Index, -1).String())
		if err != nil {
			return Member{}, err
		}
		if of >= 0 && id.Inst >= of {
			return Member{}, fmt.Errorf("the workflow has no node %s: its map has %d members", id, of)
		}
	}
	return v.member(ctx, id)
}

// whole is a workflow with all that Redis has of it.
type whole struct {
	*flow
	fields map[string]string
	ids    []graph.ID              // of the nodes; those of a plan follow the planned node
	graphs map[string]*graph.Graph // by scope
}

// graph returns the graph that one of the nodes is in.
func (w *whole) graph(id graph.ID) *graph.Graph { return w.graphs[id.Scope] }

// all reads a whole workflow.
func (e *Engine) all(ctx context.Context, id string) (*whole, error) {
	fl, err := e.load(ctx, id)
	if err != nil {
		return nil, err
	}
	fields, err := e.store.Flows.All(ctx, fl.Flow)
	if err != nil {
		return nil, err
	}
	graphs := map[string]*graph.Graph{}
	var ids []graph.ID
	var walk func(scope string) error
	walk = func(scope string) error {
		g, _ := e.kept(fl.ID, scope)
		if g == nil {
			if g, err = e.learn(fl.ID, scope, []byte(fields[store.GraphField(scope)]), !over(fields)); err != nil {
				return err
			}
		}
		graphs[scope] = g
		add := func(id graph.ID) error {
			ids = append(ids, id)
			if _, ok := fields[store.GraphField(id.String())]; ok {
				return walk(id.String())
			}
			return nil
		}
		for i := range g.Nodes {
			nid := graph.ID{Scope: scope, Index: i, Inst: -1}
			switch n := &g.Nodes[i]; {
			case g.Passive(i):
			case n.Kind == graph.Catch:
				var insts []graph.ID
				prefix := nid.String()
				for f := range fields {
					if f == prefix || strings.HasPrefix(f, prefix+".") {
						if cid, err := graph.ParseID(f); err == nil && cid.Scope == scope && cid.Index == i {
							insts = append(insts, cid)
						}
					}
				}
				slices.SortFunc(insts, func(a, b graph.ID) int { return a.Inst - b.Inst })
				for _, cid := range insts {
					if err := add(cid); err != nil {
						return err
					}
				}
			default:
				if err := add(nid); err != nil {
					return err
				}
				if n.Kind == graph.Each {
					m, _ := strconv.Atoi(fields["m"+nid.String()])
					for k := range m {
						if err := add(nid.At(i, k)); err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	}
	if err := walk(""); err != nil {
		return nil, err
	}
	return &whole{fl, fields, ids, graphs}, nil
}

// Nodes returns the nodes of a workflow.
func (e *Engine) Nodes(ctx context.Context, id string) ([]tasktype.Node, error) {
	w, err := e.all(ctx, id)
	if err != nil {
		return nil, err
	}
	var running map[string]*store.Batch
	if !over(w.fields) {
		if running, err = e.running(ctx, w.Flow); err != nil {
			return nil, err
		}
	}
	preds := map[string][]string{}
	for _, nid := range w.ids {
		for _, s := range end(w.graph(nid), nid, "").Edges {
			preds[s.Node] = append(preds[s.Node], nid.String())
		}
	}
	results := map[string]map[int]bool{} // by scope
	out := make([]tasktype.Node, 0, len(w.ids))
	external := map[string]bool{}
	for _, nid := range w.ids {
		g := w.graph(nid)
		if results[nid.Scope] == nil {
			results[nid.Scope] = g.Result()
		}
		name := nid.String()
		n := nodeInfo(g, nid, w.fields, w.Created, running[name])
		n.Needs, n.Side = preds[name], !results[nid.Scope][nid.Index]
		external[name] = n.Queue != "" && g.Specs[g.Nodes[nid.Index].Spec].External
		out = append(out, n)
	}
	return out, e.waitsFor(ctx, out, external)
}

// nodeInfo describes a node by the fields of its workflow and the batch that it is in, if it is in one.
func nodeInfo(g *graph.Graph, id graph.ID, fields map[string]string, created int64, b *store.Batch) tasktype.Node {
	name := id.String()
	rec := store.ParseRecord([]byte(fields[name]), created)
	n := tasktype.Node{ID: name, Task: title(g, id), Status: status(rec), Attempts: rec.Attempts,
		Worker: workerOf(rec.Owner), Started: rec.Began, Ended: rec.Ended, Message: fields[store.ErrorField(name)], Within: id.Scope}
	if id.Inst >= 0 && g.Nodes[id.Index].Kind == graph.Each {
		n.Within = id.At(id.Index, -1).String()
	}
	if id.Inst >= 0 || !g.Virtual(id.Index) {
		n.Queue = g.Specs[g.Nodes[id.Index].Spec].QueueName()
	}
	switch rec.State {
	case 'D', 'T':
		n.Due = time.UnixMilli(rec.At)
	case 'W':
		n.Due, n.Waits = rec.Deadline, waitsForAnswer
	case 'F', 'X':
		n.Failure = &tasktype.Failure{}
		if json.Unmarshal(rec.Body, n.Failure) != nil {
			n.Failure = nil
		}
	}
	if b != nil && !rec.Terminal() {
		n.Status, n.Worker, n.Started = tasktype.Started, b.Worker, b.Taken
		n.Attempts++
	}
	if d, t, ok := strings.Cut(fields["p"+name], "/"); ok {
		n.Done, _ = strconv.Atoi(d)
		n.Total, _ = strconv.Atoi(t)
	}
	return n
}
