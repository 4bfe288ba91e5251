package otel

// traceKey is a hash with the spans of one send of a workflow: from the id of a node to the traceparent of its last sampled
// attempt, and from rootField to the traceparent of the common parent span, if the workflow was sent without a trace.
// It expires a day after the start of the last span.
func traceKey(namespace, workflow string) string { return namespace + ":trace:" + workflow }

// rootField is not a node id.
const rootField = "root"
