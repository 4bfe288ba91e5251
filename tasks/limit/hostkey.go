package limit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// HostKey is ParseHostKey that logs its error as a warning.
func HostKey(rawURL string) string {
	key, err := ParseHostKey(rawURL)
	if err != nil {
		slog.Warn("cannot read the host of a URL; the limit is of the whole text", "key", key, "err", err)
	}
	return key
}

// ParseHostKey returns the host of a URL, for limits per host: lower
// case, punycode, without credentials or trailing dot, IPv6 in brackets, and
// with the port only if it is not the scheme's own. A URL without a scheme is
// read as if it had one. The key of an empty text is empty: the caller applies no
// limit. The key of a text that is not a URL is the text without credentials, and
// the error says why.
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

// hostKey returns errors that contain nothing of the URL but its port: it may
// have credentials anywhere.
func hostKey(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		// "example.com/path" is a path to url.Parse, and "example.com:80" has a
		// scheme of example.com.
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
		return "", errors.New("the host has colons and is not an IPv6 address")
	} else if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	if len(host) > 253 {
		return "", fmt.Errorf("the host has %d bytes; names have 253 at most", len(host))
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
		return errors.New("it cannot be read as a URL")
	}
	return errors.New("the URL has no host")
}

// withoutUser removes what may be credentials from a text that is not a URL.
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
