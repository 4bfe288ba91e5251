package otel

// traceKey is a hash with the spans of a workflow: from the id of a node to the traceparent of its last attempt.
// It expires a day after the last attempt began.
func traceKey(workflow string) string { return "muster:trace:" + workflow }
