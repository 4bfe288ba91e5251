package logctx

import "context"

// carried are the headers that bring the ids of a context to the tasks of a workflow.
var carried = []struct{ name, attribute string }{{"muster-request", RequestID}, {"muster-job", Job}}

// Headers returns the headers of a workflow that is sent with ctx: those by which
// its tasks log the request and job of ctx.
func Headers(ctx context.Context) map[string]string {
	out := map[string]string{}
	for _, h := range carried {
		if value := Value(ctx, h.attribute); value != "" {
			out[h.name] = value
		}
	}
	return out
}

// Receive is With for args and the ids of headers that Headers made, which count
// more than those of args.
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
