package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Literal is the input of a node.
type Literal struct {
	Node  string
	Input []byte
}

// Release is a span of nodes that wait for nothing, where they go, the delay of each (see [Delay]) and the group whose place
// each needs.
type Release struct {
	Span, Lane, Delay, Lim string
}

// Delay writes that a node waits in ms from when it could run, or until at (unix ms) if that is given, and that it
// expires as many ms after that. Zero is none.
func Delay(in, at, expires int64) string {
	var s string
	switch {
	case at > 0:
		s = "@" + strconv.FormatInt(at, 10)
	case in > 0:
		s = strconv.FormatInt(in, 10)
	}
	if expires > 0 {
		s += "+" + strconv.FormatInt(expires, 10)
	}
	return s
}

// Grow is a graph to store.
type Grow struct {
	Graph         []byte
	Work, Virtual int
	Inputs        []Literal
	Roots         []Release
	Unique        string
	UniqueTTL     time.Duration
	Once          bool      // a success of a workflow keeps the unique key
	Late          time.Time // from then on, by Redis's clock, Submit returns ErrLate; zero for no limit
	Key           string    // fairness key; empty for the id of the workflow
	Deadline      time.Time // of the workflow; zero for none
	After         []string  // references of the workflows with the unique key that must end before this one begins
	Replaceable   bool      // until it begins, another workflow with the unique key may replace it
	Single        bool      // its only node needs no more than a worker
	Tick          *Tick     // the tick of a schedule that sends it; with it, Submit can return ErrDecided
}

// DuplicateError means that workflows with the ID or unique key exist.
type DuplicateError struct {
	Refs []string // references: one for an ID; for a unique key all running workflows, the latest first
}

// Error implements error.
func (e *DuplicateError) Error() string { return "workflow " + IDOf(e.Refs[0]) + " exists" }

// ErrLate means that the claim to the unique key of a workflow has ended.
var ErrLate = errors.New("came after the claim to its unique key had ended")

// errExpired means that inputs expired before the workflow was submitted.
var errExpired = fmt.Errorf("store workflow: its inputs expired, because the sender paused for more than %s", pieceTTL)

// The inputs that go into one call of a script.
const (
	pieceNodes = 5000        // at most
	pieceBytes = 1 << 20     // in all, at most; a larger input goes alone
	pieceTTL   = time.Minute // then they expire, if the workflow was not submitted
)

// pieces cuts inputs into parts for calls.
func pieces(inputs []Literal) [][]Literal {
	var out [][]Literal
	from, bytes := 0, 0
	for i := range inputs {
		n := len(inputs[i].Input)
		if i > from && (i-from >= pieceNodes || bytes+n > pieceBytes) {
			out = append(out, inputs[from:i])
			from, bytes = i, 0
		}
		bytes += n
	}
	return append(out, inputs[from:])
}

func literals(args []any, inputs []Literal) []any {
	for _, in := range inputs {
		args = append(args, FieldInput+in.Node, in.Input)
	}
	return args
}

func (g *Grow) roots(args []any) []any {
	for _, r := range g.Roots {
		args = append(args, r.Span, r.Lane, r.Delay, r.Lim)
	}
	return args
}

// maxSubmits is how often a submit whose inputs expired is made.
const maxSubmits = 3

// Submit stores a workflow and releases its roots. All of it is stored, or nothing that lasts: inputs that do not fit
// into one call are stored before it, expire after pieceTTL, and are stored again if they did.
func (s Flows) Submit(ctx context.Context, f Flow, g *Grow) (todo Todo, err error) {
	parts := pieces(g.Inputs)
	for range maxSubmits {
		if err = s.storePieces(ctx, f, parts[:len(parts)-1]); err == nil {
			todo, err = s.submit(ctx, f, g, parts[len(parts)-1], len(parts)-1)
		}
		if !errors.Is(err, errExpired) {
			break
		}
	}
	return todo, err
}

// storePieces stores inputs of a workflow before it is submitted.
func (s Flows) storePieces(ctx context.Context, f Flow, parts [][]Literal) error {
	for i, part := range parts {
		res, err := s.call(ctx, "piece", f.shard, literals([]any{f.Ref, i + 1, pieceTTL.Milliseconds()}, part)...)
		switch {
		case err != nil:
			return fmt.Errorf("store workflow: %w", err)
		case text(res[0]) == "dup" && len(res) > 1:
			return &DuplicateError{strings.Fields(text(res[1]))}
		case text(res[0]) == "expired":
			return errExpired
		}
	}
	return nil
}

