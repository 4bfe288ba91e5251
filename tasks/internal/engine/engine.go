package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// DefaultRetention is how long an ended workflow can be read.
const DefaultRetention = 24 * time.Hour

// maxHeaders bounds the headers of a workflow.
const maxHeaders = 8 << 10

// maxInput bounds a literal input.
const maxInput = 16 << 20

// Engine sends workflows and moves them on. It may be used by many goroutines at once.
type Engine struct {
	store *store.Store
	queue *enqueuer
	log   *slog.Logger
	clock func() time.Time // as Redis's goes; nil for that of this machine
	keeps atomic.Bool      // Redis is known to evict nothing

	mu      sync.Mutex // guards the fields below
	graphs  keptGraphs
	singles map[singleKey]*single
	waits   *waiter
	workers map[*Worker]chan struct{} // those in Run; closed when it returns
	closed  bool
}

// New returns an Engine on rdb.
func New(rdb redis.UniversalClient, log *slog.Logger) *Engine {
	s := store.New(rdb)
	return &Engine{store: s, queue: newEnqueuer(s), log: log, singles: map[singleKey]*single{}, workers: map[*Worker]chan struct{}{}}
}

// SetClock makes the engine count time as Redis does, where that does not go by the clock of this
// machine. Call it before anything else.
func (e *Engine) SetClock(now func() time.Time) { e.clock = now }

func (e *Engine) now() time.Time {
	if e.clock != nil {
		return e.clock()
	}
	return time.Now()
}

// Close stops the workers that run, as Kill does, and ends the subscriptions of waits. It returns when
// both are done: asynq's goroutines do not survive that their connection is closed under them.
func (e *Engine) Close() {
	e.mu.Lock()
	waits, running := e.waits, maps.Clone(e.workers)
	e.waits, e.closed = nil, true
	e.mu.Unlock()
	for w := range running {
		w.Kill()
	}
	for _, ended := range running {
		<-ended
	}
	if waits != nil {
		waits.close()
	}
}

// enter adds a worker to those that Close stops, until leave is called.
func (e *Engine) enter(w *Worker) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.New("the client is closed")
	}
	ended := make(chan struct{})
	e.workers[w] = ended
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.workers, w)
		close(ended)
	}, nil
}

// flow is a workflow with its graph.
type flow struct {
	store.Flow
	g *graph.Graph
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// newID returns an id that sorts by time and does not start with a dash.
func newID() string {
	var b [15]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:])
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// Send stores s and releases what can run at once. With [ErrDuplicate] the id is that of the other.
func (e *Engine) Send(ctx context.Context, s *graph.Sig, o *graph.Opts) (string, error) {
	id, err := e.send(ctx, s, o, time.Time{})
	return id, e.store.Explain(ctx, err)
}

// send is Send, but refuses once Redis's clock has reached late, if that is given.
func (e *Engine) send(ctx context.Context, s *graph.Sig, o *graph.Opts, late time.Time) (string, error) {
	g, grow, err := e.compile(s, o)
	if err != nil {
		return "", err
	}
	if err := e.refuseEviction(ctx); err != nil {
		return "", err
	}
	id := o.ID
	switch {
	case id == "":
		id = newID()
	case !validID.MatchString(id):
		return "", fmt.Errorf("id %q: use up to 100 letters, digits, _ and -", id)
	}
	f, err := e.store.Flow(ctx, id)
	if err != nil {
		return "", err
	}
	fl := newFlow(f, g)
	grow.Unique, grow.UniqueTTL, grow.Late = o.Unique, o.UniqueTTL, late
	if o.Unique != "" {
		elsewhere, err := e.store.Claim(ctx, o.Unique, id, o.UniqueTTL)
		if dup := (*store.DuplicateError)(nil); errors.As(err, &dup) {
			return dup.ID, ErrDuplicate
		}
		if err != nil {
			return "", err
		}
		if elsewhere {
			grow.Unique = ""
		}
	}
	m, err := e.submit(ctx, fl, grow, o.ID == "" && o.Unique == "" && late.IsZero())
	if dup := (*store.DuplicateError)(nil); errors.As(err, &dup) {
		if o.ID == "" && dup.ID == id {
			return id, nil // it is this send, whose first answer got lost; the agenda has what it released
		}
		return dup.ID, ErrDuplicate
	}
	if err != nil {
		return "", err
	}
	e.keep(id, "", g)
	if g.Progress != "" {
		if err := e.dispatched(ctx, fl); err != nil {
			e.log.Warn("progress keys were not written", "workflow", id, "error", err)
		}
	}
	// From here on the workflow runs whatever happens: what fails now, a worker makes up for.
	if err := e.settle(ctx, fl, m); err != nil {
		e.log.Warn("hand-over after send is left to the workers", "workflow", id, "error", err)
	}
	return id, nil
}

