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

// FetchInput says what a Fetch reads: one of three, so that a client that sends tasks cannot read the worker's files
// and environment.
//
//   - a list at an http or https URL, read as it is written: ${NAME} is refused;
//   - with Configured, the source of the same name and URL in the worker's own Config.Sources, which alone says how it
//     is read: files, headers, passwords and ${NAME} come from there;
//   - with List, a list that the sender has read, or with Unread, why the sender could not read it.
type FetchInput struct {
	source.Source
	Configured bool         `json:"configured,omitempty"`
	List       *source.List `json:"list,omitempty"`
	Unread     string       `json:"unread,omitempty"`
}

// errRefused is in the error for an input that asks for what only the settings may name.
var errRefused = errors.New("only the settings of a worker name files and ${NAME}: put the source into proxies.sources there")

// input describes a source to a worker, without its secrets. A file is read here: the worker may run on
// another machine.
func (s *Service) input(ctx context.Context, from source.Source) FetchInput {
	switch {
	case s.cfg.Fetcher.Local(from):
		list, err := s.cfg.Fetcher.Fetch(ctx, bounded(from))
		if err != nil {
			return FetchInput{Source: source.Source{Name: list.Source}, Unread: err.Error()}
		}
		return FetchInput{Source: source.Source{Name: list.Source}, List: &list}
	case plain(from):
		return FetchInput{Source: from}
	}
	return FetchInput{Source: source.Source{Name: from.Name, URL: shown(from.URL)}, Configured: true}
}

// plain reports whether a source holds no secret.
func plain(s source.Source) bool {
	return s.Gateway == "" && len(s.Headers) == 0 && s.Auth == "" && !strings.Contains(s.URL, "${") && shown(s.URL) == s.URL
}

// shown is a URL as it is written, without its password.
func shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if _, has := u.User.Password(); !has {
		return address
	}
	return u.Redacted()
}

// read gets the list of an input.
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
		own, ok := s.configured(from)
		if !ok {
			return source.List{Source: from.Label()}, fmt.Errorf("source %s is not in the settings of this worker: %w", from.Label(), errRefused)
		}
		from = own
	} else if err := adHoc(from); err != nil {
		return source.List{Source: from.Label()}, fmt.Errorf("source %s: %w", from.Label(), err)
	}
	return s.cfg.Fetcher.Fetch(ctx, bounded(from))
}

// configured returns the source of the worker's settings that an input names.
func (s *Service) configured(named source.Source) (source.Source, bool) {
	for _, own := range s.cfg.Sources {
		if shown(own.URL) == named.URL && own.Name == named.Name {
			return own, true
		}
	}
	return source.Source{}, false
}

// adHoc returns why a source that a task brings is not read.
func adHoc(s source.Source) error {
	if scheme, _, _ := strings.Cut(s.URL, "://"); !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return fmt.Errorf("a task may bring an http or https URL, no file: %w", errRefused)
	}
	for _, text := range append([]string{s.URL, s.Auth}, headerTexts(s.Headers)...) {
		if strings.Contains(text, "${") {
			return fmt.Errorf("a task may bring no ${NAME}: %w", errRefused)
		}
	}
	return nil
}

func headerTexts(headers map[string]string) []string {
	var texts []string
	for name, value := range headers {
		texts = append(texts, name, value)
	}
	return texts
}

// bounded takes no more candidates than fit into the result of a task.
func bounded(s source.Source) source.Source {
	s.Max = min(cmp.Or(s.Max, maxPerSource), maxPerSource)
	return s
}
