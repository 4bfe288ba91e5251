package probe

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"

	"muster/internal/addressfilter"
	"muster/proxies/tunnel"
)

// Config says how to probe.
type Config struct {
	// Judges are the URLs of judges, http://host:port, the first that answers being used. An IPv6 one is also used to
	// see who reaches IPv6. Needed.
	Judges []string
	// Key is the judges' key. Defaults to none.
	Key string
	// Target, if set, is what candidates are checked against, and no judge is asked or needed: a result then has only its
	// protocol, latency, status and reason. Defaults to none.
	Target *Target
	// RealAddresses are addresses of ours that a judge cannot see, such as that of another uplink. Defaults to none.
	RealAddresses []netip.Addr
	// OwnBits4 and OwnBits6 are the size of what counts as our own network. Default to 24 and 48.
	OwnBits4, OwnBits6 int
	// ConnectTimeout bounds TCP to the candidate. It decides how long a run takes. Defaults to 4 s.
	ConnectTimeout time.Duration
	// GreetingTimeout bounds the first answer of a SOCKS server. Defaults to a third of TotalTimeout.
	GreetingTimeout time.Duration
	// AnswerTimeout bounds every other wait for an answer. Defaults to two thirds of TotalTimeout.
	AnswerTimeout time.Duration
	// TotalTimeout bounds all attempts with a candidate together, and then the checks of one that works. Defaults to 12 s.
	TotalTimeout time.Duration
	// Tries is how often Each probes a candidate that gives no answer; one that has worked before is probed at least
	// twice. Defaults to 1.
	Tries int
	// Concurrency is how many candidates Each probes at once; the file limit may lower it. Defaults to 256.
	Concurrency int
	// PerNetwork is how many of them may be in the same /24 or /48, or ports of the same name; loopback is exempt.
	// Defaults to 32.
	PerNetwork int
	// Filter says which addresses that are not public the names of candidates may stand for. A candidate that is written
	// as an address or localhost is probed in any case. Defaults to none.
	Filter *addressfilter.Filter
	// Dial reaches candidates and judges. Defaults to a net.Dialer, for candidates with Filter.
	Dial tunnel.DialFunc
	// Logger defaults to none.
	Logger *slog.Logger

	dialCandidate tunnel.DialFunc
}

func (c Config) withDefaults() Config {
	c.OwnBits4 = cmp.Or(c.OwnBits4, 24)
	c.OwnBits6 = cmp.Or(c.OwnBits6, 48)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 4*time.Second)
	c.TotalTimeout = cmp.Or(c.TotalTimeout, 12*time.Second)
	c.GreetingTimeout = cmp.Or(c.GreetingTimeout, c.TotalTimeout/3)
	c.AnswerTimeout = cmp.Or(c.AnswerTimeout, 2*c.TotalTimeout/3)
	c.Tries = cmp.Or(c.Tries, 1)
	c.Concurrency = cmp.Or(c.Concurrency, 256)
	c.PerNetwork = cmp.Or(c.PerNetwork, 32)
	c.dialCandidate = c.Dial
	if c.Dial == nil {
		d := &net.Dialer{KeepAlive: -1}
		c.Dial, c.dialCandidate = d.DialContext, c.Filter.DialNames(d)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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
			return fmt.Errorf("probe: judge %q must be http://host:port", judge)
		}
	}
	if c.OwnBits4 < 0 || c.OwnBits4 > 32 || c.OwnBits6 < 0 || c.OwnBits6 > 128 {
		return fmt.Errorf("probe: OwnBits4 %d must be 0 to 32 and OwnBits6 %d 0 to 128", c.OwnBits4, c.OwnBits6)
	}
	if c.Concurrency < 1 || c.PerNetwork < 1 {
		return fmt.Errorf("probe: Concurrency %d and PerNetwork %d must be at least 1", c.Concurrency, c.PerNetwork)
	}
	if c.Tries < 1 || min(c.ConnectTimeout, c.GreetingTimeout, c.AnswerTimeout, c.TotalTimeout) <= 0 {
		return fmt.Errorf("probe: Tries %d must be at least 1, and ConnectTimeout %s, GreetingTimeout %s, AnswerTimeout %s and TotalTimeout %s more than 0",
			c.Tries, c.ConnectTimeout, c.GreetingTimeout, c.AnswerTimeout, c.TotalTimeout)
	}
	return nil
}
