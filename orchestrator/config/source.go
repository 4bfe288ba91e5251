package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/nearest"
	"muster/jobs/agent"
	"muster/orchestrator/webhook"
	"muster/proxies/source"
)

// Source is a list of proxies, or a paid gateway. The worker that reads the list expands its references to secrets, so that files need not
// contain them, and reads Headers and Auth from its own settings.
type Source struct {
	source.Source `yaml:",inline"`
	Every         time.Duration `yaml:"every"` // refresh interval of this source
}

// SourcesAt returns sources without options.
func SourcesAt(urls ...string) []Source {
	var out []Source
	for _, u := range urls {
		out = append(out, Source{Source: source.Source{URL: u}})
	}
	return out
}

var sourceProtocols = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// check returns all errors of a source.
func (s Source) check() []error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("source %s: "+format, append([]any{s}, args...)...))
	}
	switch {
	case s.Gateway != "" || len(s.Countries) > 0 || s.Sessions != 0:
		if err := s.CheckGateway(); err != nil {
			bad("%w", err)
		}
	case strings.TrimSpace(s.URL) == "":
		return []error{errors.New("source without a url")}
	}
	if s.Protocol != "" && !slices.Contains(sourceProtocols, s.Protocol) {
		bad("invalid protocol %q: use one of %s%s", s.Protocol, strings.Join(sourceProtocols, ", "), nearest.Hint(s.Protocol, sourceProtocols))
	}
	if s.Auth != "" && !strings.Contains(s.Auth, ":") {
		bad("invalid auth: use user:password, for example ${USER}:${PASSWORD}")
	}
	if s.Max < 0 || s.Max > 1_000_000 {
		bad("max %d is out of range; use 1 to 1000000", s.Max)
	}
	if d := s.Timeout; d != 0 && (d < time.Second || d > 10*time.Minute) {
		bad("invalid timeout %s: use a duration from 1s to 10m", short(d))
	}
	if d := s.Every; d != 0 && (d < time.Minute || d > 720*time.Hour) {
		bad("invalid every %s: use a duration from 1m to 720h", short(d))
	}
	return errs
}

// String returns a description of the source with secrets masked.
func (s Source) String() string {
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
	if s.Name != "" {
		more = append(more, "name "+s.Name)
	}
	if s.Protocol != "" {
		more = append(more, "protocol "+s.Protocol)
	}
	if s.Timeout > 0 {
		more = append(more, "timeout "+short(s.Timeout))
	}
	if s.Every > 0 {
		more = append(more, "every "+short(s.Every))
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

// addAgentURLs adds the agents of CREATOR_AGENT_URL and VALIDATOR_AGENT_URL unless they exist: a child process also receives
// them in its settings.
func (l *Loaded) addAgentURLs(environ []string) []error {
	var errs []error
	for _, role := range []string{"creator", "validator"} {
		var at string
		name := strings.ToUpper(role) + "_AGENT_URL"
		for _, e := range environ {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				at = value
			}
		}
		there := slices.ContainsFunc(l.Agents.Static, func(a agent.Static) bool {
			return a.URL == at && slices.Contains(a.AllRoles(), role)
		})
		if at == "" || there {
			continue
		}
		if err := agent.CheckURL(at); err != nil {
			errs = append(errs, fmt.Errorf("environment %s: %w", name, err))
			continue
		}
		l.Agents.Static = append(slices.Clip(l.Agents.Static), agent.Static{Name: role, Role: role, URL: at})
	}
	return errs
}

// Webhooks configures webhook endpoints.
type Webhooks struct {
	Static  []webhook.Static `yaml:"static" secret:"all"`
	Timeout time.Duration    `yaml:"timeout" range:"1s 1m"`
	Keep    time.Duration    `yaml:"keep" range:"10m 720h"`
}

func defaultWebhooks() Webhooks { return Webhooks{Timeout: 15 * time.Second, Keep: 72 * time.Hour} }
