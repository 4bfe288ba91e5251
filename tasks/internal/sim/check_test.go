package sim

import (
	"context"
	"errors"
	"hash/crc32"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// hasEnded reports whether all of a workflow has.
func (h *history) hasEnded(f *flow) bool {
	return f.state == "sent" && h.progress(f).Ended
}

// hasFailed reports whether a workflow has no value.
func (h *history) hasFailed(f *flow) bool { return h.progress(f).Status != tasktype.Success }

// progress returns the progress of a workflow.
func (h *history) progress(f *flow) tasktype.Progress {
	p, err := h.observer.Workflow(f.id).Progress(context.Background())
	if f.forgot && errors.Is(err, tasks.ErrNotFound) { // its last send returned while the one before it was not deleted yet
		f.state = ""
		return p
	}
	if err != nil {
		h.fail("progress of %s: %v", f.id, err)
	}
	return p
}

// look checks that no terminal node of a workflow has changed, and records new terminal nodes.
func (h *history) look(f *flow) {
	if f.state == "" {
		return
	}
	ref := redis.NewStringCmd(context.Background(), "get", h.prefixOf(f.id)+"id:"+f.id)
	if h.link.do(ref); f.single {
		ref.SetVal(f.id + "~")
	}
	if ref.Val() != f.ref {
		clear(f.nodes)
		f.ref = ref.Val()
	}
	c := redis.NewMapStringStringCmd(context.Background(), "hgetall", h.prefixOf(f.id)+"w:"+ref.Val())
	h.link.do(c)
	have, err := c.Result()
	if err != nil {
		h.fail("look at %s: %v", f.id, err)
		return
	}
	if have["R"] != f.call {
		clear(f.nodes)
		f.call = have["R"]
	}
	if f.forgot && len(have) == 0 {
		clear(f.nodes)
	}
	for _, node := range slices.Sorted(maps.Keys(f.nodes)) {
		if have[node] != f.nodes[node] {
			h.fail("node %s of %s was %s and is %s", node, f.id, f.nodes[node], have[node])
		}
	}
	for node, rec := range have {
		if terminal(node, rec) {
			f.nodes[node] = rec
		}
	}
	if f.ended && !f.forgot {
		h.checkCounts(f, have)
	}
}

// checkOrder checks that at most one workflow with the unique key is running. A workflow that is retried, or sent again, does not
// wait for others, nor do the tasks that handle failures of a workflow that was cancelled while it waited.
func (h *history) checkOrder() {
	var running []string
	for _, f := range h.flows {
		h.mu.Lock()
		begun := f.overlap != "" && len(f.ran) > 0 && f.state == "sent" && f.retried == "" && !f.forgot
		h.mu.Unlock()
		if begun && !h.hasEnded(f) {
			h.look(f) // which finds its reference
			stopped := redis.NewStringCmd(context.Background(), "hget", h.prefixOf(f.id)+"w:"+f.ref, "x")
			if h.link.do(stopped); stopped.Val() != "" && stopped.Val() != "p" {
				continue
			}
			running = append(running, f.id)
		}
	}
	if len(running) > 1 && !h.lostPlan {
		h.fail("workflows with one unique key run at once: %v", running)
	}
}

// shardPrefix returns the prefix of the keys of a shard.
func shardPrefix(shard int) string { return store.Keys(store.DefaultNamespace).Prefix(shard) }

// prefixes returns the prefixes of the keys of all shards.
func (h *history) prefixes() []string {
	out := make([]string, h.shards)
	for i := range out {
		out[i] = shardPrefix(i)
	}
	return out
}

// shardOf returns the shard of a name: the ID of a workflow, a unique key or the name of a limit.
func (h *history) shardOf(name string) int {
	return int(crc32.ChecksumIEEE([]byte(name)) % uint32(h.shards))
}

// prefixOf returns the prefix of the keys of a workflow.
func (h *history) prefixOf(id string) string { return shardPrefix(h.shardOf(id)) }

// check compares the results of a history with those it must have. It runs outside of the bubble.
func (h *history) check(ctx context.Context) {
	c := tasks.NewClient(h.link.rdb)
	defer func() { _ = c.Close() }()
	for _, f := range h.flows {
		h.checkFlow(ctx, c, f)
	}
	h.checkLeft(ctx)
}

func (h *history) checkFlow(ctx context.Context, c *tasks.Client, f *flow) {
	h.look(f)
	run := tasks.Attach[int](c, f.id)
	nodes, err := c.Workflow(f.id).Nodes(ctx)
	if err != nil {
		h.fail("nodes of %s: %v", f.id, err)
		return
	}
	for _, n := range nodes {
		if !n.Status.Terminal() {
			h.fail("node %s of %s is %s at the end", n.ID, f.id, n.Status)
			return // the result may never come
		}
	}
	got, err := run.Wait(ctx)
	var failure *tasks.Failure
	failed := errors.As(err, &failure)
	if err != nil && !failed {
		h.fail("result of %s: %v", f.id, err)
		return
	}
	if failure == nil {
		failure = &tasks.Failure{}
	}
	if f.loose() {
		return
	}
	if diff := f.want.Differs(got, failed, failure.Message); diff != "" {
		h.fail("%s: %s", f.id, diff)
	}
	faultless := h.plan.faultless()
	if !h.lostPlan && !f.forgot && f.retried == "" { // else a plan may have run in two shapes, or the workflow twice
		for _, diff := range f.runs.Differs(f.ranTasks(!faultless)) {
			h.fail("%s: %s", f.id, diff)
		}
	}
	p, err := run.Progress(ctx)
	if err != nil || p.Done != p.Total || p.ChunksDone != p.Chunks || !p.Ended {
		h.fail("progress of %s is %+v, %v at the end", f.id, p, err)
	}
}

// checkCounts checks the counts of a workflow against its nodes.
func (h *history) checkCounts(f *flow, have map[string]string) {
	ended := 0
	for field, rec := range have {
		if terminal(field, rec) {
			ended++
		}
	}
	count := func(name string) int {
		n, _ := strconv.Atoi(have[name])
		return n
	}
	if n, z, vn, vz := count("n"), count("z"), count("vn"), count("vz"); n != z || vn != vz || z+vz != ended {
		h.fail("%s counts %d of %d tasks and %d of %d other nodes as ended, but %d records are terminal", f.id, z, n, vz, vn, ended)
	}
	if ct, cc := count("ct"), count("cc"); ct != cc {
		h.fail("%s counts %d of %d members of maps as ended", f.id, cc, ct)
	}
}

// terminal reports whether a field of a workflow's hash is a node that has ended.
func terminal(field, rec string) bool {
	return field[0] >= '0' && field[0] <= '9' && len(rec) > 1 && strings.Contains("SFXK", rec[:1]) && rec[1] == '|'
}

// lasting matches the permanent keys. Their number does not grow with the number of workflows; all others expire or
// are deleted.
var lasting = regexp.MustCompile(`^(sim:clock|asynq:queues|muster:store|muster:workers|muster:\{\d+\}:((takers|queues)|(queue|done|cm|ch):.*))$`)

// checkLeft looks for keys that are not needed any more.
func (h *history) checkLeft(ctx context.Context) {
	for _, k := range h.link.rdb.Keys(ctx, "*").Val() {
		if !lasting.MatchString(k) && h.link.rdb.PTTL(ctx, k).Val() == -1 { // -2: it has expired meanwhile
			h.fail("key %s is left: %s", k, dump(ctx, h.link.rdb, k))
		}
	}
	for _, prefix := range h.prefixes() {
		for _, q := range queues {
			have := h.link.rdb.HGetAll(ctx, prefix+"queue:"+q).Val()
			for _, lane := range []string{"ready:n", "ready:h", "ready:k"} {
				if n := have[lane]; n != "" && n != "0" {
					h.fail("queue %s counts %s ready nodes, and has none", q, n)
				}
			}
		}
	}
}

// dump returns the value of a key.
func dump(ctx context.Context, rdb *redis.Client, key string) string {
	switch rdb.Type(ctx, key).Val() {
	case "hash":
		return rdb.HGetAll(ctx, key).String()
	case "list":
		return rdb.LRange(ctx, key, 0, 20).String()
	case "zset":
		return rdb.ZRangeWithScores(ctx, key, 0, 20).String()
	case "set":
		return rdb.SMembers(ctx, key).String()
	}
	return rdb.Get(ctx, key).String()
}
