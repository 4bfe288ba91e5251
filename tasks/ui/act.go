package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// errForbidden is an error of a change that is not allowed.
var errForbidden = errors.New("you may not change things here")

const (
	// tokenName is the name of the cookie and of the field of forms that must be equal, so that no other site can send
	// the form: it can neither read nor set the cookie.
	tokenName = "muster_form"
	maxForm   = 4 << 10
)

// action is something that a page can do. GET shows what it will do and asks; POST does it.
type action struct {
	path string
	says func(r *http.Request) (question, error)
	do   func(ctx context.Context, r *http.Request) error
	then func(r *http.Request) string // the path of the page to show afterwards, without the prefix

}

// question is what a person is asked before something is done.
type question struct {
	Title, Text, Do, Back string // Do is the text of the button, Back the page to return to
	Number                string // the value of a field for a number; empty for no field
	NumberLabel           string
	Most                  int
	Danger                bool
	Token                 string
	Path                  string
}

func (s *site) addActions(mux *http.ServeMux) {
	for _, a := range []action{
		{
			path: "/workflows/{id}/revoke",
			says: func(r *http.Request) (question, error) {
				return question{Title: "Revoke workflow " + r.PathValue("id"), Text: "Tasks that have not begun will not run. Those that run are told to stop. What has ended stays. This cannot be undone.", Do: "Revoke the workflow", Danger: true}, nil
			},
			do:   func(ctx context.Context, r *http.Request) error { return s.client.Revoke(ctx, r.PathValue("id")) },
			then: func(r *http.Request) string { return "/workflows/" + url.PathEscape(r.PathValue("id")) },
		},
		{
			path: "/queues/{queue}/pause",
			says: func(r *http.Request) (question, error) {
				return question{Title: "Pause queue " + r.PathValue("queue"), Text: "Workers take no more tasks from it until it is resumed. Those that are running continue.", Do: "Pause the queue"}, nil
			},
			do: func(ctx context.Context, r *http.Request) error {
				return s.client.PauseQueue(ctx, r.PathValue("queue"))
			},
			then: func(*http.Request) string { return "/queues" },
		},
		{
			path: "/queues/{queue}/resume",
			says: func(r *http.Request) (question, error) {
				return question{Title: "Resume queue " + r.PathValue("queue"), Text: "Workers take tasks from it again.", Do: "Resume the queue"}, nil
			},
			do: func(ctx context.Context, r *http.Request) error {
				return s.client.ResumeQueue(ctx, r.PathValue("queue"))
			},
			then: func(*http.Request) string { return "/queues" },
		},
		{
			path: "/workers/{worker}/concurrency",
			says: s.askConcurrency,
			do:   s.setConcurrency,
			then: func(*http.Request) string { return "/workers" },
		},
	} {
		mux.HandleFunc("GET "+s.cfg.Prefix+a.path, s.confirm(a))
		mux.HandleFunc("POST "+s.cfg.Prefix+a.path, s.perform(a))
	}
}

func (s *site) askConcurrency(r *http.Request) (question, error) {
	live, err := s.client.Workers(r.Context())
	if err != nil {
		return question{}, err
	}
	for i := range live {
		if w := &live[i]; w.Name == r.PathValue("worker") {
			return question{
				Title: "Tasks at once of worker " + w.Name, Text: "It holds until the worker restarts.", Do: "Set it",
				Number: strconv.Itoa(w.Concurrency), NumberLabel: fmt.Sprintf("Tasks at once, 1 to %d", w.MaxConcurrency), Most: w.MaxConcurrency,
			}, nil
		}
	}
	return question{}, &notFound{"There is no live worker of this name."}
}

func (s *site) setConcurrency(ctx context.Context, r *http.Request) error {
	n, err := strconv.Atoi(r.PostFormValue("number"))
	if err != nil || n < 1 {
		return fmt.Errorf("%w: give a number from 1 on", errWrong)
	}
	return s.client.SetConcurrency(ctx, r.PathValue("worker"), n)
}

// confirm asks before something is done.
func (s *site) confirm(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.cfg.May(r) {
			s.fail(w, r, errForbidden)
			return
		}
		q, err := a.says(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		q.Token, q.Path, q.Back = s.token(w, r), r.URL.EscapedPath(), s.cfg.Prefix+a.then(r)
		s.write(w, http.StatusOK, confirmPage, s.view(r, q.Title, "", q))
	}
}

// token returns the token of the browser, and gives it one if it has none.
func (s *site) token(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(tokenName); err == nil && len(c.Value) == 32 {
		return c.Value
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	t := hex.EncodeToString(b[:])
	http.SetCookie(w, &http.Cookie{Name: tokenName, Value: t, Path: s.cfg.Prefix + "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	return t
}

// perform does what was asked for.
func (s *site) perform(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if !s.cfg.May(r) {
			s.fail(w, r, errForbidden)
			return
		}
		cookie, err := r.Cookie(tokenName)
		if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.PostFormValue(tokenName))) != 1 {
			s.fail(w, r, fmt.Errorf("%w: the form does not come from these pages, or is old; go back, reload, and try again", errForbidden))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		err = a.do(ctx, r)
		s.cfg.Did(r, r.Pattern, err)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		http.Redirect(w, r, s.cfg.Prefix+a.then(r), http.StatusSeeOther)
	}
}
