package api

import (
	"net/http"
	"runtime/debug"
)

// recovered logs panics of handlers and responds with a problem, unless the response has begun.
func (c Config) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watched := &statusWriter{ResponseWriter: w}
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { // deliberate: the client must notice that the response is incomplete
				panic(cause)
			}
			c.Logger.ErrorContext(r.Context(), "a request panicked", "request_id", RequestID(r.Context()),
				"route", c.pattern(r), "panic", cause, "stack", string(debug.Stack()))
			if watched.status != 0 {
				panic(http.ErrAbortHandler)
			}
			writeProblem(w, problem(http.StatusInternalServerError, "internal server error; see the server log for this request ID"))
		}()
		next.ServeHTTP(watched, r)
	})
}
