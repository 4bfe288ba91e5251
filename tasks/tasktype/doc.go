// Package tasktype holds the types that describe tasks: what a handler knows about its run, how an attempt ended, and
// what [muster/tasks.Client] returns of workflows, nodes, workers, queues and schedules.
//
// They are plain values, without behaviour and without a connection: keep, compare, print and marshal them as you
// like. Where a field has a JSON name, that name does not change. Durations in JSON are nanoseconds, as their names
// say.
package tasktype
