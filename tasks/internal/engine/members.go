package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Member is the value or the failure of a member of a group or a map; neither while it has not ended.
type Member struct {
	Raw     json.RawMessage
	Failure *tasktype.Failure
	Ended   time.Time // of the last task of the member; zero for an element of a value
}

// Members describes the members of the list that a workflow yields.
type Members struct {
	List  []Member // empty while it is not known how many there are
	Ended bool     // all of them are there, and they and the workflow's root have ended
}

// Members returns the results of the members that were not yet seen, or the reason why the workflow yields no list.
func (r *Results) Members(ctx context.Context, id string, seen []bool) (Members, *tasktype.Failure, error) {
	fl, fail, err := r.find(ctx, id)
	if err != nil || fail != nil {
		return Members{}, fail, err
	}
	out, fail, err := r.membersOf(ctx, fl, seen)
	return out, fail, endedBy(ctx, err)
}

func (r *Results) membersOf(ctx context.Context, fl *flow, seen []bool) (Members, *tasktype.Failure, error) {
	v := r.graphs.values(fl)
	root := graph.ID{Index: fl.g.Root, Inst: -1}
	rec, err := v.record(ctx, fl.Root) // first, so that members added before its end are visible
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
	case rec.Terminal() && rec.State != store.StateSucceeded && (out.Ended || !l.known):
		fail, err = v.failure(ctx, root)
	case !out.Ended:
		_, fail, err = r.hasEnded(ctx, fl.Flow)
	}
	return out, fail, err
}

// addParts adds the parts of a list to out, with the results of the parts that were not yet seen.
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

// listing is the list that a node yields, as far as it is known.
type listing struct {
	parts    []graph.ID // whose values, or outcomes, are its elements
	outcomes bool
	elements []json.RawMessage // of a list that is the value of one node
	known    bool              // how many elements it has is known
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

// settled returns m as a value, whatever it came to.
func (m Member) settled() Member {
	switch {
	case m.Failure != nil:
		// The zero value of the member's type is not known here; null decodes to it.
		m.Raw = slices.Concat([]byte(`{"value":null,"err":`), encodeFailure(m.Failure), []byte("}"))
		m.Failure = nil
	case m.Raw != nil:
		m.Raw = slices.Concat([]byte(`{"value":`), m.Raw, []byte("}"))
	}
	return m
}

// list returns the members of the list that a node yields. The list of a rescue is known only after it has ended, and
// the list of a planned task is the list of its plan.
func (v *values) list(ctx context.Context, id graph.ID) (listing, error) {
	g, err := v.graph(ctx, id)
	if err != nil {
		return listing{}, err
	}
	rec, err := v.record(ctx, id.String()) // before its members: a map that has ended gets no more of them
	if err != nil {
		return listing{}, err
	}
	n := &g.Nodes[id.Index]
	ran := id.Inst >= 0 || n.Kind == graph.Task || n.Kind == graph.Catch
	if !ran && (n.Kind == graph.List || n.Kind == graph.Each || settles(n.Kind)) {
		parts, err := v.parts(ctx, g, id)
		return listing{parts: parts, outcomes: settles(n.Kind), known: len(parts) > 0 || rec.State == store.StateSucceeded}, err
	}
	if ran {
		sub, ok, err := v.planned(ctx, id, rec)
		if err != nil {
			return listing{}, err
		}
		if ok {
			return v.list(ctx, sub)
		}
	}
	if rec.State != store.StateSucceeded {
		return listing{}, nil
	}
	if n.Kind == graph.Or && !ran {
		of, err := v.chosen(ctx, n, id)
		if err != nil {
			return listing{}, err
		}
		return v.list(ctx, of)
	}
	elements, err := v.elements(ctx, id)
	return listing{elements: elements, known: true}, err
}

// planned returns the node that yields the value of the plan in the place of a node, if there is one: also of a plan
// that still runs, or has failed.
func (v *values) planned(ctx context.Context, id graph.ID, rec store.Record) (graph.ID, bool, error) {
	switch rec.State {
	case store.StateSucceeded:
		return v.alias(id, rec)
	case store.StatePlanned, store.StateFailed, store.StateRevoked:
	default:
		return id, false, nil
	}
	g, err := v.all.of(ctx, v.fl.Flow, id.String())
	if errors.Is(err, ErrUnknown) {
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	return graph.ID{Scope: id.String(), Index: g.Root, Inst: -1}, true, nil
}

// elements returns the elements of a value that is a list.
func (v *values) elements(ctx context.Context, id graph.ID) (out []json.RawMessage, err error) {
	raw, err := v.value(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("workflow %s %w: the value of node %s is not a list: %w", v.fl.ID(), errUnreadable, id, err)
	}
	return out, nil
}

// wrap returns the elements of a list that has no members as outcomes.
func (v *values) wrap(ctx context.Context, id graph.ID) (json.RawMessage, error) {
	els, err := v.elements(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	type outcome struct {
		Value json.RawMessage `json:"value"`
	}
	outs := make([]outcome, len(els))
	for i, el := range els {
		outs[i].Value = el
	}
	return json.Marshal(outs)
}

// settles reports whether the value of a node of a kind is made of outcomes.
func settles(kind graph.Kind) bool { return kind == graph.Outcomes || kind == graph.EachEnded }
