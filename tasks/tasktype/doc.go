// Package tasktype holds the types that describe tasks: what a handler knows about its run, how an attempt ended, and
// what [muster/tasks.Client] returns of workflows, nodes, workers, queues and schedules.
//
// They are plain values without a connection to Redis. JSON names of fields do not change between releases. Durations
// in JSON are nanoseconds, as their names say.
package tasktype
