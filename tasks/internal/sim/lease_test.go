package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// batch is a batch that a worker has taken.
type batch struct {
	worker   string
	elements []string
}

// silence is how long a worker has not beaten before others may find it dead.
const silence = 3500 * time.Millisecond

// note records the leases in the reply of a script. p made the call; it is nil if no process gets the reply.
func (h *history) note(p *process, cmd redis.Cmder) {
	args := cmd.Args()
	text, _ := at(args, 1).(string)
	c, ok := cmd.(*redis.Cmd)
	if !ok || c.Err() != nil {
		return
	}
	said, _ := c.Val().([]any)
	argv := scriptArgs(cmd)
	switch h.scripts.name(text) {
	case "":
		if prefix, _ := at(args, 3).(string); slices.Contains(h.prefixes(), prefix) {
			h.fail("a script with the arguments %.200q is not known by name", args[3:])
		}
	case "turn":
		h.noteBatch(p, said)
	case "finish1":
		if entry, ok := at(said, 2).(string); ok && p != nil {
			h.noteEntry(p, entry)
		}
	case "acquire":
		if w := h.process(p); w != nil && fmt.Sprint(at(said, 0)) == "1" {
			w.leases.acquired(fmt.Sprint(argv[0]), fmt.Sprint(argv[1]), fmt.Sprint(argv[2]), fmt.Sprint(argv[3]))
		}
	case "renew":
		if w := h.process(p); w != nil {
			w.leases.renewed(argv[1:])
		}
	case "beat":
		h.noteBeat(fmt.Sprint(argv[0]), said)
	case "stop":
		switch argv[1] {
		case store.OpPause:
			h.notePause(fmt.Sprint(argv[0]))
		case store.OpCancel, store.OpDeadline: // which ends a pause; it may be the policy of a workflow with the same unique key
			h.flow(store.IDOf(fmt.Sprint(argv[0]))).unpaused()
		}
	case "reap":
		if w := h.worker(fmt.Sprint(argv[0])); w != nil && fmt.Sprint(argv[1]) == "1" {
			w.reaped = len(h.events)
		}
	}
}

// noteBatch notes which nodes a turn gave to a worker.
func (h *history) noteBatch(p *process, said []any) {
	var b batch
	for _, e := range said[min(4, len(said)):] {
		parts, ok := e.([]any)
		if !ok {
			continue
		}
		text := fmt.Sprint(parts[0])
		b.elements = append(b.elements, text)
		if p == nil {
			continue
		}
		el := store.ParseElement(0, text)
		h.checkPause(&el, parts[4:], fmt.Sprint(said[3]))
		for _, node := range el.Nodes {
			key := el.Flow.ID() + "/" + node
			p.took[key] = append(p.took[key], len(h.events))
		}
	}
	if len(b.elements) > 0 && p != nil {
		b.worker = p.name
		h.batches = append(h.batches, b)
	}
}

// noteEntry notes that a worker has an entry of a ring, with the node of a workflow of one task.
func (h *history) noteEntry(p *process, entry string) {
	if id, _, _ := strings.Cut(entry, "~"); store.IsSingle(entry) {
		p.took[id+"/0"] = append(p.took[id+"/0"], len(h.events))
	}
}

// notePause notes that a workflow was perhaps paused at the current time of Redis.
func (h *history) notePause(ref string) {
	now := redis.NewSliceCmd(context.Background(), "hmget", clockKey, "s", "us")
	h.link.do(now)
	var s, us int64
	fmt.Sscan(strings.Trim(fmt.Sprint(now.Val()), "[]"), &s, &us)
	h.flow(store.IDOf(ref)).pausedAt = s*1_000_000 + us
}

// checkPause checks that a batch with nodes of a paused workflow was taken before the pause, unless they have ended: then the
// workflow may have ended, too. batch is "<lane> <unix µs>…".
func (h *history) checkPause(el *store.Element, records []any, batch string) {
	f := h.flow(el.Flow.ID())
	var lane string
	var taken int64
	fmt.Sscan(batch, &lane, &taken)
	if f.pause == "paused" && f.within == 0 && taken > f.pausedAt {
		for _, rec := range records {
			if text, _ := rec.(string); terminal("0", text) {
				return
			}
		}
		h.fail("nodes %s of %s were taken while it was paused", el.Nodes, f.id)
	}
}

// noteBeat checks that only silent workers are found dead.
func (h *history) noteBeat(name string, said []any) {
	if w := h.worker(name); w != nil {
		w.beaten = time.Now()
	}
	var n int
	if len(said) > 0 {
		fmt.Sscan(fmt.Sprint(said[0]), &n)
	}
	for _, dead := range said[min(1, len(said)):min(1+n, len(said))] {
		w := h.worker(fmt.Sprint(dead))
		if w != nil && !w.dead && time.Since(w.beaten) < silence {
			h.fail("worker %s is taken for dead %s after it was heard", w.name, time.Since(w.beaten))
		}
	}
}

// lease is a place of a limit that a worker has.
type lease struct {
	name string // of the limit
	most int
	at   time.Time // when it was acquired or renewed
}

// leases are the places of the concurrencies per key that a worker has or had.
type leases struct {
	of     map[string]*lease // by node: the last
	places map[string]*lease
}

func (l *leases) acquired(name, rule, node, batch string) {
	var n, per int
	fmt.Sscan(rule, &n, &per)
	if per > 0 {
		return
	}
	place := node + " " + batch
	if l.places[place] == nil {
		l.places[place] = &lease{name: name, most: n}
	}
	l.places[place].at = time.Now()
	l.of[node] = l.places[place]
}

func (l *leases) renewed(args []any) {
	for i := 1; i < len(args); i += 2 {
		if le := l.places[fmt.Sprint(args[i])]; le != nil {
			le.at = time.Now()
		}
	}
}

// checkLimit checks that no more nodes of a key run than may, as far as their workers can know.
func (h *history) checkLimit(x *execution, what string) {
	if x.lease == nil || h.lostLimits {
		return
	}
	n := 0
	for _, f := range h.flows {
		for _, list := range f.ran {
			for _, o := range list {
				if o.running && o.lease != nil && o.lease.name == x.lease.name && !o.worker.dead && time.Since(o.lease.at) < store.PlaceLease {
					n++
				}
			}
		}
	}
	if n > x.lease.most {
		h.fail("%d nodes of limit %q run at once, with %s", n, x.lease.name, what)
	}
}

// process returns the worker with a process; nil if there is none.
func (h *history) process(p *process) *worker {
	if p == nil {
		return nil
	}
	return h.worker(p.name)
}

func (h *history) worker(name string) *worker {
	i := slices.IndexFunc(h.workers, func(w *worker) bool { return w.name == name })
	if i < 0 {
		return nil
	}
	return h.workers[i]
}
