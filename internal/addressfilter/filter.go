// Package addressfilter keeps programs that fetch what outsiders name away from addresses inside: those of
// this machine, of the local network and of the metadata services of clouds.
//
// The decision falls when a connection is made, on the address that it is made to: a name is looked up once,
// and neither a redirect nor a second answer of the name server gets past it.
package addressfilter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Filter refuses addresses that are not public. It may be used by many goroutines at once. A nil Filter
// refuses what the zero one does.
type Filter struct {
	networks []netip.Prefix
	hosts    map[string]bool // by hostKey
}

// New returns a filter that makes exceptions: allow has addresses, networks such as "10.0.0.0/8", and hosts.
// A host is allowed whatever its name stands for; with a port, "127.0.0.1:8000", only at that port, and only when
// it is connected to by what is written here: "127.0.0.1:8000" is no exception for a name that stands for it.
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
		_, err = netip.ParseAddr(host)
		if host == "" || err != nil && strings.ContainsAny(host, "/ *@:[]") {
			return nil, fmt.Errorf("%q is no address, network or host; write 10.1.2.3, 10.0.0.0/8, host.internal or host.internal:8080", a)
		}
		f.hosts[hostKey(host, port)] = true
	}
	return f, nil
}

// hostKey is how an exception for a host is stored; port may be "".
func hostKey(host, port string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().WithZone("").String()
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)
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

// WithURLs returns f with an exception for the host and port of each URL whose host is an address or localhost.
// Whoever wrote such a URL meant that address, and no answer of a name server can change it. Other URLs, and what
// is no URL with a host, are left out.
func (f *Filter) WithURLs(urls ...string) *Filter {
	g, _ := f.With() // which has nothing to refuse
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		host, port := u.Hostname(), u.Port()
		if !isLiteral(host) {
			continue
		}
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		if port != "" {
			g.hosts[hostKey(host, port)] = true
		}
	}
	return g
}

// isLiteral reports whether no answer of a name server decides what a host stands for.
func isLiteral(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// Local are the networks of this machine and of private networks, as exceptions for New.
func Local() []string {
	return []string{"127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}
}

// Error says that an address is refused. It is no failure of the network: another try has the same end.
type Error struct {
	Address netip.Addr
	Kind    Kind
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s is %s: see network.allow", e.Address, e.Kind)
}

// Is reports whether err is that of an address that a Filter refused.
func Is(err error) bool { return errors.As(err, new(*Error)) }

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

// Transport returns a transport that connects where f allows it, without a proxy, whatever the environment says: what
// a proxy connects to nobody could check here.
func (f *Filter) Transport() *http.Transport {
	return &http.Transport{
		DialContext:           f.Dial(&net.Dialer{Timeout: 30 * time.Second}),
		TLSHandshakeTimeout:   10 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		ExpectContinueTimeout: time.Second,
		ForceAttemptHTTP2:     true,
	}
}

// DialNames is Dial for addresses only that names stand for: an address that is written as one, and localhost, are
// connected to in any case. It is for those who check what is written at another place.
func (f *Filter) DialNames(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := f.Dial(d)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(address); err == nil && isLiteral(host) {
			return d.DialContext(ctx, network, address)
		}
		return dial(ctx, network, address)
	}
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
	return f.hosts[hostKey(host, "")] || f.hosts[hostKey(host, port)]
}
