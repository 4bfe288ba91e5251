package webui

import (
	"errors"
	"fmt"
	"net/http"
)

// pageError is an error with an HTTP status and a page title.
type pageError struct {
	status     int
	title, why string
}

func (e *pageError) Error() string { return e.why }

// NotFound returns an error with status 404.
func NotFound(why string) error { return &pageError{http.StatusNotFound, "Not found", why} }

// Invalid returns an error with status 400.
func Invalid(format string, args ...any) error {
	return &pageError{http.StatusBadRequest, "Invalid request", fmt.Sprintf(format, args...)}
}

// Forbidden returns an error with status 403.
func Forbidden(why string) error { return &pageError{http.StatusForbidden, "Not allowed", why} }

// Refused reports whether an error is of [NotFound], [Invalid] or [Forbidden].
func Refused(err error) bool { return errors.As(err, new(*pageError)) }

// trouble is the content of an error page.
type trouble struct {
	Title, Why string
	Retry      bool // the error may be temporary
}

// explain returns the status and the content of the page of an error.
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
	return http.StatusInternalServerError, trouble{"Cannot show this page", err.Error(), true}
}

// Fail serves the page of an error. It does nothing if the client has disconnected.
func (s *Site) Fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.write(w, s.failed(r, err))
	}
}

// failed returns the page of an error.
func (s *Site) failed(r *http.Request, err error) response {
	code, content := s.explain(err)
	if code == http.StatusInternalServerError && r.Context().Err() == nil {
		s.cfg.Logger.ErrorContext(r.Context(), "page failed", "page", r.URL.Path, "error", err)
	}
	v := s.framed(r, View{Name: content.Title, Data: content})
	v.question = !content.Retry && code != http.StatusNotFound // it may exist later
	return s.execute(code, s.errors, v)
}

// Nothing serves the page for unknown URLs.
func (s *Site) Nothing() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Fail(w, r, NotFound("The page does not exist."))
	})
}
