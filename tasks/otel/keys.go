package otel

// traceKey is a hash with the spans of a workflow: from the id of a node to the traceparent of its last attempt that was
// sampled, and from rootField to that of the span that is the parent of all, if the workflow was sent without a trace.
// It expires a day after the last of them began.
func traceKey(workflow string) string { return "muster:trace:" + workflow }

// rootField is the id of no node.
const rootField = "root"
