package addressfilter

import (
	"net/netip"
	"strings"
)

// Kind describes an address, as a complement in a sentence: "a loopback address".
type Kind string

// The kinds of internal networks; other kinds have no constant.
const (
	Loopback  Kind = "a loopback address"
	Private   Kind = "a private address"
	LinkLocal Kind = "a link-local address"
	Shared    Kind = "a shared address of a provider"
)

// special lists the networks without public servers from the IANA special-purpose address registries:
// https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
var special = []struct {
	network netip.Prefix
	kind    Kind
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), Private},
	{netip.MustParsePrefix("100.64.0.0/10"), Shared}, // includes the metadata service of Alibaba
	{netip.MustParsePrefix("127.0.0.0/8"), Loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), LinkLocal}, // the metadata service of most clouds
	{netip.MustParsePrefix("168.63.129.16/32"), "an address of Azure's own services"},
	{netip.MustParsePrefix("172.16.0.0/12"), Private},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.168.0.0/16"), Private},
	{netip.MustParsePrefix("198.18.0.0/15"), "an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"}, // includes broadcast

	{netip.MustParsePrefix("::1/128"), Loopback},
	{netip.MustParsePrefix("::/96"), "a reserved address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), Private},
	{netip.MustParsePrefix("100::/64"), "a reserved address"},
	{netip.MustParsePrefix("2001::/23"), "a reserved address"}, // includes Teredo, whose IPv4 address is obfuscated
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
	{netip.MustParsePrefix("5f00::/16"), "a reserved address"},
	{netip.MustParsePrefix("fc00::/7"), Private}, // includes the metadata service of Amazon
	{netip.MustParsePrefix("fe80::/10"), LinkLocal},
	{netip.MustParsePrefix("fec0::/10"), Private},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// embedding lists the IPv6 networks whose addresses contain an IPv4 address, with its byte offset.
var embedding = []struct {
	network netip.Prefix
	at      int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // SIIT
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
}

// kindOf returns the kind of an address, or "" for a public address.
func kindOf(addr netip.Addr) Kind {
	if !addr.IsValid() {
		return "no address"
	}
	for _, e := range embedding {
		if e.network.Contains(addr) {
			raw := addr.As16()
			return kindOf(netip.AddrFrom4([4]byte(raw[e.at : e.at+4])))
		}
	}
	for _, s := range special {
		if s.network.Contains(addr) {
			return s.kind
		}
	}
	return ""
}

// IsLoopback reports whether a host, without a port or brackets, is localhost or a loopback address. For other names it
// returns false, whatever they resolve to.
func IsLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}