// submit stores a workflow with its last inputs, after so many parts that storePieces has stored.
func (s Flows) submit(ctx context.Context, f Flow, g *Grow, last []Literal, stored int) (Todo, error) {
	script, args := g.submission(f, last, stored)
	res, err := s.call(ctx, script, f.shard, args...)
	if err != nil {
		return Todo{}, fmt.Errorf("store workflow: %w", err)
	}
	if g.Tick != nil {
		g.Tick.UntilDue = untilDue(res)
	}
	return submitted(res)
}

// single reports whether a workflow is one that the script submit1 can store.
func (g *Grow) single(f Flow, inputs []Literal, stored int) bool {
	return g.Single && g.Tick == nil && stored == 0 && len(g.Roots) == 1 && len(inputs) == 1 && g.Work == 1 && g.Virtual == 0 && strings.HasSuffix(f.Ref, referenceMark) &&
		g.Roots[0].Delay == "" && g.Roots[0].Lim == "" && strings.HasPrefix(g.Roots[0].Lane, "n:") &&
		g.Unique == "" && g.Late.IsZero() && g.Key == "" && g.Deadline.IsZero() && len(g.After) == 0 && !g.Replaceable
}

// submission returns the script that stores a workflow, and its arguments.
func (g *Grow) submission(f Flow, last []Literal, stored int) (script string, args []any) {
	if g.single(f, last, stored) {
		return "submit1", []any{f.Ref, g.Roots[0].Lane[2:], g.Graph, last[0].Input, f.Created / time.Hour.Milliseconds()}
	}
	ttl, late := "", ""
	if g.Unique != "" {
		ttl = strconv.FormatInt(max(1, g.UniqueTTL.Milliseconds()), 10)
	}
	if !g.Late.IsZero() {
		late = strconv.FormatInt(g.Late.UnixMilli(), 10)
	}
	deadline := ""
	if !g.Deadline.IsZero() {
		deadline = strconv.FormatInt(g.Deadline.UnixMilli(), 10)
	}
	how := ""
	switch {
	case g.Replaceable:
		how = "replaceable"
	case g.Once:
		how = "once"
	}
	args = f.facts(make([]any, 0, 21+2*len(last)+4*len(g.Roots)))
	plain := len(g.Roots) == 1 && g.Key == "" && g.Roots[0].Delay == "" && g.Roots[0].Lim == "" && strings.HasPrefix(g.Roots[0].Lane, "n:")
	args = append(args, g.Graph, g.Work, g.Virtual, late, g.Unique, ttl, g.Key, stored, len(last), len(g.Roots), plain, deadline, strings.Join(g.After, " "), how)
	args = g.roots(literals(args, last))
	if g.Tick != nil {
		return "fire", append(args, g.Tick.args()...)
	}
	return "submit", args
}

// submitted returns the result of the script submit.
func submitted(res []any) (Todo, error) {
	switch {
	case text(res[0]) == "dup" && len(res) > 1:
		return Todo{}, &DuplicateError{strings.Fields(text(res[1]))}
	case len(res) < 2: // an error, or of submit1
		return Todo{}, map[string]error{"late": ErrLate, "expired": errExpired, "stale": ErrDecided}[text(res[0])]
	}
	return todo(res[1]), nil
}

// Submission is a workflow to store, and then the result.
type Submission struct {
	Flow Flow
	Grow *Grow
	Todo Todo
	Err  error
}

// The submissions of one round trip.
const (
	submitCalls = 500     // at most
	submitBytes = 4 << 20 // of graphs and inputs, at most; a larger one goes alone
)

// SubmitMany is Submit for many workflows, with many in a round trip. It returns them with their results, in their order.
func (s Flows) SubmitMany(ctx context.Context, all []Submission) []Submission {
	var small []*Submission
	bytes := 0
	for i := range all {
		sub := &all[i]
		size := len(sub.Grow.Graph)
		for _, in := range sub.Grow.Inputs {
			size += len(in.Input)
		}
		if len(pieces(sub.Grow.Inputs)) > 1 {
			sub.Todo, sub.Err = s.Submit(ctx, sub.Flow, sub.Grow)
			continue
		}
		if len(small) == submitCalls || len(small) > 0 && bytes+size > submitBytes {
			s.submitTogether(ctx, small)
			small, bytes = nil, 0
		}
		small, bytes = append(small, sub), bytes+size
	}
	s.submitTogether(ctx, small)
	return all
}

