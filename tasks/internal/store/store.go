// Package store keeps workflows, their results and progress in Redis.
//
// All that belongs to a workflow lives in one hash, beside the agenda and the running nodes of its
// shard. Each change is one script that a repeat leaves as it is. The stored state of a node is
// "<letter>|…", read by [ParseRecord]:
//
//	(none) waits, or waits for its first run     D waits for its time     T likewise, after a failure
//	Q waits for another run                      R runs                   E a map with its members added
//	P its plan runs                              k skipped, to be passed on
//	S success   F failure   X revoked   K skipped
package store

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrUnknown says that no workflow has this id.
var ErrUnknown = errors.New("no such workflow: it was never sent, or its retention is over")

// Failure is why a node has no value.
type Failure struct {
	Task     string `json:"task"`
	Node     string `json:"node"`
	Attempts int    `json:"attempts"`
	Message  string `json:"message"`
	Code     string `json:"code"`
}

var (
	//go:embed lua/lib.lua
	libLua string
	//go:embed lua/submit.lua
	submitLua string
	//go:embed lua/begin.lua
	beginLua string
	//go:embed lua/advance.lua
	advanceLua string
	//go:embed lua/enter.lua
	enterLua string
	//go:embed lua/repeat.lua
	repeatLua string
	//go:embed lua/inputs.lua
	inputsLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/plan.lua
	planLua string
	//go:embed lua/sweep.lua
	sweepLua string
	//go:embed lua/rest.lua
	restLua string
	//go:embed lua/due.lua
	dueLua string
	//go:embed lua/revoke.lua
	revokeLua string
	//go:embed lua/abort.lua
	abortLua string
	//go:embed lua/project.lua
	projectLua string
	//go:embed lua/beat.lua
	beatLua string
	//go:embed lua/info.lua
	infoLua string
	//go:embed lua/reissue.lua
	reissueLua string
	//go:embed lua/hold.lua
	holdLua string
	//go:embed lua/rate.lua
	rateLua string
	//go:embed lua/progress.lua
	progressLua string

	submitCmd = gathered(submitLua)
	// Its second key is for one item alone.
	submitUniqueCmd = &Script{src: submitCmd.src, text: submitCmd.text, order: orderStore, many: true, alone: true}
	beginCmd        = gathered(beginLua)
	advanceCmd      = gathered(advanceLua)
	extendCmd       = gathered(extendLua)
	planCmd         = gathered(planLua)
	dueCmd          = gathered(dueLua)
	inputsCmd       = redis.NewScript(inputsLua)
	enterCmd        = redis.NewScript(enterLua)
	repeatCmd       = redis.NewScript(repeatLua)
	sweepCmd        = redis.NewScript(sweepLua)
	restCmd         = redis.NewScript(restLua)
	revokeCmd       = redis.NewScript(revokeLua)
	abortCmd        = redis.NewScript(abortLua)
	projectCmd      = redis.NewScript(projectLua)
	beatCmd         = redis.NewScript(beatLua)
	infoCmd         = redis.NewScript(infoLua)
	reissueCmd      = redis.NewScript(reissueLua)
	rateCmd         = redis.NewScript(rateLua)

	progressCmd = redis.NewScript(progressLua)
)

// gathered returns a script over workflows, for many items.
func gathered(text string) *Script {
	s := NewScript(libLua + text)
	s.order = orderStore
	return s
}

// clusterShards is how many shards a new cluster gets; a single Redis needs one.
const clusterShards = 64

// Store reads and changes workflows. It may be used by many goroutines at once.
type Store struct {
	rdb     redis.UniversalClient
	scripts *Batcher

	mu     sync.Mutex // held to find shards out
	shards atomic.Int32
}

// New returns a Store on rdb.
func New(rdb redis.UniversalClient) *Store { return &Store{rdb: rdb, scripts: NewBatcher(rdb)} }

// Redis returns the connection of the store.
func (s *Store) Redis() redis.UniversalClient { return s.rdb }

