package sim

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// wake is a wake-up list of a queue in a shard, or a wake-up that was taken from it.
type wake struct {
	shard      int
	queue, gen string
}

func (w wake) list() string { return shardPrefix(w.shard) + "wakeup:" + w.queue }

func (h *history) deliverable() bool { return len(h.served()) > 0 }

// served returns the wake-up lists that have tokens, and a free worker.
func (h *history) served() []wake {
	if len(h.freeWorkers()) == 0 {
		return nil
	}
	return h.tokens()
}

// tokens returns the wake-up lists that have tokens.
func (h *history) tokens() (out []wake) {
	var all []wake
	var lens []redis.Cmder
	for shard := range h.shards {
		for _, q := range queues {
			all = append(all, wake{shard: shard, queue: q})
		}
	}
	for _, w := range all {
		lens = append(lens, redis.NewIntCmd(context.Background(), "llen", w.list()))
	}
	h.link.do(lens...)
	for i, w := range all {
		if lens[i].(*redis.IntCmd).Val() > 0 {
			out = append(out, w)
		}
	}
	return out
}

// pop takes a token from a wake-up list.
func (h *history) pop(w wake) wake {
	c := redis.NewStringCmd(context.Background(), "lpop", w.list())
	h.link.do(c)
	w.gen = c.Val()
	return w
}

// deliver gives a token to a worker.
func (h *history) deliver() {
	tokens := h.served()
	w := tokens[h.rng.IntN(len(tokens))]
	free := h.freeWorkers()
	h.serveOn(free[h.rng.IntN(len(free))], h.pop(w))
}

// misplaceToken loses a token, or adds one or many that no script has pushed, also to an empty list.
func (h *history) misplaceToken() {
	w := wake{shard: h.rng.IntN(h.shards), queue: queues[h.rng.IntN(len(queues))]}
	if slices.Contains(h.tokens(), w) && h.chance(500) {
		h.event("TOKEN LOST %v", h.pop(w))
		return
	}
	n := 1
	if h.chance(200) {
		n = h.among(2, 20)
	}
	h.event("TOKENS ADDED to %d %s: %d", w.shard, w.queue, n)
	for range n {
		h.link.do(redis.NewIntCmd(context.Background(), "rpush", w.list(), h.among(0, 3)))
	}
}

// resumeQueues ends the pauses of queues, as a tool of asynq does.
func (h *history) resumeQueues() {
	for _, q := range queues {
		h.link.do(redis.NewIntCmd(context.Background(), "del", "asynq:{"+q+"}:paused"))
	}
}
