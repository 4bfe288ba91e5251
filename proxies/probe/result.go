package probe

import (
	"encoding/json"
	"math"
	"net/netip"
	"time"

	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// Reason is the machine-readable reason why a candidate is rejected.
type Reason = tunnel.Reason

// Reasons in addition to the reasons of package tunnel.
const (
	NotProxy   Reason = "not_a_proxy" // it responds, but not with the judge's response
	Forged     Reason = "forged"      // a judge's response to another request, or with an invalid signature
	Injects    Reason = "injects"     // it modifies responses
	MITM       Reason = "mitm"        // it presents its own certificate for the target
	OwnNetwork Reason = "own_network" // its exit address is ours or in our network
)

// Grades of anonymity towards a plain HTTP site.
const (
	Transparent = "transparent" // the site sees our address
	Anonymous   = "anonymous"   // the site can detect a proxy
	Elite       = "elite"       // the site cannot detect a proxy
)

// Kinds of tampering with plain HTTP responses.
const (
	TamperBody   = "body"   // changes, truncates or replaces the body
	TamperStatus = "status" // changes the status code
	TamperCache  = "cache"  // serves cached responses despite no-store
)

// A Result is the outcome of probing one candidate.
type Result struct {
	Candidate source.Candidate `json:"candidate"`         // the candidate passed to the prober
	Protocol  string           `json:"protocol"`          // the detected protocol: http, https, socks4, socks4a or socks5; the label's if it is dead
	Alive     bool             `json:"alive"`             // the judge was reached and its responses arrived unmodified
	Reason    Reason           `json:"reason,omitempty"`  // why it is dead or rejected
	Detail    string           `json:"detail,omitempty"`  // the observed details
	Status    int              `json:"status,omitempty"`  // status code of the target; see Target
	Exit      netip.Addr       `json:"exit,omitzero"`     // exit address
	Rotating  bool             `json:"rotating,omitzero"` // the exit address varies between requests
	Anonymity string           `json:"anonymity,omitempty"`
	Tunnel    bool             `json:"tunnel,omitzero"`     // it supports tunnels only, so it cannot add headers
	Added     []string         `json:"added,omitempty"`     // request headers that it adds or changes
	Tampering []string         `json:"tampering,omitempty"` // the Tamper constants that apply
	Can       Capabilities     `json:"can"`
	Latency   Latency          `json:"latency"`
	CheckedAt time.Time        `json:"checked_at"`
}

// MarshalJSON omits the candidate's password, because results are printed and logged.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	r.Candidate.Password = ""
	return json.Marshal(plain(r))
}

// Accepted reports whether the pool accepts the proxy: it is alive and has no reason. Transparent proxies are
// accepted, but not usable.
func (r *Result) Accepted() bool { return r.Alive && r.Reason == "" }

// Usable reports whether the proxy is accepted and not transparent.
func (r *Result) Usable() bool { return r.Accepted() && r.Anonymity != Transparent }

// Capabilities are the features of a proxy that were observed to work.
type Capabilities struct {
	Forward bool `json:"forward,omitzero"` // HTTP requests in absolute form, with unmodified responses
	Connect bool `json:"connect,omitzero"` // tunnels by CONNECT or SOCKS; without Forward and Connect, only HTTPS works
	HTTPS   bool `json:"https,omitzero"`   // TLS through a tunnel, with the expected certificate
	// HTTPSUnknown means that HTTPS could not be tested: the proxy refuses tunnels to the judge's TLS port, which is
	// not 443, or the judge does not support TLS.
	HTTPSUnknown bool `json:"https_unknown,omitzero"`
	Auth         bool `json:"auth,omitzero"` // it accepted the credentials
}

// Latency holds the durations of the phases of the first successful exchange, in milliseconds.
type Latency struct {
	Connect   float64 `json:"connect_ms,omitzero"`    // TCP connection to the proxy
	Handshake float64 `json:"handshake_ms,omitzero"`  // setup of the tunnel: TLS to the proxy, CONNECT or SOCKS
	TLS       float64 `json:"tls_ms,omitzero"`        // TLS handshake with the judge through the tunnel
	FirstByte float64 `json:"first_byte_ms,omitzero"` // from the request to the first byte of the response
	Total     float64 `json:"total_ms,omitzero"`
}

// milliseconds returns d in milliseconds, rounded to a tenth.
func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*10) / 10
}
