package limit

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// HostKey names the host that a URL leads to, for limits per host: lower case,
// punycode, without credentials or trailing dot, IPv6 in brackets, and with the
// port only if it is not the scheme's own. A URL without a scheme is read as if
// it had one. Empty in, empty out: the caller applies no limit. What is no URL
// is its own key, whole.
func HostKey(rawURL string) string {
	s := strings.TrimSpace(rawURL)
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		// "example.com/path" is a path to url.Parse, and "example.com:80" has a
		// scheme of example.com.
		if strings.Contains(s, "://") {
			return s
		}
		if u, err = url.Parse("//" + strings.TrimPrefix(s, "//")); err != nil || u.Host == "" {
			return s
		}
	}
	host := strings.TrimRight(strings.ToLower(u.Hostname()), ".")
	if host == "" {
		return s
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
		if ip.Is6() {
			host = "[" + host + "]"
		}
	} else if strings.Contains(host, ":") {
		return s
	} else if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	if p := u.Port(); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n > 65535 {
			return s
		}
		if !isDefaultPort(u.Scheme, n) {
			host += ":" + strconv.Itoa(n)
		}
	}
	return host
}

func isDefaultPort(scheme string, port int) bool {
	switch strings.ToLower(scheme) {
	case "https", "wss":
		return port == 443
	case "http", "ws", "":
		return port == 80
	}
	return false
}