// Scripts returns the connection that gathers script calls.
func (s *Store) Scripts() *Batcher { return s.scripts }

// Shards returns how many shards there are.
func (s *Store) Shards(ctx context.Context) (int, error) {
	if n := s.shards.Load(); n > 0 {
		return int(n), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.rdb.Get(ctx, shardsKey).Int() // first: a Redis that takes no writes can be looked at
	if errors.Is(err, redis.Nil) {
		n = 1
		if _, ok := s.rdb.(*redis.ClusterClient); ok {
			n = clusterShards
		}
		if err := s.rdb.SetNX(ctx, shardsKey, n, 0).Err(); err != nil {
			return 0, fmt.Errorf("fix number of shards: %w", err)
		}
		n, err = s.rdb.Get(ctx, shardsKey).Int()
	}
	if err != nil {
		return 0, fmt.Errorf("read number of shards: %w", err)
	}
	if n < 1 {
		return 0, fmt.Errorf("key %s holds %d: delete it on an empty Redis", shardsKey, n)
	}
	s.shards.Store(int32(n))
	return n, nil
}

// Flow addresses a workflow, with what its scripts need to know of its graph.
type Flow struct {
	ID        string
	Created   int64 // unix ms
	Root      string
	Retention int64 // ms
	shard     int
}

// Flow returns the address of a workflow.
func (s *Store) Flow(ctx context.Context, id string) (Flow, error) {
	n, err := s.Shards(ctx)
	if err != nil {
		return Flow{}, err
	}
	return Flow{ID: id, shard: shardOf(id, n)}, nil
}

func (f Flow) key() string    { return flowKey(f.shard, f.ID) }
func (f Flow) keys() []string { return []string{f.key(), agendaKey(f.shard), runningKey(f.shard)} }

// call returns a call of a script that has f for its item.
func (f Flow) call(s *Script, args []any) *Call {
	return &Call{Script: s, Shared: sharedKeys(f.shard), Keys: []string{f.key()}, Args: args}
}

// ask makes one call and returns its answer as a list.
func (s *Store) ask(ctx context.Context, c *Call) ([]any, error) {
	if err := s.scripts.Do(ctx, c); err != nil {
		return nil, err
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if said, ok := c.Reply.(string); ok {
		return []any{said}, nil
	}
	res, ok := c.Reply.([]any)
	if !ok || len(res) == 0 {
		return nil, fmt.Errorf("script answered %v", c.Reply)
	}
	return res, nil
}

func (f Flow) args(more int) []any {
	return append(make([]any, 0, 5+more), f.ID, f.Created, f.Root, f.Retention, DoneChannel(f.ID))
}

// Literal is the input of a node.
type Literal struct {
	Node  string
	Input []byte
}

// Release is a node to run, with its delay (ms, or @unix ms) and the group whose place it needs.
type Release struct{ Node, Delay, Lim string }

// Grow is a graph to store.
type Grow struct {
	Graph         []byte
	Work, Virtual int
	Inputs        []Literal
	Handed        []string // nodes that can run at once, which the caller hands over by itself
	Roots         []Release
	Unique        string
	UniqueTTL     time.Duration
	Late          time.Time // by Redis's clock; from then on Submit refuses
}

// Moved is what a change set in motion: nodes to run, skips to pass on, planned nodes whose plan has
// ended, failed nodes whose siblings end with them, the earliest timer set (unix ms or 0), whether the
// workflow has ended, and the node that the worker has begun.
type Moved struct {
	Status []string
	Run    []string
	Skips  []string
	Plans  []string
	Fast   []string
	Timer  int64
	Ended  bool
	Taken  string
	Now    time.Time // by Redis
}

// DuplicateError says that a workflow with the id or unique key exists.
type DuplicateError struct{ ID string }

// Error implements error.
func (e *DuplicateError) Error() string { return "workflow " + e.ID + " exists" }

func (g *Grow) parts(args []any) []any {
	for _, in := range g.Inputs {
		args = append(args, in.Node, in.Input)
	}
	for _, n := range g.Handed {
		args = append(args, n)
	}
	for _, r := range g.Roots {
		args = append(args, r.Node, r.Delay, r.Lim)
	}
	return args
}

// Submit returns the call that stores a workflow and releases its roots; look is how long those that
// the caller hands over are left alone. [Submitted] reads its answer.
func (s *Store) Submit(f Flow, g Grow, look time.Duration) *Call {
	ttl := ""
	if g.Unique != "" {
		ttl = strconv.FormatInt(max(1, g.UniqueTTL.Milliseconds()), 10)
	}
	late := ""
	if !g.Late.IsZero() {
		late = strconv.FormatInt(g.Late.UnixMilli(), 10)
	}
	args := append(f.args(9+2*len(g.Inputs)+len(g.Handed)+3*len(g.Roots)), g.Graph, g.Work, g.Virtual, late, ttl,
		look.Milliseconds(), len(g.Inputs), len(g.Handed), len(g.Roots))
	c := f.call(submitCmd, g.parts(args))
	if g.Unique != "" {
		c.Keys = append(c.Keys, uniqueKey(f.shard, g.Unique))
		c.Script = submitUniqueCmd
	}
	return c
}

// Submitted reads the answer to [Store.Submit].
func Submitted(c *Call) (Moved, error) {
	if c.Err != nil {
		return Moved{}, fmt.Errorf("store workflow: %w", c.Err)
	}
	if res, ok := c.Reply.([]any); ok && len(res) > 0 {
		switch res[0] {
		case "dup":
			return Moved{}, &DuplicateError{fmt.Sprint(res[1])}
		case "late":
			return Moved{}, ErrLate
		}
	}
	return moved(c.Reply)
}

// Plan puts a graph in the place of a running node. ok is false if the node is someone else's now.
func (s *Store) Plan(ctx context.Context, f Flow, node string, epoch int, g Grow) (m Moved, ok bool, err error) {
	args := append(f.args(7+2*len(g.Inputs)+3*len(g.Roots)), node, epoch, g.Graph, g.Work, g.Virtual, len(g.Inputs), len(g.Roots))
	res, err := s.ask(ctx, f.call(planCmd, g.parts(args)))
	if err != nil {
		return Moved{}, false, fmt.Errorf("store plan: %w", err)
	}
	if res[0] == "stale" {
		return Moved{}, false, nil
	}
	m, err = moved(res[0])
	return m, true, err
}

// MapJoin is a join over the members of a map.
type MapJoin struct{ Node, Need, Delay, Lim string }

// StoreInputs stores the inputs of the members of a map ahead of [Store.Extend]. ok is false if there is
// nothing to extend any more.
func (s *Store) StoreInputs(ctx context.Context, f Flow, node string, inputs []Literal) (ok bool, err error) {
	for part := range slices.Chunk(inputs, 1000) {
		args := make([]any, 0, 1+2*len(part))
		args = append(args, node)
		for _, in := range part {
			args = append(args, "a"+in.Node, in.Input)
		}
		n, err := inputsCmd.Run(ctx, s.rdb, []string{f.key()}, args...).Int()
		if err != nil {
			return false, fmt.Errorf("store inputs: %w", err)
		}
		if n == 0 {
			return false, nil
		}
	}
	return true, nil
}

// Extend adds n members to a map. ok is false if that was done before.
func (s *Store) Extend(ctx context.Context, f Flow, node string, n int, delay, lim string, joins []MapJoin) (m Moved, ok bool, err error) {
	args := append(f.args(5+4*len(joins)), node, n, delay, lim, len(joins))
	for _, j := range joins {
		args = append(args, j.Node, j.Need, j.Delay, j.Lim)
	}
	res, err := s.ask(ctx, f.call(extendCmd, args))
	if err != nil {
		return Moved{}, false, fmt.Errorf("add members of map: %w", err)
	}
	if res[0] == "done" {
		return Moved{}, false, nil
	}
	m, err = moved(res[0])
	return m, true, err
}

// moved reads what a script says of its change: {ready, timed, ended, taken, now}, or ended and now.
func moved(said any) (Moved, error) {
	if s, ok := said.(string); ok && len(s) > 1 {
		return Moved{Ended: s[0] == '1', Now: time.UnixMilli(toInt(s[1:]))}, nil
	}
	part, _ := said.([]any)
	if len(part) < 5 {
		return Moved{}, fmt.Errorf("script answered %v", said)
	}
	var m Moved
	list, _ := part[0].([]any)
	for _, v := range list {
		switch id, _ := v.(string); {
		case strings.HasPrefix(id, "+"):
			m.Run = append(m.Run, id[1:])
		case strings.HasPrefix(id, "-"):
			m.Skips = append(m.Skips, id[1:])
		case strings.HasPrefix(id, "*"):
			m.Plans = append(m.Plans, id[1:])
		case strings.HasPrefix(id, "!"):
			m.Fast = append(m.Fast, id[1:])
		}
	}
	m.Timer = toInt(part[1])
	m.Ended = toInt(part[2]) == 1
	m.Taken, _ = part[3].(string)
	m.Now = time.UnixMilli(toInt(part[4]))
	return m, nil
}

func toInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// Begun is the answer to a delivery.
type Begun struct {
	Status   string // run, gone, done, stale, busy
	Attempts int
	Lost     int
	Now      time.Time
	Input    []byte
	Graphs   [][]byte // of the fields asked for
}

// Begin lets a worker run a node that it does not run already. A node that Redis says it runs, it has
// begun before without hearing of it.
func (s *Store) Begin(ctx context.Context, f Flow, node string, epoch int, worker string, graphs []string) (Begun, error) {
	c := s.BeginCall(f, node, epoch, worker, graphs)
	if err := s.scripts.Do(ctx, c); err != nil {
		return Begun{}, err
	}
	return BegunBy(c)
}

// BeginCall returns the call of [Store.Begin]; [BegunBy] reads its answer.
func (s *Store) BeginCall(f Flow, node string, epoch int, worker string, graphs []string) *Call {
	return f.call(beginCmd, []any{f.ID, node, epoch, worker, strings.Join(graphs, ","), 1})
}

// BegunBy reads the answer to a [Store.BeginCall].
func BegunBy(c *Call) (Begun, error) {
	if c.Err != nil {
		return Begun{}, fmt.Errorf("begin node %v: %w", c.Args[1], c.Err)
	}
	res, _ := c.Reply.([]any)
	if len(res) == 0 {
		return Begun{}, fmt.Errorf("begin node %v: script answered %v", c.Args[1], c.Reply)
	}
	return begun(res), nil
}

func begun(res []any) Begun {
	b := Begun{Status: fmt.Sprint(res[0])}
	if b.Status != "run" {
		return b
	}
	b.Attempts, b.Lost, b.Now = int(toInt(res[1])), int(toInt(res[2])), time.UnixMilli(toInt(res[3]))
	if in, ok := res[4].(string); ok {
		b.Input = []byte(in)
	}
	for i := 5; i < len(res); i++ {
		raw, _ := res[i].(string)
		b.Graphs = append(b.Graphs, []byte(raw))
	}
	return b
}

// GraphField returns the field that the graph of a scope is in.
func GraphField(scope string) string { return "g" + scope }

// Succ is an edge with what it needs to be followed.
type Succ struct{ Node, Kind, Need, Delay, Lim string }

// Op makes a node terminal.
type Op struct {
	Node    string
	Outcome string // S, F, X, or K to pass a skip on
	Epoch   string // it must run under; "" for any
	Body    []byte
	Flags   string
	Back    string // "group holder" of the place to give back
	Succs   []Succ
}

// Take lets a worker begin one of the nodes that become ready.
type Take struct {
	Worker string
	Nodes  []string
}

// Advance applies ops. An unknown workflow is [ErrUnknown].
func (s *Store) Advance(ctx context.Context, f Flow, ops []Op, t Take) (Moved, error) {
	args := append(f.args(3+len(t.Nodes)+12*len(ops)), t.Worker, len(t.Nodes))
	for _, n := range t.Nodes {
		args = append(args, n)
	}
	args = append(args, len(ops))
	for i := range ops {
		o := &ops[i]
		args = append(args, o.Node, o.Outcome, o.Epoch, o.Body, o.Flags, o.Back, len(o.Succs))
		for _, e := range o.Succs {
			args = append(args, e.Node, e.Kind, e.Need, e.Delay, e.Lim)
		}
	}
	res, err := s.ask(ctx, f.call(advanceCmd, args))
	if err != nil {
		return Moved{}, fmt.Errorf("advance workflow %s: %w", f.ID, err)
	}
	if res[0] == "gone" {
		return Moved{}, ErrUnknown
	}
	m, err := moved(res[0])
	for _, v := range res[1:] {
		status, _ := v.(string)
		m.Status = append(m.Status, status)
	}
	if len(res) == 1 {
		m.Status = allWell
	}
	return m, err
}

var allWell = []string{"ok"} // of a single op

// The ways to repeat a node.
const (
	RepeatFail  = "fail"  // an attempt is used up
	RepeatAgain = "again" // none is
	RepeatLost  = "lost"  // nobody could run it
	RepeatDied  = "died"  // its worker died
)

// Suspect is how many workers may have died with a node before it is suspected to be the cause. Until then
// any death counts that met it, even while it waited for its turn; from then on those that met it while its
// handler ran, as told by [Store.Enter].
const Suspect = 3

// Repeated is what became of a node put back.
type Repeated struct {
	Status string // ok, stale, poison
	Epoch  int
	Due    int64 // unix ms, 0 for now
}

// Repeat puts a running node back. Empty epoch or worker match any.
func (s *Store) Repeat(ctx context.Context, f Flow, node, epoch, worker string, delay time.Duration, how, message string, mostLost int) (Repeated, error) {
	res, err := repeatCmd.Run(ctx, s.rdb, f.keys(),
		f.ID, node, epoch, worker, delay.Milliseconds(), how, message, mostLost, Suspect).Slice()
	if err != nil {
		return Repeated{}, fmt.Errorf("put back node %s: %w", node, err)
	}
	r := Repeated{Status: fmt.Sprint(res[0])}
	if len(res) > 1 {
		r.Epoch = int(toInt(res[1]))
	}
	if len(res) > 2 {
		r.Due = toInt(res[2])
	}
	return r, nil
}

// Enter says that the handler of a suspected node is about to be called. It returns false if the node is
// someone else's now.
func (s *Store) Enter(ctx context.Context, f Flow, node string, epoch int, worker string) (bool, error) {
	n, err := enterCmd.Run(ctx, s.rdb, []string{f.key(), runningKey(f.shard)}, f.ID, node, epoch, worker).Int()
	if err != nil {
		return false, fmt.Errorf("enter node %s: %w", node, err)
	}
	return n == 1, nil
}

// Entry is a line of the agenda.
type Entry struct {
	Flow Flow
	Node string
	Due  time.Time
}

func entry(shard int, member string) Entry {
	id, node, _ := strings.Cut(member, "/")
	return Entry{Flow: Flow{ID: id, shard: shard}, Node: node}
}

// Handed is a node that was handed over, and the epoch that was under.
type Handed struct {
	Node  string
	Epoch int
}

// Hold lets the agenda rest for d for nodes that have not begun since they were handed over. It is done
// soon; should it not be, someone looks after them too early.
func (s *Store) Hold(f Flow, nodes []Handed, d time.Duration) {
	for part := range slices.Chunk(nodes, 1000) {
		args := make([]any, 0, 2+2*len(part))
		args = append(args, f.ID, d.Milliseconds())
		for _, n := range part {
			args = append(args, n.Node, n.Epoch)
		}
		s.scripts.Post(&Call{Script: holdCmd, Shared: f.keys()[:2], Args: args})
	}
}

// Reissue gives a node another epoch that was handed over and got lost on the way; -1 if it was not.
func (s *Store) Reissue(ctx context.Context, f Flow, node string, epoch int) (int, error) {
	n, err := reissueCmd.Run(ctx, s.rdb, f.keys()[:2], f.ID, node, epoch).Int()
	if err != nil {
		return 0, fmt.Errorf("reissue node %s: %w", node, err)
	}
	return n, nil
}

// Note puts an entry into the agenda.
func (s *Store) Note(ctx context.Context, f Flow, node string, at time.Time) error {
	return s.rdb.ZAdd(ctx, agendaKey(f.shard), redis.Z{Score: float64(at.UnixMilli()), Member: f.ID + "/" + node}).Err()
}

// Later moves an entry that still stands.
func (s *Store) Later(ctx context.Context, f Flow, node string, at time.Time) error {
	return s.rdb.ZAddXX(ctx, agendaKey(f.shard), redis.Z{Score: float64(at.UnixMilli()), Member: f.ID + "/" + node}).Err()
}

// Forget takes an entry out of the agenda.
func (s *Store) Forget(ctx context.Context, f Flow, node string) error {
	return s.rdb.ZRem(ctx, agendaKey(f.shard), f.ID+"/"+node).Err()
}

// Agenda returns the first entries of each shard.
func (s *Store) Agenda(ctx context.Context, limit int) ([]Entry, error) {
	n, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.ZSliceCmd, n)
	for shard := range n {
		cmds[shard] = pipe.ZRangeWithScores(ctx, agendaKey(shard), 0, int64(limit-1))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read agenda: %w", err)
	}
	var out []Entry
	for shard, c := range cmds {
		for _, z := range c.Val() {
			e := entry(shard, fmt.Sprint(z.Member))
			e.Due = time.UnixMilli(int64(z.Score))
			out = append(out, e)
		}
	}
	return out, nil
}

// Holder is a running node and the worker it runs on.
type Holder struct {
	Flow   Flow
	Node   string
	Worker string
}

// Running returns the nodes that run.
func (s *Store) Running(ctx context.Context) ([]Holder, error) {
	n, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, n)
	for shard := range n {
		cmds[shard] = pipe.HGetAll(ctx, runningKey(shard))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read running nodes: %w", err)
	}
	var out []Holder
	for shard, c := range cmds {
		for m, w := range c.Val() {
			e := entry(shard, m)
			out = append(out, Holder{e.Flow, e.Node, strings.TrimSuffix(w, "!")})
		}
	}
	return out, nil
}