// refuseEviction returns an error when Redis may lose what it is sent. It asks until it has had an answer.
func (e *Engine) refuseEviction(ctx context.Context) error {
	if e.keeps.Load() {
		return nil
	}
	policy, err := e.store.MemoryPolicy(ctx)
	if err != nil {
		return nil // the send says what is wrong
	}
	if policy.Evicts() {
		return fmt.Errorf("%w; it is %s", store.ErrEvicts, policy.Name)
	}
	e.keeps.Store(true)
	return nil
}

// compile returns the graph of a send, and what is to be stored of it.
func (e *Engine) compile(s *graph.Sig, o *graph.Opts) (*graph.Graph, store.Grow, error) {
	if s != nil && s.Declared && o == graph.NoOpts {
		return e.single(s)
	}
	g, err := graph.Compile(s.ForSend(o))
	if err != nil {
		return nil, store.Grow{}, err
	}
	if strings.ContainsAny(o.Progress, "{}") {
		return nil, store.Grow{}, fmt.Errorf("prefix of progress keys %q holds a brace", o.Progress)
	}
	g.Created = e.now().UnixMilli()
	g.Progress = o.Progress
	size := 0
	for k, v := range o.Headers {
		size += len(k) + len(v)
	}
	if size > maxHeaders {
		return nil, store.Grow{}, fmt.Errorf("headers have %d bytes, more than %d: every task gets them", size, maxHeaders)
	}
	g.Headers = o.Headers
	if o.Retention != nil {
		g.Retention = max(1, o.Retention.Milliseconds())
	}
	if o.In != nil {
		g.Delay = o.In.Milliseconds()
	}
	if o.At != nil {
		g.At = o.At.UnixMilli()
	}
	grow, err := grown(g, "")
	return g, grow, err
}

// submit stores a workflow and hands over what can run at once. An id that nobody else can have goes
// together with the first tasks.
func (e *Engine) submit(ctx context.Context, fl *flow, grow store.Grow, fresh bool) (store.Moved, error) {
	ds := make([]delivery, len(grow.Handed))
	for i, n := range grow.Handed {
		id, err := graph.ParseID(n)
		if err != nil {
			return store.Moved{}, err
		}
		ds[i] = newDelivery(fl, fl.g, id, 0)
	}
	calls := make([]*store.Call, 1, 1+len(ds))
	calls[0] = e.store.Submit(fl.Flow, grow, holdFirst)
	together := fresh && len(ds) <= enqueueAtOnce
	if together {
		for i := range ds {
			c, err := e.queue.push(ctx, &ds[i])
			if err != nil {
				return store.Moved{}, err
			}
			calls = append(calls, c)
		}
	}
	if err := e.store.Scripts().Do(ctx, calls...); err != nil {
		return store.Moved{}, fmt.Errorf("store workflow: %w", err)
	}
	m, err := store.Submitted(calls[0])
	if err != nil {
		return m, err
	}
	err = nil
	if together {
		for _, c := range calls[1:] {
			if _, perr := store.Pushed(c); perr != nil {
				err = perr
			}
		}
	}
	if !together || err != nil {
		_, err = e.queue.send(ctx, ds)
	}
	if err != nil {
		e.log.Warn("hand-over after send is left to the workers", "workflow", fl.ID, "error", err)
	}
	return m, nil
}

// generated reports whether an id looks like one of newID, which no other workflow ever has.
func generated(id string) bool {
	return len(id) == 24 && strings.Trim(id, "0123456789abcdefghijklmnopqrstuv") == ""
}

func newFlow(f store.Flow, g *graph.Graph) *flow {
	f.Created, f.Retention = g.Created, g.Retention
	if f.Retention == 0 {
		f.Retention = DefaultRetention.Milliseconds()
	}
	f.Root = strconv.Itoa(g.Root)
	return &flow{f, g}
}

