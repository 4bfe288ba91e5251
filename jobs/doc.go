// Package jobs runs jobs of pipelines: agents and Go tasks take their items and stages, and settle each once.
//
// The record of a job and its queue are all of its state. Whatever changes one of them calls advance, which does the next
// step: it starts a job whose time has come and whose dependencies have ended, opens the next stage, or ends the job.
// Steps may be repeated, by many processes at once. [Service.Run] advances jobs at their time, and sweeps over open jobs
// to repeat steps that a process that died has left undone.
//
// All work of a job is in one workqueue.Queue: its items, and one item for each stage that takes the job. An agent works
// under a lease of such an item, and the token of the lease is the fence that makes a late completion harmless.
//
//	Create ─▶ Take ─▶ Beat… Add… ─▶ Complete | Fail | Release ─▶ Get, Items
//
// The record of a job, the indexes, counters and events are in one slot of Redis. One script changes them together, so
// that a job has one state at any moment and each change has its event.
package jobs
