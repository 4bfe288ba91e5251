package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/internal/httpproblem"
	"muster/internal/humaapi"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

//go:generate go test -run TestOpenAPIGolden -update .

// The tags of operations, in the order of the description.
const (
	tagJobs     = "jobs"
	tagItems    = "items"
	tagEvents   = "events"
	tagAgents   = "agents"
	tagWork     = "assignments"
	tagPipeline = "pipelines"
	tagWebhooks = "webhooks"
	tagSites    = "sites"
	tagQueues   = "queues"
	tagProxies  = "proxies"
	tagState    = "state"
	tagTasks    = "workflows"
	tagAccess   = "access"
)

// setUp configures huma: names of fields match in their case, and errors are problems.
var setUp = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = humaapi.NewError
})

// newHuma returns the interface without operations. They are added to mux.
func newHuma(mux *http.ServeMux) huma.API {
	setUp()
	format := huma.Format{Marshal: marshal, Unmarshal: unmarshal}
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(typeOf[Object](), typeOf[map[string]any]())
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Muster", Version: "1",
				Description: "Jobs, pipelines, agents and sites of an orchestrator. The response to a failed request is a problem (RFC 9457) " +
					"that names the fields. Every response has the header X-Request-Id, which the request may set. Times are RFC 3339 in UTC. " +
					"x-role of an operation lists the roles that may call it. The role operator includes viewer and agent; admin includes all roles.",
				License: &huma.License{Name: "MIT", Identifier: "MIT"},
			},
			Servers: []*huma.Server{{URL: "/", Description: "where this description comes from"}},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", Description: "a key of muster keys create, of POST /keys or of the setting api.keys, or a JSON Web Token as in the setting api.jwt"},
					"basic":  {Type: "http", Scheme: "basic", Description: "the same as a password, with any user name"},
				},
			},
			Tags: []*huma.Tag{
				{Name: tagJobs, Description: "Jobs and their progress."},
				{Name: tagItems, Description: "The parts of a job, each with its own state."},
				{Name: tagEvents, Description: "Events of jobs, sites and agents, as server-sent events."},
				{Name: tagAgents, Description: "The programs that do the work."},
				{Name: tagWork, Description: "Work leased by an agent. Status 409 means that the lease was lost: stop the work."},
				{Name: tagPipeline, Description: "The stages that jobs go through."},
				{Name: tagWebhooks, Description: "Endpoints that receive events by POST, and the outcome of each delivery."},
				{Name: tagSites, Description: "The sites that are scraped."},
				{Name: tagQueues, Description: "Artifacts that are fetched once each."},
				{Name: tagProxies, Description: "The pool of proxies."},
				{Name: tagTasks, Description: "Workflows of package tasks."},
				{Name: tagState, Description: "Health, numbers and metrics."},
				{Name: tagAccess, Description: "Keys and the audit log."},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
	})
	return api
}

// schemaName returns the name of the schema of a type. Types of sites, proxies and queues, and pages of them, have the name of
// their package: several are called Job and Stats.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	full, generic := t.PkgPath()+"."+t.Name(), ""
	if before, argument, ok := strings.Cut(strings.TrimSuffix(t.Name(), "]"), "["); ok {
		full, generic = argument, before
	}
	pkg := full[:strings.LastIndexByte(full, '.')+1]
	for _, shared := range []string{"muster/sites.", "muster/sites/report.", "muster/proxies.", "muster/tasks/workqueue."} {
		if pkg == shared && t.Name() != "" {
			prefix := path.Base(strings.TrimSuffix(pkg, "."))
			name = generic + strings.ToUpper(prefix[:1]) + prefix[1:] + strings.TrimPrefix(name, generic)
		}
	}
	return name
}

// marshal writes a response. It ignores errors of a disconnected client.
func marshal(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, _ = w.Write(b.Bytes())
	return nil
}

func unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Errorf("%s: a %s cannot be read as %s; write whole numbers without an exponent", wrong.Field, wrong.Value, wrong.Type)
	}
	return err
}

