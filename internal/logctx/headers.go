package logctx

import "context"

// carried lists the headers that transport attributes of a context to the tasks of a workflow.
var carried = []struct{ name, attribute string }{{"muster-request", RequestID}, {"muster-job", Job}}

// Headers returns the headers of a workflow that is sent with ctx. They transport the request and the job of ctx to the log lines of
// its tasks.
func Headers(ctx context.Context) map[string]string {
	out := map[string]string{}
	for _, h := range carried {
		if value := Value(ctx, h.attribute); value != "" {
			out[h.name] = value
		}
	}
	return out
}

// Receive returns a context with args and the attributes in headers from Headers. Headers take precedence over args.
func Receive(ctx context.Context, headers map[string]string, args ...any) context.Context {
	for _, h := range carried {
		if value := headers[h.name]; value != "" {
			args = append(args, h.attribute, value)
		}
	}
	if len(args) == 0 {
		return ctx
	}
	return With(ctx, args...)
}
