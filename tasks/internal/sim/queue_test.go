package sim

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// wake is a wake-up that was taken from the list of a queue.
type wake struct{ queue, gen string }

func (h *history) deliverable() bool { return len(h.served()) > 0 }

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
	return wake{q, c.Val()}
}

// deliver gives a token to a worker.
func (h *history) deliver() {
	tokens := h.served()
	q := tokens[h.rng.IntN(len(tokens))]
	free := h.freeWorkers(q)
	h.serveOn(free[h.rng.IntN(len(free))], h.pop(q))
}

// misplaceToken loses a token, or adds one or many that no script has pushed, also to an empty list.
func (h *history) misplaceToken() {
	q := queues[h.rng.IntN(len(queues))]
	if slices.Contains(h.tokens(), q) && h.chance(500) {
		h.event("TOKEN LOST %v", h.pop(q))
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

// resumeQueues ends the pauses of queues, as a tool of asynq does.
func (h *history) resumeQueues() {
	for _, q := range queues {
		h.link.do(redis.NewIntCmd(context.Background(), "del", "asynq:{"+q+"}:paused"))
	}
}
