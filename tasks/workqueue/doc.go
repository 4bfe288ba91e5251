// Package workqueue keeps items of work in Redis and hands each to one worker
// at a time, under a lease, until it is settled.
//
// An item has an ID that is its idempotence key: enqueuing it again changes
// nothing, in whatever state it is. It is always in one of five states:
//
//	            ┌── Retry, Return, Pass, Seal, lease expired ────┐
//	            ▼                                                │      ┌─ Amend ─┐
//	Enqueue ─▶ queued ────── Lease ──────▶ in_progress ─ Settle ─┴▶ done | skipped | error
//	            ▲                                                        │
//	            └──────────────────────── Requeue ───────────────────────┘
//
// A [Leased] item carries the token of its lease. Every change of an item is
// one script that compares state and token, so that a worker whose lease has
// expired, and whose item another worker holds by now, changes nothing and gets
// [ErrLeaseLost]. Repeating a call that did its work is a success, not a second
// change. Time is Redis's, never a worker's.
//
// A run that fails (Retry), or whose lease expires, counts as an attempt; when
// the attempts are used up the item ends in error. A lease that is returned
// (Return) does not count, nor does one that a sealed queue ends (Seal). Pass
// makes the item ready as another one of the same ID, for the next kind of
// worker, with all its attempts. EnqueueUnder adds items only while the lease of
// another item holds.
//
// Items name the resources they need (a host, a resolver). Items with the same
// resources form a lane, and [Queue.LeaseWithin] passes over lanes that have no
// budget left without looking at their items: a slow host costs the others
// nothing. Lanes aside, leasing is by priority, then oldest first. A queue that is
// asked to (Config.CountLanes) counts its items by lane, too.
//
// Ended items are kept until Config.Keep has passed, [Queue.Forget] or [Queue.ForgetEnded] removes them, or [Queue.Delete] or
// [Queue.Expire] removes the queue.
//
// [Pool] runs handlers over a queue: dispatcher, heartbeat and workers.
//
// All keys of a queue share one hash slot. Queues are independent of each
// other.
package workqueue
