package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/breaker"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Problem is the response to a request that failed.
type Problem = client.Problem

// ProblemField is an invalid part of a request.
type ProblemField = client.ProblemField

const (
	problemType     = "application/problem+json"
	maxProblems     = 100 // fields of one problem
	maxProblemValue = 100 // bytes of a value that a problem repeats
)

// problem returns a problem with the usual code of its status.
func problem(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: codeOf(status), Detail: fmt.Sprintf(format, args...)}
}

// codeOf returns the usual code of a status. Problems of the services have more specific ones; see serviceProblems.
func codeOf(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "invalid_request"
	case http.StatusUnauthorized:
		return "unauthenticated"
	case http.StatusForbidden:
		return "forbidden"
	case http.StatusNotFound:
		return "not_found"
	case http.StatusMethodNotAllowed:
		return "method_not_allowed"
	case http.StatusConflict:
		return "conflict"
	case http.StatusPreconditionFailed:
		return "version_mismatch"
	case http.StatusRequestEntityTooLarge:
		return "body_too_large"
	case http.StatusUnsupportedMediaType:
		return "unsupported_media_type"
	case http.StatusMisdirectedRequest:
		return "unknown_host"
	case http.StatusTooManyRequests:
		return "too_many_requests"
	case http.StatusServiceUnavailable:
		return "unavailable"
	}
	return "internal_error"
}

// badField is a request with one wrong field.
func badField(location, format string, args ...any) *Problem {
	p := problem(http.StatusBadRequest, "%s", fmt.Sprintf(format, args...))
	p.Errors = []ProblemField{{Location: location, Message: p.Detail}}
	p.Detail = location + ": " + p.Detail
	return p
}

// writeProblem answers a request with a problem.
func writeProblem(w http.ResponseWriter, p *Problem) {
	data, err := json.Marshal(p)
	if err != nil {
		data = []byte(`{"type":"about:blank"}`)
	}
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Del("Content-Length")
	retryLater(h, p.Status)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(data, '\n'))
}

// retryAfter is the default of the header Retry-After, in seconds.
const retryAfter = "5"

// retryLater sets the header Retry-After of statuses that have it.
func retryLater(h http.Header, status int) {
	if (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && h.Get("Retry-After") == "" {
		h.Set("Retry-After", retryAfter)
	}
}

// problemOf returns the problem of an error of the services. Fields of requests
// are below prefix: "body.", "query." or "path.".
func problemOf(err error, prefix string) *Problem {
	var p *Problem
	var field *jobs.FieldError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &field):
		return badField(locationOf(field.Field, prefix), "%s", field.Why)
	case errors.As(err, &tooLarge):
		return bodyTooLarge(tooLarge.Limit)
	case errors.Is(err, errTooLarge), errors.As(err, new(*document.TooLargeError)):
		return problem(http.StatusRequestEntityTooLarge, "%v; see the setting jobs.max_document_mb", err)
	case errors.As(err, new(*sites.UnknownError)):
		return problem(http.StatusNotFound, "%v", err)
	case errors.As(err, new(*sites.RunningError)):
		p := problem(http.StatusConflict, "%v", err)
		p.Code = "scrape_running"
		return p
	case errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, "the request took too long; try again later")
	}
	for _, known := range serviceProblems {
		if errors.Is(err, known.err) {
			p := problem(known.status, "%v", err)
			p.Code = known.code
			return p
		}
	}
	if tasks.Unavailable(err) {
		return problem(http.StatusServiceUnavailable, "Redis does not respond; try again later")
	}
	return problem(http.StatusInternalServerError, "internal server error; the log of the server has the cause under the id of this request, see X-Request-Id")
}

