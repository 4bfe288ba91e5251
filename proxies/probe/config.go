package probe

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/addressfilter"
	"muster/proxies/tunnel"
)

// Config configures a Prober.
type Config struct {
	// Judges are the URLs of judges, such as http://host:port. The first reachable one is used.
	// Required unless Target is set.
	Judges []string
	// Key is the signing key of the judges. Defaults to none.
	Key string
	// Target, if set, replaces the judges: candidates are checked against it, and their results have only a protocol,
	// latency, status and reason. Defaults to none.
	Target *Target
	// ConnectTimeout limits the TCP connection to a candidate. It dominates the duration of a run. Defaults to 4 s.
	ConnectTimeout time.Duration
	// GreetingTimeout limits the first response of a SOCKS server. Defaults to a third of TotalTimeout.
	GreetingTimeout time.Duration
	// ResponseTimeout limits every other wait for a response. Defaults to two thirds of TotalTimeout.
	ResponseTimeout time.Duration
	// TotalTimeout limits all attempts with a candidate, and then the checks of a live one. Defaults to 12 s.
	TotalTimeout time.Duration
	// Tries is how often Each probes a candidate that times out. Known candidates are probed at least twice. Defaults
	// to 1.
	Tries int
	// Concurrency is the number of candidates that Each probes in parallel. The file descriptor limit may lower it.
	// Defaults to 256.
	Concurrency int
	// PerNetwork limits the concurrent probes of each /24 or /48 and of each host name. Loopback is exempt. Defaults
	// to 32.
	PerNetwork int
	// Filter selects the non-public addresses to which the names of candidates may resolve. It does not apply to
	// literal addresses and localhost. Defaults to none.
	Filter *addressfilter.Filter
	// Dial connects to candidates and judges. Defaults to a net.Dialer, with Filter applied for candidates.
	Dial tunnel.DialFunc
	// Logger defaults to none.
	Logger *slog.Logger

	dialCandidate tunnel.DialFunc
}

func (c Config) withDefaults() Config {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 4*time.Second)
	c.TotalTimeout = cmp.Or(c.TotalTimeout, 12*time.Second)
	c.GreetingTimeout = cmp.Or(c.GreetingTimeout, c.TotalTimeout/3)
	c.ResponseTimeout = cmp.Or(c.ResponseTimeout, 2*c.TotalTimeout/3)
	c.Tries = cmp.Or(c.Tries, 1)
	c.Concurrency = cmp.Or(c.Concurrency, 256)
	c.PerNetwork = cmp.Or(c.PerNetwork, 32)
	c.dialCandidate = c.Dial
	if c.Dial == nil {
		d := &net.Dialer{KeepAlive: -1}
		c.Dial, c.dialCandidate = d.DialContext, c.Filter.DialNames(d)
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if c.Target != nil {
		if err := c.Target.validate(); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
	} else if len(c.Judges) == 0 {
		return fmt.Errorf("probe: Judges is empty: %w", ErrJudge)
	}
	for _, judge := range c.Judges {
		u, err := url.Parse(judge)
		if err != nil || u.Scheme != "http" || u.Hostname() == "" {
			return fmt.Errorf("probe: invalid judge %q: must be http://host:port", judge)
		}
	}
	if c.Concurrency < 1 || c.PerNetwork < 1 {
		return fmt.Errorf("probe: Concurrency %d and PerNetwork %d must be at least 1", c.Concurrency, c.PerNetwork)
	}
	if c.Tries < 1 || min(c.ConnectTimeout, c.GreetingTimeout, c.ResponseTimeout, c.TotalTimeout) <= 0 {
		return fmt.Errorf("probe: Tries %d must be at least 1, and ConnectTimeout %s, GreetingTimeout %s, ResponseTimeout %s and TotalTimeout %s positive",
			c.Tries, c.ConnectTimeout, c.GreetingTimeout, c.ResponseTimeout, c.TotalTimeout)
	}
	return nil
}

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
