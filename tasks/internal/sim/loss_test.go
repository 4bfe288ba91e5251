package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// saved is a key of Redis.
type saved struct {
	key, dump string
	ttl       time.Duration // 0 for none
}

// save returns all keys.
func (h *history) save() []saved {
	ctx := context.Background()
	keys := redis.NewStringSliceCmd(ctx, "keys", "*")
	h.link.do(keys)
	var out []saved
	for _, key := range keys.Val() {
		if key == clockKey {
			continue
		}
		dump, ttl := redis.NewStringCmd(ctx, "dump", key), redis.NewIntCmd(ctx, "pttl", key)
		h.link.do(dump, ttl)
		out = append(out, saved{key, dump.Val(), time.Duration(max(0, ttl.Val())) * time.Millisecond})
	}
	return out
}

// limitedNodes reports whether nodes wait for a limit.
func (h *history) limitedNodes() bool {
	ctx := context.Background()
	keys := redis.NewStringSliceCmd(ctx, "keys", "muster:{*}:w:*~*")
	h.link.do(keys)
	for _, key := range keys.Val() {
		if strings.Count(key[strings.LastIndexByte(key, '~'):], ":") > 0 {
			continue // of places or of a pause
		}
		values := redis.NewStringSliceCmd(ctx, "hvals", key)
		h.link.do(values)
		if slices.ContainsFunc(values.Val(), func(v string) bool { return strings.HasPrefix(v, "L|") }) {
			return true
		}
	}
	return false
}

// forget makes Redis lose the limits per key of a shard, as a failover in one slot of a Cluster can.
func (h *history) forget() {
	ctx := context.Background()
	h.event("REDIS LOSES THE LIMITS OF A SHARD")
	h.lostLimits = true
	prefix := shardPrefix(h.rng.IntN(h.shards))
	keys := redis.NewStringSliceCmd(ctx, "keys", prefix+"limit:*")
	agenda := redis.NewStringSliceCmd(ctx, "zrange", prefix+"agenda", 0, -1)
	h.link.do(keys, agenda)
	for _, key := range keys.Val() {
		h.link.do(redis.NewIntCmd(ctx, "del", key))
	}
	for _, entry := range agenda.Val() {
		if strings.HasPrefix(entry, "!limit/") {
			h.link.do(redis.NewIntCmd(ctx, "zrem", prefix+"agenda", entry))
		}
	}
}

// restore makes Redis lose all writes since keys were saved, as a failover can. They are the writes of one call,
// which stored a plan.
func (h *history) restore(keys []saved) {
	ctx := context.Background()
	h.event("REDIS LOSES A PLAN")
	h.lostPlan = true
	now := redis.NewStringSliceCmd(ctx, "keys", "*")
	h.link.do(now)
	for _, key := range now.Val() {
		if key != clockKey {
			h.link.do(redis.NewIntCmd(ctx, "del", key))
		}
	}
	for _, k := range keys {
		h.link.do(redis.NewStatusCmd(ctx, "restore", k.key, k.ttl.Milliseconds(), k.dump))
	}
}
