package logctx

import "context"

// The headers that bring the ids of a context to the tasks of a workflow.
const (
	requestHeader = "muster-request"
	jobHeader     = "muster-job"
)

// Headers returns the headers of a workflow that is sent with ctx: those by which
// its tasks log the request and job of ctx.
func Headers(ctx context.Context) map[string]string {
	out := map[string]string{}
	for name, key := range map[string]string{requestHeader: RequestID, jobHeader: Job} {
		if value := Value(ctx, key); value != "" {
			out[name] = value
		}
	}
	return out
}

// Receive returns a context with the ids of headers that Headers made.
func Receive(ctx context.Context, headers map[string]string) context.Context {
	var args []any
	for name, key := range map[string]string{requestHeader: RequestID, jobHeader: Job} {
		if value := headers[name]; value != "" {
			args = append(args, key, value)
		}
	}
	if len(args) == 0 {
		return ctx
	}
	return With(ctx, args...)
}
