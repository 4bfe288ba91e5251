package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/orchestrator/webhook"
	"muster/sites"
)

// Problem is the answer to a request that failed, as RFC 9457 has it.
type Problem struct {
	Type   string         `json:"type" example:"about:blank" doc:"always about:blank: the status says what kind of problem it is"`
	Title  string         `json:"title" example:"Bad Request"`
	Status int            `json:"status" example:"400"`
	Detail string         `json:"detail" example:"body.prompt: is required" doc:"what is wrong and what to do"`
	Errors []ProblemField `json:"errors,omitempty" doc:"the fields that are wrong, at most 100"`
}

// ProblemField is a part of a request that is wrong.
type ProblemField struct {
	Location string `json:"location" example:"body.items[3].key" doc:"path from body, query, path or header"`
	Message  string `json:"message" example:"expected string"`
	Value    any    `json:"value,omitempty" doc:"what was there, if it is short"`
}

// Error returns what is wrong.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is for huma.
func (p *Problem) ContentType(string) string { return problemType }

const (
	problemType     = "application/problem+json"
	maxProblems     = 100 // fields of one problem
	maxProblemValue = 100 // bytes of a value that a problem repeats
)

func problem(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
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

// retryLater says when to try again, where that helps.
func retryLater(h http.Header, status int) {
	if (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "5")
	}
}

// problemOf returns the problem of an error of the services. Fields of requests
// are below prefix: "body.", "query." or "path.".
func problemOf(err error, prefix string) *Problem {
	var p *Problem
	var field *jobs.FieldError
	var tooLarge *http.MaxBytesError
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &field):
		return badField(locationOf(field.Field, prefix), "%s", field.Why)
	case errors.As(err, &tooLarge):
		return bodyTooLarge(tooLarge.Limit)
	case is(errTooLarge), errors.As(err, new(*document.TooLargeError)):
		return problem(http.StatusRequestEntityTooLarge, "%v; see the setting jobs.max_document_mb", err)
	case is(jobs.ErrNotFound, jobs.ErrNoItem, agent.ErrNoAgent, agent.ErrNoneSuch, webhook.ErrNoEndpoint, webhook.ErrNoDelivery, sites.ErrNoJob), errors.As(err, new(*sites.UnknownError)):
		return problem(http.StatusNotFound, "%v", err)
	case is(jobs.ErrStale):
		return problem(http.StatusPreconditionFailed, "%v", err)
	case is(jobs.ErrTerminal, jobs.ErrStageEnded, jobs.ErrNotEnded, jobs.ErrLeaseLost, jobs.ErrExists, jobs.ErrNotReview, webhook.ErrStatic, webhook.ErrDisabled, webhook.ErrOpen, webhook.ErrChanged, webhook.ErrTooMany):
		return problem(http.StatusConflict, "%v", err)
	case is(jobs.ErrMismatch):
		return problem(http.StatusUnprocessableEntity, "%v", err)
	case is(agent.ErrNotYours, agent.ErrNotAllowed, agent.ErrNotOwner):
		return problem(http.StatusForbidden, "%v", err)
	case is(agent.ErrTooMany):
		return problem(http.StatusTooManyRequests, "%v", err)
	case is(context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, "it took too long; try again later")
	}
	// Redis does not answer, or not as it should.
	return problem(http.StatusServiceUnavailable, "%v", err)
}

// locationOf is where a field that a service names is in the request.
func locationOf(field, prefix string) string {
	switch field {
	case "job_id", "id":
		return "path.id"
	case "cursor", "limit", "offset", "status", "kind":
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

// fromHuma is the problem of a request that huma refused. What huma answers with
// 422 is a bad request here.
func fromHuma(m *huma.ErrorModel) *Problem {
	if m.Status == http.StatusUnprocessableEntity {
		m.Status = http.StatusBadRequest
	}
	p := problem(m.Status, "%s", m.Detail)
	for _, e := range m.Errors {
		if e == nil || len(p.Errors) == maxProblems {
			continue
		}
		f := ProblemField{Location: e.Location, Message: e.Message, Value: shortValue(e.Value)}
		if missing := missingProperty.FindStringSubmatch(e.Message); missing != nil {
			f.Location, f.Message, f.Value = e.Location+"."+missing[1], "is required", nil
		}
		if f.Location == "" {
			f.Location = "body"
		}
		p.Errors = append(p.Errors, f)
	}
	if len(p.Errors) == 0 && m.Status == http.StatusBadRequest {
		p.Errors = []ProblemField{{Location: "body", Message: m.Detail}}
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

// transform is for huma: its problems become ours, with our status.
func transform(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		if p, ok := v.(*Problem); ok && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests) {
			ctx.SetHeader("Retry-After", strconv.Itoa(5))
		}
		return v, nil
	}
	p := fromHuma(m)
	if c, ok := ctx.(*statusContext); ok {
		c.status = p.Status
	}
	return p, nil
}

// humaContext is a name for the context of huma that is none of its methods.
type humaContext = huma.Context

// statusContext is a context of huma whose status can be overridden.
type statusContext struct {
	humaContext
	status int // 0: the one that huma sets
}

// Unwrap is for humago.Unwrap.
func (c *statusContext) Unwrap() huma.Context { return c.humaContext }

// SetStatus sets the status of the answer.
func (c *statusContext) SetStatus(code int) {
	if c.status != 0 {
		code = c.status
	}
	c.humaContext.SetStatus(code)
}

func overridable(ctx huma.Context, next func(huma.Context)) { next(&statusContext{humaContext: ctx}) }
