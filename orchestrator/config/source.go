package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"muster/proxies/source"
)

// Source is a list of proxies at a URL or path, with options, or a paid gateway. ${NAME} in URL, Gateway, Headers and Auth is
// replaced with an environment variable of the worker that reads the list, so that files need not contain secrets. The worker
// reads Headers and Auth from its own settings.
type Source struct {
	URL      string            `yaml:"url" json:"url"`
	Name     string            `yaml:"name" json:"name,omitempty"`         // name in reports; default: URL
	Protocol string            `yaml:"protocol" json:"protocol,omitempty"` // protocol of entries without one
	Headers  map[string]string `yaml:"headers" json:"headers,omitempty"`
	Auth     string            `yaml:"auth" json:"auth,omitempty"`       // user:password
	Max      int               `yaml:"max" json:"max,omitempty"`         // maximum number of candidates
	Timeout  string            `yaml:"timeout" json:"timeout,omitempty"` // per read
	Every    string            `yaml:"every" json:"every,omitempty"`     // refresh interval of this source
	// Gateway is the address of a gateway with the placeholders {country} and {session}. It replaces URL; see source.Source.
	Gateway   string   `yaml:"gateway" json:"gateway,omitempty"`
	Countries []string `yaml:"countries" json:"countries,omitempty"`
	Sessions  int      `yaml:"sessions" json:"sessions,omitempty"`
}

// SourcesAt returns sources without options.
func SourcesAt(urls ...string) []Source {
	var out []Source
	for _, u := range urls {
		out = append(out, Source{URL: u})
	}
	return out
}

// TimeoutOr returns the timeout, or the default d. check validates it.
func (s Source) TimeoutOr(d time.Duration) time.Duration { return durationOr(s.Timeout, d) }

// EveryOr returns the refresh interval, or the default d.
func (s Source) EveryOr(d time.Duration) time.Duration { return durationOr(s.Every, d) }

func durationOr(text string, d time.Duration) time.Duration {
	if parsed, err := duration(text); err == nil {
		return parsed
	}
	return d
}

var sourceProtocols = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// check returns all errors of a source.
func (s Source) check() []error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("source %s: "+format, append([]any{s.shown()}, args...)...))
	}
	switch {
	case s.Gateway != "" || len(s.Countries) > 0 || s.Sessions != 0:
		if err := (source.Source{URL: s.URL, Name: s.Name, Gateway: s.Gateway, Countries: s.Countries, Sessions: s.Sessions}).CheckGateway(); err != nil {
			bad("%w", err)
		}
	case strings.TrimSpace(s.URL) == "":
		return []error{errors.New("source without a url")}
	}
	if s.Protocol != "" && !slices.Contains(sourceProtocols, s.Protocol) {
		bad("invalid protocol %q: use one of %s%s", s.Protocol, strings.Join(sourceProtocols, ", "), meant(s.Protocol, sourceProtocols))
	}
	if s.Auth != "" && !strings.Contains(s.Auth, ":") {
		bad("invalid auth: use user:password, for example ${USER}:${PASSWORD}")
	}
	if s.Max < 0 || s.Max > 1_000_000 {
		bad("max %d is out of range; use 1 to 1000000", s.Max)
	}
	for name, text := range map[string]string{"timeout": s.Timeout, "every": s.Every} {
		if text == "" {
			continue
		}
		least, most := time.Second, 10*time.Minute
		if name == "every" {
			least, most = time.Minute, 720*time.Hour
		}
		if d, err := duration(text); err != nil || d < least || d > most {
			bad("invalid %s %q: use a duration from %s to %s", name, text, short(least), short(most))
		}
	}
	return errs
}

// shown returns a description of the source with secrets masked.
func (s Source) shown() string {
	text := maskURL(s.URL)
	if s.Gateway != "" {
		text = "gateway " + masked
	} else if strings.Contains(s.URL, "${") { // not expanded, so it contains no secret and may not parse as a URL
		text = s.URL
		if u, err := url.Parse(s.URL); err == nil && u.User != nil {
			text = maskURL(s.URL)
		}
	}
	var more []string
	for _, part := range []struct{ name, value string }{{"name", s.Name}, {"protocol", s.Protocol}, {"timeout", s.Timeout}, {"every", s.Every}} {
		if part.value != "" {
			more = append(more, part.name+" "+part.value)
		}
	}
	if s.Max > 0 {
		more = append(more, fmt.Sprintf("max %d", s.Max))
	}
	if len(s.Countries) > 0 {
		more = append(more, "countries "+strings.Join(s.Countries, " "))
	}
	if s.Sessions > 0 {
		more = append(more, fmt.Sprintf("sessions %d", s.Sessions))
	}
	if s.Auth != "" {
		more = append(more, "auth "+masked)
	}
	if len(s.Headers) > 0 {
		more = append(more, "headers "+masked)
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	return text
}

// UnmarshalYAML decodes a URL, or a mapping.
func (s *Source) UnmarshalYAML(node ast.Node) error {
	if text, ok := scalar(node); ok {
		s.URL = text
		return nil
	}
	type mapping Source
	return yaml.NodeToValue(node, (*mapping)(s), yaml.Strict())
}
