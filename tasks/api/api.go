// Package api serves the workflows of package tasks over HTTP: it sends tasks by name, returns their states and results,
// streams their progress, completes external tasks, and lists and controls workers and queues. So programs in any language take
// part with an HTTP client.
//
//	handler, err := api.Handler(api.Config{Client: client})
//	http.ListenAndServe("127.0.0.1:8080", handler)
//
//	curl -H 'Content-Type: application/json' -d '{"task": "text.count", "input": "it was a dark night"}' http://127.0.0.1:8080/v1/workflows
//	curl 'http://127.0.0.1:8080/v1/workflows/ID/result?wait=30s'
//
// The handler does not authenticate: whoever reaches it may send tasks, and read their inputs and results. Listen on
// loopback, or wrap it. Errors are problems as in RFC 9457 with a stable code; GET /openapi.json describes all operations.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/internal/httpproblem"
	"muster/internal/humaapi"
	"muster/tasks"
	"muster/tasks/internal/engine"
	"muster/tasks/internal/store"
)

// Access is the kind of access that an operation needs.
type Access int

// Kinds of access.
const (
	Read       Access = iota // reads names, states and times
	ReadValues               // reads inputs or results too
	Change                   // sends, stops, deletes or completes
)

// Config configures the operations.
type Config struct {
	// Client is the connection to Redis. Required. It is not closed.
	Client *tasks.Client
	// Operation changes an operation before it is registered, for example its security. Defaults to no change.
	Operation func(op *huma.Operation, access Access)
	// Stream is called when a stream of events begins. The stream ends with the context that it returns, and then calls end.
	// Its error is the response. Defaults to the context of the request.
	Stream func(ctx context.Context, r *http.Request) (context.Context, func(), error)
	// Logger logs internal errors. Defaults to slog.Default.
	Logger *slog.Logger
}

// Handler returns a handler for the operations below /v1, with their description at /openapi.json.
func Handler(cfg Config) (http.Handler, error) {
	if cfg.Client == nil {
		return nil, errors.New("api: Config.Client is required")
	}
	mux := http.NewServeMux()
	description := huma.DefaultConfig("Tasks", "1")
	description.OpenAPIPath, description.DocsPath, description.SchemasPath = "/openapi", "", ""
	description.CreateHooks = nil // no links to schemas in responses
	Register(humago.New(mux, description), cfg)
	return mux, nil
}

// problems makes the errors of huma problems, for the operations of this package only.
var problems = sync.OnceFunc(func() {
	others := huma.NewErrorWithContext
	huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
		if ctx != nil && ctx.Operation() != nil && ctx.Operation().Metadata[ownKey] != nil {
			return humaapi.NewError(status, message, errs...)
		}
		return others(ctx, status, message, errs...)
	}
})

// ownKey marks the operations of this package in their metadata.
const ownKey = "muster/tasks/api"

// tag groups the operations in the description.
const tag = "workflows"

// Limits of requests.
const (
	maxBody  = 17 << 20 // bytes; the input of a task has at most 16 MiB
	bodyTime = time.Minute
	maxWait  = time.Minute
)

// service has the operations.
type service struct {
	Config
	api huma.API
}

// Register adds the operations to an interface that has others, too.
func Register(api huma.API, cfg Config) {
	problems()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Operation == nil {
		cfg.Operation = func(*huma.Operation, Access) {}
	}
	if cfg.Stream == nil {
		cfg.Stream = func(ctx context.Context, _ *http.Request) (context.Context, func(), error) {
			return ctx, func() {}, nil
		}
	}
	s := &service{cfg, api}
	s.addWorkflows()
	s.addEvents()
	s.addExternal()
	s.addLeases()
	s.addSchedules()
	s.addFleet()
}

// Operation is an operation of the API, declared once: [Register] serves it, and clients call it.
//
// The fields of In have the tags path, query and header, as huma defines them; a field Body is the JSON body.
type Operation[In, Out any] struct{ Declaration }

// Declaration describes an operation.
type Declaration struct {
	Access                    Access
	Method, Path, ID, Summary string
	Problems                  []int // statuses in addition to the common ones
}

// None is an input or output without content.
type None struct{}

// With is an input that has only a body.
type With[T any] struct{ Body T }

// declare returns the operation of a method and a path, as in "GET /v1/workers".
func declare[In, Out any](access Access, pattern, id, summary string, problems ...int) Operation[In, Out] {
	method, path, _ := strings.Cut(pattern, " ")
	return Operation[In, Out]{Declaration{access, method, path, id, summary, problems}}
}

// output is a response that has only a body.
type output[T any] struct{ Body T }

// serve registers an operation.
func serve[In, Out any](s *service, o Operation[In, Out], handle func(context.Context, *In) (Out, error)) {
	route(s, o.Declaration, func(ctx context.Context, in *In) (*output[Out], error) {
		out, err := handle(ctx, in)
		return &output[Out]{out}, err
	})
}

// serveNone is serve for an operation without output.
func serveNone[In any](s *service, o Operation[In, None], handle func(context.Context, *In) error) {
	route(s, o.Declaration, func(ctx context.Context, in *In) (*struct{}, error) { return nil, handle(ctx, in) })
}

