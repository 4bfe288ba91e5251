// Package tasktype defines the types that describe tasks: the information passed to handlers, the results of
// attempts, and the results of [muster/tasks.Client] for workflows, nodes, workers, queues and schedules.
//
// The types are plain values without a connection to Redis. JSON field names are stable between releases. Durations
// in JSON are in nanoseconds, as indicated by the field names.
package tasktype