// submitTogether stores workflows in one round trip, and those whose Redis does not have the script in another one.
func (s Flows) submitTogether(ctx context.Context, subs []*Submission) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(subs))
	for i, sub := range subs {
		script, args := sub.Grow.submission(sub.Flow, sub.Grow.Inputs, 0)
		cmds[i] = s.scripts[script].EvalSha(ctx, pipe, s.scriptKeys(sub.Flow.shard), args...)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	var again []*Submission
	for i, sub := range subs {
		switch reply, err := cmds[i].Result(); {
		case redis.HasErrorPrefix(err, "NOSCRIPT") || redis.HasErrorPrefix(err, "TRYAGAIN"):
			again = append(again, sub)
		case err != nil:
			sub.Err = fmt.Errorf("store workflow: %w", err)
		default:
			sub.Todo, sub.Err = submitted(asList(reply))
		}
	}
	if len(again) > 0 {
		again[0].Todo, again[0].Err = s.submit(ctx, again[0].Flow, again[0].Grow, again[0].Grow.Inputs, 0) // which loads its script
		s.submitTogether(ctx, again[1:])
	}
}

// StoreInputs stores the inputs of the members of a map, before [ExtendChange] adds them. ok is false if the workflow
// is gone or revoked, the map has its members, or the plan with the map is not the one that was stored at planned.
func (s Flows) StoreInputs(ctx context.Context, f Flow, node, scope, planned string, inputs []Literal) (ok bool, err error) {
	if len(inputs) == 0 {
		return true, nil
	}
	for _, part := range pieces(inputs) {
		res, err := s.call(ctx, "inputs", f.shard, literals([]any{f.Ref, node, scope, planned}, part)...)
		if err != nil {
			return false, fmt.Errorf("store inputs: %w", err)
		}
		if toInt(res[0]) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// ClaimTime is how long a unique key belongs to a workflow that is not stored. After it, the workflow must not be stored without
// another claim.
const ClaimTime = 10 * time.Second

// Claim gives a unique key to the workflow with a reference, which is about to be stored. It is for clusters,
// where key and workflow can lie in different slots, and needs no call where [Flows.Submit] does it
// by itself: then elsewhere is false. Otherwise the workflow must be stored within [ClaimTime] from before the call. A key of other live workflows is a
// [DuplicateError], unless all their references are in after; with once, workflows that have succeeded count as live.
func (s Flows) Claim(ctx context.Context, unique, ref string, ttl time.Duration, once bool, after []string) (elsewhere bool, err error) {
	n, err := s.shardCount(ctx)
	if err != nil || n == 1 {
		return false, err
	}
	replace := ""
	for range 10 {
		res, err := s.scripts["claim"].Run(ctx, s.rdb, []string{s.uniqueKey(shardOf(unique, n), unique)}, ref, max(1, ttl.Milliseconds()), replace, strings.Join(after, " ")).Slice()
		if err != nil {
			return true, fmt.Errorf("claim unique key: %w", err)
		}
		have := fmt.Sprint(res[0])
		if have == "" {
			return true, nil
		}
		fresh := time.Duration(toInt(res[1]))*time.Millisecond < ClaimTime
		refs := strings.Fields(have)
		var live []string
		for i, other := range refs[:len(refs)-1] { // the last is the time
			f := Flow{Ref: other, shard: shardOf(IDOf(other), n)}
			left, err := s.rdb.PTTL(ctx, s.Key(f)).Result()
			succeeded := false
			if err == nil && once && left >= 0 {
				var root map[string]string
				root, err = s.Fields(ctx, f, FieldRoot)
				succeeded = root[FieldRoot] == string(StateSucceeded)
			}
			if err != nil {
				return true, fmt.Errorf("look up workflow %s: %w", f.ID(), err)
			}
			// go-redis gives -1 for a key without expiry and -2 for none.
			if left == -1 || left == -2 && fresh && i == 0 || succeeded {
				live = append(live, other)
			}
		}
		if slices.ContainsFunc(live, func(ref string) bool { return !slices.Contains(after, ref) }) {
			return true, &DuplicateError{live}
		}
		replace = have
	}
	return true, errors.New("claim unique key: other senders changed it ten times in a row")
}
