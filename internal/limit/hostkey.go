package limit

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// ParseHostKey returns the host of a URL as a key for limits: in lower case and punycode, without credentials and
// trailing dot, IPv6 in brackets, and with the port only if it is not the default port of the scheme. The scheme is
// optional. The key of an empty string is empty, for which callers apply no limit. If the string is not a URL, the
// key is the string without credentials, and the error is not nil.
func ParseHostKey(rawURL string) (string, error) {
	s := strings.TrimSpace(rawURL)
	if s == "" {
		return "", nil
	}
	key, err := hostKey(s)
	if err != nil {
		return withoutUser(s), err
	}
	return key, nil
}

// hostKey returns the key of a URL. Its errors contain nothing of the URL except the port, because credentials may
// occur anywhere.
func hostKey(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		// url.Parse parses "example.com/path" as a path, and "example.com:80" as a URL with scheme example.com.
		if strings.Contains(s, "://") {
			return "", noHost(err)
		}
		if u, err = url.Parse("//" + strings.TrimPrefix(s, "//")); err != nil || u.Host == "" {
			return "", noHost(err)
		}
	}
	host := strings.TrimRight(strings.ToLower(u.Hostname()), ".")
	if host == "" {
		return "", noHost(nil)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
		if ip.Is6() {
			host = "[" + host + "]"
		}
	} else if strings.Contains(host, ":") {
		return "", errors.New("the host contains colons but is not an IPv6 address")
	} else if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	if len(host) > 253 {
		return "", fmt.Errorf("the host has %d bytes; the maximum is 253", len(host))
	}
	if p := u.Port(); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n > 65535 {
			return "", fmt.Errorf("the port %.20s is above 65535", p)
		}
		if !isDefaultPort(u.Scheme, n) {
			host += ":" + strconv.Itoa(n)
		}
	}
	return host, nil
}

func noHost(err error) error {
	if err != nil {
		return errors.New("invalid URL")
	}
	return errors.New("the URL has no host")
}

// withoutUser removes possible credentials from a string that is not a URL.
func withoutUser(s string) string {
	at := strings.LastIndex(s, "@")
	if at < 0 {
		return s
	}
	scheme, _, found := strings.Cut(s[:at], "://")
	if !found {
		return s[at+1:]
	}
	return scheme + "://" + s[at+1:]
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
