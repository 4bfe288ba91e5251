package store

import (
	"fmt"
	"hash/crc32"
	"strconv"
)

// Every key of a workflow and of the shard it lives in has the shard's hash tag, so that one script
// can change them together on a cluster.
func tag(shard int) string {
	if shard < len(tags) {
		return tags[shard]
	}
	return newTag(shard)
}

func newTag(shard int) string { return fmt.Sprintf("muster:{s%02d}:", shard) }

// What every call needs is not made anew for each.
var tags, shared = madeOnce()

func madeOnce() (tags []string, shared [][]string) {
	for i := range clusterShards {
		tags = append(tags, newTag(i))
		shared = append(shared, []string{tags[i] + "agenda", tags[i] + "running"})
	}
	return tags, shared
}

// sharedKeys returns the keys of a shard that its workflows have in common. They must not be changed.
func sharedKeys(shard int) []string {
	if shard < len(shared) {
		return shared[shard]
	}
	return []string{agendaKey(shard), runningKey(shard)}
}

// shardsKey is the string with the number of shards, fixed by whoever comes first. No expiry.
const shardsKey = "muster:shards"

// flowKey is the hash of a workflow: its graphs, the state and result of every node, and counts.
// Expires with the retention once the workflow has ended.
//
//	g, g<node>      graph of the workflow, of the plan at a node
//	<node>          state of a node; absent while it waits for others, and while it waits for its first run
//	a<node>         literal input, until the node has succeeded
//	j<node>, j<node>!  how many of the outcomes that a node (the members of a map) waits for are in
//	m<node>         number of members of a map
//	h<group>        members of the group have held places
//	q<node>         what the node would take a place for has ended
//	e<node>, p<node>  last error, own progress, while the node is not terminal
//	n z vn vz       tasks and virtual nodes: known, terminal
//	ct cc           members of maps: known, terminal
//	x               set once the workflow is revoked
//	y<node>:<cause> a catch has seen this cause
//	!               why the workflow was given up as a whole
//
// Beside it live, while AtMost holds members back, flowKey:h<group> (a set of those that have a place)
// and flowKey:w<group> (a list of those that wait); both vanish with their last element.
func flowKey(shard int, id string) string { return tag(shard) + "w:" + id }

// agendaKey is the sorted set of nodes that someone must look at: "<workflow>/<node>" by the time in
// unix ms. It is outbox, timer and watch over what was handed to asynq in one. An element goes when
// its node begins or ends; the key vanishes with its last one.
func agendaKey(shard int) string { return tag(shard) + "agenda" }

// runningKey is the hash of nodes that run: "<workflow>/<node>" to the name of the worker, with a "!" behind
// it once the handler of a suspected node is called.
func runningKey(shard int) string { return tag(shard) + "running" }

// uniqueKey is the string with the id of the workflow that a unique key stands for; on a cluster, where
// the workflow can lie in another slot, "<workflow> <unix ms of the claim>". Expires as the sender asked.
func uniqueKey(shard int, key string) string { return tag(shard) + "u:" + key }

// bellKey is the string that is there while workers of a queue sleep; who puts work into the queue
// removes it and wakes them. Expires a minute after the last of them has looked.
func bellKey(queue string) string { return "muster:{" + queue + "}:bell" }

// workersKey is the sorted set of live workers by the time of their last beat in unix ms.
const workersKey = "muster:workers"

// workerKey is the string with a worker's WorkerInfo. Expires without beats.
func workerKey(name string) string { return "muster:worker:" + name }

// schedulesKey is the sorted set of the names of the schedule's entries, by when they are forgotten in
// unix ms. Expires with the last of them.
const schedulesKey = "muster:{schedule}:names"

// scheduleKey is the hash of an entry of the schedule. Expires a week after a scheduler last had it.
//
//	holder until token  who leads it, until when (unix ms), and which leader that is
//	spec next           its spec; the next tick
//	last                the tick up to which all is decided
//	ran workflow sent   the last tick that was sent, as what; how many were
//	missed error        how many ticks were not; why the last one was not
func scheduleKey(name string) string { return "muster:{schedule}:e:" + name }

// rateKey is, of a task with a rate limit, the list "starts" of the times of its last starts, and the string
// "told" with the last time at which one was told to ask again; both in unix us. Expires when nothing
// follows from it any more.
func rateKey(task, name string) string { return "muster:{rate:" + task + "}:" + name }

// BusChannel is the channel on which processes wake each other.
const BusChannel = "muster:bus"

// DoneChannel is the channel that tells that a workflow has its value or has ended.
func DoneChannel(id string) string { return "muster:done:" + id }

// pongChannel is the channel on which workers answer a ping. Channels are of all databases of a Redis, and
// workers are of one.
func pongChannel(token string, db int) string { return "muster:pong:" + token + ":" + strconv.Itoa(db) }

// asynqKey is a key of asynq v0.26.0 for a queue: the list pending or active of ids of tasks, the string
// paused that is there while it is, the sorted set lease, scheduled, retry, archived or completed of them, or t:<id>, the hash of a task.
func asynqKey(queue, name string) string { return "asynq:{" + queue + "}:" + name }

// asynqQueues is the set of the queues that asynq lists.
const asynqQueues = "asynq:queues"

// progressKey is a public progress key. Expires an hour after its last update.
func progressKey(prefix, id, name string) string { return prefix + ":" + id + ":" + name }

func shardOf(id string, shards int) int {
	if shards == 1 {
		return 0
	}
	return int(crc32.ChecksumIEEE([]byte(id)) % uint32(shards))
}