// DropRunning forgets a running node of a workflow that is gone.
func (s *Store) DropRunning(ctx context.Context, h Holder) error {
	return s.rdb.HDel(ctx, runningKey(h.Flow.shard), h.Flow.ID+"/"+h.Node).Err()
}

// Revoke marks a workflow as revoked. ended is true if there was nothing left to stop.
func (s *Store) Revoke(ctx context.Context, f Flow) (ended bool, err error) {
	n, err := revokeCmd.Run(ctx, s.rdb, f.keys()[:2], f.ID).Int()
	if err != nil {
		return false, fmt.Errorf("mark as revoked: %w", err)
	}
	if n < 0 {
		return false, ErrUnknown
	}
	return n == 0, nil
}

// Drop deletes a workflow that has ended.
func (s *Store) Drop(ctx context.Context, f Flow) error {
	if err := s.rdb.Del(ctx, f.key()).Err(); err != nil {
		return fmt.Errorf("delete workflow: %w", err)
	}
	return nil
}

// AbortField is where the reason stands why a workflow was given up as a whole.
const AbortField = "!"

// abortRetention is how long a workflow that was given up can be looked at, in ms: the one it was sent
// with cannot be read.
const abortRetention = 24 * 3600 * 1000

// Abort gives up a workflow that nobody can read, whose given node was to run.
func (s *Store) Abort(ctx context.Context, f Flow, node string, failure []byte) error {
	if err := abortCmd.Run(ctx, s.rdb, f.keys(), f.ID, node, failure, abortRetention, DoneChannel(f.ID)).Err(); err != nil {
		return fmt.Errorf("give up workflow %s: %w", f.ID, err)
	}
	return nil
}

