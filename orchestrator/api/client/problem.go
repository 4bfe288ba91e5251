package client

const problemType = "application/problem+json"

// Problem is the response to a request that failed, as defined by RFC 9457, with a code.
type Problem struct {
	Type   string         `json:"type" example:"about:blank" doc:"always about:blank; code has the kind of problem"`
	Title  string         `json:"title" example:"Bad Request"`
	Status int            `json:"status" example:"400"`
	Code   string         `json:"code" example:"invalid_request" doc:"the kind of problem, for programs"`
	Detail string         `json:"detail" example:"body.prompt: is required" doc:"what is wrong and what to do"`
	Errors []ProblemField `json:"errors,omitempty" doc:"the invalid fields, at most 100"`

	// RequestID is the X-Request-Id of the response, which the log of the server has.
	RequestID string `json:"-"`
}

// ProblemField is an invalid part of a request.
type ProblemField struct {
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
func (p *Problem) ContentType(string) string { return problemType }
