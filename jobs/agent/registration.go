package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/internal/webhook"
	"muster/jobs"
)

// Limits of a registration.
const (
	MaxName     = 100
	MaxRoles    = 20
	MaxCapacity = 1000
	maxLabels   = 20
	MaxURL      = 2000
)

// Registration is a request to register an agent.
type Registration struct {
	Name     string            `json:"name"`             // unique name of up to MaxName characters
	Roles    []string          `json:"roles"`            // 1 to MaxRoles roles of up to 40 lower-case letters, digits, _ and -
	Capacity int               `json:"capacity"`         // maximum number of concurrent assignments, up to MaxCapacity. Defaults to 1.
	URL      string            `json:"url,omitempty"`    // http or https URL; work is pushed to URL/assignments. Defaults to none: the agent polls.
	Labels   map[string]string `json:"labels,omitempty"` // up to 20 labels for display. Defaults to none.
	Secret   string            `json:"secret,omitempty"` // key for signing requests, as in Static. Defaults to none: requests are not signed.
	// Owner is the only agent key that may replace the registration, act for the agent and read its jobs. Defaults to the current
	// owner, and of a Static to none: only operators act for the agent.
	Owner string `json:"owner,omitempty"`
}

// record is the JSON form of an agent in Redis. The ID is the field of the hash. An agent with a URL has a secret, and one of
// the configuration its owner; see keys.owners.
type record struct {
	Registration
	Registered time.Time `json:"registered"`
}

var roleName = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)

func bad(field, format string, args ...any) error {
	return &jobs.FieldError{Field: field, Why: fmt.Sprintf(format, args...)}
}

// isPlainText reports whether a text is valid and has no control characters.
func isPlainText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError })
}

// check returns the record of a registration, or a *job.FieldError.
func (r Registration) check() (record, error) {
	none := record{}
	if strings.TrimSpace(r.Name) != r.Name || r.Name == "" || !isPlainText(r.Name) || utf8.RuneCountInString(r.Name) > MaxName {
		return none, bad("name", "give 1 to %d characters of plain text, without space around them", MaxName)
	}
	if len(r.Roles) == 0 || len(r.Roles) > MaxRoles {
		return none, bad("roles", "give 1 to %d roles", MaxRoles)
	}
	for i, role := range r.Roles {
		if !roleName.MatchString(role) {
			return none, bad(fmt.Sprintf("roles[%d]", i), "a role has 1 to 40 small letters, digits, _ and -")
		}
	}
	if r.Capacity < 0 || r.Capacity > MaxCapacity {
		return none, bad("capacity", "give 1 to %d assignments", MaxCapacity)
	}
	if len(r.Labels) > maxLabels {
		return none, bad("labels", "give at most %d labels", maxLabels)
	}
	for name, value := range r.Labels {
		if name == "" || len(name) > 100 || len(value) > 500 || !isPlainText(name) || !isPlainText(value) {
			return none, bad("labels", "a label has a name of 1 to 100 bytes and a value of up to 500 bytes of plain text")
		}
	}
	if r.URL != "" {
		if err := CheckURL(r.URL); err != nil {
			return none, bad("url", "%v", err)
		}
	}
	r.Roles = slices.Compact(slices.Sorted(slices.Values(r.Roles)))
	r.Capacity, r.URL, r.Labels, r.Secret, r.Owner = max(r.Capacity, 1), strings.TrimRight(r.URL, "/"), maps.Clone(r.Labels), "", ""
	return record{Registration: r}, nil
}

// CheckURL checks the URL of an agent.
func CheckURL(text string) error {
	if err := webhook.CheckURL(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || !isPlainText(text):
		return errors.New("this is not a URL")
	case u.RawQuery != "" || u.ForceQuery:
		return errors.New("give a URL without query")
	case slices.Contains(strings.Split(u.Path, "/"), "..") || slices.Contains(strings.Split(u.Path, "/"), "."):
		return errors.New("the path must not have the segments . or .. in it")
	}
	return nil
}

