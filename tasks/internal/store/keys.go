package store

import (
	"hash/crc32"
	"strconv"
	"strings"

	"muster/tasks/tasktype"
)

// Keys makes the names of the keys of a namespace.
type Keys string

// DefaultNamespace is the namespace of clients without another one.
const DefaultNamespace = "muster"

// Prefix begins every key of a workflow and of the shard it lives in, so that one script can change them together on a
// cluster. The scripts get the tag and make the rest of the names themselves. Workflows expire, and workers delete the wake
// hashes of unused queues; Redis deletes the others with their last element.
func (k Keys) Prefix(shard int) string { return string(k) + ":{" + hashTags[shard] + "}:" }

// scriptKeys returns the keys of a script on a shard: the prefix, from which it makes the names of all keys, and another one. Neither is
// in Redis. While a slot of a Cluster moves to another server, Redis rejects calls with several keys of which one is missing, so
// that no script runs on a part of the keys.
func (k Keys) scriptKeys(shard int) []string { return []string{k.Prefix(shard), k.Prefix(shard) + "!"} }

// hashTags are the hash tags of the shards. Each is in another twelfth of the slots, so that two, three, four or six servers
// with equal ranges of slots have equally many shards.
var hashTags = [clusterShards]string{"0", "18", "7", "50", "19", "33", "51", "106", "5", "49", "107", "48"}

// storeKey is the string "<schema> <shards>", written by the first process that uses the store. No expiry.
func (k Keys) storeKey() string { return string(k) + ":store" }

// flowKey is the hash of a workflow: its graphs, the state and result of every node, and counts.
// Expires with the retention once the workflow has ended, or soon if it is never submitted.
//
//	g, g<node>      graph of the workflow, of the plan at a node
//	<node>          record of a node, as in the comment of the package; none while it waits for dependencies without an input
//	j<node>         number of outcomes that a node has received
//	j<node>!        how many members of a map have succeeded
//	m<node>         number of members of a map
//	h<group>        set once a member of the group has held a slot
//	q<node>         set when the node needs no slot, because its member has ended
//	e<node>         last error, while the node is not terminal
//	p<node>         own progress of a running node, "<done>/<total> <thousandths>"
//	p               sum of these thousandths
//	a<node>         the first run and the last eleven that another run followed, a line each: "<run>|<attempt>|<began, unix
//	                ms>|<ended, unix ms>|<outcome>|<worker>|[<code>,<message>]", with the brackets as JSON
//	k<node>         number of the last step of a node
//	k<node>/<n>     a step, "<began, unix ms> <ms it took> <name>" and its value on the next line; the saved value is 0, without a name
//	s<node>         when the plan of a node was stored: ms since the workflow was sent
//	i<node>         literal input of a node; none of a member of a map that has succeeded, or of another node if the inputs are large
//	S<task>         signals that are kept for open nodes of a task, a line each: "<id> <value>"
//	L<task>         id of the last signal of a task that was delivered
//	t<node>         "<attempt> <hash>" of the valid token of the node; the token is invalid after that attempt
//	n z vn vz       tasks and steps: known, terminal
//	ct cc           members of maps: known, terminal
//	d               spans of nodes without records that wait for their time or expire, a line each: "<span> <due, unix ms; 0 once
//	                they are ready> <expiry, unix ms; empty for never> <lane>"
//	D               its deadline, unix ms; none once it was retried after that
//	f               its fairness key, if that is not its id
//	r               letter of the root's outcome
//	v               revision: the time of the last change (unix ms), or one more than the revision before it
//	u               number of the parts of the inputs that are stored, until the workflow is submitted
//	x               1 once the workflow is revoked, c once a client has cancelled it, d once its deadline has, p while it is paused,
//	                q while it waits for the end of the workflow b
//	b               reference of the workflow with the same unique key that ends before this one begins; none once it may begin
//	N               reference of the workflow that waits for the end of this one
//	U               1 until a worker takes the first node, if a workflow with the same unique key may replace this one
//	w               set once a node has waited for an external result
//	O               set once a node has output
//	o               set once a process other than its worker has ended a node
//	y<node>:<cause> set once a catch runs for this cause
//	R               id of the call that retried the workflow last
//	!               why the whole workflow has failed
//
// Two other keys exist while AtMost delays members: flowKey:h<group> (a set of the members that hold a slot) and
// flowKey:w<group> (a list of the waiting members, "<node or span> <lane> <delay>"); both vanish with their last
// element. flowKey:paused is the list of the nodes that became ready while the workflow is paused, "<lane> <element of a ready
// list>"; it vanishes when the pause or the workflow ends. flowKey:log is
// the list of the last 200 log lines of its tasks, as JSON, and flowKey:out the hash of their output, both with the expiry of the workflow.
func (k Keys) flowKey(shard int, ref string) string { return k.Prefix(shard) + "w:" + ref }

