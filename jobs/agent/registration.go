package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/internal/clip"
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
	Name     string            `json:"name"`             // unique name of up to MaxName characters. Required, except in Config.Static: there it defaults to role and URL.
	Roles    []string          `json:"roles"`            // 1 to MaxRoles roles of up to 40 lower-case letters, digits, _ and -
	Capacity int               `json:"capacity"`         // maximum number of concurrent assignments, up to MaxCapacity. Defaults to 1.
	URL      string            `json:"url,omitempty"`    // http or https URL; work is pushed to URL/assignments. Defaults to none: the agent polls.
	Labels   map[string]string `json:"labels,omitempty"` // up to 20 labels for display. Defaults to none.
	Secret   string            `json:"secret,omitempty"` // key for signing requests; only in Config.Static. Defaults to none: requests are not signed.
	// Owner is the only agent key that may replace the registration, act for the agent and read its jobs. Defaults to the current
	// owner, and in Config.Static to none: only operators act for the agent.
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
	if err := checkURL(r.URL); err != nil {
		return none, err
	}
	r.Roles = slices.Compact(slices.Sorted(slices.Values(r.Roles)))
	r.Capacity, r.URL, r.Labels, r.Secret, r.Owner = max(r.Capacity, 1), strings.TrimRight(r.URL, "/"), maps.Clone(r.Labels), "", ""
	return record{Registration: r}, nil
}

func checkURL(text string) error {
	if text == "" {
		return nil
	}
	if err := webhook.CheckURL(text); err != nil {
		return bad("url", "%v", err)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || !isPlainText(text):
		return bad("url", "this is not a URL")
	case u.RawQuery != "" || u.ForceQuery:
		return bad("url", "give a URL without query")
	case slices.Contains(strings.Split(u.Path, "/"), "..") || slices.Contains(strings.Split(u.Path, "/"), "."):
		return bad("url", "give a path without . and ..")
	}
	return nil
}

// staticRecord returns the record of an agent of the configuration.
func staticRecord(r Registration) (record, error) {
	if r.Name == "" && r.URL != "" {
		r.Name = clip.Bytes(strings.Join(r.Roles, "+")+" "+r.URL, MaxName)
		if sum := sha256.Sum256([]byte(r.URL)); strings.TrimSpace(r.Name) != r.Name || len(strings.Join(r.Roles, "+")+" "+r.URL) > MaxName {
			r.Name = "agent " + hex.EncodeToString(sum[:8])
		}
	}
	rec, err := r.check()
	if err != nil {
		return rec, err
	}
	rec.Owner = r.Owner
	if rec.URL != "" && r.Secret != "" {
		if err := webhook.CheckSecret(r.Secret); err != nil {
			return rec, bad("secret", "%v", err)
		}
		rec.Secret = r.Secret
	}
	return rec, nil
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
	if err := checkURL(text); err != nil || text == "" {
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