// grown returns what a compiled graph adds to a workflow at a scope.
func grown(g *graph.Graph, scope string) (store.Grow, error) {
	raw, err := g.Encode()
	if err != nil {
		return store.Grow{}, err
	}
	grow := store.Grow{Graph: raw}
	grow.Work, grow.Virtual = g.Count()
	at := graph.ID{Scope: scope, Inst: -1}
	for i := range g.Nodes {
		if in, ok := g.Input(i); ok {
			if err := fits(in, g.Specs[g.Nodes[i].Spec].Task); err != nil {
				return grow, err
			}
			grow.Inputs = append(grow.Inputs, store.Literal{Node: at.At(i, -1).String(), Input: in})
		}
	}
	for _, i := range g.Roots() {
		r := store.Release{Node: at.At(i, -1).String(), Delay: delay(g, i, true), Lim: place(g, at, i)}
		if scope == "" && r.Delay == "" && r.Lim == "" && !g.Virtual(i) {
			grow.Handed = append(grow.Handed, r.Node)
			continue
		}
		grow.Roots = append(grow.Roots, r)
	}
	g.ForgetInputs() // the graph is kept, and they can be large
	return grow, nil
}

// fits refuses an input that is too large.
func fits(in []byte, task string) error {
	if len(in) > maxInput {
		return fmt.Errorf("input of task %s has %d bytes, more than %d: store it and pass a key", task, len(in), maxInput)
	}
	return nil
}

// delay returns how long node i waits once it could run: "", ms or @unix ms.
func delay(g *graph.Graph, i int, root bool) string {
	n := &g.Nodes[i]
	var in, at int64
	if n.Kind == graph.Task || n.Kind == graph.Catch {
		in, at = g.Specs[n.Spec].In, g.Specs[n.Spec].At
	}
	if root {
		in, at = max(in, g.Delay), max(at, g.At)
	}
	switch {
	case at > 0:
		return "@" + strconv.FormatInt(at, 10)
	case in > 0:
		return strconv.FormatInt(in, 10)
	}
	return ""
}

func memberDelay(g *graph.Graph, i int) string {
	sp := &g.Specs[g.Nodes[i].Spec]
	switch {
	case sp.At > 0:
		return "@" + strconv.FormatInt(sp.At, 10)
	case sp.In > 0:
		return strconv.FormatInt(sp.In, 10)
	}
	return ""
}

// place returns the group whose place node i needs, as "group cap".
func place(g *graph.Graph, id graph.ID, i int) string {
	if lim := g.Nodes[i].Lim; lim > 0 {
		return id.At(lim-1, -1).String() + " " + strconv.Itoa(g.Nodes[lim-1].AtMost)
	}
	return ""
}

func memberPlace(g *graph.Graph, id graph.ID) string {
	if n := g.Nodes[id.Index]; n.AtMost > 0 {
		return id.At(id.Index, -1).String() + " " + strconv.Itoa(n.AtMost)
	}
	return ""
}

// need returns how many outcomes node i waits for, as the scripts read it.
func need(g *graph.Graph, id graph.ID, i int) string {
	k := strconv.Itoa(g.Need(i))
	if n := &g.Nodes[i]; n.Kind == graph.EachEnded {
		return k + "+" + id.At(n.In-1, -1).String()
	}
	return k
}

