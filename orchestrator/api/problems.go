package api

import (
	"context"
	"errors"
	"net/http"

	"muster/internal/catalog"
	"muster/internal/httpproblem"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/orchestrator/access"
	"muster/orchestrator/archive"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/sites"
	tasksapi "muster/tasks/api"
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
	case errors.As(err, new(*catalog.BrokenError)):
		p := problem(http.StatusConflict, "%v", err)
		p.Code = "invalid_definition"
		return p
	case errors.As(err, new(*sites.RunningError)):
		p := problem(http.StatusConflict, "%v", err)
		p.Code = "scrape_running"
		return p
	case errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, "the request took too long; try again later")
	}
	if p := httpproblem.OfKnown(err, serviceProblems); p != nil {
		return p
	}
	if p := tasksapi.RedisProblem(err); p != nil {
		return p
	}
	return problem(http.StatusInternalServerError, "internal server error; the log of the server has the cause under the id of this request, see X-Request-Id")
}

// serviceProblems are the errors of the services that a client can act on.
var serviceProblems = []httpproblem.Known{
	{Err: jobs.ErrNotFound, Status: http.StatusNotFound, Code: "job_not_found"},
	{Err: sites.ErrNoJob, Status: http.StatusNotFound, Code: "job_not_found"},
	{Err: sites.ErrNoRecord, Status: http.StatusNotFound, Code: "record_not_found"},
	{Err: sites.ErrNothingLeft, Status: http.StatusConflict, Code: "scrape_complete"},
	{Err: jobs.ErrNoItem, Status: http.StatusNotFound, Code: "item_not_found"},
	{Err: agent.ErrNoAgent, Status: http.StatusNotFound, Code: "agent_not_found"},
	{Err: agent.ErrNoneSuch, Status: http.StatusNotFound, Code: "assignment_not_found"},
	{Err: archive.ErrNone, Status: http.StatusNotFound, Code: "no_archive"},
	{Err: archive.ErrNoWorkflow, Status: http.StatusNotFound, Code: "workflow_not_found"},
	{Err: archive.ErrUnavailable, Status: http.StatusServiceUnavailable, Code: "unavailable"},
	{Err: webhook.ErrNoEndpoint, Status: http.StatusNotFound, Code: "webhook_not_found"},
	{Err: webhook.ErrNoDelivery, Status: http.StatusNotFound, Code: "delivery_not_found"},
	{Err: errNoBreaker, Status: http.StatusNotFound, Code: "breaker_not_found"},
	{Err: workqueue.ErrNoQueue, Status: http.StatusNotFound, Code: "queue_not_found"},
	{Err: workqueue.ErrNewer, Status: http.StatusConflict, Code: "queue_of_newer_version"},
	{Err: workqueue.ErrFull, Status: http.StatusServiceUnavailable, Code: "unavailable"},
	{Err: proxies.ErrNoSources, Status: http.StatusConflict, Code: "no_proxy_sources"},
	{Err: access.ErrNoKey, Status: http.StatusNotFound, Code: "key_not_found"},
	{Err: jobs.ErrStale, Status: http.StatusPreconditionFailed, Code: "version_mismatch"},
	{Err: jobs.ErrTerminal, Status: http.StatusConflict, Code: "job_ended"},
	{Err: jobs.ErrNotEnded, Status: http.StatusConflict, Code: "job_not_ended"},
	{Err: jobs.ErrStageEnded, Status: http.StatusConflict, Code: "stage_ended"},
	{Err: jobs.ErrLeaseLost, Status: http.StatusConflict, Code: "lease_lost"},
	{Err: jobs.ErrExists, Status: http.StatusConflict, Code: "job_exists"},
	{Err: jobs.ErrNotReview, Status: http.StatusConflict, Code: "item_not_in_review"},
	{Err: webhook.ErrStatic, Status: http.StatusConflict, Code: "webhook_static"},
	{Err: webhook.ErrDisabled, Status: http.StatusConflict, Code: "webhook_disabled"},
	{Err: webhook.ErrOpen, Status: http.StatusConflict, Code: "delivery_not_ended"},
	{Err: webhook.ErrChanged, Status: http.StatusConflict, Code: "webhook_changed"},
	{Err: webhook.ErrTooMany, Status: http.StatusConflict, Code: "too_many_webhooks"},
	{Err: access.ErrTooManyKeys, Status: http.StatusConflict, Code: "too_many_keys"},
	{Err: document.ErrDownload, Status: http.StatusBadGateway, Code: "download_failed"},
	{Err: jobs.ErrMismatch, Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused"},
	{Err: agent.ErrNotYours, Status: http.StatusForbidden, Code: "assignment_of_another_agent"},
	{Err: agent.ErrNotAllowed, Status: http.StatusForbidden, Code: "role_not_allowed"},
	{Err: agent.ErrNotOwner, Status: http.StatusForbidden, Code: "agent_of_another_key"},
	{Err: agent.ErrTooMany, Status: http.StatusTooManyRequests, Code: "too_many_agents"},
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
