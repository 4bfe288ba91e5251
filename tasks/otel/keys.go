package otel

// traceKey is the hash of the spans of a workflow: a node to the traceparent of its last attempt.
// Expires a day after the last of them began.
func traceKey(workflow string) string { return "muster:trace:" + workflow }
