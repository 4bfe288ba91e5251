package otel

// traceKey has the traceparent of the common parent span of one send of a workflow that was sent without a trace.
func traceKey(namespace, workflow string) string { return namespace + ":trace:" + workflow }
