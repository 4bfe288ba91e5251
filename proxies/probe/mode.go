package probe

import (
	"slices"
	"strings"
)

// mode is how an endpoint is used.
type mode struct {
	scheme  string
	forward bool // an http request in absolute form, rather than a tunnel
}

// isTunnelOverHTTP reports whether it is CONNECT.
func (m mode) isTunnelOverHTTP() bool {
	return !m.forward && (m.scheme == "http" || m.scheme == "https")
}

func (m mode) String() string {
	if m.forward {
		return m.scheme + " GET"
	}
	if m.isTunnelOverHTTP() {
		return m.scheme + " CONNECT"
	}
	return m.scheme
}

// family is the modes of one wire protocol: a server that does not answer one mode of a family answers none of it.
func (m mode) family() string {
	return strings.TrimSuffix(strings.TrimSuffix(m.scheme, "s"), "a")
}

// modesFor orders the modes to try by the label. An https label stands for CONNECT in most lists and seldom for TLS
// with the proxy; a TLS server turns plain HTTP away at once, so plain HTTP comes first there too. HTTP comes before
// SOCKS when there is no label: SOCKS servers hang up on HTTP, while HTTP servers wait for the rest of a SOCKS greeting,
// as SOCKS4 servers do.
func modesFor(label string) []mode {
	http := []mode{{"http", true}, {"http", false}, {"https", true}, {"https", false}}
	socks5 := []mode{{"socks5", false}}
	socks4 := []mode{{"socks4a", false}, {"socks4", false}}
	switch label {
	case "socks5", "socks5h":
		return slices.Concat(socks5, http, socks4)
	case "socks4", "socks4a":
		return slices.Concat(socks4, http, socks5)
	}
	return slices.Concat(http, socks5, socks4)
}