// op returns what makes a node terminal.
func op(g *graph.Graph, id graph.ID, outcome, epoch string, body []byte) store.Op {
	n := &g.Nodes[id.Index]
	o := store.Op{Node: id.String(), Outcome: outcome, Epoch: epoch, Body: body}
	edges := g.Succs(id.Index)
	switch {
	case id.Inst >= 0 && n.Kind == graph.Each:
		o.Flags = "c"
		edges = g.Members(id.Index)
		if n.AtMost > 0 {
			o.Back = id.At(id.Index, -1).String() + " " + o.Node
		}
	case id.Inst >= 0:
		edges = nil
	case g.Virtual(id.Index):
		o.Flags = "v"
	}
	if outcome == "F" && g.FailsFast() {
		o.Flags += "f"
	}
	if n.Rel > 0 && id.Inst < 0 {
		holder := o.Node
		if n.By > 0 {
			holder = id.At(n.By-1, -1).String()
		}
		o.Back = id.At(n.Rel-1, -1).String() + " " + holder
	}
	o.Succs = make([]store.Succ, 0, len(edges)+1)
	for _, e := range edges {
		inst := e.Inst
		if inst == -2 {
			inst = id.Inst
		}
		s := store.Succ{
			Node: id.At(e.To, inst).String(), Kind: string(rune(e.Kind)),
			Need: need(g, id, e.To), Delay: delay(g, e.To, false), Lim: place(g, id, e.To),
		}
		if e.Kind == graph.OfMap {
			s.Need = "0+" + s.Node
		}
		o.Succs = append(o.Succs, s)
	}
	if id.Scope != "" && id.Index == g.Root && id.Inst < 0 {
		o.Succs = append(o.Succs, store.Succ{Node: id.Scope, Kind: string(rune(graph.Replaces)), Need: "1"})
	}
	return o
}

// What is kept in memory of graphs is bounded, in nodes; one has some 250 bytes. A graph counts as
// graphWeight nodes more.
const (
	maxKept     = 200_000
	graphWeight = 32
	largeGraph  = 256 // nodes of one that is not kept beyond the end of its workflow
)

// keptGraph is a graph in memory. An id that was chosen may come to stand for another workflow once the
// retention of this one is over.
type keptGraph struct {
	g     *graph.Graph
	until time.Time // zero is for ever
}

// keptGraphs holds the graphs that were asked for last, in two generations: when the young ones have half
// of what may be kept, they become the old ones, and the old ones that nobody asked for meanwhile go.
type keptGraphs struct {
	young, old map[string]keptGraph
	weight     int // of the young ones
}

func (k *keptGraphs) get(key string) (keptGraph, bool) {
	if g, ok := k.young[key]; ok {
		return g, true
	}
	g, ok := k.old[key]
	if ok {
		delete(k.old, key)
		k.put(key, g)
	}
	return g, ok
}

func (k *keptGraphs) put(key string, g keptGraph) {
	k.drop(key)
	if k.weight += weight(g.g); k.weight > maxKept/2 || k.young == nil {
		k.young, k.old, k.weight = map[string]keptGraph{}, k.young, weight(g.g)
	}
	k.young[key] = g
}

func (k *keptGraphs) drop(key string) {
	if g, ok := k.young[key]; ok {
		k.weight -= weight(g.g)
		delete(k.young, key)
	}
	delete(k.old, key)
}

func weight(g *graph.Graph) int { return len(g.Nodes) + graphWeight }

func (e *Engine) keep(id, scope string, g *graph.Graph) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var until time.Time
	switch {
	case generated(id):
	case scope == "":
		until = time.Now().Add(cmp.Or(time.Duration(g.Retention)*time.Millisecond, DefaultRetention) / 2)
	default:
		top, _ := e.graphs.get(id + "/") // a plan goes with its workflow
		until = top.until
	}
	e.graphs.put(id+"/"+scope, keptGraph{g, until})
}

// dropLarge forgets the graph of a workflow that has ended. Small ones are left for those who ask how it was.
func (e *Engine) dropLarge(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k, ok := e.graphs.get(id + "/"); ok && len(k.g.Nodes) > largeGraph {
		e.graphs.drop(id + "/")
	}
}

func (e *Engine) kept(id, scope string) *graph.Graph {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := id + "/" + scope
	k, ok := e.graphs.get(key)
	if !ok {
		return nil
	}
	if !k.until.IsZero() && !time.Now().Before(k.until) {
		e.graphs.drop(key)
		return nil
	}
	return k.g
}

// load returns a workflow with its graph.
func (e *Engine) load(ctx context.Context, id string) (*flow, error) {
	f, err := e.store.Flow(ctx, id)
	if err != nil {
		return nil, err
	}
	g, err := e.graphOf(ctx, f, "")
	if err != nil {
		return nil, err
	}
	return newFlow(f, g), nil
}

func (e *Engine) graphOf(ctx context.Context, f store.Flow, scope string) (*graph.Graph, error) {
	if g := e.kept(f.ID, scope); g != nil {
		return g, nil
	}
	raws, err := e.store.Fields(ctx, f, []string{store.GraphField(scope)})
	if err != nil {
		return nil, err
	}
	if raws[0] == nil {
		return nil, ErrUnknown
	}
	return e.learn(f.ID, scope, raws[0], false)
}

