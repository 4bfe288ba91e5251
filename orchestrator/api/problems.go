package api

import (
	"context"
	"errors"
	"net/http"

	"muster/internal/httpproblem"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/orchestrator/access"
	"muster/orchestrator/breaker"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Problem is the response to a request that failed.
type Problem = httpproblem.Problem

// ProblemField is an invalid part of a request.
type ProblemField = httpproblem.Field

const problemType = httpproblem.MediaType

// problem returns a problem with the usual code of its status.
func problem(status int, format string, args ...any) *Problem {
	return httpproblem.New(status, format, args...)
}

// badField is a request with one wrong field.
func badField(location, format string, args ...any) *Problem {
	return httpproblem.BadField(location, format, args...)
}

func writeProblem(w http.ResponseWriter, p *Problem) { httpproblem.Write(w, p) }

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
	case errors.As(err, new(*document.TooLargeError)):
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
