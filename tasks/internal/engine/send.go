package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// Sender sends workflows.
type Sender struct {
	*advancer
	Defaults *graph.Opts // of every send; nil for none
	keeps    atomic.Bool // Redis is known not to evict keys
}

// Send stores sig, releases the nodes that can run and returns the reference of the workflow. With [ErrDuplicate] it
// returns the reference of the workflow that has the ID or the unique key.
func (s *Sender) Send(ctx context.Context, sig *graph.Sig, o *graph.Opts) (string, error) {
	ref, err := s.send(ctx, o, func(after []string) (*prepared, error) { return s.prepare(ctx, sig, o, after) })
	return ref, s.store.Explain(ctx, err)
}

// send stores the workflow that prepare returns. The argument of prepare has the references of the workflows with the unique key that have
// to end first.
func (s *Sender) send(ctx context.Context, o *graph.Opts, prepare func(after []string) (*prepared, error)) (string, error) {
	var after []string
	for tries := 1; ; tries++ {
		p, err := prepare(after)
		prepared := err == nil
		if prepared {
			var todo store.Todo
			todo, err = s.store.Flows.Submit(ctx, p.fl.Flow, &p.grow)
			err = s.finish(ctx, p, todo, err)
		}
		if err == nil {
			return p.fl.Ref, nil
		}
		if errors.Is(err, store.ErrLate) && tries < orderTries { // too late for its claim
			continue
		}
		dup := (*store.DuplicateError)(nil)
		if !errors.As(err, &dup) {
			return "", err
		}
		ref := dup.Refs[0]
		same := store.IDOf(ref) == o.ID
		if same && prepared || !same && !waitsForOthers(o) || tries == orderTries {
			return ref, ErrDuplicate
		}
		f, err := s.store.Flows.Address(ctx, ref)
		if err != nil {
			return "", err
		}
		_, waits, err := s.store.Flows.Before(ctx, f)
		switch {
		case errors.Is(err, ErrUnknown): // its sender, or an earlier call of this one, has the unique key, and is about to store it
			if err := pause(ctx, orderPause<<min(tries, orderLater)); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		case same, waits && o.Overlap == OverlapQueue:
			return ref, ErrDuplicate
		default:
			after = dup.Refs
		}
	}
}

// prepared is a workflow that can be stored.
type prepared struct {
	fl   *flow
	grow store.Grow
}

// prepare compiles a send for [Sender.place].
func (s *Sender) prepare(ctx context.Context, sig *graph.Sig, o *graph.Opts, after []string) (*prepared, error) {
	if s.Defaults != nil {
		o = s.Defaults.Over(o)
	}
	g, err := compile(sig, o)
	if err != nil {
		return nil, err
	}
	return s.place(ctx, g, o, after)
}

// place chooses the reference of a workflow, and claims its unique key if that is in another shard. after has the references of the
// workflows with the key that have to end first.
func (s *Sender) place(ctx context.Context, g *graph.Graph, o *graph.Opts, after []string) (*prepared, error) {
	if err := s.refuseEviction(ctx); err != nil {
		return nil, err
	}
	created, err := s.redisTime(ctx, 0)
	if err != nil {
		created = s.clock.Now() // for the ID: on a Cluster, the server of the shard of the workflow may respond
	}
	ref := store.GeneratedReference(cmp.Or(o.NewID, s.newID(created)))
	if o.ID != "" {
		ref = store.NewReference(o.ID)
	}
	f, failed := s.store.Flows.Address(ctx, ref)
	if failed == nil && f.Shard() != 0 {
		created, err = s.redisTime(ctx, f.Shard())
	}
	if err := cmp.Or(failed, err); err != nil {
		return nil, err
	}
	g.Created = created.UnixMilli()
	if g.Created == store.SentAt(ref).UnixMilli() {
		g.Created = 0 // the reference has it, and every byte of a waiting task counts
	}
	grow, err := grown(g, "")
	if err != nil {
		return nil, err
	}
	g.Created = created.UnixMilli()
	grow.Key = o.FairnessKey
	if o.Deadline != nil {
		if !o.Deadline.After(created) {
			return nil, fmt.Errorf("%w: the deadline %s has passed; it is %s", graph.ErrInvalid, o.Deadline.Format(time.RFC3339), created.Format(time.RFC3339))
		}
		grow.Deadline = *o.Deadline
	}
	p := &prepared{newFlow(f, g), grow}
	p.grow.After, p.grow.Replaceable = after, o.Overlap == OverlapReplace
	if len(g.Nodes) == 1 && len(g.Specs) == 1 && g.Progress == "" {
		sp := &g.Specs[0]
		p.grow.Single = !sp.External && sp.Sub == 0 && o.NewID == "" // which may be old: on rings, IDs are in the order of time
	}
	return p, s.claim(ctx, p.fl, &p.grow, o)
}

