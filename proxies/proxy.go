package proxies

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"muster/proxies/probe"
	"muster/proxies/source"
)

// Candidate is an endpoint from a list of proxies.
type Candidate = source.Candidate

// A Proxy is a member of the pool: an endpoint that passed a check. It contains credentials: print it with String,
// not by field.
type Proxy struct {
	ID        string             `json:"id"`
	Candidate                    // with the detected protocol
	Exit      netip.Addr         `json:"exit_ip,omitzero"`
	Rotating  bool               `json:"rotating,omitzero"`
	Anonymity string             `json:"anonymity,omitempty"`
	Tunnel    bool               `json:"tunnel,omitzero"`
	Tampering []string           `json:"tampering,omitempty"` // with plain HTTP; see probe.Result
	Can       probe.Capabilities `json:"can"`
	ASN       uint               `json:"asn,omitzero"`
	ASOrg     string             `json:"as_org,omitempty"`
	LatencyMS float64            `json:"latency_ms,omitzero"` // to the first byte, including connection and handshake
	CheckedAt time.Time          `json:"checked_at,omitzero"`
}

// proxyOf returns the pool member for a result, which must be alive.
func proxyOf(r probe.Result) Proxy {
	c := r.Candidate
	c.Protocol, c.Known, c.Unlisted = r.Protocol, false, false
	return Proxy{
		ID: candidateID(c), Candidate: c, Exit: r.Exit, Rotating: r.Rotating, Anonymity: r.Anonymity, Tunnel: r.Tunnel, Tampering: r.Tampering, Can: r.Can,
		CheckedAt: r.CheckedAt, LatencyMS: math.Round((r.Latency.Connect+r.Latency.Handshake+r.Latency.FirstByte)*10) / 10,
	}
}

// candidateID returns the ID of the pool member for a candidate whose label is correct, from protocol, host, port, user and variant.
// The user is hashed, because it is an account name with paid gateways.
func candidateID(c Candidate) string {
	id := c.Protocol + "://" + c.Address()
	if c.Username != "" {
		sum := sha256.Sum256([]byte(c.Username))
		id += "#" + hex.EncodeToString(sum[:4])
	}
	if c.Variant != "" {
		id += "~" + c.Variant
	}
	return id
}

// Usable reports whether the proxy hides our address. A proxy of unknown anonymity is usable.
func (p Proxy) Usable() bool { return p.Anonymity != probe.Transparent }

// onlyHTTPS reports whether the proxy supports only https: it tunnels to port 443 only and alters forwarded
// responses.
func (p *Proxy) onlyHTTPS() bool { return p.Can.HTTPS && !p.Can.Forward && !p.Can.Connect }

// A Filter selects proxies. The zero value selects all that are not transparent.
type Filter struct {
	Protocols  []string // allowed protocols. Defaults to all
	Countries  []string // allowed two-letter codes. Defaults to all
	Anonymity  string   // minimum grade: "transparent", "anonymous" or "elite"; any other value selects no proxy. Defaults to anonymous
	HTTPS      bool     // TLS is known to work
	Connect    bool     // it is not known to reject tunnels
	Plain      bool     // it is not known to reject plain HTTP
	MaxLatency time.Duration
	Banned     bool // includes proxies banned from all sites; for lists only, picks never return them
}

// Everything selects all members, for lists.
var Everything = Filter{Anonymity: probe.Transparent, Banned: true}

var anonymityRank = map[string]int{probe.Transparent: 0, "": 1, probe.Anonymous: 1, probe.Elite: 2}

// matches reports whether the filter selects the proxy, according to its last check.
func (f *Filter) matches(p *Proxy) bool {
	want, known := anonymityRank[f.Anonymity]
	switch {
	case !known, anonymityRank[p.Anonymity] < want, f.HTTPS && !p.Can.HTTPS, f.Connect && p.Can.Forward && !p.Can.Connect,
		f.Plain && p.onlyHTTPS():
		return false
	case len(f.Protocols) > 0 && !slices.Contains(f.Protocols, p.Protocol):
		return false
	case len(f.Countries) > 0 && !slices.Contains(f.Countries, p.Country):
		return false
	}
	return f.MaxLatency == 0 || p.LatencyMS > 0 && p.LatencyMS <= float64(f.MaxLatency)/float64(time.Millisecond)
}

// compareLatency sorts by latency. Proxies without a latency are last.
func compareLatency(a, b Proxy) int {
	key := func(p Proxy) float64 {
		if p.LatencyMS <= 0 {
			return math.Inf(1)
		}
		return p.LatencyMS
	}
	return cmp.Or(cmp.Compare(key(a), key(b)), strings.Compare(a.ID, b.ID))
}
