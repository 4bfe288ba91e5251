package sim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// party is an external process that completes open nodes.
type party struct {
	*process
	client *tasks.Client
	busy   bool
	won    map[string]int // accepted results, by workflow and node
}

func (h *history) addParty() {
	p := h.newProcess("party", 0)
	h.party = &party{process: p, client: h.newClient(p), won: map[string]int{}}
}

// asked reports whether an open node accepts a result, as OpenTokens lists it, and the party is free.
func (h *history) asked() bool {
	if h.party == nil || h.party.busy {
		return false
	}
	for _, task := range canvas.ExternalTasks {
		for _, member := range h.openNodes(task) {
			ref, node, _ := strings.Cut(member, "/")
			have := redis.NewSliceCmd(context.Background(), "hmget", h.prefixOf(store.IDOf(ref))+"w:"+ref, node, "x")
			h.link.do(have)
			if task == signalled && h.flow(store.IDOf(ref)).signal == "sent" {
				continue
			}
			if record, ok := at(have.Val(), 0).(string); ok && strings.HasPrefix(record, "W") && (have.Val()[1] == nil || have.Val()[1] == "p") {
				return true
			}
		}
	}
	return false
}

// openNodes returns the open nodes of a task.
func (h *history) openNodes(task string) (out []string) {
	for _, prefix := range h.prefixes() {
		open := redis.NewStringSliceCmd(context.Background(), "zrange", prefix+"open:"+task, 0, -1)
		h.link.do(open)
		out = append(out, open.Val()...)
	}
	return out
}

// answer lets the party handle an open node: usually it completes it, otherwise it fails it, extends its deadline, or
// does nothing.
func (h *history) answer() {
	p := h.party
	p.busy = true
	which, how, failures := h.rng.Int(), h.among(0, 9), h.among(1, 2)
	if h.calm {
		how = 0
	}
	h.event("PARTY starts to complete a node")
	h.spawn(func() {
		defer func() {
			h.mu.Lock()
			p.busy = false
			h.mu.Unlock()
		}()
		ctx := context.Background()
		var open []tasktype.OpenToken
		for _, task := range canvas.ExternalTasks {
			page, _, err := p.client.Inspect().OpenTokens(ctx, task, "")
			if err != nil {
				return // some other time
			}
			open = append(open, page...)
		}
		h.mu.Lock()
		open = slices.DeleteFunc(open, func(o tasktype.OpenToken) bool { return o.Task == signalled && h.flow(o.Workflow).signal == "sent" })
		h.mu.Unlock()
		if len(open) == 0 {
			return
		}
		o := open[which%len(open)]
		token, err := p.client.Workflow(o.Workflow).NewToken(ctx, o.Node)
		if err != nil {
			h.refused("token for", &o, err)
			return
		}
		switch {
		case how == 9:
			return
		case how == 8:
			h.refused("extend", &o, p.client.Extend(ctx, token, time.Second))
		case how == 7 && o.Attempt <= failures:
			h.refused("fail", &o, p.client.Fail(ctx, token, errors.New("not now")))
		default:
			h.complete(&o, token, how == 6)
		}
	})
}

// signalled is the task that signals are for.
var signalled = canvas.ExternalTasks[0]

// signal has a sender complete the only task of its kind in a workflow by a signal, before or after that is open.
func (h *history) signal() {
	s := h.free()
	k := slices.IndexFunc(h.flows, func(f *flow) bool {
		return f.state == "sent" && f.signal == "" && f.retried == "" && !f.forgot && len(*f.runs.Asked) == 1
	})
	if s == nil || k < 0 {
		return
	}
	f := h.flows[k]
	h.plan.signals--
	f.signal = "sending"
	value, _ := json.Marshal((*f.runs.Asked)[0])
	h.act(s, "SIGNALS", f.id, func(ctx context.Context) error { return s.client.Workflow(f.id).Signal(ctx, signalled, value) }, func(err error) {
		if err == nil {
			f.signal = "sent"
		} else if !errors.Is(err, errCut) && !errors.Is(err, errDead) && !errors.Is(err, tasks.ErrEnded) {
			h.fail("signal to %s: %v", f.id, err)
		}
	})
}

// complete sends the result until the node is known to have ended, and once more if twice is set.
func (h *history) complete(o *tasktype.OpenToken, token string, twice bool) {
	var n int
	if err := json.Unmarshal(o.Input, &n); err != nil {
		h.wrong("input of %s of %s: %v", o.Node, o.Workflow, err)
		return
	}
	value, _ := json.Marshal(n + 1)
	for {
		err := h.party.client.Complete(context.Background(), token, value)
		if err == nil {
			h.mu.Lock()
			key := o.Workflow + "/" + o.Node
			if h.party.won[key]++; h.party.won[key] > 1 {
				h.fail("%d results for node %s of %s were accepted", h.party.won[key], o.Node, o.Workflow)
			}
			h.mu.Unlock()
			if twice {
				twice = false
				continue
			}
		}
		h.refused("complete", o, err)
		if !errors.Is(err, errCut) || h.party.dead {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// refused sees that an error of the party is one that can be.
func (h *history) refused(what string, o *tasktype.OpenToken, err error) {
	for _, can := range []error{nil, tasks.ErrCompleted, tasks.ErrStale, tasks.ErrNotOpen, errCut, errDead} {
		if errors.Is(err, can) {
			return
		}
	}
	h.wrong("%s node %s of %s: %v", what, o.Node, o.Workflow, err)
}

// wrong is fail, for processes.
func (h *history) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(format, args...)
}