// finish takes the first steps of a workflow that was stored. err is the error of the store.
func (s *Sender) finish(ctx context.Context, p *prepared, todo store.Todo, err error) error {
	fl, ref := p.fl, p.fl.Ref
	if dup := (*store.DuplicateError)(nil); errors.As(err, &dup) && dup.Refs[0] == ref {
		return nil // an earlier call stored it, and its reply was lost; workers find its ready nodes
	}
	if err != nil {
		return err
	}
	s.graphs.keep(ref, "", fl.g)
	if err := s.progress.dispatched(ctx, fl); err != nil {
		s.log.WarnContext(ctx, "progress keys were not written", "workflow", fl.ID(), "error", err)
	}
	// From here on the workflow runs in any case: workers complete the steps that fail here.
	if !p.grow.Deadline.IsZero() {
		todo.Timer = sooner(todo.Timer, max(1, p.grow.Deadline.Sub(time.UnixMilli(fl.Created))))
	}
	err = s.advancer.settle(ctx, fl, todo)
	if err == nil && len(p.grow.After) > 0 {
		err = s.advancer.order(ctx, fl)
	}
	if err != nil {
		s.log.WarnContext(ctx, "workflow was sent; workers take the rest of its first steps", "workflow", fl.ID(), "error", err)
	}
	return nil
}

// Sending is a workflow to send with others.
type Sending struct {
	Sig  *graph.Sig
	Opts *graph.Opts
}

// Sent is the result of a [Sending]: the reference of its workflow or, with [ErrDuplicate], of the workflow that has its ID
// or unique key.
type Sent struct {
	Ref string
	Err error
}

// SendMany is Send for many workflows. They are stored in few round trips, each by itself.
func (s *Sender) SendMany(ctx context.Context, sends []Sending) []Sent {
	out := make([]Sent, len(sends))
	for first := 0; first < len(sends); first += sendsAtOnce {
		part := sends[first:min(len(sends), first+sendsAtOnce)]
		s.sendPart(ctx, part, out[first:first+len(part)])
	}
	return out
}

// sendsAtOnce bounds the workflows that are compiled before they are stored.
const sendsAtOnce = 1000

func (s *Sender) sendPart(ctx context.Context, sends []Sending, out []Sent) {
	var ready []int
	var stored []store.Submission
	all := make([]*prepared, len(sends))
	for i, send := range sends {
		p, err := s.prepare(ctx, send.Sig, send.Opts, nil)
		if dup := (*store.DuplicateError)(nil); errors.As(err, &dup) { // of its unique key
			ref, err := s.Send(ctx, send.Sig, send.Opts)
			out[i] = Sent{ref, err}
			continue
		} else if err != nil {
			out[i] = s.sent(ctx, send, "", err)
			continue
		}
		all[i] = p
		ready = append(ready, i)
		stored = append(stored, store.Submission{Flow: p.fl.Flow, Grow: &p.grow})
	}
	for k, r := range s.store.Flows.SubmitMany(ctx, stored) {
		i := ready[k]
		out[i] = s.sent(ctx, sends[i], all[i].fl.Ref, s.finish(ctx, all[i], r.Todo, r.Err))
	}
}

// sent returns the result of a send whose workflow was stored, or was not because of err. It repeats a send that may wait for others.
func (s *Sender) sent(ctx context.Context, send Sending, ref string, err error) Sent {
	dup := (*store.DuplicateError)(nil)
	switch {
	case errors.As(err, &dup) && waitsForOthers(send.Opts), errors.Is(err, store.ErrLate):
		ref, err = s.Send(ctx, send.Sig, send.Opts)
		return Sent{ref, err}
	case errors.As(err, &dup):
		ref, err = dup.Refs[0], ErrDuplicate
	case err != nil:
		ref = ""
	}
	return Sent{ref, s.store.Explain(ctx, err)}
}

// maxHeaders bounds the headers of a workflow.
const maxHeaders = 8 << 10

// maxLabels bounds the labels of a workflow.
const maxLabels = 1 << 10

// claim assigns the unique key of a send to its workflow, here or when the workflow is stored.
func (s *Sender) claim(ctx context.Context, fl *flow, grow *store.Grow, o *graph.Opts) error {
	if o.Unique == "" {
		return nil
	}
	elsewhere, err := s.store.Flows.Claim(ctx, o.Unique, fl.Ref, o.UniqueTTL, o.Once, grow.After)
	switch {
	case err != nil:
		return err
	case !elsewhere:
		grow.Unique, grow.UniqueTTL, grow.Once = o.Unique, o.UniqueTTL, o.Once
	default:
		grow.Late = time.UnixMilli(fl.Created).Add(store.ClaimTime)
	}
	return nil
}

// refuseEviction returns an error if Redis may evict keys. A result without error is cached.
func (s *Sender) refuseEviction(ctx context.Context) error {
	if s.keeps.Load() {
		return nil
	}
	policy, err := s.store.MemoryPolicy(ctx)
	if err != nil {
		return nil // the send itself returns a better error
	}
	if policy.Evicts() {
		return fmt.Errorf("%w; it is %s", store.ErrEvicts, policy.Name)
	}
	s.keeps.Store(true)
	return nil
}

