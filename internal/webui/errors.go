package webui

import (
	"errors"
	"fmt"
	"net/http"
)

// pageError is an error whose page has a status and a title of its own.
type pageError struct {
	status     int
	title, why string
}

func (e *pageError) Error() string { return e.why }

// NotFound returns an error whose page says 404.
func NotFound(why string) error { return &pageError{http.StatusNotFound, "Not found", why} }

// Invalid returns an error whose page says 400.
func Invalid(format string, args ...any) error {
	return &pageError{http.StatusBadRequest, "That does not work", fmt.Sprintf(format, args...)}
}

// Forbidden returns an error whose page says 403.
func Forbidden(why string) error { return &pageError{http.StatusForbidden, "Not allowed", why} }

// trouble is what the page of an error says.
type trouble struct {
	Title, Why string
	Retry      bool // whether it may be gone soon
}

// explain returns the status of an error, and what its page says.
func (s *Site) explain(err error) (int, trouble) {
	var own *pageError
	if errors.As(err, &own) {
		return own.status, trouble{own.title, own.why, false}
	}
	if s.cfg.Explain != nil {
		if status, title, ok := s.cfg.Explain(err); ok {
			return status, trouble{title, err.Error(), status >= http.StatusInternalServerError}
		}
	}
	return http.StatusInternalServerError, trouble{"This page cannot be shown", err.Error(), true}
}

// Fail serves the page of an error. A reader who has left gets none.
func (s *Site) Fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	code, says := s.explain(err)
	if code == http.StatusInternalServerError {
		s.cfg.Logger.ErrorContext(r.Context(), "page failed", "page", r.URL.Path, "error", err)
	}
	v := s.framed(r, View{Name: says.Title, Data: says})
	v.question = !says.Retry
	s.write(w, code, s.errors, v)
}

// Nothing serves the page of an address without a page.
func (s *Site) Nothing() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Fail(w, r, NotFound("There is no page at this address."))
	})
}
