package redisd

import (
	"net/url"
	"strings"
)

// Redact returns the address with masked passwords, for logs and messages.
func Redact(address string) string { return mask(address, "xxxxx") }

// withoutPassword returns the address without passwords.
func withoutPassword(address string) string { return mask(address, "") }

// mask replaces the passwords in an address with password, or removes them if it is "".
func mask(address, password string) string {
	const unreadable = "(unreadable address)"
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return unreadable
	}
	cut := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		cut = i
	}
	hosts, tail := rest[:cut], rest[cut:]
	login := ""
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		login, hosts = hosts[:i], hosts[i+1:]
	}
	u, err := url.Parse("x:" + tail)
	if err != nil || strings.ContainsAny(hosts, " %") || strings.Contains(tail, "@") {
		return unreadable // it may contain part of a password
	}
	if user, _, ok := strings.Cut(login, ":"); ok {
		login = user
		if password != "" {
			login += ":" + password
		}
	}
	if login != "" {
		login += "@"
	}
	q := u.Query()
	for key := range q {
		if strings.Contains(strings.ToLower(key), "password") {
			if q.Del(key); password != "" {
				q.Set(key, password)
			}
		}
	}
	path, _, _ := strings.Cut(tail, "?")
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return scheme + "://" + login + hosts + path
}
