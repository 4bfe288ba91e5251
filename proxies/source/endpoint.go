package source

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// An endpoint is a candidate as it is written in a list, not yet judged.
type endpoint struct {
	Candidate
	port      string
	loginLast bool // the login follows the port
}

// token adds the endpoint in word. It returns false if there is none.
func (p *parser) token(word, label string) bool {
	e, ok := p.endpoint(word, label)
	if ok {
		p.add(e.Candidate, e.port)
	}
	return ok
}

// endpoint parses an endpoint in one of these forms, with or without scheme://: host:port, user:pass@host:port,
// host:port@user:pass, host:port:user:pass, user:pass:host:port. Behind a scheme, a login at an @ is %-encoded.
func (p *parser) endpoint(word, label string) (e endpoint, ok bool) {
	e.Protocol = protocolOf(label)
	scheme, rest, isURL := strings.Cut(word, "://")
	if isURL {
		if e.Protocol = protocolOf(scheme); e.Protocol == "" {
			return e, false
		}
		word = cutPath(rest)
	}
	host, port, login, loginLast, isAt := atForm(word)
	h, n, l, isFirst := addressFirst(word)
	if isFirst = isFirst && (isAddress(h) || isDotted(h) && !isAt); isFirst {
		host, port, login, loginLast = h, n, l, true
	}
	if isFirst || isAt {
		e.Host, e.port, e.loginLast = host, port, loginLast
		e.Username, e.Password, _ = strings.Cut(login, ":")
		if isURL && !isFirst {
			e.Username, e.Password = unescape(e.Username), unescape(e.Password)
		}
		return e, true
	}
	if e.Host, e.port, ok = hostPort(word); ok {
		// without a scheme or a dot, text such as "note:1" is not counted as an endpoint
		return e, isDotted(e.Host) || e.Protocol != "" || p.AllowLocal
	}
	user, rest, _ := strings.Cut(word, ":")
	password, rest, _ := strings.Cut(rest, ":")
	if e.Host, e.port, ok = hostPort(rest); ok && isDotted(e.Host) {
		e.Username, e.Password = user, password
		return e, true
	}
	return e, false
}

// cutPath removes the path, query and fragment of a URL without its scheme. A login may contain their delimiters.
func cutPath(word string) string {
	end := strings.IndexAny(word, "/?#")
	if end < 0 || strings.Contains(word[end:], "@") {
		return word
	}
	_, _, _, loginLast, ok := atForm(word[:end])
	if _, _, isHost := hostPort(word[:end]); isHost || ok && !loginLast {
		return word[:end]
	}
	return word
}

// atForm splits user:pass@host:port and host:port@user:pass. If both sides may be the host, it has a dot.
func atForm(word string) (host, port, login string, loginLast, ok bool) {
	if last := strings.LastIndexByte(word, '@'); last >= 0 {
		login = word[:last]
		host, port, ok = hostPort(word[last+1:])
	}
	if left, right, found := strings.Cut(word, "@"); found && !(ok && isDotted(host)) {
		if h, n, isHost := hostPort(left); isHost && (!ok || isDotted(h)) {
			return h, n, right, true, true
		}
	}
	return host, port, login, false, ok
}

// addressFirst splits host:port:user:pass. The password may contain any character.
func addressFirst(word string) (host, port, login string, ok bool) {
	end := strings.IndexByte(word, ']') + 1 // of an IPv6 address
	colon := strings.IndexByte(word[end:], ':') + end
	if colon < end || end > 0 && colon > end {
		return "", "", "", false
	}
	port, login, _ = strings.Cut(word[colon+1:], ":")
	return word[:colon], port, login, isNumber(port) && looksLikeHost(word[:colon]) && strings.Contains(login, ":")
}

// isDotted reports whether a host is not a single label, which is also a word.
func isDotted(host string) bool { return strings.ContainsAny(host, ".[") }

// isAddress reports whether a host is an IP address.
func isAddress(host string) bool { return isQuad(host) || strings.HasPrefix(host, "[") }

// isCut reports whether a login was cut at a separator in its password: a part of it is in the words before or after
// the endpoint.
func (p *parser) isCut(e endpoint, before, after []string) bool {
	isPart := func(word string) bool {
		user, password, _ := strings.Cut(word, ":")
		_, ok := p.endpoint(word, "")
		return user != "" && password != "" && !ok
	}
	isOther := func(word string) bool {
		_, ok := p.endpoint(word, "")
		return !ok && protocolOf(word) == "" && countryOf(word) == ""
	}
	switch {
	case e.Username == "" && e.Password == "":
		return false
	case e.loginLast:
		return slices.ContainsFunc(after, isOther)
	}
	return slices.ContainsFunc(before, isPart)
}

