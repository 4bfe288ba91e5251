package workqueue

import (
	"strconv"

	"github.com/redis/go-redis/v9"
)

// keys are the Redis keys of a queue. The queue's name is their hash tag, so that they share a slot. They expire only
// after [Queue.Expire].
type keys struct {
	spec    string // hash id → the item: a JSON header, a line break, the payload
	rec     string // hash id → state, counters and worker, see lua/common.lua
	ready   string // sorted set, all scores 0, of lane \0 rank seq \0 id
	lanes   string // sorted set of lanes, scored by their first ready member
	delayed string // sorted set of ids by the unix ms at which they are ready
	leased  string // sorted set of ids by the unix ms at which their lease ends
	note    string // hash id → last error or reason
	result  string // hash id → result
	failed  string // sorted set of ids in state error by unix ms
	meta    string // hash: v (version), state → number of items; lanes (1: counts are kept by lane too, as state \0 lane), endings (1: endings are kept), noted (1: an item may have a note), keep (ms after which ended items are forgotten), seq, token, moves, paused, sealed, settled (the last time; unix ms), beat (unix ms), expired (total number of expired leases), out_bytes (total size of outputs); also the name of the wake-up channel
	out     string // stream of outputs: id, n, before (bytes of those before it, ever), data; or of endings: id, state, lane, note, data
	pools   string // sorted set of running pools by the unix ms until which they count as alive
	refused string // set of ids that were not added because the queue was full, up to 10,000
	ended   string // sorted set of ids by the unix ms at which they ended, if meta has keep
	reader  string // hash of the reader of the outputs: note:NAME, see Outputs.Ack

	db int // the database: Redis shares channels between its databases
}

func newKeys(rdb redis.UniversalClient, namespace, name string) keys {
	db := 0
	if one, ok := rdb.(*redis.Client); ok {
		db = one.Options().DB
	}
	p := namespace + ":wq:{" + name + "}:"
	return keys{
		spec: p + "spec", rec: p + "rec", ready: p + "ready", lanes: p + "lanes",
		delayed: p + "delayed", leased: p + "leased", note: p + "note",
		result: p + "result", failed: p + "failed", meta: p + "meta", out: p + "out",
		pools: p + "pools", reader: p + "reader", refused: p + "refused", ended: p + "ended", db: db,
	}
}

// all lists the keys in the order in which the scripts take them.
func (k keys) all() []string {
	return []string{
		k.spec, k.rec, k.ready, k.lanes, k.delayed, k.leased,
		k.note, k.result, k.failed, k.meta, k.out, k.pools, k.reader, k.refused, k.ended,
	}
}

// wake is the pub/sub channel of the message that items became ready.
func (k keys) wake() string { return k.meta }

// alive is the pub/sub channel that a running pool listens on, so that others
// see when its connections end.
func (k keys) alive(worker string) string { return k.pools + ":" + strconv.Itoa(k.db) + ":" + worker }