// DropPlaces forgets who holds and who waits for places of a group.
func (s *Store) DropPlaces(ctx context.Context, f Flow, groups []string) error {
	if len(groups) == 0 {
		return nil
	}
	var keys []string
	for _, g := range groups {
		keys = append(keys, f.key()+":h"+g, f.key()+":w"+g)
	}
	return s.rdb.Del(ctx, keys...).Err()
}

// Fields reads fields of a workflow; missing ones are nil.
func (s *Store) Fields(ctx context.Context, f Flow, fields []string) ([][]byte, error) {
	out := make([][]byte, 0, len(fields))
	for part := range slices.Chunk(fields, 1000) {
		vs, err := s.rdb.HMGet(ctx, f.key(), part...).Result()
		if err != nil {
			return nil, fmt.Errorf("read workflow %s: %w", f.ID, err)
		}
		for _, v := range vs {
			if str, ok := v.(string); ok {
				out = append(out, []byte(str))
			} else {
				out = append(out, nil)
			}
		}
	}
	return out, nil
}

// All reads a whole workflow.
func (s *Store) All(ctx context.Context, f Flow) (map[string]string, error) {
	all, err := s.rdb.HGetAll(ctx, f.key()).Result()
	if err != nil {
		return nil, fmt.Errorf("read workflow %s: %w", f.ID, err)
	}
	if len(all) == 0 {
		return nil, ErrUnknown
	}
	return all, nil
}