// hostPort splits host:port. It requires a numeric port and a plausible host.
func hostPort(s string) (host, port string, ok bool) {
	colon := strings.LastIndexByte(s, ':')
	if colon <= 0 {
		return "", "", false
	}
	host, port = s[:colon], s[colon+1:]
	return host, port, isNumber(port) && looksLikeHost(host)
}

// unescape decodes valid %-encoding.
func unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

// protocolOf returns the protocol for a label, or "".
func protocolOf(word string) string {
	word = strings.ToLower(strings.TrimSpace(word))
	if word == "socks" {
		return "socks5"
	}
	if slices.Contains(Protocols, word) {
		return word
	}
	return ""
}

// countryOf returns the country code in s, alone or followed by an anonymity letter as in "BG-A", or "".
func countryOf(s string) string {
	code, anonymity, marked := strings.Cut(s, "-")
	if len(code) != 2 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	if marked && (anonymity == "" || !strings.Contains("NAH", anonymity[:1])) {
		return ""
	}
	return code
}

func looksLikeHost(s string) bool {
	if s == "" || isNumber(s) {
		return false
	}
	if strings.HasPrefix(s, "[") {
		return isIPv6(s)
	}
	return isDigitsAndDots(s) && strings.Count(s, ".") == 3 || hostName.MatchString(strings.ToLower(s))
}

func isIPv6(s string) bool {
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return err == nil && addr.Is6()
}

// isQuad reports whether s is four dot-separated numbers with up to three digits each.
func isQuad(s string) bool {
	parts := strings.Split(s, ".")
	return len(parts) == 4 && !slices.ContainsFunc(parts, func(part string) bool { return !isDigits(part) || len(part) > 3 })
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil && len(s) <= 6
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isDigitsAndDots(s string) bool { return s != "" && strings.Trim(s, "0123456789.") == "" }

// A Candidate is an endpoint from a list of proxies. It contains credentials: print it with String, not by field.
type Candidate struct {
	Protocol string   `json:"protocol,omitempty" required:"true"` // the label in the list, one of Protocols, or ""
	Host     string   `json:"host"`                               // an IP address without brackets, or a lower-case name
	Port     uint16   `json:"port"`
	Username string   `json:"username,omitempty"`
	Password string   `json:"password,omitempty"`
	Variant  string   `json:"variant,omitempty"`                // distinguishes candidates with the same address and user, such as sessions of a gateway
	Country  string   `json:"country,omitempty"`                // two letters, according to the list
	Sources  []string `json:"sources,omitempty"`                // names of the lists that contain it
	Known    bool     `json:"known,omitempty" hidden:"true"`    // it has worked before, so a retry is worthwhile
	Unlisted bool     `json:"unlisted,omitempty" hidden:"true"` // it is in no current list; Sources are from earlier lists
}

// Protocols are the labels of proxy protocols and the schemes of their URLs.
var Protocols = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// Key identifies a candidate by Protocol and Endpoint.
func (c Candidate) Key() string { return c.Protocol + "|" + c.Endpoint() }

// Endpoint identifies a candidate by host, port, user and variant, independent of its protocol and password.
func (c Candidate) Endpoint() string { return c.Address() + "|" + c.Username + "|" + c.Variant }

// Address returns host:port, with brackets around an IPv6 address.
func (c Candidate) Address() string {
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// URL returns the proxy URL with credentials. The default scheme is http.
func (c Candidate) URL() *url.URL {
	u := &url.URL{Scheme: cmp.Or(c.Protocol, "http"), Host: c.Address()}
	if c.Username != "" || c.Password != "" {
		u.User = url.UserPassword(c.Username, c.Password)
	}
	return u
}

// String returns the candidate without its password.
func (c Candidate) String() string {
	var s strings.Builder
	if c.Protocol != "" {
		s.WriteString(c.Protocol + "://")
	}
	if c.Username != "" || c.Password != "" {
		s.WriteString(url.User(c.Username).String() + ":***@")
	}
	s.WriteString(c.Address())
	if c.Variant != "" {
		s.WriteString("#" + c.Variant)
	}
	return s.String()
}

// GoString returns the same as String, so that %#v does not reveal the password.
func (c Candidate) GoString() string { return fmt.Sprintf("source.Candidate(%s)", c) }

// LogValue returns the same as String, so that logs do not reveal the password.
func (c Candidate) LogValue() slog.Value { return slog.StringValue(c.String()) }
