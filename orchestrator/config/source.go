package config

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	shown "muster/internal/webhook"
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
		errs = append(errs, fmt.Errorf("source %s: "+format, append([]any{s.shown()}, args...)...))
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
		bad("invalid protocol %q: use one of %s%s", s.Protocol, strings.Join(sourceProtocols, ", "), meant(s.Protocol, sourceProtocols))
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

// Agent is a push agent that needs no registration.
type Agent struct {
	Name     string   `yaml:"name" json:"name,omitempty"` // unique; default: the host of URL
	Role     string   `yaml:"role" json:"role,omitempty"` // Role, Roles or both
	Roles    []string `yaml:"roles" json:"roles,omitempty"`
	URL      string   `yaml:"url" json:"url"`
	Capacity int      `yaml:"capacity" json:"capacity,omitempty"` // concurrent assignments; default 1
	Secret   string   `yaml:"secret" json:"secret,omitempty"`     // signing key for pushes; empty: unsigned
	Key      string   `yaml:"key" json:"key,omitempty"`           // name of the API key that may act for it; empty: only operators
}

// Owner returns the owner of the agent as access.Caller.Owner does, or "" without Key.
func (a Agent) Owner() string {
	if a.Key == "" {
		return ""
	}
	return "key:" + a.Key
}

// AllRoles returns the union of Role and Roles.
func (a Agent) AllRoles() []string {
	var roles []string
	for _, r := range append([]string{a.Role}, a.Roles...) {
		if r != "" && !slices.Contains(roles, r) {
			roles = append(roles, r)
		}
	}
	return roles
}

// NameOr returns the name, by default the host of the URL.
func (a Agent) NameOr() string {
	if a.Name != "" {
		return a.Name
	}
	if u, err := url.Parse(a.URL); err == nil {
		return u.Host
	}
	return a.URL
}

// CapacityOr returns the number of concurrent assignments, by default 1.
func (a Agent) CapacityOr() int { return cmp.Or(a.Capacity, 1) }

// shown returns a description of the agent without secrets.
func (a Agent) shown() string {
	text := a.NameOr() + " " + maskURL(a.URL) + " (" + strings.Join(a.AllRoles(), ", ") + ")"
	if a.Capacity > 1 {
		text += fmt.Sprintf(" capacity %d", a.Capacity)
	}
	if a.Key != "" {
		text += " key " + a.Key
	}
	if a.Secret != "" {
		text += " secret " + masked
	}
	return text
}

// Patterns of agent names and roles.
var (
	agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:\[\]-]{0,99}$`)
	agentKey  = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._:@-]{0,59})?$`) // as the names of keys
	agentRole = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)
)

// agentURL validates the URL of a push agent.
func agentURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("invalid agent URL %q: use http://host:port or https://host", maskURL(text))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("invalid agent URL %q: remove user, query and fragment", maskURL(text))
	}
	return nil
}

// agentSecret validates a signing secret. The error does not contain the secret.
func agentSecret(secret string) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || secret != "" && len(key) < 16 {
		return errors.New("invalid secret: use at least 16 bytes as base64, for example from openssl rand -base64 32")
	}
	return nil
}

// checkAgents returns all errors in agents.
func checkAgents(agents []Agent) []error {
	var errs []error
	seen := map[string]bool{}
	for i, a := range agents {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("agent %d: "+format, append([]any{i + 1}, args...)...))
		}
		if a.URL == "" {
			bad("url is required")
		} else if err := agentURL(a.URL); err != nil {
			bad("%w", err)
		} else if name := a.NameOr(); !agentName.MatchString(name) {
			bad("invalid name %q: use up to 100 letters, digits, dots, colons, hyphens and underscores", name)
		} else if seen[name] {
			bad("duplicate name %s; set a unique name", name)
		} else {
			seen[name] = true
		}
		if len(a.AllRoles()) == 0 {
			bad("a role is required, for example role: creator")
		}
		for _, role := range a.AllRoles() {
			if !agentRole.MatchString(role) {
				bad("invalid role %q: use up to 40 lowercase letters, digits, hyphens and underscores", role)
			}
		}
		if !agentKey.MatchString(a.Key) {
			bad("invalid key %q: use the name of an API key, as in muster keys list", a.Key)
		}
		if err := agentSecret(a.Secret); err != nil {
			bad("%w", err)
		}
		if a.Capacity < 0 || a.Capacity > 1000 {
			bad("capacity %d is out of range; use 1 to 1000", a.Capacity)
		}
	}
	return errs
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
		there := slices.ContainsFunc(l.Agents.Static, func(a Agent) bool {
			return a.URL == at && slices.Contains(a.AllRoles(), role)
		})
		if at == "" || there {
			continue
		}
		if err := agentURL(at); err != nil {
			errs = append(errs, fmt.Errorf("environment %s: %w", name, err))
			continue
		}
		l.Agents.Static = append(slices.Clip(l.Agents.Static), Agent{Name: role, Role: role, URL: at})
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

// shownWebhook returns a description of an endpoint without secrets.
func shownWebhook(w webhook.Static) string {
	text := w.Name + " " + shown.ShownURL(w.URL)
	if len(w.Events) > 0 {
		text += " (" + strings.Join(w.Events, ", ") + ")"
	}
	return text
}

// checkWebhooks returns an error for each invalid endpoint.
func checkWebhooks(list []webhook.Static) []error {
	var errs []error
	seen := map[string]bool{}
	for _, w := range list {
		err := w.Check()
		if err == nil && seen[w.Name] {
			err = fmt.Errorf("webhook %s: duplicate name; set a unique name", w.Name)
		}
		if err != nil {
			errs = append(errs, err)
		}
		seen[w.Name] = true
	}
	return errs
}
