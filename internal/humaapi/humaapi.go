// Package humaapi configures huma for HTTP interfaces whose errors are problems.
package humaapi

import (
	"cmp"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"muster/internal/httpproblem"
)

const (
	maxProblems     = 100 // fields of one problem
	maxProblemValue = 100 // bytes of a value that a problem repeats
)

// missingProperty matches huma's message for a missing property, which it reports at the location of the object.
var missingProperty = regexp.MustCompile(`^expected required property (\S+) to be present$`)

// NewError is for huma.NewError: it returns problems. A request that does not match the schema is a 400.
func NewError(status int, message string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	p := httpproblem.New(status, "%s", message)
	for _, err := range errs {
		e, ok := errors.AsType[*huma.ErrorDetail](err)
		if !ok || len(p.Errors) == maxProblems {
			continue
		}
		f := httpproblem.Field{Location: e.Location, Message: e.Message, Value: shortValue(e.Value)}
		if missing := missingProperty.FindStringSubmatch(e.Message); missing != nil {
			f.Location, f.Message, f.Value = e.Location+"."+missing[1], "is required", nil
		}
		f.Location = cmp.Or(f.Location, "body")
		p.Errors = append(p.Errors, f)
	}
	if len(p.Errors) == 0 && (status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge) {
		p.Errors = []httpproblem.Field{{Location: "body", Message: message}}
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
