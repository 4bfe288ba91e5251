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

// Wait blocks until the root of a workflow is terminal, and returns its value or failure. Its progress keys are written
// by then. The error is that of ctx, or of Redis.
func (e *Engine) Wait(ctx context.Context, id string) (json.RawMessage, *tasktype.Failure, error) {
	fl, err := e.load(ctx, id)
	if err != nil {
		if f := e.abortedID(ctx, id); f != nil {
			return nil, f, nil
		}
		return nil, nil, endedBy(ctx, err)
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
			root := graph.ID{Index: fl.g.Root, Inst: -1}
			if rec.State == 'S' {
				raw, err := v.value(ctx, root)
				return raw, nil, err
			}
			f, err := v.failure(ctx, root)
			return nil, f, err
		}
		if err == nil && rec.State == 0 {
			// The workflow may be gone: its retention can be over.
			raws, err := e.store.Fields(ctx, fl.Flow, []string{"n"})
			if err == nil && raws[0] == nil {
				return nil, nil, ErrUnknown
			}
		}
		if err == nil {
			if f, err := e.aborted(ctx, fl.Flow); err == nil && f != nil {
				return nil, f, nil
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

// endedBy returns the error of ctx if ctx has ended, and err otherwise. A connection uses the deadline of ctx too, and
// may report a timeout of its own a moment before ctx ends.
func endedBy(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case errors.Is(err, ErrUnknown):
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
	raws, err := e.store.Fields(ctx, f, []string{store.AbortField})
	if err != nil || raws[0] == nil {
		return nil, err
	}
	fail := &tasktype.Failure{}
	if err := json.Unmarshal(raws[0], fail); err != nil {
		return nil, fmt.Errorf("failure of workflow %s: %w", f.ID, err)
	}
	return fail, nil
}

// abortedID is aborted for a workflow that cannot be read.
func (e *Engine) abortedID(ctx context.Context, id string) *tasktype.Failure {
	f, err := e.store.Flow(ctx, id)
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
	raws, err := e.store.Fields(ctx, fl.Flow, []string{"n", "z", "vn", "vz", "ct", "cc", fl.Root, store.AbortField})
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
		begun := p.Done > 0
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
	batches, err := e.store.FlowBatches(ctx, f)
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

// over reports whether all of a workflow is terminal, or it was given up.
func over(fields map[string]string) bool {
	num := func(f string) int { n, _ := strconv.Atoi(fields[f]); return n }
	_, aborted := fields[store.AbortField]
	return aborted || num("z") >= num("n") && num("vz") >= num("vn")
}

func status(r store.Record) tasktype.Status {
	switch r.State {
	case 'P', 'E', 'e':
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

// Members returns the members of the root of a workflow, by index; those already seen are empty. ended reports whether
// the root has ended: then the list has all members.
func (e *Engine) Members(ctx context.Context, id string, seen []bool) (list []Member, ended bool, err error) {
	fl, err := e.load(ctx, id)
	if err != nil {
		return nil, false, err
	}
	v := e.newValues(fl)
	root, err := v.record(ctx, fl.Root) // first: if it has ended, all members that are read after it have
	if err != nil {
		return nil, false, err
	}
	parts, err := v.parts(ctx, fl.g, graph.ID{Index: fl.g.Root, Inst: -1})
	if err != nil {
		return nil, false, err
	}
	fresh := func(i int) bool { return i >= len(seen) || !seen[i] }
	var names []string
	for i, p := range parts {
		if fresh(i) {
			names = append(names, p.String())
		}
	}
	if err := v.fetch(ctx, names); err != nil {
		return nil, false, err
	}
	list = make([]Member, len(parts))
	for i, p := range parts {
		if !fresh(i) {
			continue
		}
		switch rec := v.recs[p.String()]; {
		case rec.State == 'S':
			list[i].Raw, err = v.value(ctx, p)
		case rec.Terminal():
			list[i].Failure, err = v.failure(ctx, p)
		}
		if err != nil {
			return nil, false, err
		}
	}
	return list, root.Terminal(), nil
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
	fields, err := e.store.All(ctx, fl.Flow)
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
	for _, nid := range w.ids {
		g := w.graph(nid)
		if results[nid.Scope] == nil {
			results[nid.Scope] = g.Result()
		}
		name := nid.String()
		n := nodeInfo(g, nid, w.fields, w.Created, running[name])
		n.Needs, n.Side = preds[name], !results[nid.Scope][nid.Index]
		out = append(out, n)
	}
	return out, e.waitsFor(ctx, out)
}

// nodeInfo describes a node by the fields of its workflow and the batch that it is in, if it is in one.
func nodeInfo(g *graph.Graph, id graph.ID, fields map[string]string, created int64, b *store.Batch) tasktype.Node {
	name := id.String()
	rec := store.ParseRecord([]byte(fields[name]), created)
	n := tasktype.Node{ID: name, Task: title(g, id), Status: status(rec), Attempts: rec.Attempts,
		Worker: rec.Owner, Started: rec.Began, Ended: rec.Ended, Message: fields[store.ErrorField(name)], Within: id.Scope}
	if id.Inst >= 0 && g.Nodes[id.Index].Kind == graph.Each {
		n.Within = id.At(id.Index, -1).String()
	}
	if id.Inst >= 0 || !g.Virtual(id.Index) {
		n.Queue = g.Specs[g.Nodes[id.Index].Spec].QueueName()
	}
	switch rec.State {
	case 'D', 'T':
		n.Due = time.UnixMilli(rec.At)
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
