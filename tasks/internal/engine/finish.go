package engine

import (
	"strconv"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// changeKey identifies results that can share one change.
type changeKey struct {
	g      *graph.Graph
	scope  string
	class  int
	member bool
	forget bool
	kind   string
}

// changes returns the changes that results make, by workflow.
func (d *dispatcher) changes(done []result) []store.Changes {
	var out []store.Changes
	at := map[string]int{}                 // of a workflow in out
	alike := map[*flow]map[changeKey]int{} // of a change in its list
	for i := range done {
		r := &done[i]
		if r.kind == "" {
			continue
		}
		k, ok := at[r.fl.Ref]
		if !ok {
			k = len(out)
			at[r.fl.Ref] = k
			out = append(out, store.Changes{Flow: r.fl.Flow})
		}
		list := &out[k].List
		if r.kind != store.ChangeSucceed {
			*list = append(*list, d.change(r))
			continue
		}
		key := changeKey{r.g, r.id.Scope, r.g.Class(r.id.Index), r.id.Inst >= 0, r.forget, r.kind}
		n, ok := alike[r.fl][key]
		if !ok {
			if alike[r.fl] == nil {
				alike[r.fl] = map[changeKey]int{}
			}
			n = len(*list)
			alike[r.fl][key] = n
			*list = append(*list, endOf(r))
		}
		c := &(*list)[n]
		c.End(r.node, d.record(r))
	}
	return out
}

// endOf returns the change of a result that ends its node, without the node.
func endOf(r *result) store.Change {
	c := end(r.g, r.id, r.kind)
	c.Queue = counted(r.g, r.id)
	if r.forget {
		c.Flags = append(c.Flags, store.FlagClear)
	}
	return c
}

// counted returns the queue in whose counts a node is; empty for a step.
func counted(g *graph.Graph, id graph.ID) string {
	if id.Inst < 0 && g.Virtual(id.Index) {
		return ""
	}
	sp := &g.Specs[g.Nodes[id.Index].Spec]
	if sp.Sub > 0 {
		return ""
	}
	return sp.QueueName()
}

// change returns the change of a single result.
func (d *dispatcher) change(r *result) store.Change {
	switch r.kind {
	case store.ChangePlan:
		started := ""
		if !r.began.IsZero() {
			started = since(r, r.began)
		}
		head := strconv.Itoa(r.rec.Attempts+1) + "|" + strconv.Itoa(r.rec.Lost) + "|" + started + "|" + d.cfg.Name
		return store.PlanChange(r.node, head, r.plan)
	case store.ChangeOpen:
		return store.Open(r.g.Specs[r.g.Nodes[r.id.Index].Spec].Task, r.node, r.attempts, r.delay)
	case store.ChangeAgain:
		c := store.Change{Outcome: r.kind}
		lane := r.lease.Lane
		if r.g != nil {
			sp := &r.g.Specs[r.g.Nodes[r.id.Index].Spec]
			if lane = store.Lane(sp.QueueName(), sp.Priority); r.state == store.AgainRetry {
				c.Queue, c.Task = sp.QueueName(), sp.Task
			}
		}
		c.Again(r.node, r.attempts, r.lost, r.delay, r.state, lane, r.message, d.encodeRun(r))
		return c
	}
	c := endOf(r)
	if r.message != "" && r.kind == store.ChangeRevoke && r.g.FailsFast() {
		c.Flags = append(c.Flags, store.FlagFailFast) // it has expired, which ends its siblings as a failure does
	}
	c.End(r.node, d.record(r))
	return c
}

// encodeRun describes a run that another run follows; nil if no handler ran and no attempt failed.
func (d *dispatcher) encodeRun(r *result) []byte {
	if r.began.IsZero() && r.state != store.AgainRetry {
		return nil
	}
	a := tasktype.NodeAttempt{Attempt: r.rec.Attempts + 1, Outcome: r.outcome, Worker: d.cfg.Name, Code: r.code}
	if r.state == store.AgainRetry {
		a.Message = r.message
	}
	if !r.began.IsZero() {
		a.Started, a.Ended = r.clock.redis(r.began), r.clock.redis(r.began.Add(r.took))
	}
	return store.EncodeRun(&a)
}

// record returns the record of a result that ends its node.
func (d *dispatcher) record(r *result) []byte {
	out := make([]byte, 0, 48+len(d.cfg.Name)+len(r.body))
	out = append(out, r.kind...)
	out = append(out, '|')
	out = strconv.AppendInt(out, int64(r.rec.Attempts+1), 10)
	out = append(out, '|')
	if !r.began.IsZero() {
		out = append(out, since(r, r.began)...)
	}
	out = append(out, '|')
	end := d.clock.Now()
	if !r.began.IsZero() {
		end = r.began.Add(r.took)
	}
	out = append(out, since(r, end)...)
	out = append(out, '|')
	out = append(out, d.cfg.Name...)
	out = append(out, '|')
	return append(out, r.body...)
}

// since returns a time of this machine as records have it: in ms since the workflow was sent, by the clock of Redis.
func since(r *result, t time.Time) string {
	return strconv.FormatInt(max(0, r.clock.redis(t).UnixMilli()-r.fl.Created), 10)
}