// graphAt returns the graph that a node is in. Node ids come from Redis, where anything can stand.
func (e *Engine) graphAt(ctx context.Context, f store.Flow, id graph.ID) (*graph.Graph, error) {
	g, err := e.graphOf(ctx, f, id.Scope)
	if err != nil {
		return nil, err
	}
	if id.Index >= len(g.Nodes) || id.Inst >= 0 && g.Nodes[id.Index].Kind != graph.Each && g.Nodes[id.Index].Kind != graph.Catch {
		return nil, fmt.Errorf("workflow %s %w: it has no node %s", f.ID, errUnreadable, id)
	}
	return g, nil
}

// learn reads a graph. It is kept if the workflow is known to be live, or its id is never used again.
func (e *Engine) learn(id, scope string, raw []byte, live bool) (*graph.Graph, error) {
	g, err := graph.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("workflow %s %w: %w", id, errUnreadable, err)
	}
	if live || generated(id) {
		e.keep(id, scope, g)
	}
	return g, nil
}

// opsAtOnce bounds the ops of one script.
const opsAtOnce = 200

// settle does what a change set in motion: it hands tasks to asynq and moves virtual nodes on. What
// it does not get to, the agenda holds for a worker.
func (e *Engine) settle(ctx context.Context, fl *flow, m store.Moved) error {
	_, err := e.settleBut(ctx, fl, m, nil)
	return err
}

// settleBut is settle, but leaves one delivery that keep wants to the caller.
func (e *Engine) settleBut(ctx context.Context, fl *flow, m store.Moved, keep func(delivery) bool) (kept *delivery, err error) {
	var out []delivery
	ended := m.Ended
	due := m.Timer
	fast := m.Fast
	for len(m.Run)+len(m.Skips)+len(m.Plans) > 0 {
		var ops []store.Op
		var next store.Moved
		for _, s := range m.Run {
			id, err := graph.ParseID(s)
			if err != nil {
				return nil, err
			}
			g, err := e.graphAt(ctx, fl.Flow, id)
			if err != nil {
				return nil, err
			}
			if id.Inst >= 0 || !g.Virtual(id.Index) {
				out = append(out, newDelivery(fl, g, id, 0))
				continue
			}
			o, moved, err := e.virtual(ctx, fl, g, id)
			if err != nil {
				return nil, err
			}
			ops = append(ops, o...)
			next.Run = append(next.Run, moved.Run...)
			due = sooner(due, moved.Timer)
		}
		for _, s := range m.Skips {
			id, err := graph.ParseID(s)
			if err != nil {
				return nil, err
			}
			g, err := e.graphAt(ctx, fl.Flow, id)
			if err != nil {
				return nil, err
			}
			ops = append(ops, op(g, id, "K", "", nil))
		}
		for _, s := range m.Plans {
			o, err := e.planEnded(ctx, fl, s)
			if err != nil {
				return nil, err
			}
			ops = append(ops, o...)
		}
		for len(ops) > 0 {
			part := ops[:min(opsAtOnce, len(ops))]
			ops = ops[len(part):]
			moved, err := e.store.Advance(ctx, fl.Flow, part, store.Take{})
			if errors.Is(err, ErrUnknown) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			next.Run = append(next.Run, moved.Run...)
			next.Skips = append(next.Skips, moved.Skips...)
			next.Plans = append(next.Plans, moved.Plans...)
			fast = append(fast, moved.Fast...)
			ended = ended || moved.Ended
			due = sooner(due, moved.Timer)
		}
		m = next
	}
	for _, s := range fast {
		if err := e.failFast(ctx, fl, s); err != nil {
			return nil, err
		}
	}
	if due > 0 {
		if err := e.store.Tell(ctx, "t "+strconv.FormatInt(due, 10)); err != nil {
			return nil, fmt.Errorf("announce timer: %w", err)
		}
	}
	if ended && fl.g.Progress != "" {
		if err := e.project(ctx, fl); err != nil {
			e.log.Warn("progress keys were not written", "workflow", fl.ID, "error", err)
		}
	}
	if ended {
		e.dropLarge(fl.ID)
	}
	if keep != nil {
		if i := slices.IndexFunc(out, keep); i >= 0 {
			d := out[i]
			kept, out = &d, slices.Delete(out, i, i+1)
		}
	}
	return kept, e.deliver(ctx, fl, out)
}

