package main

import (
	"net/netip"
	"strings"
)

// withoutPassword returns a proxy argument for a message, without a possible password.
func withoutPassword(word string) string {
	scheme, rest, ok := strings.Cut(word, "://")
	if !ok {
		scheme, rest = "", word
	} else {
		scheme += "://"
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		address := rest[i+1:]
		if host, _, _ := strings.Cut(address, ":"); !strings.ContainsAny(host, ".[") { // host:port@user:password
			address = "***"
		}
		return scheme + "***@" + address
	}
	if _, err := netip.ParseAddr(rest); err == nil {
		return word
	}
	if host, more, ok := strings.Cut(rest, ":"); ok && strings.Contains(more, ":") && !strings.ContainsAny(rest, "[/") {
		return scheme + host + ":***" // host:port:user:password
	}
	return word
}
