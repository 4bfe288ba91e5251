package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"muster/proxies/source"
	"muster/tasks"
)

// FetchInput is the input of Fetch. It has three forms, so that a client that can send tasks has no access to the
// worker's files and environment:
//
//   - an http or https URL, used verbatim: ${NAME} is rejected;
//   - with Configured, the source with the same name and URL in the worker's own Settings.Sources, which provides files, headers, passwords and ${NAME};
//   - with List, a list that the sender has read, or with Unread, the sender's error.
type FetchInput struct {
	source.Source
	Configured bool         `json:"configured,omitempty"`
	List       *source.List `json:"list,omitempty"`
	Unread     string       `json:"unread,omitempty"`
}

// errRefused is wrapped by errors for inputs that are allowed in the settings only.
var errRefused = errors.New("files and ${NAME} are allowed in the settings of the worker only; add the source to its proxies.sources")

// input returns the input for a source, without its secrets. Files are read here, because the worker may run on
// another machine.
func (s *Service) input(ctx context.Context, from source.Source) FetchInput {
	switch {
	case s.cfg.Fetcher.Local(from):
		list, err := s.cfg.Fetcher.Fetch(ctx, limitSource(from))
		if err != nil {
			return FetchInput{Source: source.Source{Name: list.Source}, Unread: err.Error()}
		}
		return FetchInput{Source: source.Source{Name: list.Source}, List: &list}
	case plain(from):
		return FetchInput{Source: from}
	}
	return FetchInput{Source: source.Source{Name: from.Name, URL: redactURL(from.URL)}, Configured: true}
}

// plain reports whether a source contains no secrets.
func plain(s source.Source) bool {
	return s.Gateway == "" && len(s.Headers) == 0 && s.Auth == "" && !strings.Contains(s.URL, "${") && redactURL(s.URL) == s.URL
}

// redactURL returns a URL without its password.
func redactURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if _, has := u.User.Password(); !has {
		return address
	}
	return u.Redacted()
}

// read reads the list of an input.
func (s *Service) read(ctx context.Context, in FetchInput) (source.List, error) {
	if in.Unread != "" {
		return source.List{Source: in.Label()}, tasks.Permanent(errors.New(in.Unread))
	}
	if in.List != nil {
		list := *in.List
		list.Source = in.Label()
		list.Candidates = list.Candidates[:min(len(list.Candidates), maxPerSource)]
		return list, nil
	}
	from := in.Source
	if in.Configured {
		own, ok := s.configuredSource(from)
		if !ok {
			return source.List{Source: from.Label()}, fmt.Errorf("source %s is not in the settings of this worker: %w", from.Label(), errRefused)
		}
		from = own
	} else if err := adHoc(from); err != nil {
		return source.List{Source: from.Label()}, fmt.Errorf("source %s: %w", from.Label(), err)
	}
	return s.cfg.Fetcher.Fetch(ctx, limitSource(from))
}

// configuredSource returns the source of the worker's settings that matches an input.
func (s *Service) configuredSource(named source.Source) (source.Source, bool) {
	for _, own := range s.cfg.Settings().Sources {
		if redactURL(own.URL) == named.URL && own.Name == named.Name {
			return own, true
		}
	}
	return source.Source{}, false
}

// adHoc returns an error if a source of a task is not allowed.
func adHoc(s source.Source) error {
	if scheme, _, _ := strings.Cut(s.URL, "://"); !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return fmt.Errorf("a task may contain http and https URLs only: %w", errRefused)
	}
	if strings.Contains(fmt.Sprint(s.URL, s.Auth, s.Headers), "${") {
		return fmt.Errorf("a task must not contain ${NAME}: %w", errRefused)
	}
	return nil
}

// limitSource limits the candidates of a source to the maximum size of a task result.
func limitSource(s source.Source) source.Source {
	s.Max = min(cmp.Or(s.Max, maxPerSource), maxPerSource)
	return s
}