// SetProgress records how far a running node is.
func (s *Store) SetProgress(ctx context.Context, f Flow, node string, done, total int) error {
	return progressCmd.Run(ctx, s.rdb, []string{f.key()}, node, fmt.Sprintf("%d/%d", done, total)).Err()
}

// Tell publishes to all processes.
func (s *Store) Tell(ctx context.Context, message string) error {
	return s.rdb.Publish(ctx, BusChannel, message).Err()
}

// How a progress key changes.
const (
	KeyMax  = "max"  // a number that never goes down
	KeyOnce = "once" // the first value stands
	KeyWord = "word" // a status that only goes forward
	KeySet  = "set"
)

// progressTTL is how many seconds a progress key lives after its last update.
const progressTTL = 3600

// Project writes a public progress key.
func (s *Store) Project(ctx context.Context, prefix, id, name, how, value string) error {
	return projectCmd.Run(ctx, s.rdb, []string{progressKey(prefix, id, name)}, how, value, progressTTL).Err()
}

// RefreshProgress pushes the expiry of progress keys that exist.
func (s *Store) RefreshProgress(ctx context.Context, prefix, id string, names []string) error {
	pipe := s.rdb.Pipeline()
	for _, n := range names {
		pipe.Expire(ctx, progressKey(prefix, id, n), progressTTL*time.Second)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// PongChannel is the channel on which the workers of this database answer a ping.
func (s *Store) PongChannel(token string) string {
	db := 0 // of a cluster, which has no other
	if one, ok := s.rdb.(*redis.Client); ok {
		db = one.Options().DB
	}
	return pongChannel(token, db)
}

// Pong answers a ping as a worker.
func (s *Store) Pong(ctx context.Context, token, worker string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.rdb.Publish(ctx, s.PongChannel(token), worker).Err(); err != nil {
		return fmt.Errorf("answer ping: %w", err)
	}
	return nil
}

// How a limit of starts is kept.
const (
	rateMost  = 1000             // starts that are remembered; a limit of more is kept in parts of its span
	rateAhead = 30 * time.Second // at least; that those over the limit are told when to ask again
)

// Allow counts a start of task, of which there are at most n in any span of per. When there were as many
// already, it returns how long to wait before asking again.
func (s *Store) Allow(ctx context.Context, task string, n int, per time.Duration) (time.Duration, error) {
	if parts := (n + rateMost - 1) / rateMost; parts > 1 {
		n, per = n/parts, (per+time.Duration(parts)-1)/time.Duration(parts)
	}
	us, err := rateCmd.Run(ctx, s.rdb, []string{rateKey(task, "starts"), rateKey(task, "told")},
		n, max(1, per.Microseconds()), max(per, rateAhead).Microseconds()).Int64()
	if err != nil {
		return 0, fmt.Errorf("count starts of %s: %w", task, err)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// Beat records that a worker lives, also in a Redis whose memory is full, and returns the live workers and,
// if it is to judge, those found silent, which no other call tells of. An empty name only reads who lives.
func (s *Store) Beat(ctx context.Context, name string, info any, dead time.Duration, judge bool) (live, silent []string, err error) {
	if name != "" {
		raw, err := json.Marshal(info)
		if err != nil {
			return nil, nil, fmt.Errorf("encode worker info: %w", err)
		}
		err = s.rdb.Set(ctx, workerKey(name), raw, dead).Err()
		if Full(err) {
			err = infoCmd.Run(ctx, s.rdb, []string{workerKey(name)}, raw, dead.Milliseconds()).Err()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("write worker info: %w", err)
		}
	}
	res, err := beatCmd.Run(ctx, s.rdb, []string{workersKey}, name, dead.Milliseconds(), judge).StringSlice()
	if err != nil {
		return nil, nil, fmt.Errorf("beat: %w", err)
	}
	n := 1 + int(toInt(res[0]))
	return res[n:], res[1:n], nil
}

// Bye takes a worker out of the live ones.
func (s *Store) Bye(ctx context.Context, name string) error {
	if err := s.rdb.ZRem(ctx, workersKey, name).Err(); err != nil {
		return fmt.Errorf("sign off worker: %w", err)
	}
	return s.rdb.Del(ctx, workerKey(name)).Err()
}

// WorkerInfos reads the infos of workers; missing ones are nil.
func (s *Store) WorkerInfos(ctx context.Context, names []string) ([][]byte, error) {
	out := make([][]byte, len(names))
	for i, n := range names {
		raw, err := s.rdb.Get(ctx, workerKey(n)).Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read worker info: %w", err)
		}
		out[i] = raw
	}
	return out, nil
}

// Record is the stored state of a node.
type Record struct {
	State    byte // 0 when there is none
	Epoch    int
	Attempts int
	Lost     int
	At       int64 // of R when it began, of D and T when it is due: unix ms
	Owner    string
	Began    time.Time // of a terminal node that ran
	Ended    time.Time // of a terminal node
	Body     []byte    // of S, F and X
	Cause    string    // of k and K
}

// Terminal reports whether nothing follows the state.
func (r *Record) Terminal() bool {
	switch r.State {
	case 'S', 'F', 'X', 'K', 'k':
		return true
	}
	return false
}

// ParseRecord reads a stored state; created is that of the workflow in unix ms.
func ParseRecord(raw []byte, created int64) Record {
	if len(raw) == 0 {
		return Record{}
	}
	r := Record{State: raw[0]}
	switch r.State {
	case 'k', 'K':
		_, r.Cause, _ = strings.Cut(string(raw), "|")
	case 'S', 'F', 'X':
		p := strings.SplitN(string(raw), "|", 6)
		if len(p) < 6 {
			return r
		}
		r.Attempts = int(toInt(p[1]))
		if p[2] != "" {
			r.Began = time.UnixMilli(created + toInt(p[2]))
		}
		r.Ended = time.UnixMilli(created + toInt(p[3]))
		r.Owner = p[4]
		r.Body = raw[len(raw)-len(p[5]):]
	default:
		p := strings.SplitN(string(raw), "|", 6)
		if len(p) < 6 {
			return r
		}
		r.Epoch, r.Attempts, r.Lost = int(toInt(p[1])), int(toInt(p[2])), int(toInt(p[3]))
		r.At, r.Owner = toInt(p[4]), p[5]
	}
	return r
}
