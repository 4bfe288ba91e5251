package config

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Agent is an agent that work is pushed to without registration.
type Agent struct {
	Name     string   `yaml:"name,omitempty" json:"name,omitempty"` // unique. Defaults to the host of URL
	Role     string   `yaml:"role,omitempty" json:"role,omitempty"` // Role or Roles, or both
	Roles    []string `yaml:"roles,omitempty" json:"roles,omitempty"`
	URL      string   `yaml:"url" json:"url"`
	Capacity int      `yaml:"capacity,omitempty" json:"capacity,omitempty"` // work at a time. Defaults to 1
	Secret   string   `yaml:"secret,omitempty" json:"secret,omitempty"`     // signs what is pushed to it. Defaults to none: not signed
}

// AllRoles are the roles of both fields, each once.
func (a Agent) AllRoles() []string {
	var roles []string
	for _, r := range append([]string{a.Role}, a.Roles...) {
		if r != "" && !slices.Contains(roles, r) {
			roles = append(roles, r)
		}
	}
	return roles
}

// NameOr returns the name, or the host of the URL where there is none.
func (a Agent) NameOr() string {
	if a.Name != "" {
		return a.Name
	}
	if u, err := url.Parse(a.URL); err == nil {
		return u.Host
	}
	return a.URL
}

// CapacityOr returns how much work the agent takes at a time, by default 1.
func (a Agent) CapacityOr() int { return cmp.Or(a.Capacity, 1) }

// shown is the agent for people.
func (a Agent) shown() string {
	text := a.NameOr() + " " + maskURL(a.URL) + " (" + strings.Join(a.AllRoles(), ", ") + ")"
	if a.Capacity > 1 {
		text += fmt.Sprintf(" capacity %d", a.Capacity)
	}
	if a.Secret != "" {
		text += " secret " + masked
	}
	return text
}

// What the name and the role of an agent look like.
var (
	agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:\[\]-]{0,99}$`)
	agentRole = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)
)

// agentURL returns an error unless work could be pushed to a URL.
func agentURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is no URL of an agent; write http://host:port or https://host", maskURL(text))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q: the URL of an agent has no password, no query and no fragment", maskURL(text))
	}
	return nil
}

// agentSecret returns an error unless requests can be signed with a secret. It does not show it.
func agentSecret(secret string) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || secret != "" && len(key) < 16 {
		return errors.New("secret: give at least 16 bytes as base64, as openssl rand -base64 32 prints them")
	}
	return nil
}

// checkAgents says what is wrong with agents, all of it.
func checkAgents(agents []Agent) []error {
	var errs []error
	seen := map[string]bool{}
	for i, a := range agents {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("agent %d: "+format, append([]any{i + 1}, args...)...))
		}
		if a.URL == "" {
			bad("it needs a url")
		} else if err := agentURL(a.URL); err != nil {
			bad("%w", err)
		} else if name := a.NameOr(); !agentName.MatchString(name) {
			bad("name %q: use up to 100 letters, digits, dots, colons, hyphens and underscores", name)
		} else if seen[name] {
			bad("there is another with the name %s; give each a name of its own", name)
		} else {
			seen[name] = true
		}
		if len(a.AllRoles()) == 0 {
			bad("it needs a role, as in role: creator")
		}
		for _, role := range a.AllRoles() {
			if !agentRole.MatchString(role) {
				bad("role %q: use up to 40 small letters, digits, hyphens and underscores", role)
			}
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

// readAgents reads a list whose members are maps.
func readAgents(items []ast.Node) ([]Agent, error) {
	var out []Agent
	for _, item := range items {
		var a Agent
		if err := yaml.NodeToValue(item, &a, yaml.Strict()); err != nil {
			var at yaml.Error
			if errors.As(err, &at) {
				err = errors.New(at.GetMessage())
			}
			return nil, fmt.Errorf("an agent is role: and url:, with name, capacity and secret if needed: %w", err)
		}
		out = append(out, a)
	}
	return out, nil
}

// parseAgents reads agents from one line, as JSON.
func parseAgents(text string) ([]Agent, error) {
	var out []Agent
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("in one line, agents are [{\"role\": …, \"url\": …}]: %w", err)
	}
	return out, nil
}

// agentsText is what parseAgents reads.
func agentsText(agents []Agent) string {
	if len(agents) == 0 {
		return ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(agents) // texts and numbers
	return strings.TrimSpace(b.String())
}

// addAgentURLs adds the agents of CREATOR_AGENT_URL and VALIDATOR_AGENT_URL
// that are not there yet: a child process has them in its settings too.
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