// route registers an operation whose response may have headers.
func route[In, R any](s *service, d Declaration, handle func(context.Context, *In) (*R, error)) {
	op := huma.Operation{
		Method: d.Method, Path: d.Path, OperationID: d.ID, Summary: d.Summary, Tags: []string{tag}, Metadata: map[string]any{ownKey: true},
		Errors: append(slices.Clone(d.Problems), http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable),
		Middlewares: huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
			r, _ := humago.Unwrap(ctx)
			next(huma.WithValue(ctx, requestKey{}, r))
		}},
		RejectUnknownQueryParameters: true, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTime,
	}
	s.Operation(&op, d.Access)
	huma.Register(s.api, op, func(ctx context.Context, in *In) (*R, error) {
		out, err := handle(ctx, in)
		if err == nil {
			return out, nil
		}
		p := problemOf(err)
		if p.Status >= http.StatusInternalServerError && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "request failed", "operation", d.ID, "err", err)
		}
		if p.Status == http.StatusServiceUnavailable {
			return nil, huma.ErrorWithHeaders(p, http.Header{"Retry-After": {httpproblem.RetryAfter}})
		}
		return nil, p
	})
}

// requestKey is the key of the request in the context of an operation.
type requestKey struct{}

// begin calls [Config.Stream].
func (s *service) begin(ctx context.Context) (context.Context, func(), error) {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return s.Stream(ctx, r)
}

// known are the errors of package tasks that a client can act on. The first that matches counts.
var known = []httpproblem.Known{
	{Err: engine.ErrNoNode, Status: http.StatusNotFound, Code: "node_not_found"},
	{Err: store.ErrNoSchedule, Status: http.StatusNotFound, Code: "schedule_not_found"},
	{Err: engine.ErrSignals, Status: http.StatusConflict, Code: "too_many_signals"},
	{Err: store.ErrFull, Status: http.StatusConflict, Code: "too_many_ticks"},
	{Err: engine.ErrUnknown, Status: http.StatusNotFound, Code: "workflow_not_found"},
	{Err: tasks.ErrRunning, Status: http.StatusConflict, Code: "workflow_running"},
	{Err: tasks.ErrCompensated, Status: http.StatusConflict, Code: "compensation_failed"},
	{Err: engine.ErrSucceeded, Status: http.StatusConflict, Code: "workflow_succeeded"},
	{Err: tasks.ErrDamaged, Status: http.StatusConflict, Code: "workflow_damaged"},
	{Err: tasks.ErrEnded, Status: http.StatusConflict, Code: "workflow_ended"},
	{Err: tasks.ErrRevoked, Status: http.StatusConflict, Code: "workflow_revoked"},
	{Err: tasks.ErrCancelled, Status: http.StatusConflict, Code: "workflow_cancelled"},
	{Err: tasks.ErrCompleted, Status: http.StatusConflict, Code: "task_completed"},
	{Err: tasks.ErrStale, Status: http.StatusConflict, Code: "stale_token"},
	{Err: tasks.ErrNotOpen, Status: http.StatusConflict, Code: "task_not_open"},
	{Err: engine.ErrNoWorker, Status: http.StatusNotFound, Code: "worker_not_found"},
	{Err: tasks.ErrEvicts, Status: http.StatusServiceUnavailable, Code: "unavailable"},
}

// Codes returns the codes of problems that the operations return beside the usual codes of their statuses.
func Codes() []string {
	var out []string
	for _, k := range known {
		out = append(out, k.Code)
	}
	return append(out, "duplicate_workflow")
}

// RedisProblem returns the problem of an error that means that Redis is unavailable or rejects writes, and nil for another error.
func RedisProblem(err error) *httpproblem.Problem {
	switch {
	case tasks.Refused(err):
		return httpproblem.New(http.StatusServiceUnavailable, "Redis rejects writes: its memory or disk is full, or it is not a master with enough replicas; make room, then try again")
	case tasks.Unavailable(err), errors.Is(err, context.DeadlineExceeded):
		return httpproblem.New(http.StatusServiceUnavailable, "Redis does not respond; try again later")
	}
	return nil
}

// problemOf returns the problem of an error.
func problemOf(err error) *httpproblem.Problem {
	if p, ok := errors.AsType[*httpproblem.Problem](err); ok {
		return p
	}
	if p := httpproblem.OfKnown(err, known); p != nil {
		return p
	}
	switch {
	case errors.Is(err, tasks.ErrCursor):
		return httpproblem.BadField("query.cursor", "%v", err)
	case errors.Is(err, engine.ErrConcurrency):
		return httpproblem.BadField("body.concurrency", "%v", err)
	case errors.Is(err, tasks.ErrInvalid):
		return httpproblem.BadField("body", "%v", err)
	}
	if p := RedisProblem(err); p != nil {
		return p
	}
	return httpproblem.New(http.StatusInternalServerError, "internal server error; the log of the server has the cause")
}

// durationOf returns the duration of a field; 0 if it is empty.
func durationOf(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, httpproblem.BadField(field, "must be a duration such as 90s or 5m, not %.50q", text)
	}
	return d, nil
}