func sooner(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// virtual returns the ops for a virtual node that is ready, or adds the members of a map.
func (e *Engine) virtual(ctx context.Context, fl *flow, g *graph.Graph, id graph.ID) ([]store.Op, store.Moved, error) {
	n := &g.Nodes[id.Index]
	if n.Kind != graph.Each {
		return []store.Op{op(g, id, "S", "", nil)}, store.Moved{}, nil
	}
	raws, err := e.store.Fields(ctx, fl.Flow, []string{id.String()})
	if err != nil {
		return nil, store.Moved{}, err
	}
	if rec := store.ParseRecord(raws[0], fl.Created); rec.State != 0 {
		return []store.Op{op(g, id, "S", "", nil)}, store.Moved{}, nil
	}
	list, err := e.newValues(fl).value(ctx, id.At(n.In-1, -1))
	if err != nil {
		return nil, store.Moved{}, err
	}
	var elements []json.RawMessage
	bad := ""
	if err := json.Unmarshal(list, &elements); err != nil {
		bad = "a map needs a list to go over: " + err.Error()
	} else if len(elements) > graph.MaxNodes {
		bad = fmt.Sprintf("a map over %d elements is more than %d: let each task have a chunk of them", len(elements), graph.MaxNodes)
	}
	if bad != "" {
		body := encodeFailure(&Failure{Task: g.Specs[n.Spec].Task, Node: id.String(), Code: CodeInput, Message: bad})
		return []store.Op{op(g, id, "F", "", body)}, store.Moved{}, nil
	}
	inputs := make([]store.Literal, len(elements))
	for i, el := range elements {
		inputs[i] = store.Literal{Node: id.At(id.Index, i).String(), Input: el}
	}
	if ok, err := e.store.StoreInputs(ctx, fl.Flow, id.String(), inputs); err != nil || !ok {
		return nil, store.Moved{}, err
	}
	var joins []store.MapJoin
	for _, edge := range g.Members(id.Index) {
		if edge.Kind == graph.Any {
			joins = append(joins, store.MapJoin{Node: id.At(edge.To, -1).String(), Need: need(g, id, edge.To),
				Delay: delay(g, edge.To, false), Lim: place(g, id, edge.To)})
		}
	}
	m, _, err := e.store.Extend(ctx, fl.Flow, id.String(), len(elements), memberDelay(g, id.Index), memberPlace(g, id), joins)
	if err == nil && fl.g.Progress != "" {
		if err := e.project(ctx, fl); err != nil {
			e.log.Warn("progress keys were not written", "workflow", fl.ID, "error", err)
		}
	}
	return nil, m, err
}

// planEnded returns the op that gives a planned node the outcome of its plan.
func (e *Engine) planEnded(ctx context.Context, fl *flow, planned string) ([]store.Op, error) {
	id, err := graph.ParseID(planned)
	if err != nil {
		return nil, err
	}
	g, err := e.graphAt(ctx, fl.Flow, id)
	if err != nil {
		return nil, err
	}
	sub, err := e.graphOf(ctx, fl.Flow, planned)
	if err != nil {
		return nil, err
	}
	v := e.newValues(fl)
	root := graph.ID{Scope: planned, Index: sub.Root, Inst: -1}
	rec, err := v.record(ctx, root.String())
	if err != nil || !rec.Terminal() {
		return nil, err
	}
	var o store.Op
	if rec.State == 'S' {
		o = op(g, id, "S", "", []byte("="+root.String()))
	} else {
		f, err := v.failure(ctx, root)
		if err != nil {
			return nil, err
		}
		outcome := "F"
		if rec.State == 'X' || f.Code == CodeRevoked || f.Code == CodeExpired {
			outcome = "X"
		}
		o = op(g, id, outcome, "", encodeFailure(f))
	}
	o.Flags += "p"
	return []store.Op{o}, nil
}

func encodeFailure(f *Failure) []byte {
	raw, err := json.Marshal(f)
	if err != nil {
		return []byte(`{"code":"error","message":"failure does not encode"}`)
	}
	return raw
}