// chosenKey is the string with the reference of the latest workflow whose sender chose this id. It expires with the workflow.
func (k Keys) chosenKey(shard int, id string) string { return k.Prefix(shard) + "id:" + id }

// agendaKey is the sorted set of timers and pending steps: "<workflow>/<node or span>" by the time in unix ms. It has
// delayed nodes, and steps that a process has started and may not complete: ready nodes without a task, skips and
// ends of plans to propagate, revocations. An element is removed when its step is completed.
func (k Keys) agendaKey(shard int) string { return k.Prefix(shard) + "agenda" }

// openKey is the sorted set of the nodes of a task that wait for an external result, "<workflow>/<node>", all with
// the score 0, so that they are in lexical order. Vanishes with its last element. The sorted set "opentasks" of the
// shard has the tasks with such a key, all with the score 0; a task whose open nodes belonged to expired workflows is
// removed when the tasks are listed.
func (k Keys) openKey(shard int, task string) string { return k.Prefix(shard) + "open:" + task }

// queueKey is the hash of a queue. It is deleted with its entry in shardQueuesKey.
//
//	paused           since when the queue is paused (unix ms); none while it is not
//	taken            the last take of nodes (unix ms)
//	high             takes of high priority in a row
//	ready:n ready:h  number of ready nodes of each lane, except for workflows of one node on the ring
//	ready:k          number of entries of the ring that are not workflows of one node
func (k Keys) queueKey(shard int, queue string) string { return k.Prefix(shard) + "queue:" + queue }

// shardQueuesKey is the sorted set of queues by the unix hour in which they were used last: had ready nodes in the shard, or a live
// worker. A worker removes those that were not used for a day.
func (k Keys) shardQueuesKey(shard int) string { return k.Prefix(shard) + "queues" }

// takenKey is the list of the entries that a worker has taken from the ring of a queue: a workflow of one node until its result is
// stored or it gets a lease, any other entry until nodes were taken with it.
func (k Keys) takenKey(shard int, queue, worker string) string {
	return k.Prefix(shard) + "taken:" + queue + ":" + worker
}

// takersKey is the sorted set of "<queue>:<worker>" of the workers that may have taken entries or leases, by the time at which they said so last.
func (k Keys) takersKey(shard int) string { return k.Prefix(shard) + "takers" }

// leaseKey is the hash of the leases of a worker: "<workflow>/<node>" to "<unix µs> <call> <lane> <deaths>".
func (k Keys) leaseKey(shard int, worker string) string { return k.Prefix(shard) + "lease:" + worker }

// ringKey is the list on which the workers of a queue block. Its entries are "<workflow>" for a workflow of one node, with a suffix
// "@<n>" after n deaths of workers, "<workflow>/<span>" for the first nodes of others, "=<key>" for a fairness key with a ready list,
// and "+" at the head while highKey has fairness keys. Keys are in the order of their turns.
func (k Keys) ringKey(shard int, queue string) string { return k.Prefix(shard) + "ring:" + queue }

// highKey is the list of the fairness keys that have ready nodes of high priority, in the order of their turns.
func (k Keys) highKey(shard int, queue string) string { return k.Prefix(shard) + "ring:h:" + queue }

// readyKey is the list of the ready nodes of a fairness key in a lane, "n:<queue>" or, for high priority, "h:<queue>": "<workflow>/<span>". A span is a node, or
// "<prefix><first>-<last>" for several. A suffix "@<n>" is the number of workers that have died with it.
func (k Keys) readyKey(shard int, lane, key string) string {
	return k.Prefix(shard) + "ready:" + lane + ":" + key
}

// uniqueKey is the string with the references of the workflows of a unique key, separated by spaces: the latest one, then
// the earlier ones that must end before it begins. On a cluster, where they can be in other slots, the unix ms of the claim follow.
// Its expiry is set by the sender.
func (k Keys) uniqueKey(shard int, key string) string { return k.Prefix(shard) + "u:" + key }

// liveKey is the sorted set of the running workflows of a shard: "<reference> <caption>" by the time when they were
// sent, in unix ms. The key vanishes with its last element. A caption has the tasks of a workflow and, after tabs,
// its name and labels. Workflows of one node are not in it while their entry is on a ring or a taken list, and then without a caption.
func (k Keys) liveKey(shard int) string { return k.Prefix(shard) + "live" }