// compile returns the graph of a send, except for when it was created.
func compile(sig *graph.Sig, o *graph.Opts) (*graph.Graph, error) {
	if o.Err != nil {
		return nil, fmt.Errorf("%w: %w", graph.ErrInvalid, o.Err)
	}
	if sig != nil && sig.Compiled != nil {
		g := *sig.Compiled
		return &g, nil
	}
	g, err := graph.Compile(sig.ForSend(o))
	if err != nil {
		return nil, err
	}
	if o.Every != (graph.Every{}) {
		g.Every = &o.Every
	}
	g.Progress = o.Progress
	switch {
	case o.Overlap != "" && o.Unique == "":
		return nil, fmt.Errorf("%w: Overlap(%q) needs a unique key: add tasks.Unique", graph.ErrInvalid, o.Overlap)
	case o.Overlap != "" && o.Once:
		return nil, fmt.Errorf("%w: Overlap(%q) needs tasks.Unique, not tasks.Once", graph.ErrInvalid, o.Overlap)
	}
	g.Overlap = o.Overlap
	size := func(m map[string]string) (n int) {
		for k, v := range m {
			n += len(k) + len(v)
		}
		return n
	}
	if size := size(o.Headers); size > maxHeaders {
		return nil, fmt.Errorf("%w: headers have %d bytes, more than %d: every task gets them", graph.ErrInvalid, size, maxHeaders)
	}
	g.Headers, g.Name, g.Labels = o.Headers, o.Name, o.Labels
	if size := size(o.Labels); size > maxLabels {
		return nil, fmt.Errorf("%w: labels have %d bytes, more than %d: they are in the index", graph.ErrInvalid, size, maxLabels)
	}
	if o.Retention != nil {
		g.Retention = max(1, o.Retention.Milliseconds())
	}
	if o.Once {
		g.Retention = max(cmp.Or(g.Retention, DefaultRetention.Milliseconds()), o.UniqueTTL.Milliseconds())
	}
	if o.FailureRetention != nil {
		g.FailureRetention = max(1, o.FailureRetention.Milliseconds())
	}
	if o.In != nil {
		g.Delay = o.In.Milliseconds()
	}
	if o.At != nil {
		g.At = o.At.UnixMilli()
	}
	return g, nil
}

// work is a compiled send as data: what the ticks of a schedule send, or a send that is stored elsewhere.
type work struct {
	ID        string                  `json:"id,omitempty"`
	New       bool                    `json:"n,omitempty"` // the ID was generated
	Graph     json.RawMessage         `json:"g"`
	Inputs    map[int]json.RawMessage `json:"i,omitempty"`
	Unique    string                  `json:"u,omitempty"`
	UniqueTTL time.Duration           `json:"t,omitempty"`
	Once      bool                    `json:"o,omitempty"`
	Fairness  string                  `json:"f,omitempty"`
	Deadline  *time.Time              `json:"d,omitempty"`
}

// maxWork is the maximum size of a work in bytes.
const maxWork = 1 << 20

// Pack compiles a send and returns its stored form. A send without an ID gets one, so that it can be repeated.
func Pack(sig *graph.Sig, o *graph.Opts) ([]byte, error) {
	g, err := compile(sig, o)
	if err != nil {
		return nil, err
	}
	own := *o
	if own.ID == "" {
		own.NewID = newID(time.Now())
	}
	return packed(g, &own)
}

func packed(g *graph.Graph, o *graph.Opts) ([]byte, error) {
	w := work{ID: cmp.Or(o.ID, o.NewID), New: o.NewID != "", Unique: o.Unique, UniqueTTL: o.UniqueTTL, Once: o.Once, Fairness: o.FairnessKey, Deadline: o.Deadline,
		Inputs: map[int]json.RawMessage{}}
	for i := range g.Nodes {
		if in, ok := g.Input(i); ok {
			w.Inputs[i] = in
		}
	}
	var err error
	if w.Graph, err = g.Encode(); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(w)
	if len(raw) > maxWork {
		return nil, fmt.Errorf("%w: its tasks and inputs have %d bytes, more than %d: store the data and pass a key", graph.ErrInvalid, len(raw), maxWork)
	}
	return raw, err
}

// Unpack returns the send with a stored form.
func Unpack(raw []byte) (*graph.Sig, *graph.Opts, error) {
	var w work
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errWork, err)
	}
	g, err := graph.Decode(w.Graph)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errWork, err)
	}
	g.SetInputs(w.Inputs)
	o := &graph.Opts{ID: w.ID, Unique: w.Unique, UniqueTTL: w.UniqueTTL, Once: w.Once, FairnessKey: w.Fairness, Deadline: w.Deadline, Overlap: g.Overlap}
	if w.New {
		o.ID, o.NewID = "", w.ID
	}
	return &graph.Sig{Compiled: g}, o, nil
}

// errWork means that a stored send cannot be decoded.
var errWork = store.Kind(graph.ErrInvalid, "invalid stored work")

// newID returns a random ID with a time.
func newID(at time.Time) string {
	var random [9]byte
	_, _ = rand.Read(random[:])
	return store.NewID(at, random)
}
