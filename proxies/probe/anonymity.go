package probe

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxyHeaders tell a site that there is a proxy, whatever their value. A trailing * stands for any ending.
var proxyHeaders = []string{
	"via", "forwarded", "x-forwarded*", "x-real-ip", "client-ip", "x-client-ip", "x-proxyuser-ip", "cf-connecting-ip",
	"true-client-ip", "x-cluster-client-ip", "proxy-*", "x-proxy-*", "x-bluecoat-via", "x-originating-ip", "x-remote-*",
	"x-cache*", "x-tinyproxy", "wl-proxy-client-ip", "xroxy-connection", "mt-proxy-id", "pragma-proxy",
}

// grade compares what the judge saw through the proxy with what it sees without one. It goes by whole address tokens and
// whole header names: "1.2.3.4" is not in "11.2.3.45", and "Trivia" is no "Via".
func grade(baseline, through *Echo, real []netip.Addr) (anonymity string, added []string) {
	if slices.Contains(real, through.Peer) {
		anonymity = Transparent
	}
	before := map[string][]string{}
	for _, h := range baseline.Headers {
		name := strings.ToLower(h[0])
		before[name] = append(before[name], h[1])
	}
	marked := false
	for _, h := range through.Headers {
		name, value := strings.ToLower(h[0]), h[1]
		if name == "host" { // is the judge's own address
			continue
		}
		known := before[name]
		if slices.Contains(known, value) {
			continue
		}
		added = append(added, http.CanonicalHeaderKey(h[0]))
		for _, token := range addressTokens(value) {
			if slices.Contains(real, token) {
				anonymity = Transparent
			}
		}
		switch {
		case isProxyHeader(name), name == "user-agent":
			marked = true
		case name == "connection" && strings.Contains(strings.ToLower(value), "proxy-"):
			marked = true
		}
	}
	slices.Sort(added)
	added = slices.Compact(added)
	switch {
	case anonymity != "":
		return anonymity, added
	case marked:
		return Anonymous, added
	}
	return Elite, added
}

func isProxyHeader(name string) bool {
	return slices.ContainsFunc(proxyHeaders, func(known string) bool {
		if prefix, open := strings.CutSuffix(known, "*"); open {
			return strings.HasPrefix(name, prefix)
		}
		return name == known
	})
}

// addressTokens returns every IP address that stands in a header value as a token of its own, with or without a port.
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
			if !add(token) { // a v4 address may stand before a port or a full stop
				add(strings.TrimRight(token, ".:"))
			}
		}
	}
	split(" \t,;=\"'()<>|/")    // keeps [v6]:port whole
	split(" \t,;=\"'()<>|/[]")  // and finds a bare [v6]
	split(" \t,;=\"'()<>|/[]:") // and v4 with something glued on by a colon
	return found
}

// sameNetwork tells whether exit lies in the network of one of our own addresses.
func sameNetwork(exit netip.Addr, real []netip.Addr, bits4, bits6 int) bool {
	for _, own := range real {
		bits := bits4
		if own.Is6() {
			bits = bits6
		}
		if network, err := own.Prefix(bits); err == nil && network.Contains(exit) {
			return true
		}
	}
	return false
}