// describe returns an operation with its problems in addition to the common ones.
func describe(s *server, method, path, id, tag, summary string, problems ...int) huma.Operation {
	op := huma.Operation{
		Method: method, Path: path, OperationID: id, Tags: []string{tag}, Summary: summary,
		BodyReadTimeout:              bodyTime,
		RejectUnknownQueryParameters: true,
		Responses:                    map[string]*huma.Response{},
		Security:                     []map[string][]string{{"bearer": {}}, {"basic": {}}, {}},
	}
	problems = append(problems, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusMisdirectedRequest, http.StatusInternalServerError, http.StatusServiceUnavailable)
	s.problems(&op, problems...)
	op.Metadata = map[string]any{}
	needs(&op, access.Operator)
	if method == http.MethodGet {
		needs(&op, access.Viewer)
	}
	return op
}

// Keys of the metadata of an operation.
const (
	roleKey     = "roles"    // of which a caller needs one
	frequentKey = "frequent" // as frequent as work
	optionalKey = "optional" // it needs no key
	waitsKey    = "waits"    // its requests wait for something to happen
)

// needs sets the roles of which an operation takes one. Without it, that is Viewer for reads and Operator for the rest.
func needs(op *huma.Operation, roles ...access.Role) { op.Metadata[roleKey] = roles }

// problemText returns the description of a problem with the given status.
func problemText(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "The request is not valid; errors names the fields."
	case http.StatusUnauthorized:
		return "A key is needed."
	case http.StatusForbidden:
		return "It is not allowed: the role does not suffice, the interface is read-only, the request comes from another web page, or the agent or assignment belongs to another one."
	case http.StatusNotFound:
		return "Not found."
	case http.StatusConflict:
		return "The state does not allow the operation: the job has ended, or the agent has lost the assignment."
	case http.StatusPreconditionFailed:
		return "The job has changed since this version; read it again."
	case http.StatusRequestEntityTooLarge:
		return "The body is too large."
	case http.StatusUnsupportedMediaType:
		return "The body has another media type."
	case http.StatusMisdirectedRequest:
		return "The host name is not known here; see the setting api.hosts."
	case http.StatusUnprocessableEntity:
		return "The Idempotency-Key was used with another request."
	case http.StatusTooManyRequests:
		return "Too many requests; see Retry-After."
	case http.StatusInternalServerError:
		return "An error of the server; its log has the cause under the id of the request."
	case http.StatusBadGateway:
		return "The server of document_url did not return the document."
	case http.StatusServiceUnavailable:
		return "Redis does not respond; see Retry-After."
	}
	return http.StatusText(status)
}

// problems adds responses with problems to an operation.
func (s *server) problems(op *huma.Operation, problems ...int) {
	schema := s.api.OpenAPI().Components.Schemas.Schema(typeOf[Problem](), true, "Problem")
	slices.Sort(problems)
	for _, status := range slices.Compact(problems) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: problemText(status),
			Content:     map[string]*huma.MediaType{problemType: {Schema: schema}},
		}
	}
}

// example adds an example to the response of an operation.
func example(op *huma.Operation, status int, v any) {
	op.Responses[strconv.Itoa(status)] = &huma.Response{Content: map[string]*huma.MediaType{"application/json": {Example: v}}}
}

