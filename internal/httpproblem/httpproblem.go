// Package httpproblem has the responses of HTTP interfaces to requests that fail.
package httpproblem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// MediaType is the media type of a problem.
const MediaType = "application/problem+json"

// Problem is the response to a request that failed, as defined by RFC 9457, with a code.
type Problem struct {
	Type   string  `json:"type" example:"about:blank" doc:"always about:blank; code has the kind of problem"`
	Title  string  `json:"title" example:"Bad Request"`
	Status int     `json:"status" example:"400"`
	Code   string  `json:"code" example:"invalid_request" doc:"the kind of problem, for programs"`
	Detail string  `json:"detail" example:"body.prompt: is required" doc:"cause and remedy"`
	Errors []Field `json:"errors,omitempty" doc:"the invalid fields, at most 100"`

	// RequestID is the X-Request-Id of the response, which the log of the server has.
	RequestID string `json:"-"`
}

// Field is an invalid part of a request.
type Field struct {
	Location string `json:"location" example:"body.items[3].key" doc:"path from body, query, path or header"`
	Message  string `json:"message" example:"expected string"`
	Value    any    `json:"value,omitempty" doc:"the invalid value, if it is short"`
}

// Error returns the detail, with the id of the request if the server failed.
func (p *Problem) Error() string {
	if p.Status >= 500 && p.RequestID != "" {
		return p.Detail + " (request " + p.RequestID + ")"
	}
	return p.Detail
}

// GetStatus returns the status, for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type, for huma.
func (p *Problem) ContentType(string) string { return MediaType }

// New returns a problem with the usual code of its status.
func New(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: codeOf(status), Detail: fmt.Sprintf(format, args...)}
}

// Known is an error that a client can act on, with the status and the code of its problem.
type Known struct {
	Err    error
	Status int
	Code   string
}

// OfKnown returns the problem of the first of some errors that err matches, and nil if it matches none.
func OfKnown(err error, known []Known) *Problem {
	for _, k := range known {
		if errors.Is(err, k.Err) {
			p := New(k.Status, "%v", err)
			p.Code = k.Code
			return p
		}
	}
	return nil
}

// BadField returns the problem of a request with one invalid field.
func BadField(location, format string, args ...any) *Problem {
	p := New(http.StatusBadRequest, format, args...)
	p.Errors = []Field{{Location: location, Message: p.Detail}}
	p.Detail = location + ": " + p.Detail
	return p
}

// codeOf returns the usual code of a status.
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

// Write responds with a problem.
func Write(w http.ResponseWriter, p *Problem) {
	data, err := json.Marshal(p)
	if err != nil {
		data = []byte(`{"type":"about:blank"}`)
	}
	h := w.Header()
	h.Set("Content-Type", MediaType)
	h.Del("Content-Length")
	retryLater(h, p.Status)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(data, '\n'))
}

// RetryAfter is the default of the header Retry-After, in seconds.
const RetryAfter = "5"

// retryLater sets the header Retry-After of statuses that have it.
func retryLater(h http.Header, status int) {
	if (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && h.Get("Retry-After") == "" {
		h.Set("Retry-After", RetryAfter)
	}
}
