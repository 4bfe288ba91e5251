package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// wake is a wake-task in the fake of asynq.
type wake struct {
	id    string
	shard int
	queue string
	gen   string
	from  time.Time // when it can be delivered
}

// queue is a fake of asynq: it holds wake-tasks until a worker has a free slot.
type queue struct {
	waiting []wake
	running map[string]int  // by id; an id that waits or runs is not taken again
	old     []wake          // some that were delivered: they may come again
	paused  map[string]bool // queues
}

func newQueue() *queue { return &queue{running: map[string]int{}, paused: map[string]bool{}} }

// put is called by the wakers of processes.
func (h *history) put(p *process, k wake) error {
	k.id = fmt.Sprintf("%d:%s:%s", k.shard, k.queue, k.gen)
	if err := p.wait("wake " + k.id); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[k.id] > 0 || slices.ContainsFunc(h.waiting, func(o wake) bool { return o.id == k.id }) {
		return nil
	}
	h.waiting = append(h.waiting, k)
	return nil
}

// due returns the wake-tasks that can be delivered: their queue has a free worker.
func (h *history) due() (out []int) {
	for i, k := range h.waiting {
		if !k.from.After(time.Now()) && !h.paused[store.BaseQueue(k.queue)] && len(h.freeWorkers(k.queue)) > 0 {
			out = append(out, i)
		}
	}
	return out
}

func (h *history) deliverable() bool {
	return len(h.due()) > 0 || h.scripts.lists && len(h.served()) > 0
}

func wakeupList(queue string) string { return shardPrefix + "wakeup:" + queue }

// served returns the queues and pools whose wake-up lists have tokens, and that have a free worker.
func (h *history) served() []string {
	return slices.DeleteFunc(h.tokens(), func(q string) bool { return len(h.freeWorkers(q)) == 0 })
}

// tokens returns the queues and pools whose wake-up lists have tokens.
func (h *history) tokens() (out []string) {
	pools := redis.NewStringSliceCmd(context.Background(), "smembers", shardPrefix+"pools")
	h.link.do(pools)
	slices.Sort(pools.Val())
	all := append(slices.Clone(queues), pools.Val()...)
	var lens []redis.Cmder
	for _, q := range all {
		lens = append(lens, redis.NewIntCmd(context.Background(), "llen", wakeupList(q)))
	}
	h.link.do(lens...)
	for i, q := range all {
		if lens[i].(*redis.IntCmd).Val() > 0 {
			out = append(out, q)
		}
	}
	return out
}

// pop takes a token from the wake-up list of a queue.
func (h *history) pop(q string) wake {
	c := redis.NewStringCmd(context.Background(), "lpop", wakeupList(q))
	h.link.do(c)
	return wake{id: "token " + q + " " + c.Val(), queue: q, gen: c.Val()}
}

// deliver starts a wake-task on a worker.
func (h *history) deliver() {
	due := h.due()
	if h.scripts.lists {
		if tokens := h.served(); len(tokens) > 0 && (len(due) == 0 || h.chance(500)) {
			q := tokens[h.rng.IntN(len(tokens))]
			free := h.freeWorkers(q)
			h.serveOn(free[h.rng.IntN(len(free))], h.pop(q))
			return
		}
	}
	k := h.waiting[due[h.rng.IntN(len(due))]]
	free := h.freeWorkers(k.queue)
	w := free[h.rng.IntN(len(free))]
	h.waiting = slices.DeleteFunc(h.waiting, func(o wake) bool { return o.id == k.id })
	if len(h.old) < 64 {
		h.old = append(h.old, k)
	}
	h.serveOn(w, k)
}

func (h *history) canMisdeliver() bool { return h.scripts.lists || len(h.waiting)+len(h.old) > 0 }

// misdeliver loses a wake-task or has one delivered again.
func (h *history) misdeliver() {
	if h.scripts.lists {
		h.misplaceToken()
		return
	}
	if len(h.old) > 0 && (len(h.waiting) == 0 || h.chance(500)) {
		k := h.old[h.rng.IntN(len(h.old))]
		h.event("WAKE AGAIN %s", k.id)
		h.waiting = append(h.waiting, k)
		return
	}
	i := h.rng.IntN(len(h.waiting))
	h.event("WAKE LOST %s", h.waiting[i].id)
	h.waiting = slices.Delete(h.waiting, i, i+1)
}

// misplaceToken loses a token, or adds one or many that no script has pushed, also to an empty list.
func (h *history) misplaceToken() {
	q := queues[h.rng.IntN(len(queues))]
	if slices.Contains(h.tokens(), q) && h.chance(500) {
		h.event("TOKEN LOST %s", h.pop(q).id)
		return
	}
	n := 1
	if h.chance(200) {
		n = h.among(2, 20)
	}
	h.event("TOKENS ADDED to %s: %d", q, n)
	for range n {
		h.link.do(redis.NewIntCmd(context.Background(), "rpush", wakeupList(q), h.among(0, 3)))
	}
}
