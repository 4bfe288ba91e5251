package sim

import (
	"context"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/engine"
)

// ring is the ring of a queue in a shard.
type ring struct {
	shard int
	queue string
}

func (r ring) key() string { return shardPrefix(r.shard) + "ring:" + r.queue }

func (h *history) deliverable() bool { return len(h.served()) > 0 }

// served returns the rings that have entries, and a free worker.
func (h *history) served() []ring {
	if len(h.freeWorkers()) == 0 {
		return nil
	}
	return h.rings()
}

// rings returns the rings that have entries, of queues that are not paused.
func (h *history) rings() (out []ring) {
	var all []ring
	var lens []redis.Cmder
	for shard := range h.shards {
		for _, q := range queues {
			all = append(all, ring{shard, q})
		}
	}
	for _, r := range all {
		lens = append(lens, redis.NewIntCmd(context.Background(), "llen", r.key()), redis.NewBoolCmd(context.Background(), "hexists", shardPrefix(r.shard)+"queue:"+r.queue, "paused"))
	}
	h.link.do(lens...)
	for i, r := range all {
		if lens[2*i].(*redis.IntCmd).Val() > 0 && !lens[2*i+1].(*redis.BoolCmd).Val() {
			out = append(out, r)
		}
	}
	return out
}

// move takes an entry from a ring for a worker.
func (h *history) move(r ring, w *worker) string {
	c := redis.NewStringCmd(context.Background(), "lmove", r.key(), shardPrefix(r.shard)+"taken:"+r.queue+":"+w.name, "LEFT", "RIGHT")
	h.link.do(c)
	return c.Val()
}

// deliver gives an entry to a worker. The reply with it can be lost.
func (h *history) deliver() {
	rings, free := h.served(), h.freeWorkers()
	r, w := rings[h.rng.IntN(len(rings))], free[h.rng.IntN(len(free))]
	entry := h.move(r, w)
	h.noteEntry(w.process, entry)
	if !h.calm && h.chance(10*h.plan.replyFaults) {
		h.event("%s DOES NOT HEAR OF %d %s %s", w.name, r.shard, r.queue, repeatable(entry))
		return
	}
	h.serveOn(w, engine.RingEntry{Shard: r.shard, Queue: r.queue, Text: entry})
}

// resumeQueues ends the pauses of queues, as a tool of asynq does.
func (h *history) resumeQueues() {
	for _, q := range queues {
		h.link.do(redis.NewIntCmd(context.Background(), "del", "asynq:{"+q+"}:paused"))
	}
}
