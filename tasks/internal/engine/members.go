package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"muster/tasks/internal/graph"
	"muster/tasks/tasktype"
)

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
		_, fail, err = r.hasEnded(ctx, fl.Flow)
	}
	return out, fail, err
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