// Static is an agent of the configuration. Work is pushed to it.
type Static struct {
	Name     string   `yaml:"name" json:"name,omitempty"` // unique; default: the host of URL
	Role     string   `yaml:"role" json:"role,omitempty"` // Role, Roles or both
	Roles    []string `yaml:"roles" json:"roles,omitempty"`
	URL      string   `yaml:"url" json:"url"`
	Capacity int      `yaml:"capacity" json:"capacity,omitempty"` // concurrent assignments; default 1
	Secret   string   `yaml:"secret" json:"secret,omitempty"`     // signing key for pushes; empty: unsigned
	Key      string   `yaml:"key" json:"key,omitempty"`           // name of the API key that may act for it; empty: only operators
}

// AllRoles returns Role and Roles.
func (a Static) AllRoles() []string {
	return slices.DeleteFunc(append([]string{a.Role}, a.Roles...), func(role string) bool { return role == "" })
}

// String returns a description without secrets.
func (a Static) String() string {
	text := strings.TrimSpace(a.Name+" "+webhook.ShownURL(a.URL)) + " (" + strings.Join(a.AllRoles(), ", ") + ")"
	if a.Capacity > 1 {
		text += fmt.Sprintf(" capacity %d", a.Capacity)
	}
	if a.Key != "" {
		text += " key " + a.Key
	}
	if a.Secret != "" {
		text += " secret xxxxx"
	}
	return text
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,59}$`)

func (a Static) record() (record, error) {
	if err := CheckURL(a.URL); err != nil {
		return record{}, bad("url", "%v", err)
	}
	r := Registration{Name: a.Name, Roles: a.AllRoles(), Capacity: a.Capacity, URL: a.URL}
	if u, err := url.Parse(a.URL); err == nil && r.Name == "" {
		r.Name = u.Host
	}
	rec, err := r.check()
	if err != nil {
		return rec, err
	}
	if a.Secret != "" {
		if err := webhook.CheckSecret(a.Secret); err != nil {
			return rec, bad("secret", "%v", err)
		}
		rec.Secret = a.Secret
	}
	if a.Key != "" {
		if !keyName.MatchString(a.Key) {
			return rec, bad("key", "use the name of an API key, as in muster keys list")
		}
		rec.Owner = "key:" + a.Key
	}
	return rec, nil
}

// CheckStatic returns an error for each agent that is invalid.
func CheckStatic(agents []Static) []error {
	_, errs := staticRecords(agents)
	return errs
}

func staticRecords(agents []Static) (recs []record, errs []error) {
	seen := map[string]bool{}
	for i, a := range agents {
		rec, err := a.record()
		if err == nil && seen[rec.Name] {
			err = fmt.Errorf("duplicate name %s; set a unique name", rec.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("agent %d: %w", i+1, err))
		}
		seen[rec.Name] = true
		recs = append(recs, rec)
	}
	return recs, errs
}

// slug returns the name as a part of an id: small letters, digits and -.
func slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 40 {
			break
		}
	}
	if text := strings.Trim(b.String(), "-"); text != "" {
		return text
	}
	return "agent"
}

// idOf returns the id of the agent with a name.
func idOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return slug(name) + "-" + hex.EncodeToString(sum[:6])
}

// prefix is a URL below which agents may have theirs.
type prefix struct{ scheme, host, path string }

func parsePrefix(text string) (prefix, error) {
	if err := CheckURL(text); err != nil {
		return prefix{}, fmt.Errorf("%q: give the beginning of a URL, as in http://10.0.0.7:8001", text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return prefix{}, err
	}
	return prefix{u.Scheme, hostPort(u), strings.TrimRight(u.EscapedPath(), "/")}, nil
}

// hostPort returns the host of a URL with its port, also if that is the one of the scheme.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + " " + port
}

// allows reports whether a URL is below one of Config.Allow.
func (p *policy) allows(url string) bool {
	return slices.ContainsFunc(p.allow, func(pre prefix) bool { return pre.allows(url) })
}

// allows reports whether a URL is the prefix or below it.
func (p prefix) allows(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != p.scheme || hostPort(u) != p.host {
		return false
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	return path == p.path || strings.HasPrefix(path, p.path+"/")
}
