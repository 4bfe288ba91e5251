package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
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

// Clock is how the engine tells time and waits. The default is the clock of the machine.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	After(d time.Duration) <-chan time.Time
}

type machineClock struct{}

func (machineClock) Now() time.Time                         { return time.Now() }
func (machineClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
func (machineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// Wake is a wake-task.
type Wake = store.Wake

// Engine sends workflows and moves them on. It may be used by many goroutines at once.
type Engine struct {
	store *store.Store
	log   *slog.Logger
	clock Clock
	waker func(ctx context.Context, k Wake) error
	keeps atomic.Bool // Redis is known not to evict keys

	decoding sync.Mutex // held while a graph is decoded

	mu      sync.Mutex // guards the fields below
	graphs  keptGraphs
	waits   *waiter
	workers map[*Worker]chan struct{} // those in Run; closed when it returns
	closed  bool
}

// New returns an Engine on rdb.
func New(rdb redis.UniversalClient, log *slog.Logger) *Engine {
	s := store.New(rdb)
	e := &Engine{store: s, log: log, clock: machineClock{}, waker: newWaker(s).send, workers: map[*Worker]chan struct{}{}}
	if h, ok := rdb.(Hook); ok {
		h.EngineMade(e)
	}
	return e
}

// Hook is what a connection may implement, too, to get at the engines and handlers behind the clients and workers of
// package tasks that are made with it. Packages that run an engine by hand wrap their connection with it, so that
// package tasks shows neither to its users.
type Hook interface {
	// EngineMade is called by New with what it returns.
	EngineMade(e *Engine)
	// WorkerMade is called by NewWorker with the handlers of the worker, by name. They must not be changed.
	WorkerMade(handlers map[string]*Handler)
}

// SetClock replaces the clock. Call it before anything else.
func (e *Engine) SetClock(c Clock) { e.clock = c }

// SetWaker replaces what sends wake-tasks, which is asynq. Call it before anything else.
func (e *Engine) SetWaker(w func(ctx context.Context, k Wake) error) { e.waker = w }

// RewriteScripts changes the source of every script. Call it before anything else.
func (e *Engine) RewriteScripts(f func(name, source string) string) { e.store.Rewrite(f) }

// wake sends wake-tasks. If that fails, workers find the ready nodes later.
func (e *Engine) wake(ctx context.Context, ks []Wake) {
	for _, k := range ks {
		if err := e.waker(ctx, k); err != nil {
			e.log.Warn("wake-task was not sent; workers will find the ready nodes", "queue", k.Queue, "error", err)
		}
	}
}

// Close stops the workers that run, as Kill does, and ends the subscriptions of waits. It returns when both are done:
// asynq's goroutines must end before their connection is closed.
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

// newID returns an id that sorts by time and does not start with a dash.
func newID() string {
	var b [15]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:])
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// Send stores s and releases what can run at once. With [ErrDuplicate] the id is that of the other.
func (e *Engine) Send(ctx context.Context, s *graph.Sig, o *graph.Opts) (string, error) {
	id, err := e.send(ctx, s, o, 0, time.Time{})
	return id, e.store.Explain(ctx, err)
}

// send is Send, for a tick if behind is positive or late is given: it comes behind its time, and refuses once Redis's
// clock has reached late.
func (e *Engine) send(ctx context.Context, s *graph.Sig, o *graph.Opts, behind time.Duration, late time.Time) (string, error) {
	g, grow, err := e.compile(s, o, behind)
	if err != nil {
		return "", err
	}
	if err := e.refuseEviction(ctx); err != nil {
		return "", err
	}
	id := cmp.Or(o.ID, newID())
	f, err := e.store.Flows.Address(ctx, id)
	if err != nil {
		return "", err
	}
	fl := newFlow(f, g)
	grow.Unique, grow.UniqueTTL, grow.Late = o.Unique, o.UniqueTTL, late
	if o.Unique != "" {
		elsewhere, err := e.store.Flows.Claim(ctx, o.Unique, id, o.UniqueTTL)
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
	todo, wants, err := e.store.Flows.Submit(ctx, fl.Flow, &grow, newID())
	if dup := (*store.DuplicateError)(nil); errors.As(err, &dup) {
		if o.ID == "" && dup.ID == id {
			return id, nil // the first call stored it, and its answer was lost; workers find its ready nodes
		}
		return dup.ID, ErrDuplicate
	}
	if err != nil {
		return "", err
	}
	e.keep(id, "", g, maphash.Bytes(sumSeed, grow.Graph))
	if g.Progress != "" {
		if err := e.dispatched(ctx, fl); err != nil {
			e.log.Warn("progress keys were not written", "workflow", id, "error", err)
		}
	}
	// From here on the workflow runs in any case: workers do what fails here.
	e.wake(ctx, wants)
	if err := e.settle(ctx, fl, todo); err != nil {
		e.log.Warn("workflow was sent; workers take the rest of its first steps", "workflow", id, "error", err)
	}
	return id, nil
}

// refuseEviction returns an error when Redis may evict keys. Once Redis has said that it does not, it is not asked
// again.
func (e *Engine) refuseEviction(ctx context.Context) error {
	if e.keeps.Load() {
		return nil
	}
	policy, err := e.store.MemoryPolicy(ctx)
	if err != nil {
		return nil // the send itself returns a better error
	}
	if policy.Evicts() {
		return fmt.Errorf("%w; it is %s", store.ErrEvicts, policy.Name)
	}
	e.keeps.Store(true)
	return nil
}

// compile returns the graph of a send, and what is to be stored of it.
func (e *Engine) compile(s *graph.Sig, o *graph.Opts, behind time.Duration) (*graph.Graph, store.Grow, error) {
	if o.Err != nil {
		return nil, store.Grow{}, o.Err
	}
	g, err := graph.Compile(s.ForSend(o))
	if err != nil {
		return nil, store.Grow{}, err
	}
	if o.Every != (graph.Every{}) {
		g.Every = &o.Every
	}
	g.Created, g.Behind = e.clock.Now().UnixMilli(), max(0, behind.Milliseconds())
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
	grow.Key = o.FairnessKey
	return g, grow, err
}

// generated reports whether an id looks like one of newID. No two workflows have the same id of that kind.
func generated(id string) bool {
	return len(id) == 24 && strings.Trim(id, "0123456789abcdefghijklmnopqrstuv") == ""
}

// flow is a workflow with its graph.
type flow struct {
	store.Flow
	g *graph.Graph
}

func newFlow(f store.Flow, g *graph.Graph) *flow {
	f.Created, f.Retention = g.Created, g.Retention
	if f.Retention == 0 {
		f.Retention = DefaultRetention.Milliseconds()
	}
	f.Root = strconv.Itoa(g.Root)
	f.Name = store.ClipName(g.Name())
	return &flow{f, g}
}

// grown returns what is stored of a compiled graph, at a scope of its workflow.
func grown(g *graph.Graph, scope string) (store.Grow, error) {
	raw, err := g.Encode()
	if err != nil {
		return store.Grow{}, err
	}
	grow := store.Grow{Graph: raw}
	grow.Work, grow.Virtual = g.Count()
	if err := constantsFit(g); err != nil {
		return grow, err
	}
	if err := constantsFit(g); err != nil {
		return grow, err
	}
	at := graph.ID{Scope: scope, Inst: -1}
	for i := range g.Nodes {
		if in, ok := g.Input(i); ok {
			if err := fits(in, "the input of task "+g.Specs[g.Nodes[i].Spec].Task); err != nil {
				return grow, err
			}
			grow.Inputs = append(grow.Inputs, store.Literal{Node: at.At(i, -1).String(), Input: in})
		}
	}
	grow.Roots = releases(g, at)
	g.ForgetInputs() // the graph is kept, and they can be large
	return grow, nil
}

// releases returns the nodes that wait for nothing, as spans where possible.
func releases(g *graph.Graph, at graph.ID) []store.Release {
	var out []store.Release
	first, last := 0, -2 // of the row at the end of out
	for _, i := range g.Roots() {
		r := store.Release{Span: at.At(i, -1).String(), Lane: lane(g, i), Delay: delay(g, i, true), Lim: place(g, at, i)}
		plain := r.Delay == "" && r.Lim == "" && r.Lane != store.NoLane
		if plain && i == last+1 && out[len(out)-1].Lane == r.Lane {
			last = i
			out[len(out)-1].Span = at.At(first, -1).String() + "-" + strconv.Itoa(last)
			continue
		}
		out = append(out, r)
		if first, last = i, -2; plain {
			last = i
		}
	}
	return out
}

// lane returns the lane of node i: where it waits when it is ready.
func lane(g *graph.Graph, i int) string {
	if g.Virtual(i) {
		return store.NoLane
	}
	return memberLane(g, i)
}

// memberLane returns the lane of the members of map i.
func memberLane(g *graph.Graph, i int) string {
	sp := &g.Specs[g.Nodes[i].Spec]
	return store.Lane(sp.QueueName(), sp.Priority)
}

// constantsFit returns an error if a constant of g is too large.
func constantsFit(g *graph.Graph) error {
	for i := range g.Nodes {
		if err := fits(g.Nodes[i].Value, "a constant"); err != nil {
			return err
		}
	}
	for i := range g.Specs {
		for _, second := range g.Specs[i].Bind {
			if err := fits(second, "what is bound to task "+g.Specs[i].Task); err != nil {
				return err
			}
		}
	}
	for i := range g.Subs {
		if err := constantsFit(g.Subs[i].Graph); err != nil {
			return err
		}
	}
	return nil
}

// fits returns an error if an input is too large.
func fits(in []byte, what string) error {
	if len(in) > maxInput {
		return fmt.Errorf("%s has %d bytes, more than %d: store it and pass a key", what, len(in), maxInput)
	}
	return nil
}

// delay returns how long node i waits once it could run, as the scripts read it.
func delay(g *graph.Graph, i int, root bool) string {
	var in, at, expires int64
	if k := g.Nodes[i].Kind; k == graph.Task || k == graph.Catch {
		sp := &g.Specs[g.Nodes[i].Spec]
		in, at, expires = sp.In, sp.At, sp.Expires
	}
	if root {
		in, at = max(in, g.Delay), max(at, g.At)
		if expires > 0 {
			expires = max(1, expires-max(0, g.Behind-in))
		}
		in = max(0, in-g.Behind)
	}
	return store.Delay(in, at, expires)
}

// memberDelay is delay for the members of the map i.
func memberDelay(g *graph.Graph, i int) string {
	sp := &g.Specs[g.Nodes[i].Spec]
	return store.Delay(sp.In, sp.At, sp.Expires)
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
