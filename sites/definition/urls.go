package definition

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Base returns the URL that start URLs are relative to.
func (d *Definition) Base() *url.URL {
	if d.rebase != nil {
		return d.rebase
	}
	u, _ := url.Parse(d.BaseURL) // validated at load
	return u
}

// Rebased returns the argument of WithBase, or "".
func (d *Definition) Rebased() string {
	if d.rebase == nil {
		return ""
	}
	return d.rebase.String()
}

// WithBase returns a copy of d for another instance of the site, such as a mirror: base replaces base_url for relative start
// URLs, for URLs at base_url and in the scope. An empty base changes nothing.
func (d *Definition) WithBase(base string) (*Definition, error) {
	if base == "" {
		return d, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, &Problem{Text: "invalid base URL: must be an http or https URL with a host and without a login"}
	}
	u.Path = cmp.Or(u.Path, "/")
	c := *d
	old, _ := url.Parse(d.BaseURL)
	c.rebase = u
	c.Hosts = slices.DeleteFunc(slices.Clone(d.Hosts), func(h string) bool { return old != nil && h == hostOf(old) })
	c.Hosts = append(c.Hosts, hostOf(u))
	return &c, nil
}

// Move returns the URL of a page on the instance given to WithBase, or u without one.
func (d *Definition) Move(u *url.URL) *url.URL {
	if d.rebase == nil {
		return u
	}
	old, err := url.Parse(d.BaseURL)
	if err != nil || hostOf(u) != hostOf(old) {
		return u
	}
	moved := *u
	moved.Scheme, moved.Host = d.rebase.Scheme, d.rebase.Host
	rest := strings.TrimPrefix(u.Path, strings.TrimSuffix(old.Path, "/"))
	moved.Path = strings.TrimSuffix(d.rebase.Path, "/") + "/" + strings.TrimPrefix(rest, "/")
	moved.RawPath = ""
	return &moved
}

// resolve returns the URL of a reference in the definition, or "" without one.
func (d *Definition) resolve(ref string) string {
	u, err := d.Base().Parse(ref)
	if err != nil || ref == "" {
		return "" // checked at load
	}
	return d.Move(u).String()
}

// SessionStart returns the first URL of a session, or "".
func (d *Definition) SessionStart() string {
	if d.Session == nil {
		return ""
	}
	return d.resolve(d.Session.Start)
}

// StartPage is a start page.
type StartPage struct {
	URL   string
	Kind  string
	Post  Post
	Start int // index of its entry in Definition.Start, from 1
}

// StartPages returns the start pages, in order.
func (d *Definition) StartPages() []StartPage {
	var pages []StartPage
	add := func(start int, ref, kind string, post Post) {
		if at := d.resolve(ref); at != "" {
			pages = append(pages, StartPage{at, cmp.Or(kind, KindListing), post, start + 1})
		}
	}
	for i, s := range d.Start {
		if s.Sitemap != "" {
			add(i, s.Sitemap, KindSitemap, Post{})
			continue
		}
		if s.Template == "" {
			add(i, s.URL, s.As, s.post(s.From))
			continue
		}
		for n := s.From; n <= s.To; n += max(s.Step, 1) {
			add(i, fill(s.Template, n), s.As, s.post(n))
		}
	}
	return pages
}

// InSitemap reports whether the URL of a sitemap must be fetched. start is StartPage.Start of the sitemap or of the index that
// led to it. If start is 0, all URLs are allowed.
func (d *Definition) InSitemap(start int, u *url.URL) bool {
	if start < 1 || start > len(d.Start) {
		return true
	}
	allow := &d.Start[start-1].Allow
	return allow.IsZero() || allow.MatchString(u.String())
}

// hostOf returns a URL's host in the notation of Hosts: with its port unless that is 80 or 443.
func hostOf(u *url.URL) string {
	host, port := asciiHost(u.Hostname()), portOf(u)
	if port == "80" || port == "443" {
		return host
	}
	return net.JoinHostPort(host, port)
}

// portOf returns the port of an http or https URL.
func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// SplitHost splits an entry of Hosts into name and port; a port of "" means 80 and 443.
func SplitHost(h string) (name, port string) {
	if name, port, err := net.SplitHostPort(h); err == nil {
		return name, port
	}
	return h, ""
}

// OwnURLs returns the URLs in the definition: its base, start pages, sitemaps, session.start and session.login.
func (d *Definition) OwnURLs() []string {
	urls := []string{d.Base().String()}
	for _, s := range d.Start {
		ref := s.URL + s.Sitemap
		if s.Template != "" {
			ref = fill(s.Template, s.From)
		}
		urls = append(urls, d.resolve(ref))
	}
	urls = append(urls, d.SessionStart(), d.LoginURL())
	return slices.DeleteFunc(urls, func(at string) bool { return at == "" })
}

// OwnsHost reports whether u is an http or https URL whose host and port are in Hosts.
func (d *Definition) OwnsHost(u *url.URL) bool {
	if u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	host, port := asciiHost(u.Hostname()), portOf(u)
	standard := port == "80" || port == "443"
	return slices.ContainsFunc(d.Hosts, func(h string) bool {
		name, at := SplitHost(h)
		if at != port && !(at == "" && standard) {
			return false
		}
		if wild, ok := strings.CutPrefix(name, "*."); ok {
			return host == wild || strings.HasSuffix(host, "."+wild)
		}
		return host == name
	})
}

// InScope reports whether u belongs to the site: OwnsHost is true and Scope allows the URL.
func (d *Definition) InScope(u *url.URL) bool {
	if !d.OwnsHost(u) {
		return false
	}
	text := u.String()
	for _, p := range d.Scope.Deny {
		if p.MatchString(text) {
			return false
		}
	}
	return len(d.Scope.Allow) == 0 || slices.ContainsFunc(d.Scope.Allow, func(p Pattern) bool { return p.MatchString(text) })
}
