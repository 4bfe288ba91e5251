package probe

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// sentHeaders holds the names of the headers of our requests.
var sentHeaders = func() map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(knownHeaders) {
		name, _, _ := strings.Cut(line, ":")
		names[strings.ToLower(name)] = true
	}
	return names
}()

// connectionHeaders are the request headers that HTTP software sets or drops for its own connection, with the values
// common to all clients. A change of any other header reveals a proxy, known to us or not.
var connectionHeaders = map[string]*regexp.Regexp{
	"connection":      regexp.MustCompile(`(?i)^(close|keep-alive)$`),
	"keep-alive":      regexp.MustCompile(`(?i)^(\d+|(timeout|max)=\d+(, *(timeout|max)=\d+)?)$`),
	"accept-encoding": regexp.MustCompile(`(?i)^([a-z*]{1,8}(;q=[01](\.\d{1,3})?)?(, *|$))*$`),
	"content-length":  regexp.MustCompile(`^0$`),
	"cache-control":   regexp.MustCompile(`(?i)^max-age=\d+$`), // squid, which adds no other header
}

// requestLine is the name of the request line in the results of grade.
const requestLine = "(request line)"

// grade compares a request received through the proxy with the baseline. added lists the headers that were added,
// changed or dropped.
func grade(baseline, through *Echo, real []netip.Addr) (anonymity string, added []string) {
	shown, marked := slices.Contains(real, through.Peer), false
	note := func(name, value string) {
		added = append(added, http.CanonicalHeaderKey(name))
		shown = shown || showsAny(value, real)
		allowed := connectionHeaders[name]
		marked = marked || allowed == nil || value != "" && !allowed.MatchString(value)
	}
	before := map[string][]string{}
	for _, h := range baseline.Headers {
		name := strings.ToLower(h[0])
		before[name] = append(before[name], h[1])
	}
	for _, h := range through.Headers {
		name, value := strings.ToLower(h[0]), h[1]
		known := before[name]
		switch i := slices.Index(known, value); {
		case name == "host": // the judge's own address
		case i >= 0:
			before[name] = slices.Delete(known, i, i+1)
		case len(known) > 0 && !sentHeaders[name]: // added by a reverse proxy of the judge, to direct requests too
			shown = shown || showsAny(value, real)
		default:
			note(name, value)
		}
	}
	for name, rest := range before {
		if len(rest) > 0 && sentHeaders[name] {
			note(name, "")
		}
	}
	if through.target() != baseline.target() {
		note(requestLine, through.target())
	}
	slices.Sort(added)
	added = slices.Compact(added)
	switch {
	case shown:
		return Transparent, added
	case marked:
		return Anonymous, added
	}
	return Elite, added
}

// target returns the request line without the nonce and the HTTP version, which belongs to a single connection.
func (e *Echo) target() string {
	line := strings.ReplaceAll(e.Line, e.Nonce, "")
	return line[:max(strings.LastIndexByte(line, ' '), 0)]
}

// showsAny reports whether a header value contains one of our addresses.
func showsAny(value string, real []netip.Addr) bool {
	return slices.ContainsFunc(addressTokens(value), func(addr netip.Addr) bool { return slices.Contains(real, addr) })
}

// addressTokens returns the IP addresses that are separate tokens of a header value, with or without a port.
func addressTokens(value string) []netip.Addr {
	var found []netip.Addr
	add := func(token string) bool {
		if addr, err := netip.ParseAddr(token); err == nil {
			found = append(found, addr.Unmap().WithZone(""))
			return true
		}
		if pair, err := netip.ParseAddrPort(token); err == nil {
			found = append(found, pair.Addr().Unmap().WithZone(""))
			return true
		}
		return false
	}
	split := func(separators string) {
		for token := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
			if !add(token) { // an IPv4 address may precede a port or a full stop
				add(strings.TrimRight(token, ".:"))
			}
		}
	}
	split(" \t,;=\"'()<>|/")    // keeps [v6]:port whole
	split(" \t,;=\"'()<>|/[]")  // for a bare [v6]
	split(" \t,;=\"'()<>|/[]:") // for v4:suffix
	return found
}

// sameNetwork reports whether exit is in the network of one of our addresses.
func sameNetwork(exit netip.Addr, real []netip.Addr) bool {
	return slices.ContainsFunc(real, func(own netip.Addr) bool { return networkOf(own).Contains(exit) })
}
