package definition

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// isTracker reports whether a query parameter, in lower case, only serves tracking and never changes the page.
func isTracker(name string) bool {
	switch name {
	case "gclid", "fbclid", "msclkid", "yclid", "dclid", "mc_cid", "mc_eid", "_ga", "_gl", "igshid", "phpsessid", "jsessionid", "cfid", "cftoken":
		return true
	}
	return strings.HasPrefix(name, "utm_") || strings.HasPrefix(name, "aspsessionid")
}

// Canonical returns the canonical form of a URL: scheme and host in lower case and ASCII, no default port, no fragment, dot
// segments resolved, escapes normalized, and the query sorted, without parameters that do not identify pages.
func (d *Definition) Canonical(u *url.URL) string {
	c := *u
	c.Scheme = strings.ToLower(c.Scheme)
	host := asciiHost(c.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if p := c.Port(); p != "" && !(c.Scheme == "http" && p == "80") && !(c.Scheme == "https" && p == "443") {
		host += ":" + p
	}
	c.Host, c.Fragment, c.RawFragment, c.User = host, "", "", nil
	p := NormalEscapes(c.EscapedPath())
	if i := strings.Index(strings.ToLower(p), ";jsessionid="); i >= 0 {
		p = p[:i]
	}
	if p == "" {
		p = "/"
	}
	p = withoutDots(p)
	s := c.Scheme + "://" + host + p
	if q := d.canonicalQuery(c.RawQuery); q != "" {
		s += "?" + q
	}
	return s
}

// asciiHost normalizes a host without a port: lower case, ASCII, no final dot.
func asciiHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		return ascii
	}
	return host
}

// withoutDots resolves the segments . and .. of a path.
func withoutDots(p string) string {
	var out []string
	segments := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}

func (d *Definition) canonicalQuery(raw string) string {
	var kept []string
	for pair := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if n, err := url.QueryUnescape(name); err == nil {
			name = n
		}
		if pair == "" || isTracker(strings.ToLower(name)) || isDropped(name, d.Scope.DropParams) {
			continue
		}
		kept = append(kept, NormalEscapes(strings.ReplaceAll(pair, "+", "%20")))
	}
	slices.SortStableFunc(kept, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
	return strings.Join(kept, "&")
}

func isDropped(name string, list []string) bool {
	name = strings.ToLower(name) // an entry of list that ends in * is a prefix
	return slices.ContainsFunc(list, func(t string) bool {
		if prefix, ok := strings.CutSuffix(strings.ToLower(t), "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return strings.EqualFold(name, t)
	})
}

// NormalEscapes normalizes the escapes in a part of a URL: it decodes unreserved characters, writes hexadecimal digits in upper
// case and escapes invalid characters.
func NormalEscapes(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		escape := c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>'
		if c == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				c, escape = byte(n), !unreserved(byte(n))
				i += 2
			}
		}
		if escape {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