// doneKey is the sorted set of the last workflows of a shard that ended with a state (S success, F failure, X revoked):
// "<reference> <sent, unix ms> <caption>" by when they ended, in unix ms. That of B has those that were found stuck. Workers cut it to 10,000, 100,000
// for F, and those that a reader of events has not read. No expiry; a workflow in it may have expired.
func (k Keys) doneKey(shard int, state byte) string { return k.Prefix(shard) + "done:" + string(state) }

// cutKey is the hash of the time of the last entry that was cut from doneKey (unix ms), by the state. No expiry.
func (k Keys) cutKey(shard int) string { return k.Prefix(shard) + "cut" }

// readersKey is the hash of the readers of events: name to "<position> <last call, unix ms>", and "!<name>" to how many events were cut that it had
// not read. No expiry. Shard 0 has the position; the others have a copy.
func (k Keys) readersKey(shard int) string { return k.Prefix(shard) + "readers" }

// minutesKey is the hash of counts of an hour (unix hours), by minute: "<minute> <kind> <queue> <task>" to a number.
// The kind is S, F or X for terminal nodes, "again" for attempts that are retried, and ms for the total duration of
// handlers. At most about 20,000 fields. Expires 26 hours after the last new field.
func (k Keys) minutesKey(shard int, hour int64) string {
	return k.Prefix(shard) + "cm:" + strconv.FormatInt(hour, 10)
}

// hoursKey is the same for the hours of a day (unix days): "<hour> <kind> <queue> <task>" to a number. Expires after 31 days.
func (k Keys) hoursKey(shard int, day int64) string {
	return k.Prefix(shard) + "ch:" + strconv.FormatInt(day, 10)
}

// timesKey is the hash of durations of handlers in an hour (unix hours): "<bucket> <queue> <task>" to the number of
// attempts; the buckets are tasktype.Durations. At most about 20,000 fields. Expires 26 hours after its last new
// field.
func (k Keys) timesKey(shard int, hour int64) string {
	return k.Prefix(shard) + "cd:" + strconv.FormatInt(hour, 10)
}

// failsKey is the list of the last nodes of a task that have failed, newest first: "<unix ms> <workflow>/<node>". At
// most 100; a workflow in it may be gone. Expires a day after the last one.
func (k Keys) failsKey(shard int, task string) string { return k.Prefix(shard) + "fails:" + task }

// historyKey is the hash of the values of a measure in an hour (unix hours), by minute: the values by queue, and "" for the sum over all, as JSON.
// At most 300 queues a minute. Expires after 3 hours.
func (k Keys) historyKey(measure tasktype.Measure, hour int64) string {
	return string(k) + ":{history}:" + string(measure) + ":" + strconv.FormatInt(hour, 10)
}

// historyMinuteKey is the string with the worker that stores the values of a minute (unix minutes). Expires after two minutes.
func (k Keys) historyMinuteKey(minute int64) string {
	return string(k) + ":{history}:minute:" + strconv.FormatInt(minute, 10)
}

// workersKey is the sorted set of workers by the time of their last beat, and of "?<worker>" by the time at which that
// worker was first found silent; both in unix ms.
func (k Keys) workersKey() string { return string(k) + ":workers" }

// workerKey is the string with a worker's tasktype.Worker as JSON. Expires without beats.
func (k Keys) workerKey(name string) string { return string(k) + ":worker:" + name }

// samplesKey is the hash of engine.Sample as JSON, by task. Expires 30 days after the last start of a worker.
func (k Keys) samplesKey() string { return string(k) + ":samples" }

// schedulesKey is the sorted set of the names of schedules by when a worker handles them: when the next tick is due (unix ms; half a
// millisecond earlier if they tick often), later while a worker has claimed them. A paused one without requested ticks is not in it.
func (k Keys) schedulesKey(shard int) string { return k.Prefix(shard) + "schedules" }

// scheduleKey is another key of the schedules of a shard. A schedule lives in the shard of its name. No expiry.
//
//	seen          hash: when a worker looked last, and since when one has looked at least every 15 s (unix ms); there since the first schedule
//	names         sorted set of all names, with the score 0
//	group:<group> set of the names of the members of a group
//	work:<name>   string: what a tick sends, as engine.work
//	due:<name>    sorted set of the requested ticks: a letter and the unix ms of the tick, by these ms. The letter is t for a trigger and b
//	              for a backfill or missed ticks. At most 1,000 members, unless missed ticks are requested beside them.
//	e:<name>      hash:
//	  spec jitter      times of the ticks, and the longest random delay (ms)
//	  next due         the next tick (unix ms), and when it is due, as in schedulesKey
//	  overlap catchup  policy for overlapping ticks, if any, and how many missed ticks are sent
//	  group            if it is a member of one
//	  labels tasks     of its workflows: labels as JSON, and names of tasks
//	  ran workflow     the last tick that was sent, and its workflow
//	  sent missed      numbers of ticks
//	  error            why the last tick was not sent
//	  paused           since when it is paused (unix ms); none while it is not
//	  trigger          name of the last call that requested a tick, and that tick
func (k Keys) scheduleKey(shard int, part string) string {
	return k.Prefix(shard) + "schedule:" + part
}

