package source

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// token parses an endpoint in one of these forms: [scheme://][user:pass@]host:port, host:port:user:pass,
// user:pass:host:port, host:port@user:pass. It returns false if word has none of them.
func (p *parser) token(word, label string) bool {
	c := Candidate{Protocol: protocolOf(label)}
	if scheme, rest, ok := strings.Cut(word, "://"); ok {
		if c.Protocol = protocolOf(scheme); c.Protocol == "" {
			return false
		}
		word = rest
		if end := strings.IndexAny(word, "/?#"); end >= 0 && !strings.Contains(word[end:], "@") {
			word = word[:end]
		}
	}
	if at := strings.LastIndexByte(word, '@'); at >= 0 {
		left, right := word[:at], word[at+1:]
		host, port, ok := hostPort(right)
		if !ok { // host:port@user:pass
			host, port, ok = hostPort(left)
			left = right
		}
		if ok {
			user, password, _ := strings.Cut(left, ":")
			c.Username, c.Password = unescape(user), unescape(password)
			c.Host = host
			p.add(c, port)
			return true
		}
	}
	if host, port, ok := hostPort(word); ok {
		c.Host = host
		if bareName := !strings.ContainsAny(host, ".["); bareName && c.Protocol == "" && !p.AllowLocal {
			// text such as "note:1" is not counted as an endpoint
			return false
		}
		p.add(c, port)
		return true
	}
	parts := strings.SplitN(word, ":", 4) // the password may contain colons
	if len(parts) != 4 || strings.HasPrefix(word, "[") || isIPv6(word) {
		return false
	}
	switch {
	case looksLikeHost(parts[0]) && strings.Contains(parts[0], ".") && isNumber(parts[1]):
		c.Host, c.Username, c.Password = parts[0], unescape(parts[2]), unescape(parts[3])
		p.add(c, parts[1])
	case looksLikeHost(parts[2]) && strings.Contains(parts[2], ".") && isNumber(parts[3]):
		c.Host, c.Username, c.Password = parts[2], unescape(parts[0]), unescape(parts[1])
		p.add(c, parts[3])
	default:
		return false
	}
	return true
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

// cutNetwork splits an endpoint such as 1.2.3.0/30:80.
func cutNetwork(s string) (network, port string, ok bool) {
	network, port, _ = strings.Cut(s, ":")
	addr, bits, _ := strings.Cut(network, "/")
	return network, port, isQuad(addr) && isDigits(bits) && len(bits) <= 2 && isDigits(port)
}

// expand adds the hosts of an IPv4 network.
func (p *parser) expand(network, port string) bool {
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		return false
	}
	bits := prefix.Addr().BitLen() - prefix.Bits()
	if bits > 16 {
		return false
	}
	left := 1 << bits
	for addr := prefix.Masked().Addr(); left > 0 && p.expanded < p.Max; addr = addr.Next() {
		p.add(Candidate{Host: addr.String()}, port)
		p.expanded++
		left--
	}
	if left > 0 {
		p.out.Rejects[Capped] += left
	}
	return true
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
