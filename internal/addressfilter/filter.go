// Package addressfilter prevents connections to internal addresses in programs that fetch untrusted URLs: addresses of this
// machine, of the local network and of cloud metadata services.
//
// The filter checks the address of each connection when it is established. A name is resolved once, so neither a redirect nor a
// second DNS response bypasses the filter.
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

// Filter rejects addresses that are not public. It is safe for concurrent use. A nil Filter behaves like the zero Filter.
type Filter struct {
	networks []netip.Prefix
	hosts    map[string]bool // by hostKey
}

// New returns a filter with exceptions: addresses, networks such as "10.0.0.0/8", and hosts. A host is allowed whatever its name
// resolves to. With a port, such as "127.0.0.1:8000", it is allowed only on that port, and only if the connection is made to the
// host as written: "127.0.0.1:8000" does not allow a name that resolves to it.
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
			return nil, fmt.Errorf("invalid address, network or host %q: use 10.1.2.3, 10.0.0.0/8, host.internal or host.internal:8080", a)
		}
		f.hosts[hostKey(host, port)] = true
	}
	return f, nil
}

// hostKey returns the key of an exception for a host; port may be "".
func hostKey(host, port string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().WithZone("").String()
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)
}

// With returns a copy of f with further exceptions; see New.
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

// WithURLs returns a copy of f with an exception for the host and port of each URL whose host is an address or localhost. The author
// of such a URL chose that address, and DNS cannot change it. Other URLs, and strings without a host, are ignored.
func (f *Filter) WithURLs(urls ...string) *Filter {
	g, _ := f.With() // cannot fail without exceptions
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		if host, port := u.Hostname(), portOf(u); isLiteral(host) && port != "" {
			g.hosts[hostKey(host, port)] = true
		}
	}
	return g
}

// isLiteral reports whether the address of a host does not depend on DNS.
func isLiteral(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// Local returns loopback and private networks as exceptions for New.
func Local() []string {
	return []string{"127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}
}

// Error means that an address is rejected. It is permanent: another attempt returns the same error.
type Error struct {
	Host    string // name that resolves to Address, or ""
	Address netip.Addr
	Kind    Kind
}

// Error contains the host or, without a host, the address.
func (e *Error) Error() string {
	if e.Host != "" {
		return fmt.Sprintf("%s resolves to %s: see network.allow", e.Host, e.Kind)
	}
	return fmt.Sprintf("%s is %s: see network.allow", e.Address, e.Kind)
}

// Is reports whether err is or wraps an *Error.
func Is(err error) bool { return errors.As(err, new(*Error)) }

// Check returns an *Error if addr is not public and not allowed. It ignores exceptions for hosts.
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
	return &Error{Address: addr, Kind: kind}
}

// CheckURL returns an *Error if the host of a URL is an address or localhost that f does not allow. Other hosts are checked when a
// connection is established.
func (f *Filter) CheckURL(u *url.URL) error {
	host := u.Hostname()
	if !isLiteral(host) || f.allows(net.JoinHostPort(host, portOf(u))) {
		return nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil { // localhost
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return f.Check(addr)
}

// portOf returns the port of a URL, or "".
func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// Transport returns a transport that connects only to addresses that f allows. It ignores the proxies of the environment, because f
// cannot check the addresses to which a proxy connects.
func (f *Filter) Transport() *http.Transport {
	return &http.Transport{
		DialContext:           f.Dial(&net.Dialer{Timeout: 30 * time.Second}),
		TLSHandshakeTimeout:   10 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		ExpectContinueTimeout: time.Second,
		ForceAttemptHTTP2:     true,
	}
}

// DialNames is like Dial, but checks only the addresses of names: hosts that are an address or localhost are always allowed. It is
// for callers that check such hosts elsewhere.
func (f *Filter) DialNames(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := f.Dial(d)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(address); err == nil && isLiteral(host) {
			return d.DialContext(ctx, network, address)
		}
		return dial(ctx, network, address)
	}
}

// Dial returns the DialContext of d with the filter; d must not have a Control function. If the filter rejects an address of a name,
// the next one is tried. Errors are redacted; see Redact.
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
		by := &checked
		if f.allows(address) {
			by = d
		}
		conn, err := by.DialContext(ctx, network, address)
		if err != nil {
			host, _, _ := net.SplitHostPort(address) // without a host, err is about the address
			return nil, Redact(err, host)
		}
		return conn, nil
	}
}

// Redact removes the address of the name server from an error of resolving or dialing a host and, if host is a name, its address if
// that is not public. Such errors are visible to clients.
func Redact(err error, host string) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		redacted := *dns
		redacted.Server, redacted.Err = "", "the name server failed"
		switch {
		case dns.IsNotFound:
			redacted.Err = "no such host"
		case dns.IsTimeout:
			redacted.Err = "timeout of the name server"
		}
		return &redacted
	}
	if isLiteral(host) {
		return err
	}
	if refused, ok := errors.AsType[*Error](err); ok {
		return &Error{Host: host, Address: refused.Address, Kind: refused.Kind}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if at, ok := op.Addr.(*net.TCPAddr); ok && kindOf(at.AddrPort().Addr().Unmap()) != "" {
			return fmt.Errorf("%s %s: %w", op.Op, host, op.Err)
		}
	}
	return err
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
