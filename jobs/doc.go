// Package jobs keeps the jobs of the orchestrator: what was asked for, how far
// it is, and what became of it.
//
// A job of a pipeline is a workflow whose id is that of the job:
//
//	job.start ──▶ job.stage (once for each segment) ──▶ job.finish
//
// job.start waits for the jobs that it comes after. A segment is a stage that
// takes the job, and the stages behind it that take its items; job.stage opens
// it and waits, without holding a worker, until all of its work has ended.
//
// All work of a job, items and the stages that take the job, is in one
// workqueue.Queue: what an agent works on is a lease of an item there, and the
// token of the lease is the fence that makes a late answer harmless.
//
//	Create ─▶ Take ─▶ Beat… Add… ─▶ Complete | Fail | Release ─▶ Get, Items
//
// The record of a job, the indexes, counters and events are in one slot of
// Redis. One script changes them together, so that a job has one state at any
// moment and each change has its event. [Service.Run] sweeps over open jobs and
// repeats what a process that died has left undone.
//
// Jobs of other kinds (scrapes, refreshes) are listed here too, by
// [Service.Track]; a [Kind] reports how they are.
package jobs
