package probe

import (
	"slices"
	"strings"
)

// A mode is a way to use an endpoint as a proxy.
type mode struct {
	scheme  string
	forward bool // an HTTP request in absolute form instead of a tunnel
}

// isTunnelOverHTTP reports whether m uses CONNECT.
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

// family returns the wire protocol of m. A server that times out for one mode of a family does so for all of them.
func (m mode) family() string {
	return strings.TrimSuffix(strings.TrimSuffix(m.scheme, "s"), "a")
}

// modesFor returns the modes in the order in which to try them for a label. In most lists an https label means
// CONNECT, rarely TLS to the proxy. A TLS server rejects plain HTTP immediately, so plain HTTP comes first there too.
// Without a label, HTTP comes before SOCKS: SOCKS servers close the connection on HTTP, while HTTP and SOCKS4 servers
// wait for the rest of a SOCKS5 greeting.
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
