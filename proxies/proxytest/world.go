package proxytest

import (
	"fmt"
	"net/netip"
	"strings"

	"muster/proxies/probe"
)

// A World is a judge and a mix of running proxies. Stop it with Close.
type World struct {
	Judge   *probe.JudgeServer
	Key     string // the signing key of the judge
	Proxies []*Proxy
}

// first is the start of the mix, with each kind at least once; rest is repeated afterwards.
var (
	first = []Options{
		{Kind: Elite}, {Kind: Anonymous}, {Kind: Transparent}, {Kind: SOCKS5}, {Kind: OwnNetwork}, {Kind: Dead}, {Kind: Silent}, {Kind: Slow},
		{Kind: Parking}, {Kind: ConnectOnly}, {Kind: ForwardOnly}, {Kind: SOCKS5, User: "world", Password: "p@ss:w/rd"},
		{Kind: Elite, User: "world", Password: "p@ss:w/rd"}, {Kind: SOCKS4A}, {Kind: OverTLS}, {Kind: Rotating}, {Kind: Injector}, {Kind: MITM},
		{Kind: HangsUp}, {Kind: Forbidding}, {Kind: WantsAuth}, {Kind: BadGateway}, {Kind: HalfResponse}, {Kind: Noise}, {Kind: SOCKS4},
	}
	rest = []Options{
		{Kind: Elite}, {Kind: SOCKS5}, {Kind: Anonymous}, {Kind: Elite}, {Kind: Transparent}, {Kind: Dead},
		{Kind: SOCKS5}, {Kind: Elite}, {Kind: Anonymous}, {Kind: OwnNetwork}, {Kind: ConnectOnly}, {Kind: Parking},
	}
)

// NewWorld starts a world of n proxies that resolve the names in hosts. The first 40 include each kind that a single
// check can detect.
func NewWorld(n int, hosts Hosts) (*World, error) {
	const key = "world"
	judge, err := probe.StartJudge(probe.JudgeConfig{Key: key})
	if err != nil {
		return nil, err
	}
	w := &World{Judge: judge, Key: key}
	for i := range n {
		o := Options{}
		if i < len(first) {
			o = first[i]
		} else {
			o = rest[(i-len(first))%len(rest)]
		}
		o.Exit, o.Hosts = ExitAddress(i), hosts
		p, err := Start(o)
		if err != nil {
			w.Close()
			return nil, err
		}
		w.Proxies = append(w.Proxies, p)
	}
	return w, nil
}

// ExitAddress returns the i-th of 60,000 loopback addresses, each in a different /24.
func ExitAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(16 + i/250%180), byte(1 + i%250), 7})
}

// Close stops the proxies and the judge.
func (w *World) Close() {
	for _, p := range w.Proxies {
		p.Close()
	}
	_ = w.Judge.Close()
}

// List returns the proxies as a typical public list: one per line, in several formats, with correct, wrong and
// missing labels.
func (w *World) List() string {
	var b strings.Builder
	b.WriteString("# proxies of the loopback world\n")
	for i, p := range w.Proxies {
		switch {
		case p.User != "" && i%2 == 0:
			fmt.Fprintf(&b, "%s:%s:%s\n", p.URL.Host, p.User, p.Password)
		case i%3 == 1 && p.User == "":
			fmt.Fprintf(&b, "%s\n", p.URL.Host)
		case i%7 == 3 && p.User == "" && p.URL.Scheme == "socks5":
			fmt.Fprintf(&b, "http://%s\n", p.URL.Host)
		default:
			fmt.Fprintf(&b, "%s\n", p.URL)
		}
	}
	return b.String()
}

// Expectation is the expected result of a check.
type Expectation struct {
	Alive     bool
	Accepted  bool // alive and not rejected
	Reason    probe.Reason
	Anonymity string
	Protocol  string // "" if it is dead
	HTTPS     bool   // HTTPS works through it
}

// Usable reports whether the proxy is accepted and not transparent.
func (e Expectation) Usable() bool { return e.Accepted && e.Anonymity != probe.Transparent }

// Expect returns the expected result for the proxy when checked with its credentials.
func (p *Proxy) Expect() Expectation {
	good := Expectation{Alive: true, Accepted: true, Anonymity: probe.Elite, Protocol: "http", HTTPS: true}
	switch p.Kind {
	case Elite, Slow, Rotating, ConnectOnly, Injector:
	case Anonymous, Transparent:
		good.Anonymity = string(p.Kind)
	case ForwardOnly:
		good.HTTPS = false
	case OverTLS:
		good.Protocol = "https"
	case SOCKS5, SOCKS4, SOCKS4A:
		good.Protocol = string(p.Kind)
	case OwnNetwork:
		good.Accepted, good.Reason, good.Anonymity = false, probe.OwnNetwork, probe.Transparent
	case MITM:
		good.Accepted, good.Reason, good.HTTPS = false, probe.MITM, false
	default:
		return Expectation{Reason: map[Kind]probe.Reason{
			Dead: "refused", Silent: "timeout", Dribble: "timeout", HangsUp: "closed",
			Forbidding: "denied", WantsAuth: "auth_required", BadGateway: "upstream", HalfResponse: "closed",
			Noise: "garbage", Endless: "garbage", Parking: probe.NotProxy, Redirecting: probe.NotProxy,
			Huge: probe.NotProxy, Replays: probe.Forged,
		}[p.Kind]}
	}
	return good
}