// answersWith describes a response that is not generated from a Go type.
func answersWith(op *huma.Operation, description string, types ...string) {
	content := map[string]*huma.MediaType{}
	for _, media := range types {
		content[media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		if media == "application/json" {
			content[media].Schema = &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
		}
	}
	op.Responses["200"] = &huma.Response{Description: description, Content: content}
}

// alsoUnversioned returns an operation at its path, which the first release had, and the same operation below /v1.
func (s *server) alsoUnversioned(op huma.Operation) []huma.Operation {
	old := op
	op.Path = "/v1" + op.Path
	old.OperationID += "Unversioned"
	old.Description = "The same as " + op.Method + " " + op.Path + "."
	old.Metadata, old.Responses = maps.Clone(op.Metadata), map[string]*huma.Response{}
	for status, response := range op.Responses {
		r := *response
		old.Responses[status] = &r
	}
	return []huma.Operation{old, op}
}

// operationOf returns a declared operation.
func (s *server) operationOf(d client.Declaration) huma.Operation {
	op := describe(s, d.Method, d.Path, d.ID, d.Tag, d.Summary, d.Problems...)
	op.Description, op.DefaultStatus = d.Description, d.Status
	op.Metadata[roleKey], op.Metadata[frequentKey], op.Metadata[waitsKey] = d.Roles, d.Frequent, d.Waits
	return op
}

// unversioned returns a declared operation at its path without the version, for routeBoth.
func (s *server) unversioned(d client.Declaration) huma.Operation {
	d.Path = strings.TrimPrefix(d.Path, "/v1")
	return s.operationOf(d)
}

// implement adds a declared operation.
func implement[I, O any](s *server, o client.Operation[I, O], handle func(context.Context, *I) (O, error)) {
	route(s, s.operationOf(o.Declaration), maxBody, body(handle))
}

// implementOutput is implement for a response with headers.
func implementOutput[I, O, R any](s *server, o client.Operation[I, O], handle func(context.Context, *I) (*R, error)) {
	route(s, s.operationOf(o.Declaration), maxBody, handle)
}

// implementNone is implement for an operation without output.
func implementNone[I any](s *server, o client.Operation[I, client.None], handle func(context.Context, *I) error) {
	route(s, s.operationOf(o.Declaration), maxBody, func(ctx context.Context, in *I) (*nothing, error) { return nil, handle(ctx, in) })
}

// implementAfter is implement with a limit of the body and a check before it is read.
func implementAfter[I, O any](s *server, o client.Operation[I, O], limit int64, before func(*http.Request) error, handle func(context.Context, *I) (O, error)) {
	routeAfter(s, s.operationOf(o.Declaration), limit, before, body(handle))
}

// routeBoth is route for an operation of alsoUnversioned.
func routeBoth[I, O any](s *server, op huma.Operation, limit int64, handle func(context.Context, *I) (*O, error)) {
	for _, op := range s.alsoUnversioned(op) {
		route(s, op, limit, handle)
	}
}

// route adds an operation, whose JSON body, if any, has at most limit bytes.
func route[I, O any](s *server, op huma.Operation, limit int64, handle func(context.Context, *I) (*O, error)) {
	routeAfter(s, op, limit, nil, handle)
}

// routeAfter is route with a check before the body is read; nil means none.
func routeAfter[I, O any](s *server, op huma.Operation, limit int64, before func(*http.Request) error, handle func(context.Context, *I) (*O, error)) {
	if op.Method == http.MethodPost || op.Method == http.MethodPatch {
		s.problems(&op, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	op.MaxBodyBytes = limit
	if before != nil {
		op.Middlewares = append(op.Middlewares, checkFirst(before))
	}
	prefix := "query."
	if op.Method != http.MethodGet {
		prefix = "body."
	}
	register(s, op, prefix, handle)
}

// checkFirst returns a middleware that calls check before the body of a request is read.
func checkFirst(check func(*http.Request) error) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		if err := check(r); err != nil {
			writeProblem(w, problemOf(err, "path."))
			return
		}
		next(ctx)
	}
}

// register adds an operation whose errors become problems. Field names in errors are relative to prefix.
func register[I, O any](s *server, op huma.Operation, prefix string, handle func(context.Context, *I) (*O, error)) {
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			p := problemOf(err, prefix)
			if p.Status >= http.StatusInternalServerError && ctx.Err() == nil { // else the client has gone
				s.cfg.Logger.WarnContext(ctx, "a request failed", "operation", op.OperationID, "err", err)
			}
			if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
				return nil, huma.ErrorWithHeaders(p, http.Header{"Retry-After": {httpproblem.RetryAfter}})
			}
			return nil, p
		}
		return out, nil
	})
}

// description returns the description of all operations as JSON. It panics if a type cannot be described.
func (s *server) description() []byte {
	raw, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		panic(fmt.Errorf("describe the interface: %w", err))
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		panic(fmt.Errorf("describe the interface: %w", err))
	}
	standard(doc)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		panic(fmt.Errorf("describe the interface: %w", err))
	}
	return b.Bytes()
}

// standard removes the keyword of huma that OpenAPI does not have.
func standard(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "patternDescription")
		for _, value := range v {
			standard(value)
		}
	case []any:
		for _, value := range v {
			standard(value)
		}
	}
}

// A response has only a body.
type response[T any] struct{ Body T }

// body returns the handler of an operation whose response has only a body.
func body[I, T any](handle func(context.Context, *I) (T, error)) func(context.Context, *I) (*response[T], error) {
	return func(ctx context.Context, in *I) (*response[T], error) {
		out, err := handle(ctx, in)
		return &response[T]{out}, err
	}
}