// limitKey is a part of the state of the limits of a shard. The name of a limit for a key is "<limit>\t<key>", with the hash of a key of more
// than 100 bytes. It lives in the shard of its name, and nothing is left of an idle one. A node is "<shard> <workflow>/<node>".
//
//	places:<name>    sorted set of the places, "<node> <call>", by their end (unix ms). Expires a while after the last change
//	reserved:<name>  sorted set of the nodes for which a place is reserved, by its end (unix ms)
//	waiting:<name>   sorted set of the nodes that wait, by the time since when they do (unix us)
//	rules            hash "<n> <period in ms, or 0>" by name, since a node has waited; the agenda has the entry "!limit/<name>", unless it
//	                 allows nothing
//	set              hash of changes: "n <name>", a number, and "h <name>", until when nothing starts (unix ms); "n <limit>" and "h <limit>" are
//	                 those for all keys, in each shard
func (k Keys) limitKey(shard int, part string) string { return k.Prefix(shard) + "limit:" + part }

// batchKey is the sorted set of the nodes that wait for a batch, "<workflow>/<node>", by when they are due (unix ms). Its name is that of
// [BatchName]. Nodes leave the set with a batch; those that have ended or are ready meanwhile are found then. Expires a minute after the last is due.
func (k Keys) batchKey(shard int, name string) string { return k.Prefix(shard) + "batch:" + name }

// unhandledKey is, for the name "<queue> <task>", the sorted set of the nodes that wait for a worker with a handler,
// "<workflow>/<node>", by the end of their wait (unix ms). For an empty name it is the sorted set of these names, by the end of the
// last wait. Both expire two hours after that end.
func (k Keys) unhandledKey(shard int, name string) string {
	if name != "" {
		name = ":" + name
	}
	return k.Prefix(shard) + "unhandled" + name
}

// BusChannel is the channel on which the processes of a database wake each other. Redis shares channels between its databases.
func (k Keys) BusChannel(db int) string { return string(k) + ":bus:" + strconv.Itoa(db) }

// DoneChannel is the channel of the message that a workflow has its value or has ended.
func (k Keys) DoneChannel(ref string) string { return string(k) + ":done:" + ref }

// ChangedChannel is the channel of the other messages that tasks of a workflow have ended or were added.
func (k Keys) ChangedChannel(ref string) string { return string(k) + ":changed:" + ref }

// pongChannel is the channel on which the workers of a database reply to a ping.
func (k Keys) pongChannel(token string, db int) string {
	return string(k) + ":pong:" + token + ":" + strconv.Itoa(db)
}

// AsynqQueue returns the name that a queue has in asynq, whose queues have one namespace.
func (k Keys) AsynqQueue(queue string) string {
	if k == DefaultNamespace {
		return queue
	}
	return string(k) + ":" + queue
}

// OwnQueue undoes AsynqQueue. It returns "" for a queue of another namespace; in the default one, all queues of asynq are its own.
func (k Keys) OwnQueue(name string) string {
	if k == DefaultNamespace {
		return name
	}
	queue, ok := strings.CutPrefix(name, string(k)+":")
	if !ok {
		return ""
	}
	return queue
}

// asynqKey is a key of asynq v0.26.0 for a queue.
//
//	paused     string that is there while the queue is paused
//	pending    list of the ids of its tasks that wait, the next to run last
//	active     list of the ids of its tasks that run
//	archived   sorted set of the ids of its tasks that failed for the last time
//	scheduled  sorted set of the ids of its tasks that wait for their first attempt
//	retry      sorted set of the ids of its tasks that wait for another attempt
//	groups     set of its groups that have tasks
//	t:<id>     hash of a task, whose field pending_since is since when the task waits (unix ns)
func (k Keys) asynqKey(queue, part string) string {
	return "asynq:{" + k.AsynqQueue(queue) + "}:" + part
}

// queuesKey is the set of asynq v0.26.0 of the queues that its tools list. Workers add theirs.
const queuesKey = "asynq:queues"

// progressKey is a public progress key. Expires an hour after its last update.
func progressKey(prefix, id, name string) string { return prefix + ":" + id + ":" + name }

func shardOf(id string, shards int) int {
	if shards == 1 {
		return 0
	}
	return int(crc32.ChecksumIEEE([]byte(id)) % uint32(shards))
}