// serviceProblems are the errors of the services that a client can act on.
var serviceProblems = []struct {
	err    error
	status int
	code   string
}{
	{jobs.ErrNotFound, http.StatusNotFound, "job_not_found"},
	{sites.ErrNoJob, http.StatusNotFound, "job_not_found"},
	{sites.ErrNothingLeft, http.StatusConflict, "scrape_complete"},
	{jobs.ErrNoItem, http.StatusNotFound, "item_not_found"},
	{agent.ErrNoAgent, http.StatusNotFound, "agent_not_found"},
	{agent.ErrNoneSuch, http.StatusNotFound, "assignment_not_found"},
	{webhook.ErrNoEndpoint, http.StatusNotFound, "webhook_not_found"},
	{webhook.ErrNoDelivery, http.StatusNotFound, "delivery_not_found"},
	{breaker.ErrNotFound, http.StatusNotFound, "breaker_not_found"},
	{workqueue.ErrNewer, http.StatusConflict, "queue_of_newer_version"},
	{workqueue.ErrFull, http.StatusServiceUnavailable, "unavailable"},
	{proxies.ErrNoSources, http.StatusConflict, "no_proxy_sources"},
	{access.ErrNoKey, http.StatusNotFound, "key_not_found"},
	{jobs.ErrStale, http.StatusPreconditionFailed, "version_mismatch"},
	{jobs.ErrTerminal, http.StatusConflict, "job_ended"},
	{jobs.ErrNotEnded, http.StatusConflict, "job_not_ended"},
	{jobs.ErrStageEnded, http.StatusConflict, "stage_ended"},
	{jobs.ErrLeaseLost, http.StatusConflict, "lease_lost"},
	{jobs.ErrExists, http.StatusConflict, "job_exists"},
	{jobs.ErrNotReview, http.StatusConflict, "item_not_in_review"},
	{webhook.ErrStatic, http.StatusConflict, "webhook_static"},
	{webhook.ErrDisabled, http.StatusConflict, "webhook_disabled"},
	{webhook.ErrOpen, http.StatusConflict, "delivery_not_ended"},
	{webhook.ErrChanged, http.StatusConflict, "webhook_changed"},
	{webhook.ErrTooMany, http.StatusConflict, "too_many_webhooks"},
	{access.ErrTooManyKeys, http.StatusConflict, "too_many_keys"},
	{access.ErrVolatile, http.StatusConflict, "volatile_redis"},
	{document.ErrDownload, http.StatusBadGateway, "download_failed"},
	{jobs.ErrMismatch, http.StatusUnprocessableEntity, "idempotency_key_reused"},
	{agent.ErrNotYours, http.StatusForbidden, "assignment_of_another_agent"},
	{agent.ErrNotAllowed, http.StatusForbidden, "role_not_allowed"},
	{agent.ErrNotOwner, http.StatusForbidden, "agent_of_another_key"},
	{agent.ErrTooMany, http.StatusTooManyRequests, "too_many_agents"},
}

// locationOf is where a field that a service names is in the request.
func locationOf(field, prefix string) string {
	switch field {
	case "job_id", "id":
		return "path.id"
	case "cursor", "limit", "offset", "status", "kind": // of lists
		if prefix != "body." {
			return "query." + field
		}
	}
	return prefix + field
}

func bodyTooLarge(limit int64) *Problem {
	p := problem(http.StatusRequestEntityTooLarge, "the body is too large: at most %d bytes are read here", limit)
	p.Errors = []ProblemField{{Location: "body", Message: p.Detail}}
	return p
}

// missingProperty is how huma says that a property is missing: at the place of
// the object that it should be in.
var missingProperty = regexp.MustCompile(`^expected required property (\S+) to be present$`)

// newError is for huma.NewError: its errors are problems. A request that does not match the schema is a 400.
func newError(status int, message string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	p := problem(status, "%s", message)
	for _, err := range errs {
		e, ok := errors.AsType[*huma.ErrorDetail](err)
		if !ok || len(p.Errors) == maxProblems {
			continue
		}
		f := ProblemField{Location: e.Location, Message: e.Message, Value: shortValue(e.Value)}
		if missing := missingProperty.FindStringSubmatch(e.Message); missing != nil {
			f.Location, f.Message, f.Value = e.Location+"."+missing[1], "is required", nil
		}
		f.Location = cmp.Or(f.Location, "body")
		p.Errors = append(p.Errors, f)
	}
	if len(p.Errors) == 0 && (status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge) {
		p.Errors = []ProblemField{{Location: "body", Message: message}}
	}
	if len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Location + ": " + p.Errors[0].Message
	}
	return p
}

// shortValue returns a value if it is short and plain, else nil.
func shortValue(v any) any {
	switch v := v.(type) {
	case string:
		if len(v) > maxProblemValue || !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return nil
		}
		return v
	case bool, float64, int, int64:
		return v
	}
	return nil
}
