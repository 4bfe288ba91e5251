package probe

import (
	"encoding/json"
	"math"
	"net/netip"
	"time"

	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// Reason says in one word why a candidate is rejected.
type Reason = tunnel.Reason

// Reasons beyond those of package tunnel.
const (
	NotProxy   Reason = "not_a_proxy" // it answers, but not with the judge's answer
	Forged     Reason = "forged"      // an answer of a judge, but to another request or with a wrong signature
	Injects    Reason = "injects"     // it changes what passes through it
	MITM       Reason = "mitm"        // it presents a certificate of its own for the target
	OwnNetwork Reason = "own_network" // it leaves by our own address or network
)

// Grades of anonymity, towards a plain http site.
const (
	Transparent = "transparent" // the site sees our address
	Anonymous   = "anonymous"   // the site sees that there is a proxy
	Elite       = "elite"       // the site sees nothing
)

// What a proxy does to the answers of plain http that pass through it.
const (
	TamperBody    = "body"    // it changes, cuts or replaces them
	TamperStatus  = "status"  // it answers another status than the site
	TamperCache   = "cache"   // it answers from a cache, though the site forbids that
	TamperHeaders = "headers" // it adds, changes or drops headers beyond those that are a proxy's to add
)

// Result is what a probe has found out about one candidate.
type Result struct {
	Candidate source.Candidate `json:"candidate"`         // as given
	Protocol  string           `json:"protocol"`          // as found: http, https, socks4, socks4a or socks5; the label's when it is dead
	Alive     bool             `json:"alive"`             // the judge has been reached through it, and its answers came unchanged
	Reason    Reason           `json:"reason,omitempty"`  // why it is dead, or alive and yet rejected
	Detail    string           `json:"detail,omitempty"`  // what exactly was seen
	Status    int              `json:"status,omitempty"`  // that the target answered; see Target
	Exit      netip.Addr       `json:"exit,omitzero"`     // where it leaves
	Rotating  bool             `json:"rotating,omitzero"` // its exit changes from request to request
	Anonymity string           `json:"anonymity,omitempty"`
	Tunnel    bool             `json:"tunnel,omitzero"`     // it only tunnels, so it cannot add headers
	Added     []string         `json:"added,omitempty"`     // headers that it adds or changes
	Tampering []string         `json:"tampering,omitempty"` // what it does to plain http, of the Tamper words
	Can       Capabilities     `json:"can"`
	Latency   Latency          `json:"latency"`
	CheckedAt time.Time        `json:"checked_at"`
}

// MarshalJSON leaves the candidate's password out: results are for people and logs.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	r.Candidate.Password = ""
	return json.Marshal(plain(r))
}

// Accepted reports whether the pool takes the proxy: alive and without a reason. A transparent one is accepted;
// Usable excludes it.
func (r *Result) Accepted() bool { return r.Alive && r.Reason == "" }

// Usable is Accepted and not transparent.
func (r *Result) Usable() bool { return r.Accepted() && r.Anonymity != Transparent }

// Capabilities are what has been seen to work.
type Capabilities struct {
	Forward bool `json:"forward,omitzero"` // http requests in absolute form, whose answers arrive unchanged
	Connect bool `json:"connect,omitzero"` // tunnels, by CONNECT or SOCKS; without Forward and Connect, HTTPS is all
	HTTPS   bool `json:"https,omitzero"`   // TLS through a tunnel, with the right certificate
	// HTTPSUnknown says that HTTPS could not be seen: it refuses tunnels to the port on which the judge speaks TLS, which
	// is not 443, or the judge speaks none.
	HTTPSUnknown bool `json:"https_unknown,omitzero"`
	IPv6         bool `json:"ipv6,omitzero"` // reaches IPv6 targets
	Auth         bool `json:"auth,omitzero"` // was given credentials and took them
}

// Latency is what the parts of the probe's first good exchange took, in milliseconds.
type Latency struct {
	Connect   float64 `json:"connect_ms,omitzero"`    // TCP to the proxy
	Handshake float64 `json:"handshake_ms,omitzero"`  // the tunnel: TLS with the proxy, CONNECT or SOCKS
	TLS       float64 `json:"tls_ms,omitzero"`        // TLS with the judge, through the tunnel
	FirstByte float64 `json:"first_byte_ms,omitzero"` // from the request to the first byte of the answer
	Total     float64 `json:"total_ms,omitzero"`
}

// milliseconds rounds to a tenth.
func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*10) / 10
}
