// Package addressfilter keeps programs that fetch what outsiders name away from addresses inside: those of
// this machine, of the local network and of the metadata services of clouds.
//
// The decision falls when a connection is made, on the address that it is made to: a name is looked up once,
// and neither a redirect nor a second answer of the name server gets past it.
package addressfilter

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// Filter refuses addresses that are not public. It may be used by many goroutines at once. A nil Filter
// refuses what the zero one does.
type Filter struct {
	networks []netip.Prefix
	hosts    map[string]bool // lower case: names, and addresses with a port
}

// New returns a filter that makes exceptions: allow has addresses, networks such as "10.0.0.0/8", and hosts.
// A host is allowed whatever its name stands for; with a port, "127.0.0.1:8000", only at that port.
func New(allow ...string) (*Filter, error) {
	f := &Filter{hosts: map[string]bool{}}
	for _, a := range allow {
		if network, err := netip.ParsePrefix(a); err == nil {
			f.networks = append(f.networks, network.Masked())
			continue
		}
		if addr, err := netip.ParseAddr(strings.Trim(a, "[]")); err == nil {
			addr = addr.Unmap()
			f.networks = append(f.networks, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			host, port = a, ""
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			host = ""
		}
		if host == "" || strings.ContainsAny(host, "/ *@:") {
			return nil, fmt.Errorf("%q is no address, network or host; write 10.1.2.3, 10.0.0.0/8, host.internal or host.internal:8080", a)
		}
		f.hosts[strings.ToLower(strings.TrimSuffix(host, "."))+suffix(port)] = true
	}
	return f, nil
}

func suffix(port string) string {
	if port == "" {
		return ""
	}
	return ":" + port
}

// With returns f with further exceptions, as of New.
func (f *Filter) With(allow ...string) (*Filter, error) {
	g, err := New(allow...)
	if err != nil || f == nil {
		return g, err
	}
	g.networks = append(g.networks, f.networks...)
	for h := range f.hosts {
		g.hosts[h] = true
	}
	return g, nil
}

// Error says that an address is refused. It is no failure of the network: another try has the same end.
type Error struct {
	Address netip.Addr
	Kind    string // what the address is, such as "a loopback address"
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s is %s, which is not connected to unless it is allowed", e.Address, e.Kind)
}

// Check returns an *Error if addr is not public and not allowed. Exceptions for hosts do not count.
func (f *Filter) Check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	kind := kindOf(addr)
	if kind == "" {
		return nil
	}
	if f != nil {
		for _, n := range f.networks {
			if n.Contains(addr) {
				return nil
			}
		}
	}
	return &Error{addr, kind}
}

// Dial returns the DialContext of d, which must have no Control of its own, with the filter in it. Where the
// filter refuses one of the addresses of a name, the others are tried.
func (f *Filter) Dial(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	checked := *d
	checked.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("check address %s: %w", address, err)
		}
		return f.Check(at.Addr())
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if f.allows(address) {
			return d.DialContext(ctx, network, address)
		}
		return checked.DialContext(ctx, network, address)
	}
}

// allows reports whether there is an exception for a "host:port".
func (f *Filter) allows(address string) bool {
	if f == nil {
		return false
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return f.hosts[host] || f.hosts[host+":"+port]
}
